"""What the scheduling plane answers to the idle plane of its process, and when it waits for it.

1. Preemption for a unit whose demand the idle plane has not decided about, or evicts for, is *put
   off*: for a few seconds while nothing is decided, for a minute at most while the idle plane
   starts, and for as long as an open intent serves it.
2. A unit that has a node once pods that end already are gone is *patient*: nobody is evicted for
   it, for a minute at most.
3. What the idle plane found is confirmed: with its victims gone, and with what ends already, all
   pods of the demand are placed by all filters, and not without the victims.

Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.demands import Rejection
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.leaving import PutOff, are_named
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from reprieve.planes.common.joint import REJECTIONS, STARTING_FOR, Joint, Verdict
from reprieve.planes.common.solve import Solver
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.clock import Clock
from reprieve.units.durations import MINUTE, SECOND
from reprieve.units.ids import Uid

__all__ = ["Deferrals", "SchedulingJoint"]

_UNDECIDED_FOR: Final = 5 * SECOND
_PATIENT_FOR: Final = MINUTE
_REMEMBERED: Final = 20_000
_EVERY_POD: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class Deferrals:
    """How long each unit has been put off; nobody is where the idle plane does not run."""

    def __init__(self, joint: Joint, clock: Clock) -> None:
        self._joint = joint
        self._clock = clock
        # Since when each unit waits, monotonic, by its name; oldest first.
        self._starting: dict[str, int] = {}
        self._undecided: dict[str, int] = {}
        self._patient: dict[str, int] = {}
        # The only pods that may be victims of a unit, by its name.
        self.among: dict[str, frozenset[Uid]] = {}
        # What the idle plane said of the units of the last slice, by name.
        self._said: dict[str, Rejection] = {}

    def of(self, units: Sequence[Unit]) -> PutOff:
        """Return who is put off, and who is patient."""
        idle = self._joint.idle
        if idle is None or not self._joint.several:
            return PutOff()
        now = self._clock.monotonic()
        put_off: set[Unit] = set()
        patient: set[Unit] = set()
        until: dict[Unit, int] = {}
        among = {unit: self.among[unit.name] for unit in units if unit.name in self.among}
        verdicts = idle.verdicts([unit.pods for unit in units])
        self._said = {
            unit.name: Rejection.FEWER if unit in among else REJECTIONS[verdict]
            for unit, verdict in zip(units, verdicts, strict=True)
        }
        for unit, verdict in zip(units, verdicts, strict=True):
            since = self._patient.get(unit.name, now)
            if now - since < _PATIENT_FOR:
                patient.add(unit)
                until[unit] = since + _PATIENT_FOR
            if verdict is Verdict.STARTING:
                self._undecided.pop(unit.name, None)
                if now - _since(self._starting, unit.name, now) < STARTING_FOR:
                    put_off.add(unit)
                    until[unit] = now + _UNDECIDED_FOR
                continue
            self._starting.pop(unit.name, None)
            if verdict is Verdict.UNDECIDED:
                since = _since(self._undecided, unit.name, now)
                if now - since < _UNDECIDED_FOR:
                    put_off.add(unit)
                    until[unit] = since + _UNDECIDED_FOR
                continue
            self._undecided.pop(unit.name, None)
            if verdict is Verdict.SERVED:
                put_off.add(unit)
        return PutOff(frozenset(put_off), frozenset(patient), until, among)

    def rejection(self, unit: Unit) -> Rejection | None:
        """Return why the idle plane evicts nobody for a unit of the last slice, if it was asked."""
        return self._said.get(unit.name)

    def waits(self, unit: Unit, *, for_room: bool) -> None:
        """Take note of an attempt: the unit waits for pods that end, or it does not."""
        if for_room:
            _since(self._patient, unit.name, self._clock.monotonic())
        else:
            self._patient.pop(unit.name, None)

    def forget(self, unit: Unit) -> None:
        """A unit was placed, or was decided about without being put off."""
        self._starting.pop(unit.name, None)
        self._undecided.pop(unit.name, None)
        self._patient.pop(unit.name, None)
        self.among.pop(unit.name, None)


def _since(known: dict[str, int], name: str, now: int) -> int:
    since = known.setdefault(name, now)
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]
    return since


class SchedulingJoint:
    """The scheduling plane, as the idle plane sees it."""

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        solver: Solver,
        deferrals: Deferrals,
    ) -> None:
        self._deferrals = deferrals
        self._context = context
        self._state = state
        self._solver = solver

    def schedules(self, scheduler_name: str) -> bool:
        """Whether pods of this scheduler name are ours to place."""
        return scheduler_name in self._context.scheduler_names

    def goes_whole(self, group: str) -> bool:
        """Whether the pods of a group go together or not at all."""
        row = self._state.group(group)
        return (
            self._context.policy.gates.generic_workload
            and row is not None
            and (row.all_or_nothing or row.composite)
        )

    def wake(self, pods: Collection[Uid]) -> None:
        """Try these pods again."""
        rows = [row for uid in pods if (row := self._state.pod(uid)) is not None]
        keys = dict.fromkeys(self._unit_key(row) for row in rows)
        self._state.queue.activate(keys, self._context.clock.monotonic())
        self._state.changed()

    def waiting_with(self, pods: Sequence[Uid]) -> frozenset[Uid]:
        """Return these pods, and all that wait in the same groups."""
        units = self._units(pods) or ()
        return frozenset(pods).union(*(unit.pods for unit in units))

    async def refused_without(
        self, pods: Sequence[Uid], gone: Collection[Uid], idle: Collection[Uid]
    ) -> str:
        """Return why the pods cannot all be placed once others are gone, empty if they can.

        `idle`: the pods of all idle work, some of which may have to go by priority alone.
        """
        units = self._units(pods)
        if units is None:
            return ""
        if not units:
            return "its pods no longer wait for a node"
        context = self._context
        refused, fewer = await self._solver.run(
            refusal,
            self._state.cluster.snapshot(),
            context.policy,
            units,
            frozenset(gone),
            frozenset(idle) | frozenset(gone),
            frozenset(self._state.overdue),
            context.clock.wall() // SECOND if context.policy.timed else 0,
            context.scorers,
        )
        if fewer:
            self._deferrals.among.update((unit.name, fewer) for unit in units)
            while len(self._deferrals.among) > _REMEMBERED:
                del self._deferrals.among[next(iter(self._deferrals.among))]
        return refused

    def _units(self, pods: Sequence[Uid]) -> list[Unit] | None:
        """Return the units of waiting pods; None where an older gang is among them."""
        found: dict[str, Unit] = {}
        for uid in pods:
            row = self._state.pod(uid)
            if row is None or not self._state.ours(row):
                continue
            if row.gang:
                return None
            key = self._unit_key(row)
            if key == row.uid:
                found[key] = Unit((row.uid,))
            elif key not in found:
                members = [each for each in self._state.members(key) if self._state.ours(each)]
                members.sort(key=lambda each: (each.name, each.uid))
                found[key] = Unit(tuple(each.uid for each in members), key)
        return list(found.values())

    def _unit_key(self, row: PodRow) -> str:
        if row.group and self._context.policy.gates.generic_workload:
            key = f"{row.namespace}/{row.group}"
            return self._state.root(key)[1] or key
        return row.uid


def refusal(
    snapshot: Snapshot,
    policy: Policy,
    units: Sequence[Unit],
    gone: frozenset[Uid],
    idle: frozenset[Uid],
    overdue: frozenset[Uid],
    now: int,
    scorers: Mapping[str, PlacementScorer],
) -> tuple[str, frozenset[Uid]]:
    """Return why it is wrong to evict `gone` for these units; empty where it is right.

    Where the units could preempt idle pods by priority, so that fewer devices go, it is wrong, and
    the pods of idle work are returned: they alone may be their victims.
    """
    # Whoever is among the victims of the last of these sessions is one of these.
    asked = gone | idle
    slots = {uid: slot for slot, uid in enumerate(snapshot.pod_uids) if uid in asked}

    def session(**waits: Any) -> Session:
        return Session(
            snapshot,
            policy,
            overdue=overdue,
            now=now,
            scorers=scorers,
            waits=PutOff(**waits, slots=slots),
        )

    if session().places_all(units):
        return "what is free, or on its way, is enough for it", frozenset()
    if not session().places_all(units, gone):
        return "not all of its pods have a node with the victims gone", frozenset()
    lower = snapshot.pod_priority < max(_priority(snapshot, unit) for unit in units)
    if not (lower & are_named(snapshot, idle, slots)).any():
        return "", frozenset()
    among = session(patient=frozenset(units), among=dict.fromkeys(units, idle))
    victims: set[Uid] = set()
    for unit in units:
        attempt = among.attempt(unit)
        found = None if attempt is None else attempt.preemption
        if attempt is None or (attempt.plan is None and (found is None or not found.nominated)):
            return "", frozenset()
        if attempt.plan is not None:
            victims.update(victim.root.uid for victim in attempt.plan.victims)
    if _size(snapshot, units, victims, slots) < _size(snapshot, units, gone, slots):
        return "fewer of the idle pods have to go by their priority", idle
    return "", frozenset()


def _priority(snapshot: Snapshot, unit: Unit) -> int:
    """Return the highest priority of a unit: that of its group, or of one of its pods."""
    rows = [snapshot.pending[uid].row for uid in unit.pods if uid in snapshot.pending]
    group = snapshot.group_index.get(unit.group, -1)
    found = snapshot.group_rows[group] if group >= 0 else None
    of_group = [] if found is None else [found.priority]
    return max([*of_group, *(row.priority for row in rows)], default=0)


def _size(
    snapshot: Snapshot, units: Sequence[Unit], pods: Collection[Uid], known: Mapping[Uid, int]
) -> tuple[int, int]:
    """Return how much pods hold of what the units ask for but cpu and memory, and their number."""
    slots = np.flatnonzero(are_named(snapshot, pods, known))
    asked = {
        name
        for unit in units
        for uid in unit.pods
        if (pending := snapshot.pending.get(uid)) is not None
        and (entry := snapshot.classes[pending.pod_class]) is not None
        for name, amount in entry.requests
        if amount and name not in _EVERY_POD
    }
    columns = [number for number, name in enumerate(snapshot.resources) if name in asked]
    return int(snapshot.pod_requests[slots][:, columns].sum()), len(slots)
