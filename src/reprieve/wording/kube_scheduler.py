"""kube-scheduler's texts: conditions, events and messages of the scheduling plane, word for word.

The engine states what happened in codes and sentences with parameters; here they become the texts
of release 1.37 (specification, sections 4, 5, 7, 8, 9, 11, 12). `kep_messages` uses the words of
KEP-5710 where the two differ. Texts of single reasons are in `rejections`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kubeworld.units.instants import Nanos, format_instant
from kubeworld.units.untrusted import cut
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import (
    Attempt,
    Diagnosis,
    Explanation,
    GroupStatus,
    Member,
    Preemption,
    Sentence,
)
from reprieve.wording.events import EventText
from reprieve.wording.rejections import reason_text
from reprieve.wording.undecided import PREEMPTION_NOT_RECORDED

__all__ = [
    "CLUSTER",
    "COMPOSITE_SCHEDULED",
    "DISRUPTION_REASON",
    "DISRUPTION_TARGET",
    "GROUP_SCHEDULED",
    "GROUP_SCHEDULED_ALPHA",
    "POD_SCHEDULED",
    "SCHEDULER_ERROR",
    "UNSCHEDULABLE",
    "ConditionText",
    "PreemptorKind",
    "decision_stopped",
    "disruption_ignored",
    "disruption_message",
    "ended_the_process",
    "explanation_text",
    "failed_scheduling",
    "fit_text",
    "group_condition",
    "group_message",
    "joined",
    "member_message",
    "min_runtime_note",
    "not_enqueued",
    "not_read",
    "notice_ignored",
    "pod_condition",
    "preempted",
    "preemption_not_recorded",
    "preemption_text",
    "protection_ignored",
    "scheduled",
    "scheduler_error",
    "took_too_long",
    "victim_overdue",
]

CLUSTER: Final = "cluster"  # the target of a group's preemption
POD_SCHEDULED: Final = "PodScheduled"
GROUP_SCHEDULED: Final = "PodGroupInitiallyScheduled"
COMPOSITE_SCHEDULED: Final = "CompositePodGroupInitiallyScheduled"
GROUP_SCHEDULED_ALPHA: Final = "PodGroupScheduled"  # where only v1alpha2 is served
DISRUPTION_TARGET: Final = "DisruptionTarget"
DISRUPTION_REASON: Final = "PreemptionByScheduler"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"

_SCHEDULED: Final = "Scheduled"
_NOTE_LIMIT: Final = 1024  # characters of an event's note
_MESSAGE_LIMIT: Final = 32_768  # characters of a condition's message
_NOTE_END: Final = " ..."
_DOMAIN: Final = "cannot determine domain for already scheduled pods: "
_GROUP_PREEMPTION: Final = "pod group preemption: "
_POD_PREEMPTION: Final = "preemption: "
_UNIFORM: Final = "all pods in a single pod group should have the same"

#: Texts with the explanation's values in order.
_TEXTS: Final[Mapping[Sentence, str]] = {
    Sentence.MIN_COUNT_UNREACHABLE: (
        "minCount ({0}) cannot be satisfied: {1} scheduled, {2} remaining"
    ),
    Sentence.MIN_COUNT_NOT_YET: (
        "minCount ({0}) is not yet satisfied: {1} scheduled, {2} remaining"
    ),
    Sentence.GROUP_UNSCHEDULABLE: "pod group is unschedulable",
    Sentence.PLACEMENTS: "0/{0} placements are available, first placement status",
    Sentence.NO_PLACEMENTS: "no feasible placements found",
    Sentence.MORE_DOMAINS: _DOMAIN + "more than 1 domain found for pod group: {0}, {1}",
    Sentence.NO_DOMAIN: _DOMAIN + "no topology domain found for pod {0}",
    Sentence.NO_NODE_OF_POD: _DOMAIN + "getting node for pod {0}: node not found",
    Sentence.SCHEDULER_NAMES: _UNIFORM + ' .spec.schedulerName set, got: "{0}" and "{1}"',
    Sentence.PRIORITIES: _UNIFORM + " priority as the pod group's priority, got {0} and {1}",
    Sentence.POLICIES_OF_GROUP: (
        _UNIFORM + " preemption policy as the pod group's preemption policy, got {0} and {1}"
    ),
    Sentence.POLICIES_OF_PODS: _UNIFORM + " preemption policy, got {0} and {1}",
    Sentence.NO_PROFILE: 'profile not found for scheduler name "{0}"',
    Sentence.NO_GROUP: 'waiting for pods\'s pod group "{0}" to appear in scheduling queue',
    Sentence.NO_NODES: "no nodes available to schedule pods",
    Sentence.NOT_ELIGIBLE_POLICY: "not eligible due to preemptionPolicy=Never.",
    Sentence.NOT_ELIGIBLE_TERMINATING: (
        "not eligible due to a terminating pod on the nominated node."
    ),
    Sentence.ONGOING: "ongoing preemption on nominated nodes",
    Sentence.NO_VICTIMS_GROUP: "No preemption victims found for incoming preemptor",
    Sentence.NO_VICTIMS_POD: "No preemption victims found for incoming pod",
    Sentence.NO_CANDIDATES: "0/{0} nodes are available",
    Sentence.EXPECTED_VICTIM: 'expected at least one victim pod on node "{0}"',
    Sentence.FOUND_GROUP: "found a placement for podgroup, preempting {0} victims",
    Sentence.FOUND_POD: ("found a potential placement for pod on node {0}, preempting {1} victims"),
    Sentence.CHILD_FAILED: "composite pod group evaluation failed due to child error",
    Sentence.TOO_MANY_LEVELS: (
        'the tree of pod group "{0}" has more than {1} levels, or is circular'
    ),
    Sentence.CLAIMS_DEALLOCATED: "deallocation and deletion of ResourceClaims completed",
    Sentence.SILENT: "",
    Sentence.NOT_HELPFUL: "Preemption is not helpful for scheduling",
    Sentence.PLUGIN_FAILED: 'error in "{0}" PodGroupPostFilter plugins',
}
_KEP_TEXTS: Final[Mapping[Sentence, str]] = {
    Sentence.PRIORITIES: (
        "all pods in a single pod group should match the priority of the pod group, "
        "got: {0} and {1}"
    ),
}
_KEP_WAITING: Final = "pod group is waiting for podgroup preemption to complete"


@dataclass(frozen=True, slots=True)
class ConditionText:
    """A condition without its times."""

    type: str
    status: str
    reason: str
    message: str


class PreemptorKind:
    """The words for a preemptor in messages."""

    POD: Final = "pod"
    GROUP: Final = "podgroup"
    COMPOSITE: Final = "compositepodgroup"


def explanation_text(explanation: Explanation, *, kep_messages: bool = False) -> str:
    """Return the text of one explanation and those inside it."""
    sentence, values = explanation.sentence, explanation.values
    template = _TEXTS[sentence]
    if kep_messages:
        template = _KEP_TEXTS.get(sentence, template)
    text = template.format(*values, "", "")  # a name that is unknown is empty
    inner = joined(explanation.inner, kep_messages=kep_messages)
    if sentence is Sentence.PLUGIN_FAILED:
        # What the plugin stated of its own, or the text of its exception.
        return f"{text}: {inner or values[1]}"
    if not inner:
        return text
    colon = sentence in (Sentence.PLACEMENTS, Sentence.CHILD_FAILED)
    return f"{text}: {inner}" if colon else f"{text}, {inner}"


def joined(explanations: Iterable[Explanation], *, kep_messages: bool = False) -> str:
    """Return the texts of a status, joined as kube-scheduler joins reasons."""
    return ", ".join(explanation_text(each, kep_messages=kep_messages) for each in explanations)


def fit_text(diagnosis: Diagnosis) -> str:
    """Return why no node accepts the pod; the counts are sorted as strings."""
    if diagnosis.error and diagnosis.everywhere is not None:
        return reason_text(diagnosis.everywhere)
    if not diagnosis.nodes:
        return _TEXTS[Sentence.NO_NODES]
    if diagnosis.everywhere is not None:
        text = reason_text(diagnosis.everywhere)
        return f"0/{diagnosis.nodes} nodes are available: {text}."
    counts: Counter[str] = Counter()
    for reason, count in diagnosis.counts:
        counts[reason_text(reason)] += count
    return _counted(diagnosis.nodes, counts)


def preemption_text(preemption: Preemption) -> str:
    """Return what PostFilter states about a plain pod, without the prefix."""
    explanation = preemption.explanation
    if explanation.sentence is not Sentence.NO_CANDIDATES:
        return explanation_text(explanation)
    counts: Counter[str] = Counter()
    for said, count in preemption.unhelpful:
        text = explanation_text(said) if isinstance(said, Explanation) else reason_text(said)
        counts[text] += count
    return _counted(int(explanation.values[0]), counts)


def member_message(attempt: Attempt, member: Member, *, kep_messages: bool = False) -> str:
    """Return the message of the pod's `PodScheduled` condition and `FailedScheduling` event.

    A member of a group shows its own fit failure, else the group's status without what PostFilter
    added; a plain pod shows both, or the first alone where PostFilter states nothing. In a tree the
    group is the pod's own.
    """
    if member.diagnosis is None:
        part = next((each for each in attempt.parts if each.key == member.group), None)
        return joined(_first(attempt, part), kep_messages=kep_messages)
    text = fit_text(member.diagnosis)
    if attempt.unit.group or attempt.preemption is None:
        return text
    found = preemption_text(attempt.preemption)
    return f"{text} {_POD_PREEMPTION}{found}" if found else text


def _first(attempt: Attempt, part: GroupStatus | None) -> tuple[Explanation, ...]:
    """Return the status of a group without what PostFilter added."""
    if part is None or part.failure is None:
        return attempt.status[:1]
    return (part.failure,)


def group_message(
    attempt: Attempt, part: GroupStatus | None = None, *, kep_messages: bool = False
) -> str:
    """Return the message of a group's condition: its status and what PodGroupPostFilter added.

    `part`: a group of a tree instead of the unit itself.
    """
    preemption = attempt.preemption
    waiting = kep_messages and preemption is not None and preemption.code is Code.SUCCESS
    parts = [joined(_first(attempt, part), kep_messages=kep_messages)]
    for explanation in attempt.status[1:]:
        text = explanation_text(explanation, kep_messages=kep_messages)
        own = explanation.sentence in (Sentence.CLAIMS_DEALLOCATED, Sentence.PLUGIN_FAILED)
        if text:
            parts.append(text if own else _GROUP_PREEMPTION + text)
    reasons = ", ".join(parts)
    return f"{_KEP_WAITING}: {reasons}" if waiting else reasons


def pod_condition(attempt: Attempt, member: Member, *, kep_messages: bool = False) -> ConditionText:
    """Return the `PodScheduled` condition of a pod that was not placed."""
    error = attempt.scheduler_error or attempt.code is Code.ERROR
    return ConditionText(
        POD_SCHEDULED,
        "False",
        SCHEDULER_ERROR if error else UNSCHEDULABLE,
        cut(member_message(attempt, member, kep_messages=kep_messages), _MESSAGE_LIMIT),
    )


def group_condition(
    attempt: Attempt,
    type: str = GROUP_SCHEDULED,
    part: GroupStatus | None = None,
    *,
    kep_messages: bool = False,
) -> ConditionText:
    """Return the group's condition after an attempt that placed its minimum or failed.

    `part`: a group of a tree instead of the unit itself.
    """
    if attempt.code is Code.SUCCESS and (part is None or part.failure is None):
        return ConditionText(type, "True", _SCHEDULED, "")
    error = attempt.scheduler_error or attempt.code is Code.ERROR
    return ConditionText(
        type,
        "False",
        SCHEDULER_ERROR if error else UNSCHEDULABLE,
        cut(group_message(attempt, part, kep_messages=kep_messages), _MESSAGE_LIMIT),
    )


def not_enqueued(type: str, message: str) -> ConditionText:
    """Return the condition of a pod or group that PreEnqueue refuses."""
    return ConditionText(type, "False", UNSCHEDULABLE, message)


def disruption_message(scheduler_name: str, preemptor: str) -> str:
    """Return the message of a victim's `DisruptionTarget`; `preemptor`: a `PreemptorKind`."""
    return f"{scheduler_name}: preempting to accommodate a higher priority {preemptor}"


