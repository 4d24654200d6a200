"""The victims of a record as people count them: units evicted or kept as one, with their cost.

All that stands here is read from the record and its status; nothing is worked out anew but sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.answers.quantities import summed
from reprieve.api.reprieve import (
    Action,
    ObjectRef,
    Preemption,
    Proof,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.engine.lost_work import devices_of
from reprieve.engine.plan import Plane
from reprieve.records.units import lost_of_unit, units_of
from reprieve.records.victim_states import victim_states
from reprieve.web.mirror.units import unit_id

__all__ = ["Need", "VictimUnit", "need_of", "victim_units"]

#: Of several objects of a unit the state that is reported: what is not over first.
_FIRST: Final = (
    VictimState.FAILED,
    VictimState.PENDING,
    VictimState.EVICTED,
    VictimState.SPARED,
    VictimState.GONE,
)


@dataclass(frozen=True, slots=True)
class VictimUnit:
    """What is preempted as one.

    Attributes:
        unit: `kind/namespace/name` by the record; who reads it may know a better name.
        root: the object that is evicted, the first of several.
        subject: the object that bears the mark.
        roots: uids of all objects.
        lost: device-seconds; None where the record does not state.
        at: when the last of them was out of the way, or was seen to stay.
    """

    unit: str
    namespace: str
    root: ObjectRef
    subject: ObjectRef
    lineage: str
    roots: tuple[str, ...]
    amounts: Mapping[str, int]
    rule: str
    reason: str
    action: Action
    lost: int | None
    state: VictimState
    message: str
    at: Nanos | None

    @property
    def devices(self) -> int:
        """How many devices it held."""
        return devices_of(self.amounts.items())


@dataclass(frozen=True, slots=True)
class Need:
    """The arithmetic of a plan in devices, or in one resource where it requests none.

    `needed - free - coming = lacking`, and `used` covers it. `exact`: the record states what was
    free; else it is what the need exceeds the freed amount by, and there may have been more.
    """

    resource: str
    needed: int
    free: int
    coming: int
    lacking: int
    used: int
    exact: bool


def victim_units(record: Preemption) -> list[VictimUnit]:
    """Return the units of a record in the order in which they were chosen."""
    states = victim_states(record)
    saved = record.status.lost_after_save
    return [_unit(each, states, saved) for each in units_of(record.spec.victims).values()]


def need_of(plane: str, proof: Proof) -> Need | None:
    """Return what was needed and used; None for a plan that serves no demand."""
    resources = [name for name in proof.need if name != "pods"]
    if not resources:
        return None
    devices = [name for name in resources if devices_of([(name, 1)])]
    chosen = devices or sorted(resources)[:1]

    def total(amounts: Mapping[str, int]) -> int:
        return sum(amounts.get(name, 0) for name in chosen)

    needed, coming, used = total(proof.need), total(proof.in_flight), total(proof.freed)
    free = total(proof.free)
    # A proof of placement counts what is free node by node, and the record has no sum of it.
    exact = plane != Plane.SCHEDULING
    if plane == Plane.QUOTA:
        # What the ClusterQueue has available stands there.
        free, coming = coming, 0
    elif not exact:
        free = max(0, needed - coming - used)
    name = chosen[0] if len(chosen) == 1 else "devices"
    lacking = max(0, needed - free - coming)
    return Need(name, needed, free, coming, lacking, used, exact)


def _unit(
    victims: Sequence[Victim], states: Mapping[str, VictimStatus], saved: Mapping[str, int]
) -> VictimUnit:
    first = victims[0]
    found = [states.get(each.root.uid) for each in victims]
    state = _state(found)
    instants = [
        instant_or_none(each.at) for each in found if each is not None and each.state is state
    ]
    known = [each for each in instants if each is not None]
    said = {each.message for each in found if each is not None and each.message}
    return VictimUnit(
        unit=_called(first),
        namespace=first.root.namespace,
        root=first.root,
        subject=first.subject,
        lineage=first.lineage,
        roots=tuple(each.root.uid for each in victims),
        amounts=summed(each.amounts for each in victims),
        rule=first.rule,
        reason=first.reason,
        action=first.action,
        lost=lost_of_unit(victims, saved) if first.lineage else None,
        state=state,
        message=min(said, default=""),
        at=max(known, default=None),
    )


def _called(victim: Victim) -> str:
    namespace, _, name = victim.unit.rpartition("/")
    root = victim.root
    if name in ("", root.name):
        return unit_id(root.kind, root.namespace, root.name)
    return unit_id("podgroup", namespace or root.namespace, name)


def _state(found: Iterable[VictimStatus | None]) -> VictimState:
    states = {VictimState.PENDING if each is None else each.state for each in found}
    return next(each for each in _FIRST if each in states)
