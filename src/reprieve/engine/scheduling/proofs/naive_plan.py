"""Makes a plan the plain way, which a plan that claims to cost the least must not exceed: a proof.

One member after the other, the largest first, is placed on the node where capacity costs least
right then, of those that filters accept beside the members before it: pods are removed in the order
of their price for what is lacking, and of a group that is evicted as a whole all are removed at
once. A pod whose eviction is not needed in the end stays. The result is checked by all filters. It
is often not the best plan, but it is one: a plan that states that nothing costs less and costs more
than this is wrong. Nothing of the search is used. Source: promise "Irreducible" of the design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.victims.hierarchy import whole_groups

__all__ = ["naive_victims"]


def naive_victims(
    simulation: Simulation,
    members: Sequence[Pending],
    allowed: Mask,
    weight: I64,
    *,
    split: bool = False,
    at: Sequence[int] | None = None,
) -> I64 | None:
    """Return the victims of a plain plan, (slots,) of them; None where it finds none.

    `simulation`: all pods are there; it is left as it was. `allowed`: (slots,) pods that may be
    evicted. `weight`: (slots,) what each pod costs. `split`: of a group the pods on the node count.
    `at`: the node of each member; without it the cheapest one is searched for.
    """
    board = _Board(simulation, allowed, weight, split)
    need = [simulation.requests_of(each.pod_class) for each in members]
    total = np.maximum(simulation.snapshot.allocatable.sum(axis=0), 1)
    order = sorted(range(len(members)), key=lambda at: -float((need[at] / total)[1:].max()))
    before = simulation.checkpoint()
    simulation.remove(np.flatnonzero(allowed & simulation.present))
    nodes: dict[int, int] = {}
    for index in order:
        passes = simulation.codes(members[index]) == 0
        if at is not None:
            passes &= np.arange(len(passes)) == at[index]
        node = board.cheapest(need[index], passes)
        if node < 0:
            simulation.rollback(before)
            return None
        nodes[index] = node
        simulation.place(members[index], node)
    simulation.rollback(before)
    board.reprieve()
    gone = np.array(sorted(slot for unit in board.gone for slot in board.pods[unit]), np.int64)
    if len(gone):
        simulation.remove(gone)
    placed = True
    for index in order:
        if simulation.code_at(members[index], nodes[index]):
            placed = False
            break
        simulation.place(members[index], nodes[index])
    simulation.rollback(before)
    return gone if placed else None


@dataclass(slots=True)
class _Board:
    """What is free on each node, and what may be evicted; `gone`: units that have left."""

    simulation: Simulation
    allowed: Mask
    weight: I64
    split: bool
    free: I64 = field(init=False)
    pods: dict[int, list[int]] = field(default_factory=dict)  # by unit: a group, or minus a slot
    there: dict[int, list[int]] = field(default_factory=dict)  # units by node
    gone: set[int] = field(default_factory=set)
    # By node, until something changes there: who leaves it for a member that requests so much.
    known: dict[int, dict[bytes, list[int] | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        simulation, snapshot = self.simulation, self.simulation.snapshot
        self.free = (snapshot.allocatable - simulation.used).astype(np.int64)
        for node, others in simulation.nominated.items():
            for pod in others:
                self.free[node] -= simulation.requests_of(pod.pod_class)
        groups = whole_groups(snapshot, simulation.policy)[snapshot.pod_group.astype(np.intp)]
        for slot in np.flatnonzero(self.allowed & simulation.present).tolist():
            unit = int(groups[slot]) if groups[slot] >= 0 else -slot - 1
            self.pods.setdefault(unit, []).append(slot)
        for unit, slots in self.pods.items():
            for node in {int(snapshot.pod_node[slot]) for slot in slots}:
                self.there.setdefault(node, []).append(unit)

    def cheapest(self, need: I64, passes: Mask) -> int:
        """Free capacity for one member where that costs least; return the node, -1 for none.

        Of several nodes the one on which the most such members fit afterwards.
        """
        best: tuple[int, int, int, list[int]] | None = None
        key = need.tobytes()
        for node in np.flatnonzero(passes).tolist():
            known = self.known.setdefault(node, {})
            if key not in known:
                known[key] = self._leaving(node, need)
            leaving = known[key]
            if leaving is not None:
                cost = sum(self._price(unit, node) for unit in leaving)
                if best is None or cost <= best[0]:
                    found = cost, -self._more(node, need, leaving), node, leaving
                    best = found if best is None else min(best, found)
                if not cost:
                    break
        if best is None:
            return -1
        _, _, node, leaving = best
        for unit in leaving:
            self._move(unit, 1)
            self.gone.add(unit)
        self.free[node] -= need
        self.known.pop(node, None)
        return node

    def _more(self, node: int, need: I64, leaving: Sequence[int]) -> int:
        """Return how many members that request so much fit on a node without these units."""
        free = self.free[node] + sum(self._frees(unit, node) for unit in leaving)
        asked = need > 0
        return int((free[asked] // need[asked]).min()) if asked.any() else 0

    def _leaving(self, node: int, need: I64) -> list[int] | None:
        """Return the units that leave a node for one member, None where that is not enough."""
        lacking = np.where(need > 0, need - self.free[node], 0)
        if not (lacking > 0).any():
            return []
        priced = []
        for unit in self.there.get(node, ()):
            if unit not in self.gone:
                own = self._frees(unit, node)
                part = float((np.minimum(own, lacking)[lacking > 0] / lacking[lacking > 0]).max())
                if part > 0:
                    priced.append((self._price(unit, node) / part, unit, own))
        leaving: list[tuple[int, I64]] = []
        for _, unit, own in sorted(priced, key=lambda each: each[:2]):
            leaving.append((unit, own))
            lacking = lacking - own
            if not (lacking > 0).any():
                break
        else:
            return None
        # Who came before the last may not be needed with it.
        for unit, own in sorted(leaving, key=lambda each: -self._price(each[0], node)):
            if not (lacking + own > 0).any():
                lacking = lacking + own
                leaving = [each for each in leaving if each[0] != unit]
        return [unit for unit, _ in leaving]

    def reprieve(self) -> None:
        """Reprieve units that no pod depends on, the dearest first."""
        for unit in sorted(self.gone, key=lambda each: (-self._price(each), each)):
            self._move(unit, -1)
            nodes = {int(self.simulation.snapshot.pod_node[slot]) for slot in self.pods[unit]}
            if all((self.free[node] >= 0).all() for node in nodes):
                self.gone.discard(unit)
            else:
                self._move(unit, 1)

    def _price(self, unit: int, node: int = -1) -> int:
        pods = self.pods[unit]
        if self.split and node >= 0:
            pods = [slot for slot in pods if self.simulation.snapshot.pod_node[slot] == node]
        return int(self.weight[pods].sum())

    def _frees(self, unit: int, node: int) -> I64:
        snapshot = self.simulation.snapshot
        here = [slot for slot in self.pods[unit] if snapshot.pod_node[slot] == node]
        amounts: I64 = snapshot.pod_requests[here].sum(axis=0)
        return amounts

    def _move(self, unit: int, sign: int) -> None:
        snapshot = self.simulation.snapshot
        for slot in self.pods[unit]:
            node = int(snapshot.pod_node[slot])
            self.free[node] += sign * snapshot.pod_requests[slot]
            self.known.pop(node, None)
