"""Kaiwo's texts: events, conditions and preemption reasons of the idle plane, word for word.

Where the guide and the reference differ (the preemption reason) the guide's text is written.
Several resource names are listed as `4 amd.com/gpu, 2 amd.com/gpu-0`. Source: specification of the
idle plane, sections 7 and 12, difference D3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kubeworld.units.durations import SECOND, format_duration
from kubeworld.units.instants import Nanos, format_instant
from kubeworld.units.quantities import quantity_text
from kubeworld.units.untrusted import cut
from reprieve.api.kaiwo import Condition
from reprieve.engine.idle.discovery import (
    ChainTooDeep,
    NodeRoot,
    OwnerForbidden,
    OwnerNotFound,
    OwnerUnaware,
    ResolutionError,
)
from reprieve.engine.idle.flights import idle_for
from reprieve.engine.idle.lifecycle_facts import Event, MetricsReason, Step
from reprieve.engine.idle.model import Phase, Workload
from reprieve.engine.idle.outcome import Declined, Reason
from reprieve.engine.idle.transitions import EventReason
from reprieve.engine.plan import Plan, Victim
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.disruptions import LOOP
from reprieve.wording.events import EventText
from reprieve.wording.undecided import DECISION_FAILED, FAULT, PREEMPTION_NOT_RECORDED, not_recorded

__all__ = [
    "COMPONENT",
    "METRICS_AVAILABLE",
    "PHASE_UPDATED",
    "amounts_text",
    "conditions_after",
    "decision_failed",
    "decision_stopped",
    "declined_text",
    "event_text",
    "idle_text",
    "marked_conditions",
    "not_served",
    "preemption_not_recorded",
    "preemption_reason",
    "preemption_started",
    "resolution_error_text",
    "took_too_long",
    "with_loop",
    "with_reasons",
]

COMPONENT: Final = "gpuworkload-controller"
PHASE_UPDATED: Final = "PhaseUpdated"
METRICS_AVAILABLE: Final = "MetricsAvailable"

# Resources that are not counted in pieces.
_MEASURED: Final = frozenset(("cpu", "memory", "ephemeral-storage"))
_NORMAL: Final = "Normal"
_WARNING: Final = "Warning"
_METRICS: Final[dict[MetricsReason, str]] = {
    MetricsReason.FRESH: "All running GPU pods have recent utilization samples",
    MetricsReason.NO_SAMPLES: (
        "No utilization sample for at least one running GPU pod; the phase is kept and no idle "
        "time is counted"
    ),
    MetricsReason.STALE: (
        "Utilization samples are out of date; the phase is kept and no idle time is counted"
    ),
    MetricsReason.ENDPOINT_UNREACHABLE: (
        "The metrics endpoint cannot be read; the phase is kept and no idle time is counted"
    ),
    MetricsReason.INVALID_SAMPLE: (
        "The metrics endpoint reports values that are not a utilization (accepted: 0 to 100); "
        "they are dropped"
    ),
}


_ALWAYS: Final = "Policy is Always and workload has been idle for "


def event_text(event: Event, workload: Workload) -> EventText:
    """Return the text of an event of `lifecycle.step`; `workload` is the one before the step."""
    kind, message = _event(event, workload)
    return EventText(kind, event.reason.value, message)


def preemption_started(plan: Plan, victim: Victim, workload: Workload, now: Nanos) -> EventText:
    """Return the event on a victim that has been marked; `workload` is the one before the mark."""
    if plan.preemptor is None:
        idle = _decided_text(victim) or idle_text(workload, now)
        message = (
            f"Workload has been idle for {idle} (limit: "
            f"{format_duration(workload.settings.grace_period)}, policy: Always); preempting"
        )
    else:
        message = (
            f"Freeing {amounts_text(_freed_for(plan, victim))} GPU(s) for pending workload "
            f"{plan.preemptor.name}"
        )
    return EventText(_WARNING, EventReason.PREEMPTION_STARTED.value, message)


def preemption_reason(plan: Plan, victim: Victim, workload: Workload, now: Nanos) -> str:
    """Return `preemptionReason`: the victim's own counts of what the demand requests."""
    if plan.preemptor is None:
        return (
            f"{_ALWAYS}{idle_text(workload, now)} "
            f"(threshold: {format_duration(workload.settings.grace_period)})"
        )
    return (
        f"Preempted to free {amounts_text(_freed_for(plan, victim))} for pending workload "
        f"{plan.preemptor.name}"
    )


def with_reasons(plan: Plan, workloads: Iterable[Workload], now: Nanos) -> Plan:
    """Return the plan with `Victim.reason` filled in; `workloads` hold all its victims."""
    roots = {victim.root.uid for victim in plan.victims}
    by_root: dict[tuple[Uid, Reference], Workload] = {
        (w.root.uid, w.ref): w for w in workloads if w.root.uid in roots
    }
    return replace(
        plan,
        victims=tuple(
            replace(
                victim,
                reason=preemption_reason(
                    plan, victim, by_root[(victim.root.uid, victim.subject)], now
                ),
            )
            for victim in plan.victims
        ),
    )


