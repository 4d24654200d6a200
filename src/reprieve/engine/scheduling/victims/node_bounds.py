"""Which nodes can still be the best one for a plain pod, known before any node is tried.

Among nodes that break no budget the one whose first victim has the lowest priority wins (8.6, 1 and
2). The victims on a node together free what the pod lacks there, so that the first victim has at
least the priority up to which all pods together free that much. Nodes are therefore tried in
waves, those first on which low priorities are enough (`waves`): as soon as the best of a wave is no
worse than what the others can reach at least, the others need not be tried. Choices are the same as
from all nodes.

Nothing is known of nodes beforehand (`bounds_of` returns None) where a pod has another priority as
a victim than its own, since nodes are compared by the pods' own ones. Source: specification 8.4 and
8.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filters.resources import ResourcesFilter
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.victims.hierarchy import effective_priority

__all__ = ["NodeBounds", "bounds_of"]

_SHARES: Final = (64, 16, 4)  # one part of so many of the pods is examined in each wave
_SAMPLE: Final = 4_096  # pods whose priorities decide where these parts end


@dataclass(frozen=True, slots=True)
class NodeBounds:
    """What pods up to a priority free on each node, against what the pod lacks there.

    `waves`: priorities at which to look, in order. `nodes`: (nodes,) those to be tried. `slots`:
    pods that may be evicted on these, with `node` and `priority` of each and what they free:
    (pods,) and (pods, columns). `lacking`: (nodes, columns).
    """

    waves: tuple[int, ...]
    nodes: Mask
    node: I64
    priority: I64
    slots: I64
    requests: I64  # (slots of the snapshot, resources)
    columns: tuple[int, ...]
    lacking: I64

    def within(self, priority: int) -> Mask:
        """Return the nodes on which the first victim may have this priority or a lower one."""
        low = np.flatnonzero(self.priority <= priority)
        node = self.node[low]
        enough = self.nodes.copy()
        for place, column in enumerate(self.columns):
            freed = np.zeros(len(enough), np.int64)
            np.add.at(freed, node, self.requests[self.slots[low], column])
            enough &= freed >= self.lacking[:, place]
        return enough


def bounds_of(
    simulation: Simulation, pending: Pending, policy: Policy, nodes: Mask
) -> NodeBounds | None:
    """Return what is known of `nodes` (nodes,) before they are tried; None for nothing."""
    snapshot = simulation.snapshot
    checked = [each for each in simulation.filters(pending) if isinstance(each, ResourcesFilter)]
    if not checked or not nodes.any():
        return None
    effective = effective_priority(snapshot, policy)
    slots = np.flatnonzero(
        simulation.present
        & simulation.evictable
        & (effective < pending.row.priority)
        & nodes[snapshot.pod_node]
    )
    priority = effective[slots]
    if not len(slots) or not np.array_equal(priority, snapshot.pod_priority[slots]):
        return None
    columns = (0, *checked[0].columns)
    lacking = -checked[0].left()
    sample = np.sort(priority[:: len(priority) // _SAMPLE + 1])
    waves = sorted({int(sample[len(sample) // share]) for share in _SHARES})
    node = snapshot.pod_node[slots].astype(np.int64)
    return NodeBounds(
        tuple(waves), nodes, node, priority, slots, snapshot.pod_requests, columns, lacking
    )
