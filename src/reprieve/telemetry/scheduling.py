"""The scheduling plane's metrics: kube-scheduler 1.37's names, and those of KEP-5710.

Both sets count the same things (specification, section 14). All are in the registry of the
process's `Metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["SchedulingMetrics"]

_PREFIX: Final = "scheduler"


def _exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(start * factor**power for power in range(count))


_ATTEMPT: Final = _exponential(0.001, 2, 15)
_EVALUATION: Final = _exponential(0.001, 2, 16)
_PLUGIN: Final = _exponential(0.00001, 1.5, 20)
_VICTIMS: Final = _exponential(1, 2, 11)


class SchedulingMetrics:
    """One attribute each; durations in seconds.

    `preemptor`: `pod` or `podgroup`. `result` of attempts and evaluations is a status code, of
    executions `success` or `error`, of groups' attempts `scheduled`, `unschedulable`,
    `waiting_on_preemption` or `error`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        # Release 1.37.
        self.preemption_victims = self._histogram(
            "preemption_victims", "Pods chosen by a plain pod.", _exponential(1, 2, 7)
        )
        self.preemption_attempts = self._counter(
            "preemption_attempts", "Calls of PostFilter, so for plain pods."
        )
        self.workload_attempts = self._counter(
            "workload_preemption_attempts", "Preemption attempts of groups.", "result"
        )
        self.workload_victims = self._histogram(
            "workload_preemption_victims", "Pods chosen by a group.", _VICTIMS
        )
        self.workload_disruptions = self._histogram(
            "preemption_workload_disruptions",
            "Units of type group among the victims, when above 0.",
            _VICTIMS,
            "preemptor",
        )
        self.evaluation_seconds = self._histogram(
            "preemption_evaluation_duration_seconds",
            "Time to choose victims.",
            _EVALUATION,
            "preemptor",
            "result",
        )
        self.execution_seconds = self._histogram(
            "preemption_execution_duration_seconds",
            "Time until the last victim's deletion was sent.",
            _EVALUATION,
            "preemptor",
            "result",
        )
        self.violations = self._counter(
            "preemption_pdb_violations", "Victims that broke a disruption budget.", "preemptor"
        )
        self.goroutine_seconds = self._histogram(
            "preemption_goroutines_duration_seconds",
            "Time of a preemption's execution (deprecated).",
            _exponential(0.01, 2, 20),
            "result",
        )
        self.goroutines = self._counter(
            "preemption_goroutines_execution", "Preemptions that were carried out.", "result"
        )
        self.schedule_attempts = self._counter(
            "schedule_attempts", "Attempts to schedule plain pods.", "result", "profile"
        )
        self.scheduling_seconds = self._histogram(
            "scheduling_attempt_duration_seconds",
            "Time of a plain pod's attempt.",
            _ATTEMPT,
            "result",
            "profile",
        )
        self.group_attempts = self._counter(
            "podgroup_schedule_attempts", "Attempts to schedule groups.", "result", "profile"
        )
        self.group_seconds = self._histogram(
            "podgroup_scheduling_attempt_duration_seconds",
            "Time of a group's attempt.",
            _ATTEMPT,
            "result",
            "profile",
        )
        self.group_algorithm_seconds = self._histogram(
            "podgroup_scheduling_algorithm_duration_seconds",
            "Time of a group's placement.",
            _ATTEMPT,
        )
        self.plugin_seconds = self._histogram(
            "plugin_execution_duration_seconds",
            "Time of a call of a plugin, at PodGroupPostFilter and PostFilter.",
            _PLUGIN,
            "plugin",
            "extension_point",
            "status",
        )
        self.generated_placements = self._counter(
            "generated_placements", "Candidate placements of groups.", "profile"
        )
        self.placement_evaluations = self._counter(
            "placement_evaluations", "Placements that were examined.", "result", "profile"
        )
        self.placement_seconds = self._histogram(
            "placement_evaluation_duration_seconds",
            "Time to examine placements.",
            _ATTEMPT,
            "result",
            "profile",
        )
        self.queued = self._gauge("queued_entities", "Waiting pods and groups.", "queue", "type")
        self.incoming = self._counter(
            "queue_incoming_entities", "Entries that came into a queue.", "queue", "event", "type"
        )
        self.pending_pods = self._gauge("pending_pods", "Waiting pods by queue.", "queue")
        # KEP-5710.
        self.kep_attempts = self._counter(
            "podgroup_preemption_attempts", "Preemption attempts of groups.", "result"
        )
        self.kep_seconds = self._histogram(
            "podgroup_preemption_attempt_duration_seconds",
            "Time to choose a group's victims.",
            _EVALUATION,
            "result",
        )
        self.kep_victims = self._histogram(
            "podgroup_preemption_victims", "Pods per successful attempt.", _VICTIMS
        )
        self.kep_reprieved = self._counter(
            "podgroup_preemption_reprieved", "Units that were reprieved."
        )
        self.kep_pending = self._gauge(
            "pending_entities", "Waiting pods and groups.", "queue", "type"
        )
        # Ours.
        self.preemption_gap = self._histogram(
            "preemption_gap_ratio",
            "By which share victims of profile best exceed the least possible, at most.",
            (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
        )
        self.overdue_victims = self._counter(
            "preemption_overdue_victims", "Victims that were planned around: they did not end."
        )
        self.stale_plans = self._counter(
            "stale_decisions", "Decisions dropped because the cluster had changed."
        )

    def show_queue(self, entities: Mapping[tuple[str, str], int], pods: Mapping[str, int]) -> None:
        """Show who waits where."""
        for (queue, kind), number in entities.items():
            self.queued.labels(queue, kind).set(number)
            self.kep_pending.labels(queue, kind).set(number)
        for queue, number in pods.items():
            self.pending_pods.labels(queue).set(number)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", help_text, labels, registry=self._registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", help_text, labels, registry=self._registry)

    def _histogram(
        self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(
            f"{_PREFIX}_{name}", help_text, labels, buckets=buckets, registry=self._registry
        )
