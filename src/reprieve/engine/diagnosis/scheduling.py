"""Why a pod or a group waits in the scheduling plane: from its last attempt, or what gates it.

What an attempt ended in holds the answer, so that this costs no decision and looks at no cluster;
figures are added by `scheduling_figures`. These reasons are found; the first in order is reported
(`reasons.REASONS`):

| what the attempt or the gate states | reason |
| --- | --- |
| the group's object, or one above it, is unknown | GroupMissing |
| fewer pods than the minimum are there, or wait in Permit | GroupIncomplete |
| the pods differ in scheduler, priority or policy | NotUniform |
| all nodes are of the wrong kind, or too small when empty | NoNodeMatches |
| an error, a plugin that failed | SetAside |
| a node is kept for it, and nothing is preempted | NominatedWaiting |
| victims were chosen, or are on their way out | VictimsLeaving |
| a rule about pods that are together refuses a node with capacity | SpreadOrAffinityBlocks |
| its policy is Never | PolicyNever |
| pods of lower priority have just started, or are protected by a class | VictimsProtected |
| it has not waited for long enough to preempt | VictimsProtected |
| victims were looked for, and all of them together do not free capacity | NoVictimsSuffice |
| no pod is of lower priority | Full |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.diagnosis.causes import CAUSE, Cause
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import REASONS, Reason, dominant
from reprieve.engine.placement.reasons import PLUGIN, Code, Rejection
from reprieve.engine.placement.reasons import Reason as Refusal
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.gangs.job import JobReason
from reprieve.engine.scheduling.outcome import (
    Attempt,
    Explanation,
    GangCycle,
    Preemption,
    Sentence,
    with_inner,
)
from reprieve.engine.scheduling.outcome import Diagnosis as Fit
from reprieve.units.counts import counted

__all__ = [
    "LEAVING",
    "PRIORITY",
    "PROTECTED",
    "RUNTIME",
    "STATIC",
    "TOGETHER",
    "count_victims",
    "of_attempt",
]

#: What no pod that ends can change about a node.
STATIC: Final = frozenset(
    {
        Rejection.NODE_NAME,
        Rejection.UNSCHEDULABLE,
        Rejection.TAINT,
        Rejection.NODE_AFFINITY,
        Rejection.ADDED_AFFINITY,
        Rejection.LEFT_OUT,
        Rejection.AFFINITY_CONFLICT,
        Rejection.RESOURCES_EXCEED_NODE,
        Rejection.DRIVER_MISSING,
        Rejection.CLAIM_MISSING,
        Rejection.CLAIM_NOT_MADE,
        Rejection.CLAIM_LOST,
        Rejection.CLAIM_DELETED,
        Rejection.CLAIM_UNBOUND,
        Rejection.VOLUME_AFFINITY,
        Rejection.NO_VOLUME,
        Rejection.NO_STORAGE,
        Rejection.VOLUME_MISSING,
        Rejection.VOLUME_ZONE,
        Rejection.DEVICES_NOT_HERE,
        Rejection.FEATURES,
        Rejection.UNSUPPORTED,
    }
)
#: What depends on which pods are where. These filters come after the one of resources, so that a
#: node that they refuse has capacity.
TOGETHER: Final = frozenset(
    {
        Rejection.SPREAD_LABEL,
        Rejection.SPREAD_SKEW,
        Rejection.POD_AFFINITY,
        Rejection.POD_ANTI_AFFINITY,
        Rejection.EXISTING_ANTI_AFFINITY,
    }
)
#: Rules that keep pods from being preempted, as they are counted and reported.
PRIORITY: Final = "priority"
PROTECTED: Final = "preemption priority class"
RUNTIME: Final = "minimum runtime"
LEAVING: Final = "leaving already"
KEPT: Final = "label, quota, gang or budget"
_SAID: Final[Mapping[Sentence, Reason]] = MappingProxyType(
    {
        Sentence.NO_GROUP: Reason.GROUP_MISSING,
        Sentence.SCHEDULER_NAMES: Reason.NOT_UNIFORM,
        Sentence.PRIORITIES: Reason.NOT_UNIFORM,
        Sentence.POLICIES_OF_GROUP: Reason.NOT_UNIFORM,
        Sentence.POLICIES_OF_PODS: Reason.NOT_UNIFORM,
        Sentence.MORE_DOMAINS: Reason.SPREAD_OR_AFFINITY_BLOCKS,
        Sentence.NO_DOMAIN: Reason.SPREAD_OR_AFFINITY_BLOCKS,
        Sentence.NO_NODE_OF_POD: Reason.SPREAD_OR_AFFINITY_BLOCKS,
        Sentence.NO_PLACEMENTS: Reason.NO_NODE_MATCHES,
        Sentence.NO_PROFILE: Reason.SET_ASIDE,
        Sentence.TOO_MANY_LEVELS: Reason.SET_ASIDE,
        Sentence.PLUGIN_FAILED: Reason.SET_ASIDE,
    }
)
_WHY: Final[Mapping[Sentence, str]] = MappingProxyType(
    {
        Sentence.SCHEDULER_NAMES: "their scheduler names are {0} and {1}",
        Sentence.PRIORITIES: "their priorities are {0} and {1}",
        Sentence.POLICIES_OF_GROUP: "a pod states preemptionPolicy {0}, its group {1}",
        Sentence.POLICIES_OF_PODS: "their preemptionPolicy is {0} and {1}",
        Sentence.MORE_DOMAINS: "members run in the topology domains {0} and {1}",
        Sentence.NO_DOMAIN: "the node of {0} is in no domain of the group's topology",
        Sentence.NO_NODE_OF_POD: "the node of {0} was deleted",
        Sentence.NO_PLACEMENTS: "no node is in a domain of the group's topology",
        Sentence.NO_PROFILE: "no profile is named {0}",
        Sentence.TOO_MANY_LEVELS: "the tree above {0} has more than {1} levels, or is a circle",
        Sentence.PLUGIN_FAILED: "the plugin {0} failed",
    }
)
_EVICTED: Final = frozenset({Sentence.ONGOING, Sentence.NOT_ELIGIBLE_TERMINATING})


def of_attempt(attempt: Attempt) -> Diagnosis | None:
    """Return why the pods that the attempt did not place wait, None where it placed all of them."""
    waiting = [member for member in attempt.members if not member.bind]
    if not waiting:
        return None
    found: dict[Reason, str] = {}
    values: dict[str, str] = {}
    for said in with_inner(attempt.status):
        reason = _SAID.get(said.sentence)
        if reason is not None and reason not in found:
            found[reason] = _WHY.get(said.sentence, "").format(*said.values, "", "")
            if reason is Reason.GROUP_MISSING:
                values["group"] = str(said.values[0])
    fits = [member.diagnosis for member in waiting if member.diagnosis is not None]
    _incomplete(attempt, fits, found, values)
    fit = _by_fit(attempt, fits, found, values)
    if Reason.NO_NODE_MATCHES not in found:
        _by_preemption(attempt, found, values)
        if attempt.gang is not None:
            _by_cycle(attempt, attempt.gang, found, values)
    nominated = any(isinstance(member.nominate, str) for member in waiting)
    if nominated and Reason.VICTIMS_LEAVING not in found:
        found[Reason.NOMINATED_WAITING] = ""
        nodes = sorted({m.nominate for m in waiting if isinstance(m.nominate, str)})
        values["on"] = nodes[0] if len(nodes) == 1 else counted(len(nodes), "node")
    if not found:
        found[Reason.FULL] = ""
    if Reason.FULL in found and fit is not None and _by_devices(fit):
        values.setdefault(CAUSE, Cause.DEVICES)
    return _reported(found, values, fit, attempt)


def _reported(
    found: Mapping[Reason, str], values: dict[str, str], fit: Fit | None, attempt: Attempt
) -> Diagnosis:
    reason = dominant(Plane.SCHEDULING, found)
    assert reason is not None, "something was found"
    if found[reason]:
        values.setdefault("why", found[reason])
    order = REASONS[Plane.SCHEDULING]
    others = tuple(each for each in order if each in found and each is not reason)
    spared = attempt.spared
    earliest = None
    refused: dict[str, int] = {}
    if spared is not None:
        refused[RUNTIME] = spared.pods
        earliest = Nanos(spared.until * SECOND) if Reason.VICTIMS_PROTECTED in found else None
        if earliest is not None:
            values.setdefault("until", format_instant(earliest))
    held = attempt.held
    if held is not None:
        refused[f"{held.rule} {held.budget}".rstrip()] = held.pods
        if Reason.VICTIMS_PROTECTED in found and (earliest is None or held.until < earliest):
            earliest = held.until
            values["until"] = format_instant(held.until)
    if attempt.delayed is not None and Reason.VICTIMS_PROTECTED in found:
        earliest = attempt.delayed
        values["until"] = format_instant(attempt.delayed)
    if attempt.protected:
        refused[PROTECTED] = attempt.protected
    job = None if attempt.gang is None else attempt.gang.job
    if job is not None and job.protected:
        refused[KEPT] = job.protected
    filters = {} if fit is None else _by_filter(fit)
    return Diagnosis(
        Plane.SCHEDULING,
        reason,
        values,
        others,
        refused=refused,
        filters=filters,
        earliest=earliest,
    )


def _incomplete(
    attempt: Attempt, fits: list[Fit], found: dict[Reason, str], values: dict[str, str]
) -> None:
    """Find a group that is tried with fewer pods than it needs: then no pod was tried."""
    for said in with_inner(attempt.status[:1]):
        unreachable = said.sentence is Sentence.MIN_COUNT_UNREACHABLE
        if unreachable and not fits and attempt.gang is None:
            minimum, scheduled, remaining = (n for n in said.values if isinstance(n, int))
            if scheduled + remaining < minimum:
                found[Reason.GROUP_INCOMPLETE] = ""
                values.update(present=str(scheduled + remaining), minimum=str(minimum))


def _spare(attempt: Attempt, fits: list[Fit]) -> int:
    """Return how many of the pods that found no node the minimum could do without."""
    if attempt.code is Code.SUCCESS:
        return len(fits) - 1
    counts = (Sentence.MIN_COUNT_UNREACHABLE, Sentence.MIN_COUNT_NOT_YET)
    for said in with_inner(attempt.status):
        if said.sentence in counts:
            minimum, scheduled, remaining = (n for n in said.values if isinstance(n, int))
            return max(0, scheduled + remaining + len(fits) - minimum)
    return 0


def _by_fit(
    attempt: Attempt, fits: list[Fit], found: dict[Reason, str], values: dict[str, str]
) -> Fit | None:
    """Find what the filters state; return the fit whose counts are reported.

    A pod that no node accepts is reported only where the group needs it, and in no domain.
    """
    failed = next((fit for fit in fits if fit.error), None)
    if failed is not None:
        found.setdefault(Reason.SET_ASIDE, "a filter failed")
        return failed
    spare = _spare(attempt, fits)
    possible = [fit for fit in attempt.elsewhere if not _impossible(fit)]
    if possible and sum(map(_impossible, fits)) > spare:
        fits = possible
    impossible = [fit for fit in fits if _impossible(fit)]
    others = [fit for fit in fits if not _impossible(fit)]
    apart = [fit for fit in others if TOGETHER & _by_rejection(fit).keys()]
    reported = next(iter((*apart, *others, *impossible)), None)
    if impossible and len(impossible) > spare:
        found.setdefault(Reason.NO_NODE_MATCHES, "")
        reported = _together(impossible[0], attempt.elsewhere)
    elif apart:
        found.setdefault(Reason.SPREAD_OR_AFFINITY_BLOCKS, "")
    if reported is not None:
        values["nodes"] = str(reported.nodes)
        short = sorted({r.subject for r, _ in reported.counts if r.rejection is _INSUFFICIENT})
        if short:
            values["short"] = ", ".join(short)
    return reported


def _together(fit: Fit, elsewhere: Iterable[Fit]) -> Fit:
    """Return the fit of a pod over all domains."""
    if fit.everywhere is not None or not elsewhere:
        return fit
    every = (fit, *elsewhere)
    refusals: Counter[Rejection] = Counter()
    for each in every:
        refusals.update(dict(each.refusals))
    return replace(fit, nodes=sum(e.nodes for e in every), refusals=tuple(refusals.items()))


def _impossible(fit: Fit) -> bool:
    """Whether no node accepts the pod, however empty.

    One whose claims cannot be read is refused by the cluster, not for devices in use.
    """
    if fit.everywhere is not None and fit.everywhere.rejection is Rejection.DEVICES:
        return True
    by = _by_rejection(fit)
    return sum(by[each] for each in STATIC & by.keys()) >= fit.nodes


def _by_devices(fit: Fit) -> bool:
    """Whether nodes that could accept the pod lack devices of its claims alone.

    Without `simulateClaims` it is not known whether evictions would free any.
    """
    return (_by_rejection(fit).keys() - STATIC) == {Rejection.DEVICES}


_INSUFFICIENT: Final = Rejection.INSUFFICIENT


def _by_preemption(attempt: Attempt, found: dict[Reason, str], values: dict[str, str]) -> None:
    """Find what the search for victims ended in."""
    preemption = attempt.preemption
    if preemption is None:
        return
    sentence = preemption.explanation.sentence
    if attempt.delayed is not None:
        found[Reason.VICTIMS_PROTECTED] = ""
        values[CAUSE] = Cause.NOT_YET
    elif preemption.code is Code.SUCCESS or sentence in _EVICTED:
        found[Reason.VICTIMS_LEAVING] = ""
        count_victims(sum(len(each.pods) for each in preemption.victims), values)
    elif sentence is Sentence.NOT_ELIGIBLE_POLICY:
        found[Reason.POLICY_NEVER] = ""
    else:
        said = [each for each, _ in preemption.unhelpful]
        if any(isinstance(each, Refusal) and each.rejection in TOGETHER for each in said):
            found.setdefault(Reason.SPREAD_OR_AFFINITY_BLOCKS, "")
        if attempt.spared is not None or attempt.held is not None or attempt.protected:
            found[Reason.VICTIMS_PROTECTED] = ""
        elif _nobody(preemption):
            found[Reason.FULL] = ""
        else:
            found[Reason.NO_VICTIMS_SUFFICE] = ""


def _nobody(preemption: Preemption) -> bool:
    """Whether no pod is of lower priority where capacity would help."""
    if preemption.explanation.sentence is not Sentence.NO_CANDIDATES:
        return preemption.explanation.sentence is Sentence.NO_VICTIMS_GROUP
    nothing = (Sentence.NO_VICTIMS_POD, Sentence.NOT_HELPFUL)
    said = [each for each, _ in preemption.unhelpful]
    return all(isinstance(each, Explanation) and each.sentence in nothing for each in said)


def _by_cycle(
    attempt: Attempt, cycle: GangCycle, found: dict[Reason, str], values: dict[str, str]
) -> None:
    """Find what the cycle of a gang, or a job of one, ended in."""
    job = cycle.job
    if cycle.trigger is None and not found:
        found[Reason.GROUP_INCOMPLETE] = "the others have no node yet"
        return
    if job is None:
        return
    if job.reason in (JobReason.SUCCESS, JobReason.TERMINATING):
        found[Reason.VICTIMS_LEAVING] = ""
        count_victims(len(job.slots) or len(job.terminating), values)
    elif job.reason is JobReason.NO_NODES:
        found[Reason.NO_NODE_MATCHES] = ""
    elif job.reason is JobReason.POLICY_NEVER:
        found[Reason.POLICY_NEVER] = ""
    elif job.reason is JobReason.NOT_HELPFUL:
        if cycle.surplus:
            values["surplus"] = str(cycle.surplus)
        if attempt.spared is not None or attempt.held is not None or job.protected:
            found[Reason.VICTIMS_PROTECTED] = ""
        elif job.allowed:
            found[Reason.NO_VICTIMS_SUFFICE] = ""
        else:
            found[Reason.FULL] = ""


def count_victims(number: int, values: dict[str, str]) -> None:
    """Note how many are preempted, where it is known."""
    if number:
        values["victims"] = counted(number, "pod")


def _by_rejection(fit: Fit) -> dict[Rejection, int]:
    if fit.everywhere is not None:
        return {fit.everywhere.rejection: fit.nodes}
    return dict(fit.refusals)


def _by_filter(fit: Fit) -> dict[str, int]:
    """Return how many nodes each filter refused."""
    counts: dict[str, int] = {}
    for rejection, nodes in _by_rejection(fit).items():
        name = str(PLUGIN.get(rejection, "Unsupported"))
        counts[name] = counts.get(name, 0) + nodes
    return counts
