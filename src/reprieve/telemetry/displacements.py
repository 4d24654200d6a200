"""Displacements beside the input of a record, so that a restart knows whose work it was.

A Preemption names objects by uid, and who is gone by then has no owner that could be asked. What
the ledger had of the preemptor and of each victim therefore stands in `spec.input` as
`displacements`, by the uid of the victim. Records of earlier versions, and those of very many
victims, have none: who is there still is asked, and who is not is a line of work of its own.
Source: specification of disruptions, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from reprieve.api.reprieve import ObjectRef, Preemption, VictimState
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.lineage import Lineage, Party
from reprieve.telemetry.victim_states import victim_states
from reprieve.units.instants import Nanos, parse_instant

__all__ = ["displacements_of", "stored"]

#: Most victims of one record: some 200 characters each.
_MOST: Final = 300
_KEY: Final = "displacements"
_NOT_EVICTED: Final = (VictimState.SPARED, VictimState.FAILED)


class _Row(msgspec.Struct, frozen=True):
    """What a record says of one displacement beside the objects and the instant."""

    preemptor: Party
    victim: Party
    number: int = 0
    devices: int = 0
    lost_device_seconds: int = 0
    above: int = 0
    cause: str = ""


def stored(rows: Sequence[Displacement]) -> dict[str, Any]:
    """Return what to store beside the input of a decision that displaced somebody."""
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
        if row.preemptor is not None
    }
    return {_KEY: msgspec.to_builtins(found)}


def displacements_of(
    intent: Preemption, there: Callable[[ObjectRef], Party | None]
) -> Iterator[Displacement]:
    """Yield what a record displaced; victims that were spared do not count.

    `there`: the line of work of an object that exists, for records that do not say it.
    """
    preemptor = intent.spec.preemptor
    if preemptor is None:
        return
    known = _stored(intent.spec.input)
    at = _instant(intent.spec.decided_at)
    states = victim_states(intent)
    spared = {uid for uid, each in states.items() if each.state in _NOT_EVICTED}
    for victim in intent.spec.victims:
        subject = victim.subject
        if subject.uid in spared:
            continue
        row = known.get(subject.uid) or _Row(
            there(preemptor) or _of_its_own(preemptor), there(subject) or _of_its_own(subject)
        )
        yield Displacement(
            at,
            Actor(intent.spec.plane),
            row.preemptor,
            row.victim,
            subject.uid,
            row.number,
            row.devices,
            row.lost_device_seconds,
            row.above,
            row.cause,
        )


def _stored(recorded: Mapping[str, Any] | None) -> Mapping[str, _Row]:
    try:
        return msgspec.convert((recorded or {}).get(_KEY, {}), dict[str, _Row])
    except msgspec.ValidationError:
        return {}


def _of_its_own(ref: ObjectRef) -> Party:
    return Party(Lineage(f"object/{ref.uid}"), ref.namespace)


def _instant(text: str) -> Nanos:
    try:
        return parse_instant(text)
    except ValueError:
        return Nanos(0)
