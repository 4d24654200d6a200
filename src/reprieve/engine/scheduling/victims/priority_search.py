"""Finds the lowest priority up to which victims have to be considered at all.

The empty-state test passes with all units of lower priority removed, or the group cannot be helped.
Between those two lies the lowest priority for which it passes with only the units up to it removed;
no victim needs a higher one. Priorities with which there is too little capacity are left out. Where
only capacity counts the first with enough capacity is it; else the lowest one is tried that leaves
enough runs to halve the rest, so that of k distinct priorities at most log2(k) + 1 are tried.
Halving and trying them in turn agree wherever removing more pods never makes a placement fail, that
is but for required affinity to victims and for spread constraints. Source: KEP-5710, "Future
extensions"; specification 7.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.scheduling.nodes.domains import GroupPlacing

__all__ = ["LowestPriority", "lowest_priority"]


@dataclass(frozen=True, slots=True)
class LowestPriority:
    """The placement without all units up to `priority`; a failure when even that does not help."""

    priority: int
    placing: GroupPlacing


def lowest_priority(
    priorities: I64,
    place_below: Callable[[int], GroupPlacing],
    without_room: int = 0,
    *,
    room_is_all: bool = False,
) -> LowestPriority:
    """Return the lowest of the units' priorities, (units,), that is enough.

    `place_below`: places the preemptor with the units below a priority removed. `without_room`: of
    how many distinct priorities it is known that they are not enough. `room_is_all`: and that the
    next one is.
    """
    levels = np.unique(priorities).tolist()
    runs = len(levels).bit_length()
    low, high = min(without_room, len(levels) - 1), len(levels)
    best: LowestPriority | None = None
    while low < high:
        runs = max(0, runs - 1)
        tried = low if room_is_all else max(low, high - (1 << runs))
        placing = place_below(levels[tried] + 1)
        if placing.failure is None:
            high = tried
        else:
            low = tried + 1
        if placing.failure is None or best is None or best.placing.failure is not None:
            best = LowestPriority(levels[tried], placing)
    assert best is not None, "there are units"
    return best