def failed_scheduling(message: str) -> EventText:
    """Return the event of a pod that was not placed."""
    return EventText("Warning", "FailedScheduling", _note(message), "Scheduling")


def took_too_long(seconds: float, pause: int) -> str:
    """Return the message of work about which deciding exceeded these seconds."""
    return (
        f"decisions about it exceeded {seconds:g} s and were stopped; tried again after "
        f"{pause} s, or when it changes"
    )


def ended_the_process(pause: int) -> str:
    """Return the message of work about which deciding ended the scheduler's process."""
    return (
        "deciding about it did not end, and the process that did so had to be ended; tried again "
        f"after {pause} s, or when it changes"
    )


def decision_stopped(message: str) -> EventText:
    """Return the event of work about which deciding exceeded its time."""
    return EventText("Warning", "DecisionStopped", message, "Scheduling")


def preemption_not_recorded(message: str) -> EventText:
    """Return the event of work whose plan cannot be written down."""
    return EventText("Warning", PREEMPTION_NOT_RECORDED, _note(message), "Preempting")


def scheduler_error(type: str, message: str) -> ConditionText:
    """Return the condition of work about which nothing could be decided."""
    return ConditionText(type, "False", SCHEDULER_ERROR, message)


def protection_ignored(name: str, why: str) -> EventText:
    """Return the event of work whose preemption priority class has no effect."""
    note = f"preemption priority class {name} is ignored: {why}"
    return EventText("Warning", "PreemptionPriorityIgnored", _note(note), "Scheduling")


