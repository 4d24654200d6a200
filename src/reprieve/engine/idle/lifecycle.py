"""One step of a GpuWorkload through the table of transitions.

`step` is given all facts and returns what to write, what to report and what to do; it does nothing
itself. The rows stand in `transitions`, here is what their conditions and effects mean.

Invariants: a row is the first whose phases contain the workload's and whose condition holds, and
exactly one always does. An idle stretch starts only with fresh samples (or with the literal switch
for H2). An instant in the future, left by a clock that went backwards, is treated as now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from reprieve.engine.idle.model import Phase, Policy, Status, Workload
from reprieve.engine.idle.resources import workload_gpus
from reprieve.engine.idle.samples import (
    Freshness,
    SampleState,
    aggregate,
    fresh_only,
    freshness,
    track,
    without_forgotten,
)
from reprieve.engine.idle.transitions import (
    LIVING,
    TRANSITIONS,
    Action,
    Condition,
    Effect,
    EventReason,
    Requeue,
    Transition,
)
from reprieve.units.durations import SECOND
from reprieve.units.ids import Uid
from reprieve.units.instants import Nanos

__all__ = [
    "TRANSITIONS",
    "Action",
    "Condition",
    "DeleteOutcome",
    "Effect",
    "Event",
    "EventReason",
    "Facts",
    "MetricsHealth",
    "MetricsReason",
    "Missing",
    "Present",
    "Requeue",
    "RootState",
    "Step",
    "Transition",
    "Unreadable",
    "marked",
    "step",
]

REQUEUE_INTERVAL: Final = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Present:
    """The root was read. `terminating`: it has a deletion timestamp."""

    uid: Uid
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no object under the root's name."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The root could not be read: forbidden, or the API server did not answer."""

    detail: str = ""


RootState = Present | Missing | Unreadable


class DeleteOutcome(StrEnum):
    """How the deletion (or other eviction) of the root ended."""

    ACCEPTED = "Accepted"
    NOT_FOUND = "NotFound"
    UID_CONFLICT = "UidConflict"
    FORBIDDEN = "Forbidden"
    FAILED = "Failed"


class MetricsHealth(StrEnum):
    """What the scraper knows about the endpoints that report this workload's pods."""

    OK = "Ok"
    UNREACHABLE = "Unreachable"
    INVALID = "Invalid"  # its samples had impossible values


