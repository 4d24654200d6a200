"""Places the members of a job one after the other, each beside those before it.

Every member is placed on the cheapest node that passes its filters, the first by name among equals.
With `narrowing`, as the reference does, a node that was refused for one member is not tried for
later ones. Any member without a node fails the whole job. Source: specification of gang jobs, 7.3,
12.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.job import Said

__all__ = ["Statuses", "by_cost", "first_fit"]

Statuses = dict[int, tuple[Said, ...]]  # by node index


def by_cost(cost: I64) -> I64:
    """Return the node indices, cheapest first: (nodes,)."""
    return np.argsort(cost, kind="stable").astype(np.int64, copy=False)


def first_fit(
    simulation: Simulation,
    members: Sequence[Pending],
    order: I64,
    candidates: Mask,
    *,
    narrowing: bool,
    said: Statuses | None = None,
) -> list[int]:
    """Return the node of each member, cut short before the first that has none.

    `order`: (nodes,) indices, best first. `said`: filled with what the filters report for nodes
    that refuse a member. The simulation is left as it was.
    """
    alive = candidates.copy()
    nodes: list[int] = []
    placed: list[Placed] = []
    for pending in members:
        passes = alive & (simulation.codes(pending) == 0)
        if said is not None:
            for node in np.flatnonzero(alive & ~passes).tolist():
                said[node] = simulation.status_at(pending, node).reasons
        if narrowing:
            alive = passes
        ranked = passes[order]
        best = int(ranked.argmax()) if len(ranked) else 0
        if not len(ranked) or not ranked[best]:
            break
        node = int(order[best])
        nodes.append(node)
        placed.append(simulation.place(pending, node))
    for pod in reversed(placed):
        simulation.unplace(pod)
    return nodes