def disruption_ignored(why: str) -> EventText:
    """Return the event of work that states something of its disruption that is not accepted."""
    return EventText("Warning", "DisruptionIgnored", _note(why), "Scheduling")


def min_runtime_note(why: str, *, ignored: bool) -> EventText:
    """Return the event of a minimum runtime that has no effect, or less than it states."""
    reason = "MinRuntimeIgnored" if ignored else "MinRuntimeCut"
    return EventText("Warning", reason, _note(why), "Scheduling")


def notice_ignored(annotation: str) -> EventText:
    """Return the event of work whose wish for notice cannot be read."""
    why = f"{annotation} is ignored; accepted: durations from 10s to 1h, such as 90s or 10m"
    return EventText("Warning", "NoticeIgnored", _note(why), "Scheduling")


def not_read(fault: str, *, counted: bool) -> EventText:
    """Return our own event about an object that a fault of ours keeps from being read."""
    so = "it counts with what it requests and is not placed" if counted else "it is left out"
    note = f"A fault of the operator ({fault}) keeps the object from being read: {so}"
    return EventText("Warning", "NotRead", cut(note), "Scheduling")


def preempted(preemptor: str, uid: str, target: str) -> EventText:
    """Return the event of a victim; `target`: the node, `CLUSTER` for a group."""
    note = f"Preempted by {preemptor} {uid} on node {target}"
    return EventText("Normal", "Preempted", _note(note), "Preempting")


