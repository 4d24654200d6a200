"""Why a unit waits, in a sentence, with a next step and the place in the documentation.

A sentence holds by itself; further details need values (`Diagnosis.values`), and only what
has all of its values is stated. Instants are RFC 3339, amounts as people write them. The table in
`docs/why-it-waits.md` is made of the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from types import MappingProxyType
from typing import Final

from kubeworld.units.quantities import quantity_text
from kubeworld.units.untrusted import cut, integer_or_none
from reprieve.api.kaiwo import ANNOTATION_PREFIX
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import REASONS, Reason
from reprieve.engine.diagnosis.refusals import BY_PODS, Refused
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.plan import Plane
from reprieve.units.counts import of_resource
from reprieve.wording.causes import CAUSES, CauseWords
from reprieve.wording.changes import Written, fix_text
from reprieve.wording.events import EventText
from reprieve.wording.node_refusals import (
    behind_text,
    is_of_cluster,
    refusals_step,
    refusals_text,
)

__all__ = [
    "NO_LONGER",
    "OPT_IN",
    "WAITING",
    "Words",
    "amounts_text",
    "anchor",
    "deficit_text",
    "general_step",
    "next_step",
    "reasons_markdown",
    "rule_text",
    "sentence",
    "waiting_event",
    "words",
]

#: The reason of our own event about work that waits.
WAITING: Final = "Waiting"
#: What is stated of a unit that started, ended or was deleted.
NO_LONGER: Final = "It waits no longer"
_PAGE: Final = "docs/why-it-waits.md"
_MOST_COUNTS: Final = 5  # of filters and rules that one sentence names
#: The annotation that opts work in to the idle plane, or all work of a namespace.
OPT_IN: Final = f"{ANNOTATION_PREFIX}enabled"
_NO_NODE: Final = "No node accepts it"
_LONGEST_NOTE: Final = 1_000  # characters of an event's note


@dataclass(frozen=True, slots=True)
class Words:
    """The text about a reason: always, where the values are there, and what to do."""

    sentence: str
    step: str
    details: tuple[str, ...] = ()


_SURPLUS: Final = "all of its pods have to find a node, also the {surplus} beyond the minimum"
_QUOTA: Final[Mapping[Reason, Words]] = {
    Reason.STOPPED: Words(
        "Its queue is stopped",
        "Have the queue's administrator start it again: `spec.stopPolicy: None`.",
        ("it is {queue}", "its stopPolicy is {policy}"),
    ),
    Reason.INACTIVE: Words(
        "Its queue does not exist, or cannot admit anything as it is configured",
        "Correct the queue that it names, or see what the condition `Active` of the ClusterQueue "
        "names as missing.",
        (
            "there is no LocalQueue {missing} in namespace {namespace}",
            "the namespace has: {known}",
            "ClusterQueue {cluster_queue}: {why}",
        ),
    ),
    Reason.NAMESPACE_NOT_ALLOWED: Words(
        "Its ClusterQueue does not accept work of its namespace",
        "Use a LocalQueue of another ClusterQueue, or have the namespace's labels match "
        "`spec.namespaceSelector`.",
        ("ClusterQueue {cluster_queue} accepts {namespaces}",),
    ),
    Reason.INVALID: Words(
        "What its pods request cannot be read, or is more than the namespace's limits allow",
        "Correct the requests and limits of its pods.",
        ("{why}",),
    ),
    Reason.NO_FLAVOR_MATCHES: Words(
        "No flavor of its queue suits its pods: their nodes, or the resources they request",
        "Compare the pods' node selector, affinity and tolerations with the flavors' labels and "
        "taints, and their resources with those that the queue covers.",
        ("{why}", "{differs}"),
    ),
    Reason.NO_PLACES: Words(
        "No part of its topology has capacity for all of its pods, even without all work that "
        "topologies placed",
        "Request fewer pods or smaller slices, or have nodes added there.",
        ("{short}", "{why}"),
    ),
    Reason.PLACES_TAKEN: Words(
        "Its quota is free, and no part of its topology has capacity for all of its pods now",
        "Wait until work there ends, require a wider level, or request smaller slices.",
        ("{short}", "{why}"),
    ),
    Reason.NEVER_FITS: Words(
        "It requests more than its queue can ever have",
        "Request less, or have the nominal quota or the borrowing limit raised.",
        (
            "it needs {needs}",
            "that is of its {pod_sets}",
            "the queue may have {ceiling}",
        ),
    ),
    Reason.SET_ASIDE: Words(
        "Deciding about it failed, so that it is set aside for a while",
        "The operator's log has the details; it is tried again by itself.",
        ("{why}", "it is tried again at {until}"),
    ),
    Reason.CHECKS_OPEN: Words(
        "Admission checks or gates of it are open",
        "Look at the admission checks named in its status; their controllers answer them.",
        ("open: {checks}",),
    ),
    Reason.PODS_NOT_READY: Words(
        "Work that was admitted before it has pods that are not ready yet",
        "Find out why those pods do not start; until they do no other work is admitted.",
        ("it waits for {holder}", "at the latest until {until}"),
    ),
    Reason.VICTIMS_LEAVING: Words(
        "Work is preempted for it and has not ended yet",
        "Nothing: it is admitted once they have ended.",
        (
            "{victims} on the way out",
            "{saving} to be evicted once the next save is made, expected by {saved}",
            "they are to have ended by {until}",
        ),
    ),
    Reason.BACKOFF: Words(
        "It was evicted or refused lately and is not tried before its pause is over",
        "Nothing: it is tried again by itself.",
        ("it is tried again at {until}",),
    ),
    Reason.BEHIND_HEAD: Words(
        "Another workload is before it in its queue, and no workload behind that one is tried",
        "Wait, raise its priority, or use a queue with `queueingStrategy: BestEffortFIFO`.",
        ("the head is {head}",),
    ),
    Reason.HELD_BY_OTHERS: Words(
        "The quota is in use by work that is not preempted for it",
        "Wait until some of it ends, or request less.",
        ("it lacks {lacks}", "that is of its {pod_sets}"),
    ),
}
_SCHEDULING: Final[Mapping[Reason, Words]] = {
    Reason.GROUP_MISSING: Words(
        "It names a pod group that does not exist",
        "Create the group, or correct the name that the pods give.",
        ("there is no {group}",),
    ),
    Reason.GROUP_INCOMPLETE: Words(
        "Its group has fewer pods than its minimum, and is not tried before all are there",
        "Find out why the other pods were not created, or lower the group's minimum.",
        ("{present} of {minimum} pods exist: {missing} missing", "{why}"),
    ),
    Reason.NOT_UNIFORM: Words(
        "The pods of its group differ in what has to be the same",
        "Make the pods of the group from one template.",
        ("{why}",),
    ),
    Reason.NO_NODE_MATCHES: Words(
        "No node accepts it, however empty",
        "Change what it requires of a node: size, node selector, affinity, tolerations or volumes.",
        ("{why}", "of {nodes} nodes none does"),
    ),
    Reason.SET_ASIDE: Words(
        "Deciding about it failed, so that it is set aside for a while",
        "The operator's log has the details; it is tried again by itself.",
        ("{why}", "it is tried again at {until}"),
    ),
    Reason.NOMINATED_WAITING: Words(
        "Capacity is kept for it on nodes, and is not free yet",
        "Nothing: it is placed once the capacity is free.",
        ("kept on {on}", "at the latest until {until}"),
    ),
    Reason.VICTIMS_LEAVING: Words(
        "Pods are preempted for it and have not ended yet",
        "Nothing: it is placed once they have ended.",
        ("{victims} on the way out", "they are to have ended by {until}"),
    ),
    Reason.SPREAD_OR_AFFINITY_BLOCKS: Words(
        "Rules about which pods may be together keep it from nodes with enough capacity",
        "Loosen its spread constraints, affinity or anti-affinity, or the topology that its group "
        "requests.",
        ("{why}",),
    ),
    Reason.POLICY_NEVER: Words(
        "There is no free capacity, and with `preemptionPolicy: Never` it preempts no work",
        "Wait, or use a priority class without `preemptionPolicy: Never`.",
        ("it lacks {lacks}",),
    ),
    Reason.VICTIMS_PROTECTED: Words(
        "Who could be preempted for it is protected",
        "Wait until the protection ends, or request less.",
        ("the first protection ends at {until}", _SURPLUS),
    ),
    Reason.NO_VICTIMS_SUFFICE: Words(
        "Even if all work of lower priority was preempted, it would not fit",
        "Request less, use a higher priority, or wait until work of its own priority ends.",
        ("it lacks {lacks}", _SURPLUS),
    ),
    Reason.FULL: Words(
        "The nodes that it accepts are full, and no work on them is of lower priority",
        "Wait until work ends, request less, or use a higher priority.",
        ("it lacks {lacks}", _SURPLUS),
    ),
    Reason.BACKOFF: Words(
        "It was refused lately and is not tried before its pause is over",
        "Nothing: it is tried again by itself.",
        ("it is tried again at {until}",),
    ),
}
_IDLE: Final[Mapping[Reason, Words]] = {
    Reason.VICTIMS_PROTECTED: Words(
        "The idle work that could be preempted for it was displaced too often, cannot be "
        "evicted, or is spared by a harm budget",
        "Wait until that ends; its Disruptions state why.",
        ("the first is left alone until {until}", "used up: harm budget {budgets}"),
    ),
    Reason.NOT_OPTED_IN: Words(
        "Nothing that holds GPUs of the kind that it needs has opted in to be preempted when idle",
        f'Annotate work, or its namespace, with `{OPT_IN}: "true"`, or have it opted in by the '
        "configuration.",
    ),
    Reason.WOULD_NOT_HELP: Words(
        "It would not fit even if idle work was preempted",
        "Request less, or GPUs of which more are idle.",
        ("it lacks {lacks}",),
    ),
    Reason.STALE_METRICS: Words(
        "It is not known which GPUs are idle, as their metrics are too old",
        "See that the metric sources are reachable; the operator's log names those that are not.",
        ("since {since}",),
    ),
    Reason.HELD_BY_CLAIM: Words(
        "The idle GPUs that it could have are freed for other work that waits",
        "Nothing: it is looked at again when that work has its GPUs, or releases them.",
        ("they are for {claim}",),
    ),
    Reason.NOT_IDLE_YET: Words(
        "Work on those GPUs is idle, but not for long enough",
        "Nothing: it is looked at again by itself.",
        ("the first is idle for long enough at {until}",),
    ),
    Reason.NOBODY_IDLE: Words(
        "All work that could be preempted uses its GPUs",
        "Wait until work ends or becomes idle.",
    ),
    Reason.NO_PRESSURE: Words(
        "No work waits for GPUs, so that nothing is preempted",
        "Nothing has to be done.",
    ),
}
# What each rule states of candidates that are not preempted; other rules stand as they are.
_STAYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "leaving": "on its way out",
        "policy": "out of reach of the queue's policy",
        "own quota": "within its nominal quota",
        "priority": "of no lower priority",
        "protected": "protected for now",
        "loop": "held because of a loop",
        "cycle": "held because of a loop",
        "without gain": "held, since it was displaced for nothing before",
        "repeated displacement": "protected, since it was displaced again and again",
        "crash loop": "held from work that fails after displacing others",
        "eviction refused": "left alone, since its eviction was refused",
        "harm budget": "spared, since a harm budget is used up",
        "kept by its user": "kept by its users",
        "fair share": "within its fair share",
        "label, quota, gang or budget": "protected by a label, quota, gang or budget",
        "borrowing": "out of reach of work that would borrow",
        "not enough": "too small to help",
    }
)
_WORDS: Final[Mapping[Plane, Mapping[Reason, Words]]] = MappingProxyType(
    {Plane.QUOTA: _QUOTA, Plane.SCHEDULING: _SCHEDULING, Plane.IDLE: _IDLE}
)


def words(plane: Plane, reason: Reason) -> Words:
    """Return the text about a reason.

    Raises:
        KeyError: it is no reason of this plane.
    """
    return _WORDS[plane][reason]


def sentence(diagnosis: Diagnosis) -> str:
    """Return why the unit waits, in one sentence without a full stop."""
    said = _cause_words(diagnosis) or words(diagnosis.plane, diagnosis.reason)
    nodes = _nodes_text(diagnosis)
    if nodes and diagnosis.reason is Reason.NO_NODE_MATCHES and diagnosis.cause is None:
        return nodes if is_of_cluster(diagnosis.nodes) else f"{_NO_NODE}: {nodes}"
    values = dict(diagnosis.values)
    if diagnosis.reason is Reason.GROUP_INCOMPLETE:
        values.update(_missing(values))
        if "missing" in values:  # the figures state all of it
            return "; ".join(
                each.format_map(values) for each in said.details if _has_values(each, values)
            )
    if diagnosis.deficit:
        values.setdefault("lacks", deficit_text(diagnosis.deficit))
    details = [detail.format_map(values) for detail in said.details if _has_values(detail, values)]
    if nodes:
        details.append(nodes)
    elif diagnosis.filters and not _is_reported(diagnosis):
        details.append(_counted("nodes refused", diagnosis.filters))
    if diagnosis.reason is Reason.FULL and nodes and not diagnosis.deficit:
        return nodes  # it is not for amounts that nodes refuse the pods
    if diagnosis.refused:
        details.append(_who_stays(diagnosis.refused))
    text = ": ".join(filter(None, (said.sentence, "; ".join(details))))
    usage = values.get("usage")
    return f"{usage}; {text[0].lower()}{text[1:]}" if usage else text


def _missing(values: Mapping[str, str]) -> dict[str, str]:
    """Return how many pods of a group are missing, where both counts are numbers."""
    present, minimum = (integer_or_none(values.get(name, "")) for name in ("present", "minimum"))
    if present is None or minimum is None or present >= minimum:
        return {}
    missing = minimum - present
    return {"missing": f"{missing} is" if missing == 1 else f"{missing} are"}


def _is_reported(diagnosis: Diagnosis) -> bool:
    """Return whether what is lacking states all that the counts of the filters would."""
    return bool(diagnosis.nodes) or bool(
        diagnosis.deficit and set(diagnosis.filters) == {FilterName.NODE_RESOURCES_FIT}
    )


def _nodes_text(diagnosis: Diagnosis) -> str:
    """Return by what nodes refuse the pods; of those that are full, which others have capacity."""
    refusals = diagnosis.nodes
    if diagnosis.reason is Reason.NO_NODE_MATCHES:
        return refusals_text(refusals)
    if diagnosis.reason is Reason.SPREAD_OR_AFFINITY_BLOCKS:
        return refusals_text([each for each in refusals if each.kind in BY_PODS])
    return behind_text(refusals)


def next_step(diagnosis: Diagnosis, written: Sequence[Written] = ()) -> str:
    """Return what to do: the first change that was tried and helps, else what helps in general.

    `written`: what that change is in the manifests, where it is known.
    """
    if diagnosis.fixes:
        return fix_text(diagnosis.fixes[0], written)
    return general_step(diagnosis)


def general_step(diagnosis: Diagnosis) -> str:
    """Return what helps in general against the reason, or against its cause if that is known."""
    known = _cause_words(diagnosis)
    if known is None:
        of_nodes = _nodes_step(diagnosis)
        return of_nodes or words(diagnosis.plane, diagnosis.reason).step
    values = diagnosis.values
    return next(each.format_map(values) for each in known.steps if _has_values(each, values))


def _nodes_step(diagnosis: Diagnosis) -> str:
    """Return what to do about the nodes, where that is what the unit waits for."""
    if diagnosis.reason is Reason.NO_NODE_MATCHES:
        return refusals_step(diagnosis.nodes)
    if diagnosis.reason is Reason.SPREAD_OR_AFFINITY_BLOCKS:
        return refusals_step([each for each in diagnosis.nodes if each.kind in BY_PODS])
    ports = [each for each in diagnosis.nodes if each.kind is Refused.PORT]
    return refusals_step(ports) if diagnosis.reason is Reason.FULL else ""


def _cause_words(diagnosis: Diagnosis) -> CauseWords | None:
    known = None if diagnosis.cause is None else CAUSES[diagnosis.cause]
    return known if known is not None and known.reason is diagnosis.reason else None


def _has_values(text: str, values: Mapping[str, str]) -> bool:
    return all(values.get(name) for name in _names(text))


def anchor(plane: Plane, reason: Reason) -> str:
    """Return the place in the documentation, from the root of the repository."""
    return f"{_PAGE}#{_name(plane, reason)}"


def waiting_event(diagnosis: Diagnosis) -> EventText:
    """Return our own event about a unit that waits; its note begins with the reason's word."""
    note = f"{diagnosis.reason}: {sentence(diagnosis)}"
    # The action distinguishes reasons: events that are alike in it become one series.
    return EventText("Normal", WAITING, cut(note, _LONGEST_NOTE), diagnosis.reason.value)


