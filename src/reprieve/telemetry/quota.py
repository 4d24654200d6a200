"""The quota plane's metrics, with Kueue's names, labels and buckets.

All but `kueue_build_info` carry `replica_role`; ours is always the leader's. What is counted passes
through one method for each thing that happens. Gauges are shown by owner, a queue or a cohort, all
of them at once: what an owner does not show any more is removed, and so is everything of a queue
that was deleted (`forget`). Series of LocalQueues exist unless they are switched off.

Source: specification of the quota plane, sections 1.6 and 9; the reference's list of metrics.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from reprieve import __version__
from reprieve.telemetry.compact import Counters, Gauges, Histograms
from reprieve.telemetry.quota_series import COUNTERS, GAUGES, HISTOGRAMS

__all__ = ["Place", "QuotaMetrics", "Series"]

_ROLE: Final = {"replica_role": "leader"}

# A gauge's name without prefix, and the values of its labels.
Series = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Workload stands, as the labels of what is counted about it."""

    cluster_queue: str
    namespace: str
    local_queue: str
    priority_class: str


class QuotaMetrics:
    """One method for each thing that happens; instants and durations in seconds."""

    def __init__(self, registry: CollectorRegistry, *, local_queues: bool = True) -> None:
        self._local_queues = local_queues
        self._counters = {
            name: Counters(f"kueue_{name}", text, labels, _ROLE)
            for name, (text, labels) in COUNTERS.items()
            if self._exists(name)
        }
        self._histograms = {
            name: Histograms(f"kueue_{name}", text, labels, _ROLE, buckets)
            for name, (text, labels, buckets) in HISTOGRAMS.items()
            if self._exists(name)
        }
        self._gauges = {
            name: Gauges(f"kueue_{name}", text, labels, _ROLE)
            for name, (text, labels) in GAUGES.items()
            if self._exists(name)
        }
        for series in (self._counters, self._histograms, self._gauges):
            for each in series.values():
                registry.register(each)
        self._shown: dict[tuple[str, str], dict[Series, float]] = {}
        build = Gauge(
            "kueue_build_info",
            "What stands in for Kueue, and its version.",
            ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform"),
            registry=registry,
        )
        machine = f"{platform.system()}/{platform.machine()}".lower()
        compiler = platform.python_implementation().lower()
        build.labels(f"reprieve-{__version__}", "", "", "", compiler, machine).set(1)

    # What happens

    def cycle(self, seconds: float, admitted: bool) -> None:
        """Count a cycle that had heads."""
        result = "success" if admitted else "inadmissible"
        self._count("admission_attempts", result)
        self._observe("admission_attempt_duration_seconds", seconds, result)

    def skipped(self, queues: Iterable[str], counts: Mapping[str, int]) -> None:
        """Show how many preemptions the last cycle skipped."""
        for queue in queues:
            series = ("admission_cycle_preemption_skips", (queue,))
            self.show("skips", queue, {series: counts.get(queue, 0)})

    def recomputed(self, queue: str, result: str, count: int) -> None:
        """Count targets that were looked for again."""
        self._count("preemption_target_recomputations", queue, result, by=count)

    def made(self, kind: str, seconds: float) -> None:
        """Count the creation of a Workload, `seconds` after that of its job."""
        self._observe("workload_creation_latency_seconds", seconds, kind)

    def ungated(self, gate: str, queue: str, group: bool, seconds: float) -> None:
        """Count the removal of a pod's scheduling gate, `seconds` after the admission."""
        self._observe(
            "pod_scheduling_gate_removal_seconds", seconds, gate, queue, str(group).lower()
        )

    def reserved(self, place: Place, waited: float) -> None:
        """Count a reservation, `waited` since it was queued."""
        self._both("quota_reserved_workloads", place)
        self._both_observe("quota_reserved_wait_time_seconds", place, waited)

    def admitted(
        self, place: Place, waited: float, checks: float | None, cohorts: Iterable[str]
    ) -> None:
        """Count an admission.

        Args:
            place: of the Workload.
            waited: since it was queued.
            checks: since its reservation, where it had to wait for checks.
            cohorts: from that of its ClusterQueue up to the root.
        """
        self._both("admitted_workloads", place)
        self._both_observe("admission_wait_time_seconds", place, waited)
        if checks is not None:
            self._both_observe("admission_checks_wait_time_seconds", place, checks)
        for cohort in cohorts:
            self._count("cohort_subtree_admitted_workloads", cohort, place.priority_class)

    def ready(self, place: Place, queued: float, admitted: float) -> None:
        """Count a Workload whose pods became ready, so long after it was queued and admitted."""
        self._both_observe("ready_wait_time_seconds", place, queued)
        self._both_observe("admitted_until_ready_wait_time_seconds", place, admitted)

    def ended(self, place: Place, ran: float | None) -> None:
        """Count a Workload that is finished; `ran` None was never admitted."""
        self._both("finished_workloads", place)
        if ran is not None:
            self._both_observe("execution_time_seconds", place, ran)

    def preempted(self, queue: str, reason: str) -> None:
        """Count a preemption by a workload of this queue."""
        self._count("preempted_workloads", queue, reason)

    def evicted(
        self,
        place: Place,
        reason: str,
        *,
        first: bool,
        cause: str = "",
        ready_for: float | None = None,
    ) -> None:
        """Count an eviction, `first` of this reason and cause, `ready_for` since pods ran."""
        queue, name = place.cluster_queue, place.priority_class
        self._count("evicted_workloads", queue, reason, cause, name)
        if first:
            self._count("evicted_workloads_once", queue, reason, cause, name)
        if place.local_queue:
            local = (place.local_queue, place.namespace)
            self._count("local_queue_evicted_workloads", *local, reason, cause, name)
        if ready_for is not None:
            self._observe("pods_ready_to_evicted_time_seconds", ready_for, queue, reason, cause)

    def released(self, queue: str, reason: str, seconds: float) -> None:
        """Count the release of an evicted workload's quota."""
        self._observe("workload_eviction_latency_seconds", seconds, queue, reason)

    # What is

    def show(self, what: str, owner: str, values: Mapping[Series, float]) -> None:
        """Show these gauges of an owner, and none of those that it showed before as `what`."""
        before = self._shown.get((what, owner), {})
        for series, value in values.items():
            if before.get(series) != value and series[0] in self._gauges:
                self._gauges[series[0]].set(series[1], value)
        for name, labels in before.keys() - values.keys():
            if name in self._gauges:
                self._gauges[name].remove(labels)
        if values:
            self._shown[what, owner] = dict(values)
        else:
            self._shown.pop((what, owner), None)

    def forget_queue(self, queue: str) -> None:
        """Remove all series of a ClusterQueue."""
        for what in [what for what, owner in self._shown if owner == queue]:
            self.show(what, queue, {})
        for label in ("cluster_queue", "preempting_cluster_queue"):
            self._forget({label: queue})

    def forget_local_queue(self, namespace: str, name: str) -> None:
        """Remove all series of a LocalQueue."""
        key = f"{namespace}/{name}"
        for what in [what for what, owner in self._shown if owner == key]:
            self.show(what, key, {})
        self._forget({"namespace": namespace, "name": name})

    def forget_cohort(self, cohort: str) -> None:
        """Remove all series of a cohort, those that name it for a ClusterQueue apart."""
        self.show("cohort", cohort, {})
        self._forget({"cohort": cohort})

    def _forget(self, labels: Mapping[str, str]) -> None:
        counted: list[Counters | Histograms] = [*self._counters.values()]
        counted += self._histograms.values()
        for metric in counted:
            if not labels.keys() <= set(metric.labels):
                continue
            for values in metric:
                if labels.items() <= dict(zip(metric.labels, values, strict=True)).items():
                    metric.remove(values)

    def _exists(self, name: str) -> bool:
        return self._local_queues or not name.startswith("local_queue_")

    def _count(self, name: str, *labels: str, by: int = 1) -> None:
        if name in self._counters:
            self._counters[name].add(labels, by)

    def _observe(self, name: str, seconds: float, *labels: str) -> None:
        # Two clocks are compared, so that a duration may come out negative.
        if name in self._histograms:
            self._histograms[name].observe(labels, max(0.0, seconds))

    def _both(self, name: str, place: Place) -> None:
        self._count(name, place.cluster_queue, place.priority_class)
        if place.local_queue:
            local = (place.local_queue, place.namespace)
            self._count(f"local_queue_{name}", *local, place.priority_class)

    def _both_observe(self, name: str, place: Place, seconds: float) -> None:
        self._observe(name, seconds, place.cluster_queue, place.priority_class)
        if place.local_queue:
            local = (place.local_queue, place.namespace)
            self._observe(f"local_queue_{name}", seconds, *local, place.priority_class)