def conditions_after(
    existing: Iterable[Condition], step: Step, workload: Workload, now: Nanos
) -> list[Condition]:
    """Return the conditions to write after a step; `workload` is the one before it.

    PhaseUpdated gets the step's event message, and its time moves with every phase change.
    MetricsAvailable is written when metrics fail, and turned True again over what stands there.
    """
    conditions = list(existing)
    if step.phase_updated and step.events:
        text = event_text(step.events[0], workload)
        _set(conditions, _phase_updated(step.status.phase, text.message, now))
    if step.metrics is not None:
        _set_metrics(conditions, step.metrics, now)
    return conditions


def with_loop(existing: list[Condition], said: str, now: Nanos) -> list[Condition]:
    """Return the conditions with the loop of displacements that work is in; `said` empty: none."""
    known = next((each for each in existing if each.type == LOOP), None)
    if (known is None or known.status == "False") and not said:
        return existing
    if known is not None and known.status == "True" and known.message == said:
        return existing
    conditions = list(existing)
    status, reason = ("True", "Displaces") if said else ("False", "Over")
    _set(conditions, Condition(LOOP, status, reason, said, format_instant(now)))
    return conditions


def marked_conditions(
    existing: Iterable[Condition], started: EventText, now: Nanos
) -> list[Condition]:
    """Return the conditions of a victim when it is marked."""
    conditions = list(existing)
    _set(conditions, _phase_updated(Phase.PREEMPTING, started.message, now))
    return conditions


def resolution_error_text(error: ResolutionError) -> str:
    """Return what failed on the way to a pod's root owner."""
    at = error.lookup
    where = f'{at.kind} "{at.name}" in namespace "{at.namespace}"'
    detail = f": {error.detail}" if error.detail else ""
    if isinstance(error, OwnerForbidden):
        return (
            f"cannot resolve owner chain: RBAC forbids reading {where} — add get permission for "
            f"this resource to the operator ServiceAccount{detail}"
        )
    if isinstance(error, OwnerNotFound):
        return f'owner {at.kind} "{at.name}" not found in namespace "{at.namespace}"{detail}'
    if isinstance(error, ChainTooDeep):
        return (
            f"owner reference chain exceeded maximum depth of 10 for {at.kind}/{at.name} in "
            f"{at.namespace}"
        )
    if isinstance(error, OwnerUnaware):
        return f"{at.kind}/{at.name} is not the owner yet: {error.detail}"
    if isinstance(error, NodeRoot):
        return f'pods of Node "{at.name}" are not tracked: preempting them would delete the Node'
    return f"transient error resolving owner {where}{detail}"


def declined_text(declined: Declined) -> str:
    """Return why a demand got no victims, or why an idle workload stays, in one sentence."""
    amounts = amounts_text(declined.amounts)
    match declined.reason:
        case Reason.COVERED:
            return "what is free or already on its way is enough for it"
        case Reason.SHORT:
            return f"all eligible idle workloads together are short of {amounts}"
        case Reason.NO_PLACEMENT:
            if not amounts:
                return "each of its pods would have a node, but not all of them together"
            return (
                "there are GPUs enough, but no node would have capacity for a pod that requests "
                f"{amounts_text({n: a for n, a in declined.amounts.items() if n != 'pods'})}"
            )
        case Reason.NO_PENDING_POD:
            return "it has no pending pod whose node could be proven (fit: Node)"
        case Reason.NO_TIMER:
            return "its idle time has not started to count"
        case Reason.WITHIN_GRACE:
            until = "" if declined.until is None else f" until {format_instant(declined.until)}"
            return f"it is within its grace period{until}"
        case Reason.NOT_FRESH:
            return "its metrics are missing or out of date"
        case Reason.CLAIMED:
            return "it is already being preempted"
        case Reason.NO_DEMAND:
            return "no pending workload needs it"
        case Reason.REPRIEVED:
            return "the pending workload fits without it"
        case Reason.PART_OF_GANG:
            return "its gang is evicted as a whole, and not all of it is idle"
        case Reason.SHARES_DEVICES:
            return (
                "pods that are not idle, or have not opted in, use a device claim of its pods, too"
            )
        case Reason.OWNED:
            return "another plane decides about it"
        case Reason.NO_QUOTA:
            return "no idle workload that may be evicted holds the quota that it lacks"
        case Reason.DELAYED:
            until = "" if declined.until is None else f" before {format_instant(declined.until)}"
            return f"nothing is evicted for it{until} (preemptionDelay)"
        case Reason.SPACED:
            until = "" if declined.until is None else f" before {format_instant(declined.until)}"
            return f"other work uses what plans for it freed; nothing is evicted for it{until}"
        case Reason.DISPLACED:
            return "it was displaced lately, and no idle workload is evicted for its return"
        case Reason.NOT_CONFIRMED:
            return "it would not be placed where idle workloads were evicted for it"
        case Reason.HELD:
            until = "" if declined.until is None else f" before {format_instant(declined.until)}"
            if declined.budget:
                return f"harm budget {declined.budget} protects it from being displaced{until}"
            return f"the governor of disruptions protects it from being displaced{until}"


