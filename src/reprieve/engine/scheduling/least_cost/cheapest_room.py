"""Which units to remove at most: the cheapest ones by capacity until the preemptor should fit.

Units are ordered by priority, then by lost work for each part of the need that they free, a group
that is evicted as a whole as one; the shortest prefix is found with which the nodes together have
capacity for the pods. A group of many pods is cheap for many pods though dear for one, which a
choice pod by pod does not see. Only capacity is checked: a preemptor that does not fit after all is
placed with all units removed, and a result that breaks more budgets, or tears a group, is not used
(`alternatives`). Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.scheduling.victims.room import Room
from reprieve.engine.scheduling.victims.units import Units

__all__ = ["cheapest_units"]


def cheapest_units(units: Units, room: Room, wanted: int) -> Mask:
    """Return which units have to be evicted for capacity's sake: (units,).

    `room`: with all units there, for one of the `wanted` pods. `units` know their lost work.
    """
    if not len(units):
        return np.zeros(0, np.bool_)
    levels = np.unique(units.priority)
    needed = room.levels(units, wanted)
    leaving: Mask = units.priority < levels[max(0, needed - 1)]
    if needed:
        last = np.flatnonzero(units.priority == levels[needed - 1])
        order = last[_order(units, last, room)]
        slots, _ = units.flat(order)
        below = room.without(units.slots_of(leaving))
        steps = below.steps(slots, np.cumsum(units.size[order]).tolist(), wanted)
        leaving[order[:steps]] = True
    return leaving


def _order(units: Units, chosen: I64, room: Room) -> I64:
    """Return the order of units of one priority: the least lost for each part of the need.

    Of equals the least important one first.
    """
    assert units.lost is not None, "made with lost work"
    slots, place = units.flat(chosen)
    requests = units.snapshot.pod_requests.take(slots, axis=0)[:, room.columns]
    shares = (requests / room.need).max(axis=1)
    parts = np.bincount(place, weights=shares, minlength=len(chosen))
    density = np.clip(units.lost[chosen], -1, None) / np.maximum(parts, 1e-9)
    kind = units.grouped[chosen]
    order = np.lexsort((density, kind))
    if ((np.diff(density[order]) == 0) & (np.diff(kind[order]) == 0)).any():
        number = np.empty(len(units), np.int64)
        number[units.ordered(chosen)] = -np.arange(len(chosen))
        order = np.lexsort((number[chosen], density, kind))
    return order
