"""Finds the lowest priority up to which victims have to be considered at all.

The empty-state test passes with all units of lower priority gone, or the group cannot be helped.
Between those two lies the lowest priority for which it passes with only the units up to it gone; no
victim needs a higher one. It is found by halving, so that of k distinct priorities at most
log2(k) + 1 are tried. Halving and trying them in turn agree wherever taking out more pods never
makes a placement fail, that is but for required affinity to victims and for spread constraints.
Source: KEP-5710, "Future extensions"; specification 7.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reprieve.engine.cluster.snapshot import Mask
from reprieve.engine.placement.simulation import Checkpoint, Simulation
from reprieve.engine.scheduling.domains import GroupPlacing
from reprieve.engine.scheduling.units import Units

__all__ = ["EmptyState", "Place", "empty_state", "lowest_empty_state"]

#: Places the preemptor on these nodes, all where None; what is placed stays in the simulation.
Place: TypeAlias = Callable[[Mask | None], GroupPlacing]


@dataclass(frozen=True, slots=True)
class EmptyState:
    """A placement with units gone: those up to `priority`, all potential ones where it is None.

    `state`: the simulation without these units and without the preemptor. `runs`: placements tried.
    """

    placing: GroupPlacing
    state: Checkpoint
    priority: int | None = None
    runs: int = 1


def empty_state(simulation: Simulation, units: Units, place: Place) -> EmptyState:
    """Return the placement with all these units gone; the simulation is left without them."""
    simulation.remove(units.slots())
    state = simulation.checkpoint()
    placing = place(None)
    simulation.rollback(state)
    return EmptyState(placing, state)


def lowest_empty_state(simulation: Simulation, units: Units, place: Place) -> EmptyState:
    """Return the placement with the fewest priorities gone; the simulation is left without them.

    Where even all units are not enough, that is the placement with all of them gone.
    """
    before = simulation.checkpoint()
    levels = np.unique(units.priority)
    slots = units.slots()
    of_slot = units.priority[units.of_slot[slots]]
    low, high, runs = 0, len(levels), 0
    best: EmptyState | None = None
    while low < high:
        middle = (low + high) // 2
        simulation.remove(slots[of_slot <= levels[middle]])
        state = simulation.checkpoint()
        placing = place(None)
        runs += 1
        simulation.rollback(before)
        if placing.failure is None:
            high = middle
        else:
            low = middle + 1
        if placing.failure is None or best is None or best.placing.failure is not None:
            best = EmptyState(placing, state, int(levels[middle]))
    assert best is not None, "there are units"
    simulation.rollback(best.state)
    return EmptyState(best.placing, best.state, best.priority, runs)
