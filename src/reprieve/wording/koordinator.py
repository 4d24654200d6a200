"""Koordinator's texts: job preemption, the gate before the queue, Permit, gang cycles, HTTP.

Word for word those of its scheduler. The condition of a victim names the trigger pod; the user
guide spells that word differently from the code, hence `TriggerSpelling`. Source: specification of
gang jobs, sections 4 to 9 and 12.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from reprieve.api.gangs import GROUP_ID, MEMBER_COUNT
from reprieve.engine.scheduling.gangs.gate import Barrier, Barring
from reprieve.engine.scheduling.gangs.job import (
    Counts,
    JobPreemption,
    JobReason,
    NodeVerdict,
    Said,
    TriggerSpelling,
)
from reprieve.wording.events import EventText
from reprieve.wording.rejections import reason_text

__all__ = [
    "FAILURE_PLUGIN",
    "OPTIMISTIC_REJECTION",
    "PREEMPTED",
    "REJECT_PLUGIN",
    "SUCCESS_PLUGIN",
    "TriggerSpelling",
    "attempted_message",
    "barrier_text",
    "cycle_failure",
    "disruption_message",
    "job_message",
    "job_reason",
    "node_text",
    "post_filter_message",
    "preempted",
    "rejected_gang",
    "rejected_pod_group",
    "released",
    "unreserved",
    "waiting_message",
]

SUCCESS_PLUGIN: Final = "JobPreemptionSuccessPlugin"
FAILURE_PLUGIN: Final = "JobPreemptionFailurePlugin"
REJECT_PLUGIN: Final = "JobRejectPlugin"
PREEMPTED: Final = "preempted"
#: The message of scheduler-plugins to members that wait in Permit.
OPTIMISTIC_REJECTION: Final = "optimistic rejection in PostFilter"

_REASONS: Final[Mapping[JobReason, str]] = {
    JobReason.ALREADY_ATTEMPTED: "preemption already attempted by %s with message %s",
    JobReason.NO_PENDING_PODS: "no pending pods",
    JobReason.POLICY_NEVER: "not eligible due to preemptionPolicy=Never.",
    JobReason.TERMINATING: "not eligible due to terminating pod on the nominated node.",
    JobReason.NO_NODES: "no nodes available",
    JobReason.NOT_HELPFUL: "preemption not helpful",
    JobReason.SUCCESS: "preempt success, alreadyWaitingForBound: %d/%d",
}
_VERDICTS: Final[Mapping[NodeVerdict, str]] = {
    NodeVerdict.NO_VICTIMS: "no potential victims",
    NodeVerdict.NOT_HELPFUL: "Preemption is not helpful for scheduling",
}


def job_reason(reason: JobReason) -> str:
    """Return the constant, which holds printf verbs in two cases: label `result` of metrics."""
    return _REASONS[reason]


def job_message(found: JobPreemption, waiting: int, pods: int, attempted: str = "") -> str:
    """Return the message of an attempt.

    `waiting` of the job's `pods` wait in Permit. `attempted`: the message of the earlier attempt in
    the same cycle.
    """
    if found.reason is JobReason.ALREADY_ATTEMPTED:
        return attempted
    if found.reason is JobReason.SUCCESS:
        return f"preempt success, alreadyWaitingForBound: {waiting}/{pods}"
    if found.reason is JobReason.NOT_HELPFUL:
        return _fit_error(found.nodes, found.counts)
    return _REASONS[found.reason]


def attempted_message(trigger: str, message: str) -> str:
    """Return the message to later members of the same cycle; `trigger`: namespace/name."""
    return f"preemption already attempted by {trigger} with message {message}"


def post_filter_message(message: str) -> str:
    """Return the message as it stands in a pod's status."""
    return f"preemption: {message}"


def node_text(said: Said) -> str:
    """Return the text about a node."""
    return _VERDICTS[said] if isinstance(said, NodeVerdict) else reason_text(said)


