"""What pods use of their nodes, as the arithmetic of topologies counts it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Flag, Snapshot
from reprieve.engine.topology.places import NodeUse
from reprieve.units.ids import Uid

__all__ = ["PodUses"]


class PodUses:
    """The pods of a snapshot, by uid and by slot."""

    def __init__(self, nodes: Snapshot) -> None:
        self._nodes = nodes

    @cached_property
    def slots(self) -> dict[Uid, int]:
        """Return the slot of every pod."""
        return {uid: slot for slot, uid in enumerate(self._nodes.pod_uids) if uid}

    def slots_of(self, uids: Iterable[Uid]) -> I64:
        """Return the slots of those of these pods that are there, in order, each once."""
        return np.array(sorted({self.slots[uid] for uid in uids if uid in self.slots}), np.int64)

    def uids(self, slots: I64) -> list[Uid]:
        """Return the uids of these pods."""
        return [self._nodes.pod_uids[slot] for slot in slots.tolist()]

    def of(self, pods: Iterable[Uid]) -> tuple[NodeUse, ...]:
        """Return what these pods use, those that have a node, each once."""
        nodes = self._nodes
        found = self.slots_of(pods).tolist()
        return tuple(self._use(slot) for slot in found if nodes.pod_node[slot] >= 0)

    def ending(self) -> Collection[Uid]:
        """Return the pods that end already."""
        return self.uids(np.flatnonzero(self._nodes.pod_flags & Flag.DELETING))

    def nodes_named(self, names: Collection[str]) -> Mask:
        """Return which nodes have these names: (nodes,)."""
        found = np.zeros(len(self._nodes.nodes), np.bool_)
        known = self._nodes.node_index
        found[[known[name] for name in names if name in known]] = True
        return found

    def _use(self, slot: int) -> NodeUse:
        nodes = self._nodes
        amounts = zip(nodes.resources, nodes.pod_requests[slot].tolist(), strict=True)
        asked = {name: amount for name, amount in amounts if amount and name != "pods"}
        return NodeUse(nodes.nodes[nodes.pod_node[slot]].name, asked)
