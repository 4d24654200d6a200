"""Kueue's texts: conditions, events and messages of the quota plane, word for word.

The engine's entries (`engine.quota.cycle`) carry the messages of the assignment; what is written to
the preemptor, to its victims and about them is made here. Source: specification of the quota plane,
section 9.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.assignment import Assignment, Considered
from reprieve.engine.quota.model import Reason, Workload
from reprieve.wording.events import EventText
from reprieve.wording.undecided import DECISION_FAILED, FAULT, PREEMPTION_NOT_RECORDED, not_recorded

__all__ = [
    "admitted_event",
    "decision_failed",
    "eviction_events",
    "flavors_considered",
    "pending_event",
    "preempted_workload_event",
    "preemption_message",
    "preemption_not_recorded",
    "quota_reserved_event",
    "quota_reserved_message",
    "slice_replaced_message",
]

HUMAN = {
    Reason.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    Reason.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    Reason.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    Reason.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}
UNKNOWN = "UNKNOWN"
# A duration saturates here; the zero time is further away than that.
LONGEST = 2**63 - 1


def preemption_message(
    preemptor: Workload, reason: Reason | None, preemptor_path: str, preemptee_path: str
) -> str:
    """Return the message of the conditions `Preempted` and `Evicted`."""
    human = UNKNOWN if reason is None else HUMAN[reason]
    return (
        f"Preempted to accommodate a workload (UID: {preemptor.uid or UNKNOWN}, "
        f"JobUID: {preemptor.job_uid or UNKNOWN}) due to {human}; "
        f"preemptor path: {preemptor_path or UNKNOWN}; preemptee path: {preemptee_path or UNKNOWN}"
    )


def priorities(preemptor: Workload, preemptee: Workload, boosted: bool) -> str:
    """Return both effective priorities, with base and boost."""

    def one(workload: Workload) -> str:
        boost = workload.boost if boosted else 0
        return f"{workload.priority + boost} (base: {workload.priority}, boost: {boost})"

    return (
        f"preemptor effective priority: {one(preemptor)}; "
        f"preemptee effective priority: {one(preemptee)}"
    )


def eviction_events(
    preemptor: Workload, preemptee: Workload, message: str, boosted: bool = False
) -> tuple[EventText, EventText]:
    """Return the two events about a victim."""
    both = priorities(preemptor, preemptee, boosted)
    return (
        EventText("Normal", "EvictedDueToPreempted", message),
        EventText("Normal", "Preempted", f"{message}; {both}"),
    )


def preempted_workload_event(
    preemptor: Workload, preemptee: Workload, cluster_queue: str, boosted: bool = False
) -> EventText:
    """Return the event about the preemptor; a victim without a namespace is named alone."""
    name = preemptee.key if preemptee.namespace else preemptee.name
    return EventText(
        "Normal",
        "PreemptedWorkload",
        f"Preempted workload {name} (UID: {preemptee.uid}) in ClusterQueue {cluster_queue}; "
        f"{priorities(preemptor, preemptee, boosted)}",
    )


def preemption_not_recorded(preemptor: Workload, failure: str, pause: int) -> EventText:
    """Return the event about whose plan cannot be written down; `pause` in seconds."""
    message = not_recorded(failure, pause)
    return EventText("Warning", PREEMPTION_NOT_RECORDED, message)


def decision_failed(message: str = FAULT) -> EventText:
    """Return the event about a workload about which a fault of ours keeps us from deciding."""
    return EventText("Warning", DECISION_FAILED, message)


def pending_event(workload: Workload, reason: str, message: str) -> EventText:
    """Return the event about a head that got no quota."""
    return EventText("Warning", reason, message)


def quota_reserved_message(cluster_queue: str) -> str:
    """Return the message of `QuotaReserved=True`."""
    return f"Quota reserved in ClusterQueue {cluster_queue}"


def quota_reserved_event(
    workload: Workload,
    cluster_queue: str,
    queued_at: Nanos,
    now: Nanos,
    assignment: Assignment,
) -> EventText:
    """Return the event about a reservation, with the flavors that were not simply free."""
    waited = max(-LONGEST, min(LONGEST, now - queued_at)) / 1e9
    considered = flavors_considered(assignment)
    return EventText(
        "Normal",
        "QuotaReserved",
        f"{quota_reserved_message(cluster_queue)}, wait time since queued was {waited:.0f}s"
        + (f"; Flavors considered: {considered}" if considered else ""),
    )


def admitted_event(workload: Workload, cluster_queue: str, waited_s: int = 0) -> EventText:
    """Return the event about an admission."""
    return EventText(
        "Normal",
        "Admitted",
        f"Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {waited_s}s",
    )


def slice_replaced_message(workload: Workload) -> str:
    """Return the message of `Finished=True` of a slice that `workload` replaced."""
    return (
        f"Replaced to accommodate a workload (UID: {workload.uid}, JobUID: {workload.job_uid}) "
        "due to workload slice aggregation"
    )


def flavors_considered(assignment: Assignment) -> str:
    """Return which flavors the scans looked at, those left out that fit without borrowing."""
    parts = []
    for pod_set in assignment.pod_sets:
        reported = _reported(pod_set.considered)
        if reported:
            parts.append(f"{pod_set.name}: {', '.join(reported)}")
    return " | ".join(parts)


def _reported(considered: Sequence[Considered]) -> list[str]:
    reported = []
    for each in considered:
        if each.fits and not each.level:
            continue
        mode = "NoFit" if each.no_fit else "Fit" if each.fits else "Preempt"
        words = [mode if each.possibility is None else f"preemptionMode={each.possibility}"]
        if each.level:
            words.append(f"borrow={each.level}")
        reported.append(f"{each.flavor}({';'.join([*words, *each.reasons])})")
    return reported
