"""Which pods have to be evicted for the pods of a workload, so that few devices are.

Used where the quota of a workload is free and the nodes have no capacity for it. On each node pods
stay whose devices are the most that fit beside those that come. Pods that are all alike are divided
among nodes so that the fewest devices are evicted in all; others are placed one after the other on
the node where the fewest devices more have to be evicted. Of many nodes those that lack the fewest
devices are looked at. Whole jobs and gangs, which are evicted together, are not seen: it is an
estimate. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.lost_work import is_device
from reprieve.engine.placement.simulation import Simulation

__all__ = ["Leaving", "pods_to_evict"]

_NODES: Final = 16  # that are looked at beyond one for each pod
_MOST: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Leaving:
    """Slots of victims, in order, and how many devices they hold."""

    slots: I64
    devices: int


def pods_to_evict(
    simulation: Simulation, wanted: Sequence[Pending], slots: I64, within: Mask | None = None
) -> Leaving | None:
    """Return which of these pods are evicted; None where all of them are too few.

    `wanted`: pods that wait, the largest first. `slots`: pods that may be evicted and are there.
    `within`: (nodes,) where alone the pods may be placed. The simulation is left as it was.
    """
    before = simulation.checkpoint()
    board = _Board(simulation, slots)
    simulation.remove(slots)
    try:
        if all(each is wanted[0] for each in wanted):
            if not board.divide(wanted, within):
                return None
        elif not all(board.place(each, within) for each in wanted):
            return None
    finally:
        simulation.rollback(before)
    gone = np.array(sorted(slot for node in board.gone.values() for slot in node), np.int64)
    return Leaving(gone, int(board.held[gone].sum()))


@dataclass(slots=True)
class _Board:
    """What may be evicted by node, and what is so far."""

    simulation: Simulation
    slots: I64
    devices: list[int] = field(init=False)  # columns
    there: dict[int, list[int]] = field(default_factory=dict)  # slots by node, most devices first
    gone: dict[int, list[int]] = field(default_factory=dict)  # slots by node
    held: I64 = field(init=False)  # (slots,) devices of each pod
    used: I64 = field(init=False)  # (nodes, resources) before any eviction

    def __post_init__(self) -> None:
        snapshot = self.simulation.snapshot
        self.devices = [at for at, name in enumerate(snapshot.resources) if is_device(name)]
        self.held = snapshot.pod_requests[:, self.devices].sum(axis=1)
        self.used = self.simulation.used.copy()
        order = self.slots[np.lexsort((self.slots, -self.held[self.slots]))]
        for slot, node in zip(order.tolist(), snapshot.pod_node[order].tolist(), strict=True):
            self.there.setdefault(node, []).append(slot)

    def divide(self, wanted: Sequence[Pending], within: Mask | None) -> bool:
        """Place pods that are all alike with the fewest devices evicted; False: they do not fit."""
        simulation, count = self.simulation, len(wanted)
        if not count:
            return True
        asked = simulation.requests_of(wanted[0].pod_class)
        steps: list[tuple[int, list[list[int]]]] = []
        for node in self._nodes(wanted[0], within, _NODES + count):
            going: list[list[int]] = []
            before = simulation.checkpoint()
            while len(going) < count and simulation.code_at(wanted[0], node) == 0:
                going.append(self._going(node, asked))
                simulation.place(wanted[0], node)
            simulation.rollback(before)
            steps.append((node, going))
        least = [0, *[_MOST] * count]
        chosen: list[list[int]] = []  # by node, how many pods of each number it uses so far
        for _, going in steps:
            costs = [0, *(self._devices_of(each) for each in going)]
            after, used = least[:], [0] * (count + 1)
            for number in range(1, count + 1):
                for here in range(1, min(number, len(going)) + 1):
                    cost = least[number - here] + costs[here]
                    if cost < after[number]:
                        after[number], used[number] = cost, here
            least = after
            chosen.append(used)
        if least[count] >= _MOST:
            return False
        for (node, going), used in zip(reversed(steps), reversed(chosen), strict=True):
            here = used[count]
            if here:
                self.gone[node] = going[here - 1]
                count -= here
        return True

    def place(self, pending: Pending, within: Mask | None) -> bool:
        """Place a pod on the node where the fewest more devices are evicted; False: it has none."""
        simulation = self.simulation
        asked = simulation.requests_of(pending.pod_class)
        best: tuple[int, int, list[int]] | None = None
        for node in self._nodes(pending, within, _NODES):
            going = self._going(node, asked)
            more = self._devices_of(going) - self._devices_of(self.gone.get(node, []))
            if best is None or more < best[0]:
                best = (more, node, going)
            if not more:
                break
        if best is None:
            return False
        _, node, self.gone[best[1]] = best
        simulation.place(pending, node)
        self.used[node] += asked
        return True

    def _nodes(self, pending: Pending, within: Mask | None, most: int) -> list[int]:
        """Return the nodes where a pod may be placed, those that lack the fewest devices first."""
        simulation = self.simulation
        passes = simulation.codes(pending) == 0
        nodes = np.flatnonzero(passes if within is None else passes & within)
        asked = simulation.requests_of(pending.pod_class)
        left = simulation.snapshot.allocatable[nodes] - self.used[nodes] - asked
        lacking = np.clip(-left[:, self.devices], 0, None).sum(axis=1)
        found: list[int] = nodes[np.argsort(lacking, kind="stable")[:most]].tolist()
        return found

    def _devices_of(self, slots: list[int]) -> int:
        return int(self.held[slots].sum())

    def _going(self, node: int, asked: I64) -> list[int]:
        """Return which pods of a node are evicted when a pod is placed there as well.

        Of sets that hold equally many devices the first one is kept.
        """
        simulation, slots = self.simulation, self.there.get(node, [])
        room = simulation.snapshot.allocatable[node] - simulation.used[node] - asked
        staying: dict[int, tuple[list[int], I64]] = {0: ([], room)}
        for slot in slots:
            amounts = simulation.snapshot.pod_requests[slot]
            held = int(self.held[slot])
            for devices, (kept, left) in list(staying.items()):
                if (amounts <= left).all():
                    staying.setdefault(devices + held, ([*kept, slot], left - amounts))
        kept, _ = staying[max(staying)]
        return [slot for slot in slots if slot not in kept]
