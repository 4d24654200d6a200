"""Which nodes a placement looks at: all, or `percentageOfNodesToScore` (specification 17.1).

Nodes are looked at by name, from the one after those of the last search, round to the first. A
search ends when enough nodes have passed the filters; a pod that fits nowhere has had all of them
examined. Without a percentage all nodes are examined, always from the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask

__all__ = ["Examined", "enough", "examined"]

_FEWEST: Final = 100  # nodes that pass and are always looked for
_LEAST_PERCENT: Final = 5
_MOST_PERCENT: Final = 50
_NODES_PER_PERCENT: Final = 125


@dataclass(frozen=True, slots=True)
class Examined:
    """What passed (positions, ascending), how many were looked at, where the next search starts."""

    found: I64
    looked_at: int
    next_start: int


def enough(nodes: int, percentage: int | None) -> int:
    """Return how many nodes have to pass; `percentage` 0 adapts to their number, None is all."""
    if percentage is None or nodes < _FEWEST:
        return nodes
    adaptive = max(_LEAST_PERCENT, _MOST_PERCENT - nodes // _NODES_PER_PERCENT)
    return max(_FEWEST, nodes * (percentage or adaptive) // 100)


def examined(passing: Mask, percentage: int | None, start: int) -> Examined:
    """Return what a search finds in a list of nodes of which those in `passing` pass.

    `passing`: (nodes,) of the nodes that may be looked at, by name. `start`: the last search's
    `next_start`; it counts modulo the number of nodes, and nothing without a percentage.
    """
    nodes = len(passing)
    if percentage is None or nodes == 0:
        return Examined(np.flatnonzero(passing), nodes, start)
    start %= nodes
    order = np.concatenate((np.arange(start, nodes), np.arange(start)))
    found = np.flatnonzero(passing[order])
    wanted = enough(nodes, percentage)
    looked_at = int(found[wanted - 1]) + 1 if len(found) >= wanted else nodes
    return Examined(np.sort(order[found[:wanted]]), looked_at, (start + looked_at) % nodes)
