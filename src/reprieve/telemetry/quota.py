"""The quota plane's metrics, with Kueue's names and labels.

All carry `replica_role`; ours is always the leader's. Series of a ClusterQueue or LocalQueue vanish
with it (`forget`). Source: specification of the quota plane, section 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["QuotaMetrics"]

_ROLE: Final = "leader"
_WAITS: Final = (1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240)
_QUEUE: Final = "cluster_queue"
_LOCAL: Final = ("name", "namespace")


class QuotaMetrics:
    """One method for each thing that happens; instants and durations in seconds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._by_queue: list[tuple[Counter | Gauge | Histogram, int]] = []
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self._attempts = counter("admission_attempts", "Cycles, by what came of them.", "result")
        self._attempt_seconds = histogram(
            "admission_attempt_duration_seconds", "Time of a cycle.", "result"
        )
        self._reserved = counter(
            "quota_reserved_workloads", "Reservations.", _QUEUE, "priority_class"
        )
        self._admitted = counter("admitted_workloads", "Admissions.", _QUEUE, "priority_class")
        self._waited = histogram(
            "admission_wait_time_seconds",
            "From queueing to admission.",
            _QUEUE,
            "priority_class",
        )
        self._preempted = counter(
            "preempted_workloads", "Preemptions.", "preempting_cluster_queue", "reason"
        )
        evictions = ("reason", "underlying_cause", "priority_class")
        self._evicted = counter("evicted_workloads", "Evictions.", _QUEUE, *evictions)
        self._evicted_once = counter(
            "evicted_workloads_once", "Workloads evicted for the first time.", _QUEUE, *evictions
        )
        self._evicted_local = counter(
            "local_queue_evicted_workloads", "Evictions by LocalQueue.", *_LOCAL, *evictions
        )
        self._eviction_seconds = histogram(
            "workload_eviction_latency_seconds",
            "From the eviction to the release of the quota.",
            _QUEUE,
            "reason",
        )
        self._ready_to_evicted = histogram(
            "pods_ready_to_evicted_time_seconds",
            "From pods that are ready to their eviction.",
            _QUEUE,
            "reason",
            "underlying_cause",
        )
        self._skips = gauge(
            "admission_cycle_preemption_skips", "Skipped in the last cycle.", _QUEUE
        )
        self._recomputations = counter(
            "preemption_target_recomputations",
            "Targets looked for again, by what came of it.",
            _QUEUE,
            "result",
        )
        self._finished = counter("finished_workloads", "Finished workloads.", _QUEUE)
        self._pending = gauge("pending_workloads", "Workloads that wait.", _QUEUE, "status")
        self._reserving = gauge("reserving_active_workloads", "With reservation.", _QUEUE)
        self._active = gauge("admitted_active_workloads", "Admitted, not finished.", _QUEUE)
        self._status = gauge("cluster_queue_status", "1 for the one it has.", _QUEUE, "status")
        self._share = gauge("cluster_queue_weighted_share", "Share.", _QUEUE, "cohort")
        self._cohort_share = gauge("cohort_weighted_share", "Share.", "cohort")
        amounts = ("cohort", _QUEUE, "flavor", "resource")
        self._amounts = {
            name: gauge(f"cluster_queue_{name}", "Amount in base units.", *amounts)
            for name in (
                "resource_reservation",
                "resource_usage",
                "nominal_quota",
                "borrowing_limit",
                "lending_limit",
            )
        }

    def cycle(self, seconds: float, admitted: bool) -> None:
        """Count a cycle that had heads."""
        result = "success" if admitted else "inadmissible"
        self._attempts.labels(result, _ROLE).inc()
        self._attempt_seconds.labels(result, _ROLE).observe(seconds)

    def skipped(self, queues: Iterable[str], counts: Mapping[str, int]) -> None:
        """Show how many preemptions the last cycle skipped."""
        for queue in queues:
            self._skips.labels(queue, _ROLE).set(counts.get(queue, 0))

    def recomputed(self, queue: str, result: str, count: int) -> None:
        """Count targets that were looked for again."""
        self._recomputations.labels(queue, result, _ROLE).inc(count)

    def reserved(self, queue: str, priority_class: str) -> None:
        """Count a reservation."""
        self._reserved.labels(queue, priority_class, _ROLE).inc()

    def admitted(self, queue: str, priority_class: str, waited: float) -> None:
        """Count an admission."""
        self._admitted.labels(queue, priority_class, _ROLE).inc()
        self._waited.labels(queue, priority_class, _ROLE).observe(max(0.0, waited))

    def preempted(self, queue: str, reason: str) -> None:
        """Count a preemption by a workload of this queue."""
        self._preempted.labels(queue, reason, _ROLE).inc()

    def evicted(
        self,
        queue: str,
        local_queue: tuple[str, str],
        reason: str,
        priority_class: str,
        *,
        first: bool,
        cause: str = "",
        ready_for: float | None = None,
    ) -> None:
        """Count an eviction; `local_queue` is (namespace, name), `ready_for` since pods ran."""
        self._evicted.labels(queue, reason, cause, priority_class, _ROLE).inc()
        if first:
            self._evicted_once.labels(queue, reason, cause, priority_class, _ROLE).inc()
        namespace, name = local_queue
        self._evicted_local.labels(name, namespace, reason, cause, priority_class, _ROLE).inc()
        if ready_for is not None:
            self._ready_to_evicted.labels(queue, reason, cause, _ROLE).observe(ready_for)

    def released(self, queue: str, reason: str, seconds: float) -> None:
        """Count the release of an evicted workload's quota."""
        self._eviction_seconds.labels(queue, reason, _ROLE).observe(max(0.0, seconds))

    def ended(self, queue: str) -> None:
        """Count a workload that is finished."""
        self._finished.labels(queue, _ROLE).inc()

    def show_queue(
        self,
        queue: str,
        *,
        active: int,
        inadmissible: int,
        reserving: int,
        admitted: int,
        ready: bool,
    ) -> None:
        """Show the counts of a ClusterQueue."""
        self._pending.labels(queue, "active", _ROLE).set(active)
        self._pending.labels(queue, "inadmissible", _ROLE).set(inadmissible)
        self._reserving.labels(queue, _ROLE).set(reserving)
        self._active.labels(queue, _ROLE).set(admitted)
        for status in ("active", "pending", "terminating"):
            chosen = status == ("active" if ready else "pending")
            self._status.labels(queue, status, _ROLE).set(chosen)

    def show_amount(
        self, name: str, cohort: str, queue: str, flavor: str, resource: str, amount: float
    ) -> None:
        """Show an amount of a flavor and resource; `name` as in the series."""
        self._amounts[name].labels(cohort, queue, flavor, resource, _ROLE).set(amount)

    def show_share(self, queue: str, cohort: str, share: float) -> None:
        """Show the weighted share of a ClusterQueue."""
        self._share.labels(queue, cohort, _ROLE).set(share)

    def show_cohort_share(self, cohort: str, share: float) -> None:
        """Show the weighted share of a cohort."""
        self._cohort_share.labels(cohort, _ROLE).set(share)

    def forget(self, queue: str) -> None:
        """Let the series of a ClusterQueue go."""
        for metric, at in self._by_queue:
            # The client has no public way to read the label values that exist.
            for values in [v for v in metric._metrics if v[at] == queue]:
                metric.remove(*values)

    def _note(self, metric: Counter | Gauge | Histogram, labels: tuple[str, ...]) -> None:
        for position, label in enumerate(labels):
            if label in (_QUEUE, "preempting_cluster_queue"):
                self._by_queue.append((metric, position))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        found = Counter(f"kueue_{name}", text, (*labels, "replica_role"), registry=self._registry)
        self._note(found, labels)
        return found

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        found = Gauge(f"kueue_{name}", text, (*labels, "replica_role"), registry=self._registry)
        self._note(found, labels)
        return found

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        found = Histogram(
            f"kueue_{name}",
            text,
            (*labels, "replica_role"),
            buckets=_WAITS,
            registry=self._registry,
        )
        self._note(found, labels)
        return found
