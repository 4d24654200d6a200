"""Idle work and work of lower priority together, where neither alone makes room for a demand.

Idle units are named by the idle plane, oldest first. Some of them are taken to be gone, and victims
are looked for by priority as always; a set counts where every unit of the demand gets its nodes.
Of the sets that are tried, one is chosen:

1. fewest devices, idle and by priority together;
2. fewest devices by priority;
3. found first.

Tried are all sets of up to five idle units. Of more of them: the shortest beginning that is enough,
oldest first and smallest first, without those that can be put back, and each unit alone. Nobody
goes where priority alone is enough, or idle work alone: these come first. But where idle work alone
holds far more, both go together, and fewer sets are tried. Source: the design's "Where the planes
meet".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

import numpy as np

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.cluster.texts import places_of
from reprieve.engine.mixed import IdlePods, Mixture
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.nodes.leaving import PutOff, are_named
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid

__all__ = ["held_devices", "mixture", "priority_of"]

_ALL_SETS: Final = 5  # of how many idle units every set is tried
_MOST: Final = 48  # sets that are tried for one demand
_FEW: Final = 12  # where idle work alone is enough
_EVERY_POD: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


def mixture(
    snapshot: Snapshot,
    units: Sequence[Unit],
    idle: Sequence[IdlePods],
    begin: Callable[[PutOff], Session],
    most: int = 0,
) -> Mixture | None:
    """Return the idle units that have to go beside victims of lower priority; None without any.

    Args:
        snapshot: that of the sessions.
        units: of the demand; each has to be placed.
        idle: what may go, oldest first.
        begin: makes a session in which no unit has been tried.
        most: idle work alone is enough, and so many devices or more in all are no better; 0: it is
            not enough.
    """
    asked = frozenset(uid for each in idle for uid in each.pods)
    slots = places_of(snapshot.pod_uids, asked)
    highest = max((priority_of(snapshot, unit) for unit in units), default=0)
    lower = (snapshot.pod_node >= 0) & (snapshot.pod_priority < highest)
    if not units or not slots or not (lower & ~are_named(snapshot, asked, slots)).any():
        return None
    search = _Search(snapshot, units, idle, begin, slots)
    if search.tried(()) is not None:
        return None
    if most:
        search.best, search.left = _Set((), frozenset(), (), (most, -1)), _FEW
    else:
        every = search.tried(idle)
        if every is None or not every.pods:
            return None
        search.best = every
    if len(idle) <= _ALL_SETS:
        search.try_all()
    else:
        search.try_some()
    best = search.best
    if not best.pods:
        return None
    return Mixture(tuple(each.name for each in best.idle), best.pods, best.placement)


@dataclass(frozen=True, slots=True)
class _Set:
    """A set that is enough; `devices`: in all, and of those that go by priority."""

    idle: tuple[IdlePods, ...]
    pods: frozenset[Uid]
    placement: tuple[tuple[Uid, str], ...]
    devices: tuple[int, int]


@dataclass(slots=True)
class _Search:
    snapshot: Snapshot
    units: Sequence[Unit]
    idle: Sequence[IdlePods]
    begin: Callable[[PutOff], Session]
    slots: Mapping[Uid, int]
    left: int = _MOST
    best: _Set = field(default_factory=lambda: _Set((), frozenset(), (), (0, 0)))

    def tried(self, chosen: Sequence[IdlePods]) -> _Set | None:
        """Return the set with these idle units, None where it is not enough."""
        self.left -= 1
        gone = frozenset(uid for each in chosen for uid in each.pods)
        without = dict.fromkeys(self.units, gone) if gone else {}
        patient = frozenset(self.units)
        session = self.begin(PutOff(patient=patient, without=without, slots=self.slots))
        victims: set[Uid] = set()
        places: dict[Uid, str] = {}
        for unit in self.units:
            attempt = session.attempt(unit)
            if attempt is None or not _is_served(attempt):
                return None
            places.update(_places(attempt))
            if attempt.plan is not None:
                victims.update(victim.root.uid for victim in attempt.plan.victims)
        found = frozenset(victims - gone)
        by_priority = self._devices(found)
        devices = (self._devices(gone) + by_priority, by_priority)
        # In the order in which they were named, whatever order they were tried in.
        ordered = tuple(each for each in self.idle if each in chosen)
        return _Set(ordered, found, tuple(places.items()), devices)

    def try_all(self) -> None:
        """Try every set of the idle units but none and all, small ones first."""
        for number in range(1, len(self.idle)):
            for chosen in combinations(self.idle, number):
                self._try(chosen)

    def try_some(self) -> None:
        """Try beginnings of the idle units, and each alone."""
        smallest = sorted(self.idle, key=self._held_by)
        for ordered in (self.idle, smallest):
            for chosen in self._beginnings(ordered):
                self._try(chosen)
        for unit in smallest:
            self._try((unit,))

    def _beginnings(self, ordered: Sequence[IdlePods]) -> Iterator[tuple[IdlePods, ...]]:
        """Yield the shortest beginning that is enough, and what is left as units are put back."""
        fewer, enough = 0, len(ordered)
        while enough - fewer > 1 and self.left > 0:
            middle = (fewer + enough) // 2
            if self.tried(ordered[:middle]) is None:
                fewer = middle
            else:
                enough = middle
        kept = tuple(ordered[:enough])
        yield kept
        for unit in reversed(kept):
            without = tuple(each for each in kept if each is not unit)
            if without and self.left > 0 and self.tried(without) is not None:
                kept = without
                yield kept

    def _try(self, chosen: Sequence[IdlePods]) -> None:
        """Keep a set that is better than the best so far."""
        held = sum(map(self._held_by, chosen))
        if self.left <= 0 or held >= self.best.devices[0]:
            return
        found = self.tried(chosen)
        if found is not None and found.pods and found.devices < self.best.devices:
            self.best = found

    def _held_by(self, unit: IdlePods) -> int:
        return self._devices(unit.pods)

    def _devices(self, pods: Collection[Uid]) -> int:
        known = self.slots if all(uid in self.slots for uid in pods) else None
        return held_devices(self.snapshot, self.units, pods, known)[0]


def _is_served(attempt: Attempt) -> bool:
    """Whether a unit is placed, or will be once its victims are gone."""
    if attempt.plan is not None:
        return True
    found = attempt.preemption
    placed = attempt.code is Code.SUCCESS and any(member.bind for member in attempt.members)
    return placed or (found is not None and bool(found.nominated))


def _places(attempt: Attempt) -> Iterator[tuple[Uid, str]]:
    for member in attempt.members:
        if member.bind:
            yield member.uid, member.bind
        elif isinstance(member.nominate, str):
            yield member.uid, member.nominate
    if attempt.preemption is not None:
        yield from attempt.preemption.nominated


def priority_of(snapshot: Snapshot, unit: Unit) -> int:
    """Return the highest priority of a unit: that of its group, or of one of its pods."""
    rows = [snapshot.pending[uid].row for uid in unit.pods if uid in snapshot.pending]
    group = snapshot.group_index.get(unit.group, -1)
    found = snapshot.group_rows[group] if group >= 0 else None
    of_group = [] if found is None else [found.priority]
    return max([*of_group, *(row.priority for row in rows)], default=0)


def held_devices(
    snapshot: Snapshot,
    units: Sequence[Unit],
    pods: Collection[Uid],
    known: Mapping[Uid, int] | None,
) -> tuple[int, int]:
    """Return how much pods hold of what the units request but cpu and memory, and their number.

    `known`: slots of all these pods, where they are known (`are_named`).
    """
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
