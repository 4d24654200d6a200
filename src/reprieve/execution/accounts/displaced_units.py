"""Which units a plan has displaced, read from its record and from what became of its victims.

A unit counts if at least one of its victims was evicted by this plan; a victim that another plan
evicted is reported by that plan. Every reported fact about a unit is in the record, so the process
that adopts the plan reports the same. Pure. Source: specification of disruptions, section 6.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.api.reprieve import (
    Action,
    Frees,
    ObjectRef,
    Preemption,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.records.units import lost_of_unit, units_of

__all__ = ["DisplacedUnit", "displaced_units", "displacement_of", "subject_of", "unit_name"]

_NOT_SAID: Final = Frees()
_DIGITS: Final = 10
_LONGEST: Final = 200  # letters of a subject's name, of 253 that the name of an object may have


@dataclass(frozen=True, slots=True)
class DisplacedUnit:
    """One unit.

    `name`: of its Disruption; `ended`: when its last object was out of the way; `deleted`: the uids
    of those of its objects that were deleted, and so never run again; `frees`: what it gave back,
    where several planes decide; `notice_withheld`: why it got no notice although it requests it.
    """

    name: str
    subject: ObjectRef
    lineage: str
    rule: str
    objects: int
    lost_device_seconds: int
    ended: str
    deleted: tuple[str, ...] = ()
    frees: Frees = _NOT_SAID
    notice_withheld: str = ""


def displaced_units(
    intent: Preemption, states: Mapping[str, VictimStatus], ended: Mapping[str, str]
) -> list[DisplacedUnit]:
    """Return the units that were evicted by a plan, in its order.

    Args:
        intent: the plan's record, with its victims.
        states: what became of each victim, by the uid of its root.
        ended: when each was seen to be out of the way; of others their state states it.
    """
    found = []
    for unit, victims in units_of(intent.spec.victims).items():
        gone = [each for each in victims if _went(states.get(each.root.uid))]
        if not gone:
            continue
        first = victims[0]
        instants = (ended.get(uid) or states[uid].at for uid in (v.root.uid for v in gone))
        subject = subject_of(first)
        found.append(
            DisplacedUnit(
                unit_name(intent, subject, unit),
                subject,
                first.lineage or f"object/{first.root.uid}",
                first.rule,
                len(gone),
                lost_of_unit(victims, intent.status.lost_after_save),
                max(instants),
                tuple(each.root.uid for each in gone if each.action is Action.DELETE),
                first.frees or _NOT_SAID,
                first.notice_withheld,
            )
        )
    return found


def displacement_of(intent: Preemption, unit: DisplacedUnit) -> Displacement:
    """Return the row of the ledger that a displaced unit is."""
    preemptor, spec = intent.spec.preemptor, intent.spec
    return Displacement(
        (instant_or_none(spec.decided_at) or Nanos(0)),
        Actor(spec.plane),
        None
        if preemptor is None
        else Participant(Lineage(spec.preemptor_lineage or preemptor.uid), preemptor.namespace),
        Participant(Lineage(unit.lineage), unit.subject.namespace),
        unit.name,
        lost_device_seconds=unit.lost_device_seconds,
    )


def _went(state: VictimStatus | None) -> bool:
    return state is not None and state.state is VictimState.EVICTED


def subject_of(first: Victim) -> ObjectRef:
    """Return what the unit is called: the object that was evicted, or its group."""
    root = first.root
    _, _, name = first.unit.rpartition("/")
    if name in ("", root.name):
        return root
    return ObjectRef("scheduling.k8s.io/v1beta1", "PodGroup", name, "", root.namespace)


def unit_name(intent: Preemption, subject: ObjectRef, unit: str) -> str:
    """Return a name that no other displacement has, and this one always."""
    spec = intent.spec
    said = "\0".join((spec.plan_id, intent.metadata.name, spec.decided_at, unit))
    digest = hashlib.sha256(said.encode()).hexdigest()[:_DIGITS]
    return f"{subject.name[:_LONGEST].rstrip('.-')}-{digest}"
