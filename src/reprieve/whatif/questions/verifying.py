"""Changes that one plane names, planned again with all planes: those that start it are kept.

A plane tries a change alone: with it work has its quota, and then its pods may find no node. Where
more than one plane decides, the manifest is changed so and planned again:

1. with it the work starts: the change is reported, with how many are preempted then
2. it does not: the change is not reported
3. to wait is no change of a manifest, and stays where it was
4. what cannot be written, or not be decided, comes behind those, as what it gains by itself
5. what there was no time to try comes last, so too, and never first: alone it is not reported

At least one is tried, and `MOST_DECISIONS` of all that waits at most.

Source: the design's "Why work waits": changes that would help are found by deciding again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kubeworld.objects.paths import first
from reprieve.engine.diagnosis.model import Change, Fix, Gain
from reprieve.units.errors import UsageError
from reprieve.whatif.happened import Run, Undecided
from reprieve.whatif.questions.answer import Answer, Outcome, Verdict
from reprieve.whatif.questions.changed import Unwritable, changed_by
from reprieve.whatif.submitting.submission import Submitted

__all__ = ["MOST_DECISIONS", "Decide", "alone", "places_of", "verified"]

#: How often the whole cluster is decided about again.
MOST_DECISIONS: Final = 20
_STARTS: Final = (Verdict.STARTS, Verdict.STARTS_WITH_VICTIMS)

#: What would happen on the same cluster if this were submitted.
Decide = Callable[[Sequence[Submitted]], Awaitable[Answer]]


@dataclass(slots=True)
class _Trying:
    """Plans what was submitted with one change in it, for as long as it may."""

    submitted: Sequence[Submitted]
    decide: Decide
    over: Callable[[], bool]
    tried: int = 0

    @property
    def may(self) -> bool:
        """Whether another change is tried."""
        return not self.tried or (self.tried < MOST_DECISIONS and not self.over())

    async def answer(self, fix: Fix, places: Sequence[int]) -> Answer | None:
        """Return what would happen with a change of these; None where that cannot be found."""
        changed = list(self.submitted)
        try:
            objects = changed_by(fix, [changed[place].object for place in places])
        except Unwritable:
            return None
        for place, obj in zip(places, objects, strict=True):
            changed[place] = replace(changed[place], object=obj)
        self.tried += 1
        try:
            return await self.decide(changed)
        except (UsageError, Undecided):
            return None  # with its quota it would make more pods than a plan may have, state


async def verified(
    run: Run,
    answer: Answer,
    submitted: Sequence[Submitted],
    decide: Decide,
    over: Callable[[], bool],
) -> Answer:
    """Return the answer with those changes alone with which the work starts; `over`: no more."""
    trying = _Trying(submitted, decide, over)
    outcomes = []
    for each in answer.outcomes:
        if each.diagnosis is not None and each.diagnosis.fixes:
            fixes = await _verified(trying, each, each.diagnosis.fixes, places_of(run, each))
            each = replace(each, diagnosis=replace(each.diagnosis, fixes=fixes))
        outcomes.append(each)
    return answer.judged_again(tuple(outcomes))


async def _verified(
    trying: _Trying, outcome: Outcome, fixes: Sequence[Fix], places: Sequence[int]
) -> tuple[Fix, ...]:
    helpful: list[Fix] = []
    unknown: list[Fix] = []
    untried: list[Fix] = []
    for fix in fixes:
        if fix.change is Change.WAIT:
            helpful.append(fix)
        elif not trying.may:
            untried.append(fix)
        elif (found := await trying.answer(fix, places)) is None:
            unknown.append(fix)
        elif _starts(found, outcome):
            helpful.append(replace(fix, victims=len(found.victims)))
    gain = _gain_alone(outcome)
    reported = (*helpful, *alone(unknown, gain))
    return (*reported, *alone(untried, gain)) if reported else ()


def alone(fixes: Sequence[Fix], gain: Gain) -> tuple[Fix, ...]:
    """Return changes that one plane tried alone, with what it knows that they gain."""
    return tuple(each if each.change is Change.WAIT else replace(each, gain=gain) for each in fixes)


def _gain_alone(outcome: Outcome) -> Gain:
    """Return what is known of a change that the plane in which the work waits tried alone."""
    kind, _ = outcome.waiting
    if kind == "Workload":
        return Gain.QUOTA
    return Gain.START if kind == "PodGroup" or outcome.asks.pods == 1 else Gain.ONE_POD


def _starts(answer: Answer, wanted: Outcome) -> bool:
    return any(
        (each.kind, each.namespace, each.name) == (wanted.kind, wanted.namespace, wanted.name)
        and each.verdict in _STARTS
        for each in answer.outcomes
    )


def places_of(run: Run, outcome: Outcome) -> list[int]:
    """Return which of what was submitted one outcome is about; of a group also its pods."""
    found = []
    for place, obj in enumerate(run.submitted):
        metadata = obj["metadata"]
        if metadata.get("namespace", "") != outcome.namespace:
            continue
        member = first(obj, "spec.schedulingGroup.podGroupName") == outcome.name
        itself = (obj["kind"], metadata["name"]) == (outcome.kind, outcome.name)
        if itself or (member and outcome.kind == "PodGroup"):
            found.append(place)
    return found