def scheduled(namespace: str, name: str, node: str) -> EventText:
    """Return the event of a pod that was bound."""
    note = f"Successfully assigned {namespace}/{name} to {node}"
    return EventText("Normal", "Scheduled", _note(note), "Binding")


def victim_overdue(namespace: str, name: str) -> EventText:
    """Return our own event about a victim that does not end."""
    note = (
        f"{namespace}/{name} was to be preempted and does not end: preemption is planned around it"
    )
    return EventText("Warning", "VictimOverdue", _note(note), "Preempting")


def eviction_refused(namespace: str, name: str, why: str, until: Nanos, about: str) -> EventText:
    """Return our own event about a victim whose eviction is refused; `about`: whose namespace."""
    victim = f"{namespace}/{name}" if about == namespace else "A victim of another namespace"
    because = f": {why}" if about == namespace else ""
    at = format_instant(until)
    note = f"{victim} cannot be evicted and is no victim before {at}; others are tried{because}"
    return EventText("Warning", "EvictionRefused", _note(note), "Preempting")


def _counted(nodes: int, counts: Mapping[str, int]) -> str:
    parts = sorted(f"{count} {text}" for text, count in counts.items())
    return f"0/{nodes} nodes are available: {', '.join(parts)}."


def _note(text: str) -> str:
    if len(text) <= _NOTE_LIMIT:
        return text
    return text[: _NOTE_LIMIT - len(_NOTE_END)] + _NOTE_END