class MetricsReason(StrEnum):
    """Reasons of the condition MetricsAvailable; FRESH is the only one with status True."""

    FRESH = "Fresh"
    NO_SAMPLES = "NoSamples"
    STALE = "Stale"
    ENDPOINT_UNREACHABLE = "EndpointUnreachable"
    INVALID_SAMPLE = "InvalidSample"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the caller found out; the samples and pods stand in the workload itself."""

    root: RootState
    metrics: MetricsHealth = MetricsHealth.OK
    quota_short: bool = False
    delete: DeleteOutcome | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the GpuWorkload; `utilization` is percent where the text shows it."""

    reason: EventReason
    utilization: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from the facts.

    `phase_updated`: write the condition PhaseUpdated. `metrics`: the reason that the condition
    MetricsAvailable shall show (FRESH: status True, only over an existing condition), or None to
    leave it. `requeue`: nanoseconds to the row's timed reconcile. `wake`: the next instant at which
    the same facts may give another result, never later than the requeue. `backed_off`: the caller
    tries again with its error back-off.
    """

    row: int
    status: Status
    gpus: dict[str, int]
    phase_updated: bool = False
    metrics: MetricsReason | None = None
    events: tuple[Event, ...] = ()
    action: Action = Action.NONE
    requeue: int | None = None
    wake: Nanos | None = None
    backed_off: bool = False


@dataclass(frozen=True, slots=True)
class _View:
    """The workload with pods and samples brought up to date, and what follows from them."""

    workload: Workload
    facts: Facts
    policy: Policy
    now: Nanos
    freshness: Freshness
    utilization: float | None


def step(workload: Workload, facts: Facts, policy: Policy, now: Nanos) -> Step:
    """Return what follows for one GpuWorkload from what is known about it now."""
    if workload.status.phase in LIVING and _root_is_ours(facts, workload):
        workload = _brought_up_to_date(workload, policy, now)
    view = _view(workload, facts, policy, now)
    row = next(
        row
        for row in TRANSITIONS
        if workload.status.phase in row.phases and _HOLDS[row.condition](view)
    )
    return _result(row, view)


def marked(status: Status, preempted_for: str, reason: str) -> Status:
    """Return the status of a victim: Preempting, its timer cleared, for whom and why."""
    return replace(
        status,
        phase=Phase.PREEMPTING,
        idle_since=None,
        preempted_for=preempted_for,
        preemption_reason=reason,
    )


def _brought_up_to_date(workload: Workload, policy: Policy, now: Nanos) -> Workload:
    tracked = track(workload.status.tracked_pods, workload.pods)
    if not policy.literal.missing_metrics_are_zero:
        tracked = without_forgotten(tracked, policy, now)
    idle_since = workload.status.idle_since
    if idle_since is not None and idle_since > now:
        idle_since = now
    return replace(
        workload,
        gpus=workload_gpus([pod.gpus for pod in workload.pods], workload.gpus),
        status=replace(workload.status, tracked_pods=tracked, idle_since=idle_since),
    )


def _view(workload: Workload, facts: Facts, policy: Policy, now: Nanos) -> _View:
    status = workload.status
    known = freshness(workload, policy, now)
    pods = status.tracked_pods
    if not policy.literal.missing_metrics_are_zero:
        pods = fresh_only(pods, policy, now)
    threshold, how = workload.settings.threshold, workload.settings.aggregation
    utilization = aggregate(pods, how)
    if utilization is not None and utilization < threshold:
        # Samples of GPUs that its pods do not hold must not make a workload look idle.
        asked = {pod.name: sum(pod.gpus.values()) for pod in workload.pods}
        held = aggregate(pods, how, asked)
        utilization = held if held is not None and held >= threshold else utilization
    return _View(workload, facts, policy, now, known, utilization)


def _result(row: Transition, view: _View) -> Step:
    workload, before, now = view.workload, view.workload.status, view.now
    after = _affected(before, row, view)
    changed = after.phase is not before.phase
    event: tuple[Event, ...] = ()
    if row.event is not None and changed:
        event = (Event(row.event, view.utilization if _shows_utilization(row) else None),)
    action = row.action
    if action is Action.EVALUATE and not changed and after.phase is not Phase.IDLE:
        action = Action.NONE
    requeue = _requeue(row, after, workload, now)
    running = row.condition in (
        Condition.BUSY,
        Condition.IDLE,
        Condition.SILENT,
        Condition.SILENT_FIRST,
        Condition.SILENT_LONG,
    )
    return Step(
        row=row.number,
        status=after,
        gpus=dict(workload.gpus),
        phase_updated=changed,
        metrics=_metrics_reason(view) if running else None,
        events=event,
        action=action,
        requeue=requeue,
        wake=_wake(view, after, requeue) if running else _at(now, requeue),
        backed_off=row.requeue is Requeue.BACK_OFF,
    )


def _affected(status: Status, row: Transition, view: _View) -> Status:
    effects, now = row.effects, view.now
    after = replace(status, phase=status.phase if row.to is None else row.to)
    if Effect.SET_PREEMPTED_AT in effects:
        after = replace(after, preempted_at=now)
    if Effect.SET_FINISHED_AT in effects:
        after = replace(after, finished_at=now)
    if Effect.CLEAR_FINISHED in effects:
        after = replace(after, finished_at=None, preempted_at=None)
    if Effect.CLEAR_TIMER in effects:
        after = replace(after, idle_since=None)
    if Effect.START_TIMER in effects and after.idle_since is None:
        after = replace(after, idle_since=now)
    if Effect.CLEAR_METRICS in effects:
        after = replace(after, aggregated_utilization=None, tracked_pods=())
    if Effect.CLEAR_PREEMPTION in effects:
        after = replace(after, preempted_for="", preemption_reason="")
    if Effect.SET_UTILIZATION in effects:
        after = replace(after, aggregated_utilization=view.utilization)
    return after


def _shows_utilization(row: Transition) -> bool:
    return Effect.SET_UTILIZATION in row.effects


def _requeue(row: Transition, after: Status, workload: Workload, now: Nanos) -> int | None:
    if row.requeue is Requeue.MINUTE or (
        row.requeue is Requeue.IF_IDLE and after.phase is Phase.IDLE
    ):
        ends = after.finished_at is not None and workload.settings.ttl > 0
        return min(REQUEUE_INTERVAL, workload.settings.ttl) if ends else REQUEUE_INTERVAL
    if row.requeue is Requeue.REMAINDER and after.finished_at is not None:
        return workload.settings.ttl - max(0, now - after.finished_at)
    return None


def _wake(view: _View, after: Status, requeue: int | None) -> Nanos | None:
    window, now, known = view.policy.freshness, view.now, view.freshness
    instants = [at for at in (_at(now, requeue),) if at is not None]
    if after.phase is Phase.IDLE and after.idle_since is not None:
        instants.append(Nanos(after.idle_since + view.workload.settings.grace_period))
    if not view.policy.literal.missing_metrics_are_zero:
        if known.until is not None:
            instants.append(Nanos(known.until + 1))
        elif known.since is not None:
            instants.append(Nanos(known.since + 2 * window + 1))
    return min((at for at in instants if at > now), default=None)


def _at(now: Nanos, after: int | None) -> Nanos | None:
    return None if after is None else Nanos(now + after)


def _metrics_reason(view: _View) -> MetricsReason | None:
    if view.freshness.state is SampleState.FRESH:
        return MetricsReason.FRESH
    if not any(pod.phase == "Running" and pod.gpus for pod in view.workload.pods):
        return None
    if view.facts.metrics is MetricsHealth.UNREACHABLE:
        return MetricsReason.ENDPOINT_UNREACHABLE
    if view.facts.metrics is MetricsHealth.INVALID:
        return MetricsReason.INVALID_SAMPLE
    if view.freshness.state is SampleState.STALE:
        return MetricsReason.STALE
    return MetricsReason.NO_SAMPLES


def _root_is_ours(facts: Facts, workload: Workload) -> bool:
    return isinstance(facts.root, Present) and facts.root.uid == workload.root.uid


def _root_gone(view: _View) -> bool:
    root = view.facts.root
    return isinstance(root, Missing) or (
        isinstance(root, Present) and root.uid != view.workload.root.uid
    )


def _root_deleted(view: _View) -> bool:
    outcome = view.facts.delete
    if outcome in (
        DeleteOutcome.ACCEPTED,
        DeleteOutcome.NOT_FOUND,
        DeleteOutcome.UID_CONFLICT,
    ):
        return True
    if outcome is not None:
        return False
    if view.policy.literal.delete_without_uid:
        return isinstance(view.facts.root, Missing)
    return _root_gone(view)


def _revived(view: _View) -> bool:
    root, since = view.facts.root, view.workload.status.preempted_at
    if not isinstance(root, Present) or root.terminating or since is None:
        return False
    # Instants have whole seconds: a pod of the same second is taken for a new one, since the pods
    # before it were created a grace period earlier.
    return root.uid == view.workload.root.uid and any(
        pod.live and pod.created is not None and pod.created >= since for pod in view.workload.pods
    )


def _ttl_over(view: _View) -> bool:
    finished = view.workload.status.finished_at
    return finished is not None and view.now - finished >= view.workload.settings.ttl


def _keeps_phase_without_pods(view: _View) -> bool:
    literal = view.policy.literal
    if view.workload.status.phase is Phase.PENDING_GPU:
        return literal.podless_demand_stays
    return literal.podless_idle_stays


def _demand(view: _View) -> bool:
    return any(
        pod.phase == "Pending"
        and pod.demand
        and (pod.live or view.policy.literal.podless_demand_stays)
        for pod in view.workload.pods
    )


def _not_running(view: _View) -> bool:
    return not any(
        pod.phase == "Running" and (pod.live or view.policy.literal.podless_idle_stays)
        for pod in view.workload.pods
    )


def _no_live_pod(view: _View) -> bool:
    pods = view.workload.pods
    if pods and view.policy.literal.podless_idle_stays:
        return False
    return not any(pod.live for pod in pods)


def _busy(view: _View) -> bool:
    threshold = view.workload.settings.threshold
    if view.utilization is not None:
        return view.utilization >= threshold
    return view.policy.literal.missing_metrics_are_zero and threshold <= 0


def _idle(view: _View) -> bool:
    if view.policy.literal.missing_metrics_are_zero:
        return True
    return view.freshness.state is SampleState.FRESH


def _silent_long(view: _View) -> bool:
    if view.policy.literal.silence_counts_as_idle_time or view.workload.status.idle_since is None:
        return False
    since = view.freshness.since
    return since is None or since > view.now or view.now - since > 2 * view.policy.freshness


_HOLDS: Final[dict[Condition, Callable[[_View], bool]]] = {
    Condition.UNDECIDED: lambda view: view.facts.delete is None,
    Condition.ROOT_DELETED: _root_deleted,
    Condition.DELETE_FORBIDDEN: lambda view: view.facts.delete is DeleteOutcome.FORBIDDEN,
    Condition.DELETE_FAILED: lambda view: view.facts.delete is DeleteOutcome.FAILED,
    Condition.REVIVED: _revived,
    Condition.KEPT_FOREVER: lambda view: (
        view.workload.settings.ttl == 0 or view.workload.status.finished_at is None
    ),
    Condition.TTL_OVER: _ttl_over,
    Condition.TTL_RUNNING: lambda _: True,
    Condition.ROOT_GONE: _root_gone,
    Condition.ROOT_UNREADABLE: lambda view: isinstance(view.facts.root, Unreadable),
    Condition.NO_POD: lambda view: not view.workload.pods,
    Condition.NO_POD_QUOTA_SHORT: lambda view: not view.workload.pods and view.facts.quota_short,
    Condition.NO_LIVE_POD: _no_live_pod,
    Condition.NO_POD_LITERAL: lambda view: (
        not view.workload.pods and _keeps_phase_without_pods(view)
    ),
    Condition.DEMAND: _demand,
    Condition.NOT_RUNNING: _not_running,
    Condition.BUSY: _busy,
    Condition.IDLE: _idle,
    Condition.SILENT_FIRST: lambda _: True,
    Condition.SILENT_LONG: _silent_long,
    Condition.SILENT: lambda _: True,
}
