"""Displacements beside the input of a record, so that a restart knows whose work it was.

A Preemption names objects by uid, and an object that is deleted by then has no owner that could be
read. What the ledger had of the preemptor and of each victim therefore stands in `spec.input` as
`displacements`, by the uid of the victim. Records of earlier versions, and those of very many
victims, have none: an object that still exists is read, and one that does not is a lineage of its
own.
Source: specification of disruptions, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.api.reprieve import IntentPhase, ObjectRef, Preemption, Victim, VictimState
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.records.units import lost_of_unit, units_of
from reprieve.records.victim_states import victim_states

__all__ = ["HARM_KEY", "displacements_of", "kept_of", "stored", "was_evicted"]

#: Most victims of one record: some 200 characters each.
_MOST: Final = 300
_STRICTLY: Final = 1  # who is preempted in the scheduling plane has a strictly lower priority
_KEY: Final = "displacements"
#: Where `harm` stores what harm budgets know of both sides.
HARM_KEY: Final = "harm"


class _Row(msgspec.Struct, frozen=True):
    """What a record states of one displacement beside the objects and the instant."""

    preemptor: Participant | None
    victim: Participant
    number: int = 0
    devices: int = 0
    lost_device_seconds: int = 0
    above: int = 0
    cause: str = ""


def stored(rows: Sequence[Displacement]) -> dict[str, Any]:
    """Return what to store beside the input of a decision that displaced work."""
    if not rows or len(rows) > _MOST:
        return {}
    found = {
        row.uid: _Row(
            row.preemptor,
            row.victim,
            row.number,
            row.devices,
            row.lost_device_seconds,
            row.above,
            row.cause,
        )
        for row in rows
    }
    return {_KEY: msgspec.to_builtins(found)}


def kept_of(recorded: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return of a record's input what restarts need of it, None where there is nothing."""
    found = {name: (recorded or {})[name] for name in (_KEY, HARM_KEY) if name in (recorded or {})}
    return found or None


def kept(recorded: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return of a `spec.input` the displacements alone, which are little of it; None for none."""
    found = (recorded or {}).get(_KEY)
    return None if found is None else {_KEY: found}


def displacements_of(
    intent: Preemption, there: Callable[[ObjectRef], Participant | None]
) -> Iterator[Displacement]:
    """Yield what a record displaced, once for each unit that lost a victim (`was_evicted`).

    `there`: the lineage of an object that exists, for records that do not state it.
    """
    if intent.spec.dry_run:
        return
    preemptor, plane = intent.spec.preemptor, intent.spec.plane
    above = _STRICTLY if plane == Actor.SCHEDULING else 0
    known = _stored(intent.spec.input)
    at = instant_or_none(intent.spec.decided_at) or Nanos(0)
    states = victim_states(intent)
    units: set[str] = set()
    members = units_of(intent.spec.victims)
    for victim in intent.spec.victims:
        subject = victim.subject
        shown = states.get(victim.root.uid) or states.get(subject.uid)
        state = None if shown is None else shown.state
        if not was_evicted(intent.status.phase, state) or victim.unit in units:
            continue
        if victim.unit:
            units.add(victim.unit)
        row = (
            known.get(subject.uid)
            or known.get(victim.root.uid)
            or _Row(
                None if preemptor is None else there(preemptor) or _stated(preemptor, intent),
                there(subject) or _reported_of(victim),
                above=above,
            )
        )
        unit = members[victim.unit or victim.root.uid]
        yield Displacement(
            at,
            Actor(plane),
            row.preemptor,
            row.victim,
            subject.uid,
            row.number,
            row.devices,
            lost_of_unit(unit, intent.status.lost_after_save),
            row.above,
            row.cause,
        )


def was_evicted(phase: IntentPhase, state: VictimState | None) -> bool:
    """Whether a victim counts as evicted by its plan, which is in this phase.

    Only outcomes count: a plan that was abandoned evicted those of whom that is written. While a
    plan is open its victims count unless it is known that they stay. A plan that was completed
    evicted all of whom nothing else is written, since earlier records do not list everybody.
    """
    if state is None:
        return phase is not IntentPhase.ABANDONED
    if state is VictimState.PENDING:
        return phase.open
    return state is VictimState.EVICTED


def _stored(recorded: Mapping[str, Any] | None) -> Mapping[str, _Row]:
    try:
        return msgspec.convert((recorded or {}).get(_KEY, {}), dict[str, _Row])
    except msgspec.ValidationError:
        return {}


def _stated(preemptor: ObjectRef, intent: Preemption) -> Participant:
    """Return the lineage that the record states; without one it is one of its own."""
    said = intent.spec.preemptor_lineage or f"object/{preemptor.uid}"
    return Participant(Lineage(said), preemptor.namespace)


def _reported_of(victim: Victim) -> Participant:
    said = victim.lineage or f"object/{victim.subject.uid}"
    return Participant(Lineage(said), victim.subject.namespace)
