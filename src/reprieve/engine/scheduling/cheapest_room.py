"""Which units to take out at most: the cheapest ones per room until the preemptor should fit.

Units are ordered by priority, then by lost work for each part of the need that they free, a group
that goes as a whole as one; the shortest prefix is found with which the nodes together have room
for the pods. A group of many pods is cheap for many pods though dear for one, which a choice pod by
pod does not see. Only room is looked at: a preemptor that does not fit after all is placed with all
units gone. Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reprieve.engine.cluster.snapshot import I64, Pending
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.units import Units

__all__ = ["units_to_spare"]


def units_to_spare(simulation: Simulation, units: Units, queued: Sequence[Pending]) -> I64:
    """Return slots of the units that need not go for room's sake; none where all have to.

    The simulation is without all units and without the preemptor. `units` know their lost work.
    """
    snapshot = simulation.snapshot
    assert units.lost is not None, "made with lost work"
    need = simulation.requests_of(queued[0].pod_class)
    for pending in queued[1:]:
        need = np.maximum(need, simulation.requests_of(pending.pod_class))
    asked = need > 0
    order = _order(units, need)
    slots, place = units.flat(order)
    nodes = snapshot.pod_node[slots]
    requests = snapshot.pod_requests[slots]
    free = (snapshot.allocatable - simulation.used)[:, asked]
    np.subtract.at(free, nodes, requests[:, asked])  # nobody gone
    divisor = need[asked]

    def fit(gone: int) -> bool:
        last = int(np.searchsorted(place, gone))
        room = free.copy()
        np.add.at(room, nodes[:last], requests[:last][:, asked])
        return int((np.clip(room, 0, None) // divisor).min(axis=1).sum()) >= len(queued)

    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if fit(middle):
            high = middle
        else:
            low = middle + 1
    return slots[place >= low]


def _order(units: Units, need: I64) -> I64:
    """Return all units: lowest priority first, then the least lost for each part of the need.

    Of equals the least important one first.
    """
    assert units.lost is not None
    snapshot = units.snapshot
    every = np.arange(len(units))
    slots, place = units.flat(every)
    asked = need > 0
    shares = (snapshot.pod_requests[slots][:, asked] / need[asked]).max(axis=1)
    parts = np.bincount(place, weights=shares, minlength=len(units))
    density = np.clip(units.lost, -1, None) / np.maximum(parts, 1e-9)
    rank = np.empty(len(units), np.int64)
    rank[units.ordered(every)] = -every
    return np.lexsort((rank, density, units.grouped, units.priority))
