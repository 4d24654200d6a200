"""How many priorities have to be evicted before nodes fit others, by amounts of resources alone.

Victims may be evicted in steps: all of one priority, one unit after the other. The first steps that
make enough capacity are found by halving, without any placement. What else filters request is not
examined, so that nodes with enough capacity may still not fit the others, while nodes without it
never do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.devices import extended_classes
from reprieve.engine.cluster.rows import PODS
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.filters.resources import (
    ResourcesFilter,
    checked_resources,
)
from reprieve.engine.placement.filters.static import StaticFilter
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.victims.units import Units, stable_order

__all__ = ["Room", "room_for", "rough_room"]


@dataclass(frozen=True, slots=True)
class Room:
    """What is free on the nodes, for pods that need the same. Resources: those that they request.

    `free`: (resources, nodes). `need`: (resources,), all above zero.
    """

    snapshot: Snapshot
    columns: I64
    free: I64
    need: I64

    @classmethod
    def of(cls, snapshot: Snapshot, used: I64, need: I64) -> Room:
        """Return what is free beside what is used, (nodes, resources); `need`: (all resources,)."""
        columns = np.flatnonzero(need > 0)
        free = np.ascontiguousarray((snapshot.allocatable - used)[:, columns].T)
        return cls(snapshot, columns, free, need[columns])

    def pods(self) -> int:
        """Return how many pods fit."""
        if not len(self.columns):
            return int(np.iinfo(np.int64).max)
        # Exact up to 2**53, and faster than whole numbers.
        return int(np.clip(np.floor(self.free / self.need[:, None]).min(axis=0), 0, None).sum())

    def without(self, slots: I64) -> Room:
        """Return what is free without these pods."""
        free = self.free.copy()
        nodes = self.snapshot.pod_node[slots].astype(np.intp)
        requests = self.snapshot.pod_requests.take(slots, axis=0)[:, self.columns]
        for column in range(len(self.columns)):
            np.add.at(free[column], nodes, requests[:, column])
        return Room(self.snapshot, self.columns, free, self.need)

    def steps(self, slots: I64, ends: Sequence[int], wanted: int) -> int:
        """Return after how many steps that many pods fit; all steps where they never do.

        `ends`: how many of the slots are removed after each step.
        """
        edges = [0, *ends]
        low, high = 0, len(ends)
        room = self
        while low < high:
            middle = (low + high) // 2
            tried = room.without(slots[edges[low] : edges[middle]])
            if tried.pods() >= wanted:
                high = middle
            else:
                low = middle + 1
                if low < high:
                    room = tried.without(slots[edges[middle] : edges[low]])
        return low

    def levels(self, units: Units, wanted: int) -> int:
        """Return how many of the units' priorities, the lowest first, are evicted for such pods."""
        levels = np.unique(units.priority)
        slots = units.slots()
        level = np.searchsorted(levels, units.priority)[units.of_slot[slots]]
        ends = np.cumsum(np.bincount(level, minlength=len(levels)))
        return self.steps(slots[stable_order(level, len(levels))], ends.tolist(), wanted)


def rough_room(simulation: Simulation, used: I64, queued: Sequence[Pending]) -> Room:
    """Return what is free for pods as large as the largest of these, whatever filters look at.

    `used`: (nodes, resources) with all pods there.
    """
    classes = {pending.pod_class for pending in queued}
    need = np.max([simulation.requests_of(each) for each in classes], axis=0)
    return Room.of(simulation.snapshot, used, need)


def room_for(simulation: Simulation, used: I64, queued: Sequence[Pending]) -> tuple[Room, bool]:
    """Return what these pods need at least to be placed, and whether it is all they need.

    `used`: (nodes, resources) with all pods there.
    """
    snapshot, profile = simulation.snapshot, simulation.profile
    if FilterName.NODE_RESOURCES_FIT not in profile.filters:
        return Room.of(snapshot, used, np.zeros(len(snapshot.resources), np.int64)), False
    devices = extended_classes(snapshot.tables)
    known = True
    needs: list[I64] = []
    for number in {pending.pod_class for pending in queued}:
        entry = snapshot.classes[number]
        assert entry is not None, "a pod's class is never free"
        asked = {name for name, _ in checked_resources(profile, entry)}
        known = known and asked.isdisjoint(devices)
        kept = [name in asked - {*devices} or name == PODS for name in snapshot.resources]
        needs.append(np.where(kept, simulation.requests_of(number), 0))
    room = Room.of(snapshot, used, np.min(needs, axis=0))
    filters = simulation.filters(queued[0])
    alike = all(simulation.filters(pending) is filters for pending in queued)
    others = False
    for each in filters if alike else ():
        if isinstance(each, StaticFilter):
            room.free[:, each.codes() != 0] = 0
        else:
            others = others or not isinstance(each, ResourcesFilter)
    sure = known and alike and bool(filters) and not others and not simulation.nominated
    return room, sure
