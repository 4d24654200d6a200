"""Every Prometheus metric of the operator: names, labels and meaning stand here and nowhere else.

One `Metrics` is made for each process and handed to all that count; it has its own registry, so
that several operators may live in one process (tests, `reprieve up`). Labels have only values from
closed sets or configured names (sources, resources, queues), never what tenants call their work;
where a name is requested (`--named-series`) so many have series of their own, and all others one
together (`CappedNames`). Namespaces are the cluster's: of those the first thousand are named.
Counters of plans and preemptions carry the plan id as exemplar, which OpenMetrics scrapes show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from kubeworld.units.durations import SECOND
from reprieve import __version__
from reprieve.engine.diagnosis.reasons import REASONS, Reason
from reprieve.engine.plan import Plane
from reprieve.telemetry.capped_names import CappedNames
from reprieve.units.ids import PlanId

__all__ = ["IdleGpuSeconds", "Metrics", "Remembered"]

_PREFIX: Final = "reprieve"
_FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_TIMES: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0)
_NOTICES: Final = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_MOST_NAMESPACES: Final = 1_000
_SLOW: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Remembered(StrEnum):
    """The tables whose rows `remembered_rows` shows; docs/operations/memory.md has their bounds."""

    DISPLACEMENTS = "displacements"
    LINES_DISPLACED = "lines-of-work-displaced"
    TIMES_DISPLACED = "times-displaced"
    NAMED_VICTIMS = "named-victims"
    EVICTED_PODS = "evicted-pods"
    LINES_AWAITED = "lines-of-work-awaited"
    UNITS_AWAITED = "units-awaited"
    NAMESPACES = "namespaces"
    WAITING_EVENTS = "waiting-events"
    EVENT_SERIES = "event-series"


class Metrics:
    """The operator's metrics, one attribute each.

    Decisions: `workloads` by phase; `idle_gpu_seconds`, GPUs of idle workloads times the time they
    were idle; `plans` by what became of them; `preemptions`, one for each victim;
    `lost_device_seconds` of victims, by their rule; `declined`, evaluations that evicted no
    workload for a demand, by reason; `evaluation_seconds`; `decisions_stopped`, those that lasted
    too long; `unrecorded`, plans whose record could not be written; `preemption_gap`, how far
    victims of profile best are from the least costly ones. `status_faults`, statuses that a fault
    of ours delayed.
    Metrics in: `scrape_seconds` per target, `scrape_failures` by class, `scrape_targets` by state
    in the last poll, `samples` and `samples_dropped` by reason, `last_poll`, `polling_interval`.
    Cluster: `api_requests` by HTTP method and code ("none": no answer), `watch_restarts`.
    Quota: `held_pairs`, how many are held; `loop_members`, how many lineages are in
    loops; `unproven`, preemptions that were left out for want of nodes; `kueue_leads` 0 or 1;
    `beyond_admission`, pods that ran beyond what was admitted; `webhook_refused` by reason.
    `harm_exhausted`: accounts that are used up, by harm budget.
    Disruptions: `disruptions`, one for each displaced unit, by its rule; `disruption_failures`,
    calls by which one could not be written; `lineage_displacements`, how often the lineage of
    each had been displaced within the window; `repeatedly_displaced`, lineages that are
    displaced again and again; `notifications`, messages to webhooks by what became of them.
    `waiting_units`: pods and groups, or workloads, that wait, by the reason that is reported
    (`show_waiting`).
    `decision_log_dropped`: lines of the decision log that are missing, by reason (`full`: too many
    waited to be written; `unwritten`: they could not be).
    Memory: `remembered_rows`, rows of the tables that continue growing until a bound (`remembers`).
    Notice: `notices`, units that were notified, by `end` (`saved`, `overdue`, `unheard`,
    `pardoned`), `notice_seconds` for how long, `saved_device_seconds` what work was saved.
    Process: `leader` 0 or 1, `intents_open`, `intents_closed` by phase, `loop_lag_seconds`.
    """

    def __init__(self, named_series: int = 0) -> None:
        """`named_series`: how many names of tenants' work a label has; 0: none."""
        self.registry = CollectorRegistry()
        self.names = CappedNames(named_series)
        self.namespaces = CappedNames(_MOST_NAMESPACES)
        self.workloads = self._gauge("gpu_workloads", "GpuWorkloads by phase.", "phase")
        self.idle_gpu_seconds = self._counter(
            "idle_gpu_seconds", "GPU-seconds held by idle workloads.", "namespace", "resource"
        )
        self.plans = self._counter("plans", "Plans by outcome.", "plane", "outcome")
        self.lost_device_seconds = self._counter(
            "lost_device_seconds",
            "Work lost by victims: time since checkpoint or start, times devices.",
            "plane",
            "reason",
        )
        self.preemptions = self._counter(
            "preemptions", "Victims by rule and outcome.", "plane", "rule", "outcome"
        )
        self.declined = self._counter(
            "declined", "Demands for which no victim was chosen.", "plane", "reason"
        )
        self.evaluation_seconds = self._histogram(
            "evaluation_seconds", "Time of one evaluation.", _FAST, "plane"
        )
        self.scrape_seconds = self._histogram(
            "scrape_seconds", "Time to fetch and read one target.", _SLOW, "source"
        )
        self.scrape_failures = self._counter(
            "scrape_failures", "Targets that gave no reading.", "source", "reason"
        )
        self.scrape_targets = self._gauge(
            "scrape_targets", "Targets of the last poll.", "source", "state"
        )
        self.samples = self._counter("samples", "Usable utilisation samples.", "source")
        self.samples_dropped = self._counter(
            "samples_dropped",
            "Samples of no pod, impossible ones, and pods with contradicting ones.",
            "reason",
        )
        self.last_poll = self._gauge(
            "last_poll_timestamp_seconds", "When the last poll of all sources began."
        )
        self.polling_interval = self._gauge(
            "polling_interval_seconds", "Time between two polls, 0 where none are made."
        )
        self.api_requests = self._counter(
            "api_requests", "Requests to the API server.", "method", "code"
        )
        self.watch_restarts = self._counter(
            "watch_restarts", "Watches that were opened again.", "resource", "reason"
        )
        self.faults = self._counter(
            "faults",
            "Faults of the operator, each logged with a traceback.",
            "logger",
        )
        self.status_faults = self._counter(
            "status_faults",
            "Statuses whose write is retried later, after a fault of the operator.",
            "plane",
        )
        self.decisions_stopped = self._counter(
            "decisions_stopped",
            "Decisions above the time limit: stopped, abandoned with their thread, or delayed "
            "after they ended a process.",
            "plane",
            "outcome",
        )
        self.unrecorded = self._counter(
            "plans_unrecorded", "Plans whose record could not be written.", "plane"
        )
        self.leader = self._gauge("leader", "1 while this process holds the lease, else 0.")
        self.intents_open = self._gauge(
            "intents_open", "Preemptions that are neither completed nor abandoned.", "plane"
        )
        self.intents_closed = self._counter(
            "intents_closed", "Preemptions that were completed or abandoned.", "plane", "phase"
        )
        self.notices = self._counter(
            "notices",
            "Units with notice of their eviction, by outcome: saved, overdue, unheard (overdue "
            "without an answer) or pardoned.",
            "plane",
            "end",
        )
        self.notice_seconds = self._histogram(
            "notice_seconds",
            "Time from the delivery of a notice to its end, by outcome.",
            _NOTICES,
            "plane",
            "end",
        )
        self.saved_device_seconds = self._counter(
            "saved_device_seconds",
            "Work that units had saved when they were evicted after a notice, and that their plan "
            "counted as lost, in seconds times devices.",
            "plane",
        )
        self.loop_lag_seconds = self._histogram(
            "loop_lag_seconds", "How late the event loop woke a sleeper.", _FAST
        )
        self.held_pairs = self._gauge(
            "quota_held_pair",
            "How many pairs there are of which the first may not preempt the second, in any plane.",
            "first",
            "second",
        )
        self.loop_members = self._gauge(
            "loop_members",
            "Lineages in loops of displacements of which one is held.",
        )
        self.harm_exhausted = self._gauge(
            "harm_budget_exhausted",
            "Accounts of a harm budget that allow no further displacement now.",
            "budget",
        )
        self.disruptions = self._counter(
            "disruptions", "Displaced units of which their tenants were notified.", "plane", "rule"
        )
        self.disruption_failures = self._counter(
            "disruption_write_failures", "Disruptions that could not be written yet.", "reason"
        )
        self.notifications = self._counter(
            "notifications", "Messages about displaced units to webhooks of namespaces.", "outcome"
        )
        self.repeatedly_displaced = self._gauge(
            "repeatedly_displaced_lineages",
            "Lineages that were displaced three times within an hour.",
        )
        self.lineage_displacements = self._histogram(
            "lineage_displacements",
            "Displacements within an hour of the lineage of a displaced unit.",
            _TIMES,
        )
        self.unproven = self._counter(
            "quota_unproven_preemptions",
            "Preemptions left out because the preemptor would still fit on no nodes.",
            "cluster_queue",
        )
        self.beyond_admission = self._counter(
            "quota_pods_beyond_admission",
            "Pods that ran beyond what was admitted, by why.",
            "reason",
        )
        self.preemption_gap = self._histogram(
            "preemption_gap_ratio",
            "By which share victims of profile best exceed the least possible, at most.",
            (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
            "plane",
        )
        self.kueue_leads = self._gauge(
            "quota_kueue_leads",
            "1 while Kueue's controller decides and this one waits.",
        )
        self.webhook_refused = self._counter(
            "webhook_refused",
            "Requests and connections that the webhooks did not answer, by reason.",
            "reason",
        )
        self.waiting_units = self._gauge(
            "waiting_units", "Pending units, by their dominant reason.", "plane", "reason"
        )
        self.decision_log_dropped = self._counter(
            "decision_log_dropped", "Lines that are missing in the decision log.", "reason"
        )
        self.remembered_rows = self._gauge(
            "remembered_rows", "Rows of what is remembered up to a bound, by table.", "table"
        )
        self._remembered: dict[Remembered, list[Callable[[], int]]] = {}
        build = Info(f"{_PREFIX}_build", "The operator's version.", registry=self.registry)
        build.info({"version": __version__})
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.leader.set(0)

    def count_plan(self, plan: PlanId, plane: str, outcome: str) -> None:
        """Count what became of a plan, with its id as exemplar."""
        self.plans.labels(plane, outcome).inc(exemplar={"plan": plan})

    def count_preemption(self, plan: PlanId, plane: str, rule: str, outcome: str) -> None:
        """Count one victim of a plan, with the plan's id as exemplar."""
        self.preemptions.labels(plane, rule, outcome).inc(exemplar={"plan": plan})

    def remembers(self, table: Remembered, rows: Callable[[], int]) -> None:
        """Show how many rows a table has, on each read; several of one name count as one.

        `rows` may be called in any thread.
        """
        counted = self._remembered.setdefault(table, [])
        counted.append(rows)
        shown = self.remembered_rows.labels(table.value)
        shown.set_function(lambda: sum(each() for each in counted))

    def show_waiting(self, plane: Plane, by_reason: Mapping[Reason, int]) -> None:
        """Show how many units of a plane wait; reasons that are left out have none.

        Every reason of the plane has a series, so that an alert can compare with zero.
        """
        for reason in REASONS[plane]:
            self.waiting_units.labels(plane.value, reason.value).set(by_reason.get(reason, 0))

    def set_workloads(self, by_phase: Mapping[str, int]) -> None:
        """Show these numbers; phases that are left out count zero workloads."""
        self.workloads.clear()
        for phase, number in by_phase.items():
            self.workloads.labels(phase).set(number)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", help_text, labels, registry=self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", help_text, labels, registry=self.registry)

    def _histogram(
        self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(
            f"{_PREFIX}_{name}", help_text, labels, buckets=buckets, registry=self.registry
        )


class IdleGpuSeconds:
    """Integrates the number of idle GPUs over time into `Metrics.idle_gpu_seconds`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._held: Mapping[tuple[str, str], int] = {}
        self._since = 0

    def observe(self, held: Mapping[tuple[str, str], int], monotonic: int) -> None:
        """Set how many GPUs idle workloads hold from now on.

        `held`: count by namespace and resource name. `monotonic`: now, in nanoseconds.
        """
        for (namespace, resource), number in self._held.items():
            elapsed = max(0, monotonic - self._since) / SECOND
            shown = self._metrics.namespaces.of(namespace)
            self._metrics.idle_gpu_seconds.labels(shown, resource).inc(number * elapsed)
        self._held, self._since = dict(held), monotonic
