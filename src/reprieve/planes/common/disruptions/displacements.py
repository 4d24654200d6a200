"""What a plane reports to the governor about its plans, so that every plane knows of it.

A plan counts from when it is decided, since others are decided before it is over: each of its units
is one displacement. The displacement of a unit that was not evicted in the end, or whose plan could
not be recorded, is withdrawn. A process that becomes the leader learns the rest from the records,
with what it has found of the plans that were open: outcomes count, intentions do not. Source:
specification of disruptions, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import IntentPhase, ObjectRef, Preemption
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor, Displacement, Exemption
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.plan import Plan
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.records.displacements import displacements_of
from reprieve.records.harm import harms_in, in_truth
from reprieve.units.references import Reference

__all__ = ["Issued", "PlaneDisplacements", "Side", "harms_of"]


_MOST_KNOWN: Final = 100_000
_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class Side:
    """A victim: its lineage, what it loses, how much higher the preemptor's priority is.

    `harm`: how harm budgets know it, None for what is known of its lineage.
    """

    participant: Participant
    lost_device_seconds: int = 0
    above: int = 0
    harm: HarmSide | None = None


@dataclass(frozen=True, slots=True)
class Issued:
    """The displacements of one plan, each with the roots of its unit by uid.

    `harms`: the same, as harm budgets count them.
    """

    rows: tuple[tuple[Displacement, frozenset[str]], ...] = ()
    harms: tuple[Harm, ...] = ()

    @property
    def displacements(self) -> list[Displacement]:
        """The rows alone."""
        return [row for row, _ in self.rows]


class PlaneDisplacements:
    """The displacements of one plane.

    `waits`: whether an object waits for capacity, as it did. `loops`: names the members of loops.
    `is_there`: whether an object of a lineage exists.
    """

    def __init__(
        self,
        governor: Governor,
        plane: Actor,
        waits: Callable[[ObjectRef], bool] = lambda ref: False,
        loops: LoopNotices | None = None,
        is_there: Callable[[Lineage], bool] = lambda lineage: False,
    ) -> None:
        self.governor = governor
        self._is_there = is_there
        self._loops = loops
        self._plane = plane
        self._waits = waits
        self._open: dict[str, Issued] = {}  # by the name of the record
        # Objects that plans of ours name, the oldest first: 64 bits stand for the uid of each.
        self._evicts: dict[int, None] = {}

    def issue(
        self,
        plan: Plan,
        at: Nanos,
        preemptor: Participant | None,
        victims: Sequence[Side],
        *,
        priority: int = 0,
        asks: HarmSide | None = None,
    ) -> Issued:
        """Record a plan that was decided.

        `victims` are those of the plan, in its order; `priority` is the preemptor's. `asks`: how
        harm budgets know the preemptor, None for what is known of its lineage.
        """
        emergency = self.governor.policy.emergency_priority
        exempt = Exemption.NONE
        if preemptor is not None and emergency is not None and priority >= emergency:
            exempt = Exemption.EMERGENCY
        self._remember(str(victim.root.uid) for victim in plan.victims)
        units = _units(plan)
        harms = harms_of(plan, self._plane, at, preemptor, victims, asks)
        with self.governor.guard:
            for harm in harms:
                self.governor.harm.record(harm)
        rows = []
        for number, places in enumerate(units.values()):
            first = places[0]
            row = Displacement(
                at,
                self._plane,
                preemptor,
                victims[first].participant,
                plan.victims[first].root.uid,
                number,
                lost_device_seconds=sum(victims[place].lost_device_seconds for place in places),
                above=min(victims[place].above for place in places),
                exempt=exempt,
            )
            self.governor.record(row)
            self._name(row, plan.preemptor, plan.victims[first].root)
            rows.append((row, frozenset(plan.victims[place].root.uid for place in places)))
        return Issued(tuple(rows), harms)

    def _name(self, row: Displacement, preemptor: Reference | None, victim: Reference) -> None:
        if self._loops is None:
            return
        self._loops.remember(row.victim.lineage, victim)
        if row.preemptor is not None:
            self._loops.issued((row.preemptor.lineage, row.victim.lineage))
            if preemptor is not None:
                self._loops.remember(row.preemptor.lineage, preemptor)

    def _written(self, issued: Issued) -> None:
        if self._loops is not None:
            for row in issued.displacements:
                if row.preemptor is not None:
                    self._loops.written((row.preemptor.lineage, row.victim.lineage))

    @property
    def remembers(self) -> int:
        """How many objects are known that plans have named."""
        return len(self._evicts)

    def evicts(self, uid: str) -> bool:
        """Whether a plan of ours names an object."""
        return hash(uid) in self._evicts

    def _remember(self, uids: Iterable[str]) -> None:
        self._evicts.update(dict.fromkeys(map(hash, uids)))
        while len(self._evicts) > _MOST_KNOWN:
            del self._evicts[next(iter(self._evicts))]

    def recorded(self, record: str, issued: Issued) -> None:
        """A plan stands in the record of this name: what becomes of it is reported by `ended`."""
        self._open[record] = issued
        self._written(issued)

    def ended(
        self,
        record: str,
        evicted: Collection[str],
        *,
        interrupted: bool = False,
        lost: Mapping[str, int] = _NOTHING,
    ) -> None:
        """A plan is over, with these evicted, by uid: of the others nothing has happened.

        What the preemptor of a plan that was `interrupted` by a fault did not get is not its doing.
        `lost`: the device seconds that those lost in truth who had saved after a notice, by uid.
        """
        issued = self._open.pop(record, Issued())
        if interrupted:
            self._excuse(issued.displacements)
        kept = [each for each in issued.harms if not each.uids.isdisjoint(evicted)]
        with self.governor.guard:
            for place, (harm, after) in enumerate(zip(kept, in_truth(kept, lost), strict=True)):
                if after is not harm:
                    kept[place] = self.governor.harm.saved(harm, after.lost_device_seconds)
            self.governor.harm.close(record, kept)
        self._undo(
            Issued(
                tuple(each for each in issued.rows if each[1].isdisjoint(evicted)),
                tuple(each for each in issued.harms if each.uids.isdisjoint(evicted)),
            )
        )

    def _excuse(self, rows: Iterable[Displacement]) -> None:
        for row in rows:
            if row.preemptor is not None:
                self.governor.admitted(row.preemptor, row.at)

    def withdraw(self, issued: Issued) -> None:
        """Nothing of this could be recorded."""
        self._undo(issued)
        self._written(issued)

    def _undo(self, issued: Issued) -> None:
        for row, _ in issued.rows:
            by = None if row.preemptor is None else row.preemptor.lineage
            self.governor.undo(by, row.uid)
        with self.governor.guard:
            for harm in issued.harms:
                self.governor.harm.undo(harm)

    def restore(self, intents: Iterable[Preemption], interrupted: Collection[str] = ()) -> None:
        """Adopt what former processes did; of open plans `ended` reports the rest.

        The preemptor of a completed plan is assumed to have got its capacity, unless it still
        waits. What it has not got of a plan that was `interrupted`, by the name of its record, or
        that was abandoned, is not its doing.
        """
        rows: list[Displacement] = []
        got: list[tuple[Participant, Nanos]] = []
        for intent in intents:
            found = list(displacements_of(intent, lambda ref: None))
            rows += found
            harms = harms_in(intent, found)
            with self.governor.guard:
                self.governor.harm.restore(
                    intent.metadata.name, harms, is_open=intent.status.phase.open
                )
            if intent.status.phase.open:
                self._open[intent.metadata.name] = Issued(
                    tuple((row, _roots_with(intent, row.uid)) for row in found), harms
                )
            self._name_restored(intent, found)
            self._remember(victim.root.uid for victim in intent.spec.victims)
            preemptor = intent.spec.preemptor
            phase, name = intent.status.phase, intent.metadata.name
            completed = phase is IntentPhase.COMPLETED and name not in interrupted
            if preemptor is not None and not (completed and self._waits(preemptor)):
                got += [(row.preemptor, row.at) for row in found if row.preemptor is not None]
        self.governor.fold(rows)
        for row in rows:
            if not self._is_there(row.victim.lineage):
                self.governor.ended(row.victim, row.at)
        for participant, at in got:
            self.governor.admitted(participant, at)

    def _name_restored(self, intent: Preemption, rows: Iterable[Displacement]) -> None:
        if self._loops is None:
            return
        subjects = {each.subject.uid: each.subject for each in intent.spec.victims}
        preemptor = intent.spec.preemptor
        for row in rows:
            self._loops.remember(row.victim.lineage, subjects[row.uid].reference)
            if row.preemptor is not None and preemptor is not None:
                self._loops.remember(row.preemptor.lineage, preemptor.reference)


def harms_of(
    plan: Plan,
    plane: Actor,
    at: Nanos,
    preemptor: Participant | None,
    victims: Sequence[Side],
    asks: HarmSide | None = None,
) -> tuple[Harm, ...]:
    """Return what harm budgets count of a plan, once for each unit; arguments as of `issue`."""
    if asks is None and preemptor is not None:
        asks = HarmSide(preemptor.tenant, lineage=preemptor.lineage)
    found = []
    for places in _units(plan).values():
        first, sides = plan.victims[places[0]], [victims[place] for place in places]
        found.append(
            Harm(
                at,
                str(plane),
                sides[0].harm
                or HarmSide(sides[0].participant.tenant, lineage=sides[0].participant.lineage),
                asks,
                sum(side.lost_device_seconds for side in sides),
                first.rule,
                frozenset(plan.victims[place].root.uid for place in places),
            )
        )
    return tuple(found)


def _units(plan: Plan) -> dict[str, list[int]]:
    """Return the places of the victims of each unit."""
    units: dict[str, list[int]] = {}
    for place, victim in enumerate(plan.victims):
        units.setdefault(victim.unit or victim.root.uid, []).append(place)
    return units


def _roots_with(intent: Preemption, subject: str) -> frozenset[str]:
    """Return the roots of the unit of which this subject is the first that counts."""
    first = next(each for each in intent.spec.victims if each.subject.uid == subject)
    if not first.unit:
        return frozenset((first.root.uid,))
    return frozenset(each.root.uid for each in intent.spec.victims if each.unit == first.unit)