def not_served(declined: Declined, *, by_sum: bool) -> EventText | None:
    """Return the event on a demand without victims; None where that is as it should be.

    `by_sum`: the fit check adds up what idle work holds, and nothing else.
    """
    reported = (
        Reason.SHORT,
        Reason.NO_PLACEMENT,
        Reason.NO_PENDING_POD,
        Reason.DELAYED,
        Reason.SPACED,
    )
    if declined.reason not in reported:
        return None
    beside = "; with fit: Sum free GPUs do not count" if by_sum else ""
    message = f"No idle workload is preempted for it: {declined_text(declined)}{beside}"
    return EventText(_NORMAL, "NobodyMakesWay", message)


def preemption_not_recorded(failure: str, pause: int) -> EventText:
    """Return the event on a demand whose plan cannot be written down; `pause` in seconds."""
    return EventText(_WARNING, PREEMPTION_NOT_RECORDED, not_recorded(failure, pause, sooner=""))


def took_too_long(seconds: float) -> EventText:
    """Return the event on a GpuWorkload about which deciding exceeded these seconds."""
    return decision_stopped(
        f"Decisions about it exceeded {seconds:g} s and were stopped; it is tried again later, "
        "or when it changes"
    )


def decision_stopped(message: str) -> EventText:
    """Return the event on a GpuWorkload about which deciding did not come to an end."""
    return EventText(_WARNING, "DecisionStopped", cut(message))


def decision_failed() -> EventText:
    """Return the event on a GpuWorkload on which the evaluation breaks."""
    return EventText(_WARNING, DECISION_FAILED, FAULT)


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Return `4 amd.com/gpu, 2 amd.com/gpu-0`, in name order, without zeros."""
    return ", ".join(
        f"{quantity_text(name, amounts[name]) if name in _MEASURED else amounts[name]} {name}"
        for name in sorted(amounts)
        if amounts[name]
    )


def _event(event: Event, workload: Workload) -> tuple[str, str]:
    root, utilization = workload.root, event.utilization
    match event.reason:
        case EventReason.WORKLOAD_IDLE:
            if utilization is None:
                return _NORMAL, (
                    "GPU utilization is below threshold, workload is now considered idle"
                )
            return _NORMAL, (
                f"GPU utilization dropped to {utilization:.1f}%, workload is now considered idle"
            )
        case EventReason.WORKLOAD_ACTIVE:
            if utilization is None:
                return _NORMAL, "Workload is actively using GPUs"
            return _NORMAL, (
                f"GPU utilization is {utilization:.1f}%, workload is actively using GPUs"
            )
        case EventReason.WORKLOAD_PENDING_GPU:
            return _WARNING, "Pods cannot be scheduled due to insufficient GPU resources"
        case EventReason.WORKLOAD_PENDING:
            return _NORMAL, (
                "Waiting for pods to become ready "
                "(image pull, volume binding, init containers, etc.)"
            )
        case EventReason.WORKLOAD_PREEMPTED:
            return _WARNING, (
                f"{root} was deleted to free GPU resources; "
                f"reason: {workload.status.preemption_reason}"
            )
        case EventReason.PREEMPTION_FAILED:
            return _WARNING, (
                f"Cannot delete {root}: the operator lacks RBAC delete permission for "
                f"{root.kind} resources"
            )
        case EventReason.WORKLOAD_DELETED:
            return _NORMAL, (
                f"Underlying {root} no longer exists; tracking will be retained until TTL expires"
            )
        case EventReason.PREEMPTION_STARTED:
            raise ValueError("PreemptionStarted needs its plan: use preemption_started")


def _freed_for(plan: Plan, victim: Victim) -> dict[str, int]:
    return {name: count for name, count in victim.amounts.items() if name in plan.proof.need}


def _decided_text(victim: Victim) -> str:
    """Return how long a victim was idle when that was decided, by its reason; else empty."""
    found = victim.reason.removeprefix(_ALWAYS)
    return "" if found == victim.reason else found.partition(" (")[0]


def idle_text(workload: Workload, now: Nanos) -> str:
    """Return how long a workload has been idle, to the second."""
    return format_duration((idle_for(workload, now) + SECOND // 2) // SECOND * SECOND)


def _phase_updated(phase: Phase, message: str, now: Nanos) -> Condition:
    return Condition(PHASE_UPDATED, "True", f"Phase{phase.value}", message, format_instant(now))


def _set(conditions: list[Condition], condition: Condition) -> None:
    for index, known in enumerate(conditions):
        if known.type == condition.type:
            conditions[index] = condition
            return
    conditions.append(condition)


def _set_metrics(conditions: list[Condition], reason: MetricsReason, now: Nanos) -> None:
    status = "True" if reason is MetricsReason.FRESH else "False"
    known = next((c for c in conditions if c.type == METRICS_AVAILABLE), None)
    if known is None and status == "True":
        return
    same = known is not None and known.status == status
    since = known.last_transition_time if known is not None and same else format_instant(now)
    _set(conditions, Condition(METRICS_AVAILABLE, status, reason.value, _METRICS[reason], since))