def _fit_error(nodes: int, counts: Counts) -> str:
    texts: Counter[str] = Counter()
    for said, count in counts:
        texts[node_text(said)] += count
    parts = ", ".join(sorted(f"{count} {text}" for text, count in texts.items()))
    return (
        f"0/{nodes} nodes are available: {parts}." if parts else f"0/{nodes} nodes are available."
    )


def disruption_message(
    scheduler_name: str, job: str, trigger: str, spelling: TriggerSpelling
) -> str:
    """Return the message of a victim's `DisruptionTarget`. `job`: group id or namespace/name."""
    word = "triggerpod" if spelling is TriggerSpelling.GUIDE else "triggerPod"
    return (
        f"{scheduler_name}: preempting to accommodate higher priority pods, "
        f"preemptor: {job}, {word}: {trigger}"
    )


def preempted(trigger_uid: str, node: str) -> EventText:
    """Return the event of a victim."""
    note = f"Preempted by pod {trigger_uid} on node {node}"
    return EventText("Normal", "Preempted", note, "Preempting")


def cycle_failure(group: str, pod: str, fit_error: str, waiting: int) -> str:
    """Return the text of a cycle in which a member did not fit. `pod`: namespace/name."""
    return (
        f'GangGroup "{group}" gets rejected due to member Pod "{pod}" is unschedulable '
        f'with reason "{fit_error}", alreadyWaitForBound: {waiting}'
    )


def released(group: str, pods: int) -> dict[str, str]:
    """Return the annotations of pods that are bound together; a pod that is alone has none."""
    if pods < 2:
        return {}
    return {**dict.fromkeys(GROUP_ID, group), **dict.fromkeys(MEMBER_COUNT, str(pods))}


def rejected_gang(gang: str) -> str:
    """Return the message to members when one of a strict gang does not fit."""
    return f'Gang "{gang}" gets rejected due to pod is unschedulable'


def rejected_pod_group(gang: str, pod: str) -> str:
    """Return scheduler-plugins' message to the pod for which it rejects a group."""
    return f"PodGroup {gang} gets rejected due to Pod {pod} is unschedulable even after PostFilter"


def unreserved(gang: str, pod: str) -> str:
    """Return the message to waiting members when one timed out or could not be bound."""
    return f'Gang "{gang}" gets rejected due to Pod "{pod}" in Unreserve'


def waiting_message(group: str, waiting: int, minimum: int) -> str:
    """Return why a placed member is not bound yet; our own words."""
    return f'GangGroup "{group}" waits for members: {waiting} have a node, {minimum} are needed'


def barrier_text(barring: Barring) -> str:
    """Return why a member may not be tried, as the gate before the queue states it."""
    pod, gang = barring.pod, barring.gang
    match barring.barrier:
        case Barrier.NO_GANG:
            return f"can't find gang, gangName: {gang}, podName: {pod}"
        case Barrier.NOT_INITIALIZED:
            return f"gang has not init, gangName: {gang}, podName: {pod}"
        case Barrier.GROUP:
            parts = []
            if barring.missing:
                parts.append(f"memberGangs {_listed(barring.missing)} doesn't exists")
            if barring.uninitialized:
                parts.append(f"memberGangs {_listed(barring.uninitialized)} has not init")
            if barring.short:
                parts.append(f"memberGangs {_listed(barring.group)} child pod not collect enough")
            return (
                f"gangGroup {_listed(barring.group)} basic check: {', '.join(parts)}, "
                f"current gang: {gang}, podName: {pod}"
            )
        case Barrier.SCHEDULING:
            return (
                f"gangGroup {','.join(barring.group)} is scheduling "
                "and this pod has not been attempted"
            )
        case Barrier.REPRESENTED:
            return (
                f"representative pod {barring.representative} of gangGroupID "
                f"{','.join(barring.group)} already exists"
            )
        case Barrier.UNKNOWN_POD:
            return f"pod {pod} is not exists in gangCache"


def _listed(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"
