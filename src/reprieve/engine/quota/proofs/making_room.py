"""How many devices have to be evicted for the pods of a workload: an estimate.

Asked where several flavors have the quota of a workload and none has nodes with room for it. Pods
go one after the other to the node where the fewest devices more have to go; there the pods with the
most devices stay as long as they fit. Whole jobs and gangs, which go together, are not looked at.
Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.lost_work import is_device
from reprieve.engine.placement.simulation import Simulation

__all__ = ["devices_to_evict"]

_NODES: Final = 16  # that are looked at for one pod: those that lack the fewest devices


def devices_to_evict(simulation: Simulation, wanted: Sequence[Pending], slots: I64) -> int | None:
    """Return how many devices of these pods have to go; None where all of them are too few.

    `wanted`: pods that wait, the largest first. `slots`: pods that may go, which are there. The
    simulation is left as it was.
    """
    before = simulation.checkpoint()
    board = _Board(simulation, slots)
    simulation.remove(slots)
    try:
        for pending in wanted:
            nodes = np.flatnonzero(simulation.codes(pending) == 0)
            if not len(nodes):
                return None
            board.place(pending, nodes)
    finally:
        simulation.rollback(before)
    return sum(board.gone.values())


@dataclass(slots=True)
class _Board:
    """What may go by node, and how many devices of each node go so far."""

    simulation: Simulation
    slots: I64
    devices: list[int] = field(init=False)  # columns
    there: dict[int, I64] = field(default_factory=dict)  # slots by node, the most devices first
    gone: dict[int, int] = field(default_factory=dict)
    held: I64 = field(init=False)  # (slots,) devices of each pod
    used: I64 = field(init=False)  # (nodes, resources) with nobody gone

    def __post_init__(self) -> None:
        snapshot = self.simulation.snapshot
        self.devices = [at for at, name in enumerate(snapshot.resources) if is_device(name)]
        self.held = snapshot.pod_requests[:, self.devices].sum(axis=1)
        self.used = self.simulation.used.copy()
        order = self.slots[np.lexsort((self.slots, -self.held[self.slots]))]
        nodes = snapshot.pod_node[order]
        self.there = {node: order[nodes == node] for node in np.unique(nodes).tolist()}

    def place(self, pending: Pending, nodes: I64) -> None:
        """Place a pod on the one of these nodes where the fewest devices more go."""
        simulation = self.simulation
        asked = simulation.requests_of(pending.pod_class)
        left = simulation.snapshot.allocatable[nodes] - self.used[nodes] - asked
        lacking = np.clip(-left[:, self.devices], 0, None).sum(axis=1)
        best: tuple[int, int] | None = None
        for node in nodes[np.argsort(lacking, kind="stable")[:_NODES]].tolist():
            more = self._going(node, asked) - self.gone.get(node, 0)
            if best is None or more < best[0]:
                best = (more, node)
            if not more:
                break
        assert best is not None, "nodes are not empty"
        more, node = best
        simulation.place(pending, node)
        self.used[node] += asked
        self.gone[node] = self.gone.get(node, 0) + more

    def _going(self, node: int, asked: I64) -> int:
        """Return how many devices of a node go when a pod is placed there as well."""
        simulation = self.simulation
        room = simulation.snapshot.allocatable[node] - simulation.used[node] - asked
        gone = 0
        for slot in self.there.get(node, ()):
            amounts = simulation.snapshot.pod_requests[slot]
            if (amounts <= room).all():
                room = room - amounts
            else:
                gone += int(self.held[slot])
        return gone
