"""From `KIND/NAME` to an answer: what there is of that name, or near it, and what became of it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from reprieve.answers.called import owners_of_marked
from reprieve.answers.decided import Decided
from reprieve.answers.document import Answer, Displaced, State
from reprieve.answers.explanation import answer_of
from reprieve.answers.findings import Findings
from reprieve.answers.kinds import POD_GROUPS, Asked, nearest
from reprieve.answers.missing_members import with_failed_members, with_missing_members
from reprieve.answers.preemptions.displacements import concerning, of_victim, others_for, records
from reprieve.answers.preemptions.known_notices import with_notices
from reprieve.answers.preemptions.reported_disruptions import completed, disruptions_of
from reprieve.answers.quantities import listed
from reprieve.answers.refused_pods import with_refusal
from reprieve.answers.sources import Json, Reading, Source
from reprieve.answers.standing import Standing, standing_of
from reprieve.answers.unit import Unit, name_of, unit_of
from reprieve.api.reprieve import Preemption
from reprieve.engine.plan import Plane
from reprieve.kube.resource import PREEMPTIONS
from reprieve.units.counts import counted
from reprieve.units.errors import UsageError

__all__ = ["Diagnose", "Partial", "answer"]

#: Queries the plane that decides why a unit waits; None where it cannot state a reason.
Diagnose = Callable[[Unit, Plane], Awaitable[Decided | None]]

_RECORDS: Final = PREEMPTIONS.qualified


class Partial:
    """Passes on answers that are not complete yet. `show`: gets each of them.

    The first one is what the objects state; then follow the diagnosis of the planes and each change
    that was tried and helps. Each replaces the one before it, and the complete answer the last.
    """

    def __init__(self, show: Callable[[Answer], None]) -> None:
        self._show = show
        self._of: Callable[[Decided | None], Answer] | None = None

    def begin(self, of: Callable[[Decided | None], Answer]) -> None:
        """Show what the objects state. `of` makes the answer of what the planes decided so far."""
        self._of = of
        self._show(of(None))

    def decided(self, decided: Decided) -> None:
        """Show the answer with what the planes have decided so far."""
        if self._of is not None:
            self._show(self._of(decided))


async def answer(
    source: Source,
    asked: Asked,
    namespace: str,
    *,
    operator_namespace: str,
    diagnose: Diagnose | None = None,
    history: bool = False,
    partial: Partial | None = None,
) -> Answer:
    """Return what became of the object. `partial`: shows what is known before the planes decide.

    Raises:
        UsageError: no record shows that it ever existed, or the caller may not read it.
        ApiError: the API server does not answer.
    """
    reading = Reading(source)
    found = await _object(reading, asked, namespace)
    known = await records(reading, operator_namespace)
    if found is None:
        gone = await _gone(reading, asked, namespace, known)
        return gone or await _unknown(reading, asked, namespace)
    unit = await unit_of(reading, found)
    groups = {resource.qualified for resource in POD_GROUPS}
    standing = standing_of(unit, groups_known=not groups & {kind for kind, _ in reading.refused})
    standing = with_failed_members(unit, await with_refusal(reading, unit, standing))
    reported = concerning(unit, known)
    names = await owners_of_marked(reading, reported)
    disruptions = await disruptions_of(reading, unit)
    displaced = completed(of_victim(unit, reported, names), disruptions)
    displaced = await with_notices(reading, unit, displaced)

    def found_out(standing: Standing, decided: Decided | None) -> Answer:
        return answer_of(
            Findings(
                unit=unit,
                standing=standing,
                now=reading.now,
                decided=decided,
                displaced=displaced,
                others=others_for(unit, reported, names),
                limits=_limits(reading, decided),
                unknown=_unknown_things(reading, displaced, history, decided),
                history=history,
            )
        )

    decided = None
    if diagnose is not None and standing.reported is not None:
        if partial is not None:
            partial.begin(functools.partial(found_out, standing))
        decided = await diagnose(unit, standing.reported.plane)
    standing, decided = await with_missing_members(reading, unit, standing, decided)
    return found_out(standing, decided)


async def _object(reading: Reading, asked: Asked, namespace: str) -> Json | None:
    for resource in asked.resources:
        found = await reading.get(resource, namespace, asked.name)
        if found is not None:
            return {"apiVersion": resource.api_version, "kind": resource.kind, **found}
    for resource in asked.resources:
        rule = reading.refused.get((resource.qualified, namespace))
        if rule is not None:
            raise UsageError(
                f"{asked.kind} {namespace}/{asked.name}: you may not get {resource.qualified} "
                f"there; {f'the rule to add: {rule}' if rule else 'contact its administrator'}"
            )
    return None


async def _gone(
    reading: Reading, asked: Asked, namespace: str, known: Sequence[Preemption]
) -> Answer | None:
    """Return the answer about an object that was preempted and did not come back under its name."""
    metadata = {"name": asked.name, "namespace": namespace}
    resource = asked.resources[0]
    unit = Unit(
        {"apiVersion": resource.api_version, "kind": asked.kind, "metadata": metadata, "spec": {}}
    )
    reported = concerning(unit, known)
    names = await owners_of_marked(reading, reported)
    displaced = completed(of_victim(unit, reported, names), await disruptions_of(reading, unit))
    others = others_for(unit, reported, names)
    if not displaced and not others:
        return None
    text = "there is none of that name any more"
    return answer_of(
        Findings(
            unit=unit,
            standing=Standing(State.GONE, text=text),
            now=reading.now,
            displaced=displaced,
            others=others,
            limits=_limits(reading),
            unknown=_unknown_things(reading, displaced, history=False),
        )
    )


async def _unknown(reading: Reading, asked: Asked, namespace: str) -> Answer:
    names = [name_of(each) for each in await reading.list_all(asked.resources, namespace)]
    where = f" in namespace {namespace!r}" if namespace else ""
    raise UsageError(f"no {asked.kind} {asked.name!r}{where}; {nearest(asked.name, names)}")


def _limits(reading: Reading, decided: Decided | None = None) -> list[str]:
    """Return what the caller may not list; records stand in `_unknown_things`."""
    if decided is not None and decided.unseen:
        if decided.diagnosis is None and decided.starts is None:
            return [f"Stated from what you may read; you may not list {decided.hidden}."]
        return [f"Decided without {decided.hidden} that you cannot list: figures are lower bounds."]
    refused = _refused(reading)
    if not refused:
        return []
    return [f"Stated without {counted(len(refused), 'kind')} that you may not read."]


def _refused(reading: Reading) -> set[str]:
    return {kind for kind, _ in reading.refused} - {_RECORDS}


def _unknown_things(
    reading: Reading,
    displaced: Sequence[Displaced],
    history: bool,
    decided: Decided | None = None,
) -> list[str]:
    return [*_records_unknown(reading, displaced, history), *_unseen(reading, decided)]


def _unseen(reading: Reading, decided: Decided | None) -> Iterator[str]:
    """Yield what could not be read, by name: the first line only counts it."""
    if decided is not None and decided.unseen:
        yield f"You may not list {'; '.join(decided.unseen)}."
    elif refused := _refused(reading):
        yield f"You may not read {listed(refused, 8)}."


def _records_unknown(reading: Reading, displaced: Sequence[Displaced], history: bool) -> list[str]:
    if any(kind == _RECORDS for kind, _ in reading.refused):
        whom = "Whom it displaced" if displaced else "Who was preempted for whom"
        return [f"{whom} is not known: you may not list preemptions.reprieve.dev."]
    if history and not displaced:
        return ["No displacement of it is recorded."]
    return []
