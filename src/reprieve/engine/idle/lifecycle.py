"""One step of a GpuWorkload through the table of transitions.

`step` is given all facts and returns what to write, what to report and what to do; it does nothing
itself. The rows stand in `transitions`, what their conditions mean in `conditions`; here is what
their effects do.

Invariants: a row is the first whose phases contain the workload's and whose condition holds, and
exactly one always does. An idle stretch starts only with fresh samples (or with the literal switch
for H2). An instant in the future, left by a clock that jumped backwards, is treated as now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.idle.conditions import HOLDS, View, root_is_ours, view_of
from reprieve.engine.idle.lifecycle_facts import Event, Facts, MetricsHealth, MetricsReason, Step
from reprieve.engine.idle.model import Phase, Policy, Status, Workload
from reprieve.engine.idle.resources import workload_gpus
from reprieve.engine.idle.samples import SampleState, track, without_forgotten
from reprieve.engine.idle.transitions import (
    LIVING,
    TRANSITIONS,
    Action,
    Condition,
    Effect,
    Requeue,
    Transition,
)

__all__ = ["marked", "step"]

REQUEUE_INTERVAL: Final = 60 * SECOND


def step(workload: Workload, facts: Facts, policy: Policy, now: Nanos) -> Step:
    """Return what follows for one GpuWorkload from what is known about it now."""
    if workload.status.phase in LIVING and root_is_ours(facts, workload):
        workload = _brought_up_to_date(workload, policy, now)
    view = view_of(workload, facts, policy, now)
    row = next(
        row
        for row in TRANSITIONS
        if workload.status.phase in row.phases and HOLDS[row.condition](view)
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


def _result(row: Transition, view: View) -> Step:
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


def _affected(status: Status, row: Transition, view: View) -> Status:
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


def _wake(view: View, after: Status, requeue: int | None) -> Nanos | None:
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


def _metrics_reason(view: View) -> MetricsReason | None:
    if view.freshness.state is SampleState.FRESH:
        return MetricsReason.FRESH
    if not any(pod.phase == "Running" and pod.gpus for pod in view.workload.pods):
        return None
    if view.facts.metrics is MetricsHealth.UNREACHABLE:
        return MetricsReason.ENDPOINT_UNREACHABLE
    if view.facts.metrics is MetricsHealth.INVALID:
        return MetricsReason.INVALID_SAMPLE
    old = view.facts.metrics is MetricsHealth.OLD
    if old or view.freshness.state is SampleState.STALE:
        return MetricsReason.STALE
    return MetricsReason.NO_SAMPLES
