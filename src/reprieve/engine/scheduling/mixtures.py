"""Idle work and work of lower priority together, where that evicts less than priority alone.

Idle units are named by the idle plane, oldest first. Some of them are assumed to be evicted, and
victims are searched for by priority as always; a set counts where every unit of the demand gets its
nodes. Of the sets that are tried, one is chosen:

1. fewest devices, idle and by priority together;
2. fewest devices by priority;
3. found first.

Tried are all sets of up to five idle units. Of more of them: the shortest beginning that is enough,
oldest first and smallest first, without those that can be reprieved, and each unit alone. Where
priority alone is enough, fewer sets are tried on more than 400 nodes.

| enough alone | both are evicted together |
| --- | --- |
| neither | always |
| idle work | where it holds far more; fewer sets are tried |
| priority | where that is fewer devices, or idle work that is evicted by its priority anyway |

In the last row busy work is spared, and idle work that is evicted as such does not come back to
displace others. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.cluster.texts import places_of
from reprieve.engine.mixed import IdlePods, Mixture
from reprieve.engine.scheduling.demand_devices import held_devices, least_lacking, priority_of
from reprieve.engine.scheduling.needless import is_served
from reprieve.engine.scheduling.nodes.leaving import Delayed, are_named
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid

__all__ = ["mixture"]

_ALL_SETS: Final = 5  # of how many idle units every set is tried
_MOST: Final = 48  # sets that are tried for one demand
_FEW: Final = 12  # where idle work alone is enough, or priority with many idle units
_NODES: Final = 20_000  # of all sets together that are tried where priority alone is enough


def mixture(
    snapshot: Snapshot,
    units: Sequence[Unit],
    idle: Sequence[IdlePods],
    begin: Callable[[Delayed], Session],
    most: int = 0,
) -> Mixture | None:
    """Return the idle units that are evicted beside victims of lower priority; None without any.

    Args:
        snapshot: that of the sessions.
        units: of the demand; each has to be placed.
        idle: units that may be evicted, oldest first.
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
    by_priority = search.tried(())
    if by_priority is not None:
        search.try_beside(by_priority, most)
    elif most:
        search.best, search.left = _no_better_than(most), _FEW
        search.try_sets()
    else:
        every = search.tried(idle)
        if every is None or not every.pods:
            return None
        search.best = every
        search.try_sets()
    best = search.best
    if not best.pods or not best.idle:
        return None
    return Mixture(tuple(each.name for each in best.idle), best.pods, best.placement)


def _no_better_than(most: int) -> _Set:
    """Return what stands for a way with so many devices of which none is evicted by priority."""
    return _Set((), frozenset(), (), (most, -1))


@dataclass(frozen=True, slots=True)
class _Set:
    """A set that is enough; `devices`: in all, and of those evicted by priority."""

    idle: tuple[IdlePods, ...]
    pods: frozenset[Uid]
    placement: tuple[tuple[Uid, str], ...]
    devices: tuple[int, int]


@dataclass(slots=True)
class _Search:
    snapshot: Snapshot
    units: Sequence[Unit]
    idle: Sequence[IdlePods]
    begin: Callable[[Delayed], Session]
    slots: Mapping[Uid, int]
    left: int = _MOST
    best: _Set = field(default_factory=lambda: _Set((), frozenset(), (), (0, 0)))

    def tried(self, chosen: Sequence[IdlePods]) -> _Set | None:
        """Return the set with these idle units, None where it is not enough."""
        self.left -= 1
        gone = frozenset(uid for each in chosen for uid in each.pods)
        without = dict.fromkeys(self.units, gone) if gone else {}
        patient = frozenset(self.units)
        session = self.begin(Delayed(patient=patient, without=without, slots=self.slots))
        victims: set[Uid] = set()
        places: dict[Uid, str] = {}
        for unit in self.units:
            attempt = session.attempt(unit)
            if attempt is None or not is_served(attempt):
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

    def try_beside(self, by_priority: _Set, most: int) -> None:
        """Try sets that evict less than priority alone, which is enough.

        Of equally many devices only those idle units count that are evicted by priority anyway.
        """
        anyway = [unit for unit in self.idle if not by_priority.pods.isdisjoint(unit.pods)]
        lacking = least_lacking(self.snapshot, self.units)
        if not anyway and by_priority.devices[0] <= lacking:
            return
        self.best = by_priority
        if most and most < by_priority.devices[0]:
            self.best = _no_better_than(most)
        tries = _MOST if len(self.idle) <= _ALL_SETS else _FEW
        self.left = min(tries, 1 + _NODES // max(1, len(self.snapshot.nodes)))
        self._try(anyway)
        for unit in anyway:
            self._try((unit,))
        if self.best.devices[0] > lacking:
            # A set of other units has to be smaller in all.
            total, _ = self.best.devices
            kept, self.best = self.best, _no_better_than(total)
            self._try(self.idle)
            self.try_sets()
            if not self.best.pods:
                self.best = kept

    def try_sets(self) -> None:
        """Try sets of the idle units: every one of few, some of many."""
        if len(self.idle) <= _ALL_SETS:
            self.try_all()
        else:
            self.try_some()

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
        """Yield the shortest beginning that is enough, and what is left as units are reprieved."""
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
        if self.left <= 0 or not chosen or held >= self.best.devices[0]:
            return
        found = self.tried(chosen)
        if found is not None and found.pods and found.devices < self.best.devices:
            self.best = found

    def _held_by(self, unit: IdlePods) -> int:
        return self._devices(unit.pods)

    def _devices(self, pods: Collection[Uid]) -> int:
        known = self.slots if all(uid in self.slots for uid in pods) else None
        return held_devices(self.snapshot, self.units, pods, known)[0]


def _places(attempt: Attempt) -> Iterator[tuple[Uid, str]]:
    for member in attempt.members:
        if member.bind:
            yield member.uid, member.bind
        elif isinstance(member.nominate, str):
            yield member.uid, member.nominate
    if attempt.preemption is not None:
        yield from attempt.preemption.nominated