def deficit_text(deficit: Mapping[tuple[str, str], int]) -> str:
    """Return what is missing, as people write it: `2 nvidia.com/gpu in rack-1, 4 cpu`."""
    by_place: dict[str, dict[str, int]] = {}
    for (where, resource), amount in sorted(deficit.items()):
        by_place.setdefault(where, {})[resource] = amount
    return ", ".join(
        amounts_text(amounts) + (f" in {where}" if where else "")
        for where, amounts in by_place.items()
    )


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Return amounts in base units as people write them: `4 cpu, 16Gi memory`."""
    return ", ".join(
        of_resource(quantity_text(name, n), name) for name, n in sorted(amounts.items())
    )


def reasons_markdown() -> str:
    """Return the tables of all reasons, by plane, in the order in which they dominate."""
    return "\n".join(_plane_markdown(plane) for plane in REASONS)


def _plane_markdown(plane: Plane) -> str:
    rows = [
        f"### In the {plane} plane",
        "",
        "| reason | meaning | next step |",
        "|---|---|---|",
    ]
    for reason in REASONS[plane]:
        said = words(plane, reason)
        mark = f'<a id="{_name(plane, reason)}"></a>`{reason}`'
        rows.append(f"| {mark} | {said.sentence} | {said.step} |")
        rows += [
            f"| `{reason}`, {cause} | {known.sentence} | {_step_in_table(known)} |"
            for cause, known in CAUSES.items()
            if known.reason is reason
        ]
    return "\n".join([*rows, ""])


def _step_in_table(known: CauseWords) -> str:
    """Return the step with every value, its names in angle brackets."""
    values = {name: f"<{name.replace('_', ' ')}>" for name in _names(known.steps[0])}
    return known.steps[0].format_map(values)


def _name(plane: Plane, reason: Reason) -> str:
    return f"{plane}-{reason.lower()}"


def _names(text: str) -> Iterable[str]:
    return (name for _, name, _, _ in Formatter().parse(text) if name)


def rule_text(rule: str) -> str:
    """Return by what a holder stays: `of no lower priority`."""
    return _STAYS.get(rule, rule)


def _who_stays(refused: Mapping[str, int]) -> str:
    """Return how many stay by each rule: `who stays: 2 of no lower priority, 1 too small`."""
    order = sorted(refused.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{number} {_stay(rule, number)}" for rule, number in order[:_MOST_COUNTS])
    return f"who stays: {shown}"


def _stay(rule: str, number: int) -> str:
    text = rule_text(rule)
    if number == 1:
        return text
    return text.replace(" its ", " their ").replace("it was", "they were")


def _counted(what: str, counts: Mapping[str, int]) -> str:
    """Return counts, the largest first: `nodes refused: NodeAffinity 3, TaintToleration 2`."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} {number}" for name, number in order[:_MOST_COUNTS])
    return f"{what}: {shown}"
