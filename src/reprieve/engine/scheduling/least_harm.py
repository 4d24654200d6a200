"""Chooses nodes for a preemptor where the victims that this needs lose least.

With all potential victims gone, each pod goes to the passing node where letting the others return
around it costs least; the first difference decides:

1. lowest priority of a unit that could not return;
2. least lost work of these units, a group that goes as a whole counted once;
3. the node's score.

The costs of all nodes are estimated at once: units leave in the order of their cost until there is
room, or one that makes enough room alone. The most promising nodes are then looked at exactly, all
sets of units where these are few. Only room is looked at; what else keeps victims from returning is
left to the reprieve that follows. Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np

from reprieve.engine.cluster.snapshot import I64, Mask, Pending
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.placing import Choose
from reprieve.engine.scheduling.units import Units

__all__ = ["least_harm"]

_LOOKED_AT: Final = 4  # nodes
_FEW: Final = 10  # units of a node: all sets of them are compared
_LOST_BITS: Final = 40
_MOST_LOST: Final = (1 << _LOST_BITS) - 1
_NEVER: Final = int(np.iinfo(np.int64).max)


def least_harm(units: Units, choose: Choose) -> Choose:
    """Return a way to choose nodes; `choose` decides among equals. `units` know their lost work."""
    return _LeastHarm(units, choose).node_for


@dataclass(frozen=True, slots=True)
class _Leaving:
    """Who leaves a node for one pod more, and what that costs."""

    cost: int
    units: tuple[int, ...] = ()


@dataclass(slots=True)
class _LeastHarm:
    """Costs hold for one class of pods, and as long as every pod placed was chosen for here."""

    units: Units
    choose: Choose
    slots: I64 = field(init=False)  # of the units, by node and then price
    edges: list[int] = field(init=False)  # where each node's begin in `slots`
    price: I64 = field(init=False)  # (units,) rank of the priority, then lost work
    turn: I64 = field(init=False)  # (units,) among equals the least important leaves first
    gone: Mask = field(init=False)  # (units,) cannot return any more
    cost: I64 = field(init=False)  # (nodes,) about what one pod more costs there
    known: dict[int, _Leaving] = field(default_factory=dict)  # exactly, by node
    stale: set[int] = field(default_factory=set)  # nodes whose `cost` is out of date
    placed: int = -1  # pods that should be placed when the next one asks
    asked: int = -1  # class that the costs are for

    def __post_init__(self) -> None:
        """Sort the units' pods."""
        units, snapshot = self.units, self.units.snapshot
        assert units.lost is not None, "made with lost work"
        _, rank = np.unique(units.priority, return_inverse=True)
        lost = np.clip(units.lost, 0, _MOST_LOST)
        self.price = (np.minimum(rank, 1 << 20).astype(np.int64) << _LOST_BITS) | lost
        self.turn = np.empty(len(units), np.int64)
        self.turn[units.ordered(np.arange(len(units)))[::-1]] = np.arange(len(units))
        slots = units.slots()
        unit_of = units.of_slot[slots]
        order = np.lexsort((self.turn[unit_of], self.price[unit_of], snapshot.pod_node[slots]))
        self.slots = slots[order]
        nodes = snapshot.pod_node[self.slots]
        self.edges = np.searchsorted(nodes, np.arange(len(snapshot.nodes) + 1)).tolist()

    def node_for(self, simulation: Simulation, pending: Pending, nodes: I64) -> int:
        """Return the node of least harm among these."""
        if len(simulation.simulated) != self.placed:
            self.gone = np.zeros(len(self.units), np.bool_)
            self.asked = -1
        if self.asked != pending.pod_class:
            self.asked = pending.pod_class
            self.cost = self._estimates(simulation, pending)
            self.known.clear()
            self.stale.clear()
        for node in self.stale:
            self.cost[node] = self._leaving(simulation, pending, node).cost
        self.stale.clear()
        node = self._best(simulation, pending, nodes)
        leaving = self._leaving(simulation, pending, node).units
        self.gone[list(leaving)] = True
        self.placed = len(simulation.simulated) + 1
        self._forget(node)
        for unit in leaving:
            if unit >= self.units.singles:
                # Where others of the group run there is room for nothing more to lose.
                for other in np.unique(self.units.snapshot.pod_node[self.units.pods(unit)]):
                    self._forget(int(other))
        return node

    def _forget(self, node: int) -> None:
        self.known.pop(node, None)
        self.stale.add(node)

    def _best(self, simulation: Simulation, pending: Pending, nodes: I64) -> int:
        costs = self.cost[nodes]
        few = min(_LOOKED_AT, len(nodes))
        promising = nodes[np.argpartition(costs, few - 1)[:few]]
        found = {node: self._leaving(simulation, pending, node).cost for node in promising.tolist()}
        least = min(found.values())
        same = costs == least
        same[np.searchsorted(nodes, [n for n, cost in found.items() if cost == least])] = True
        same[np.searchsorted(nodes, [n for n, cost in found.items() if cost != least])] = False
        return self.choose(simulation, pending, nodes[same])

    def _estimates(self, simulation: Simulation, pending: Pending) -> I64:
        """Return what one pod more costs on each node, about: (nodes,)."""
        snapshot, slots = simulation.snapshot, self.slots
        nodes, unit_of = snapshot.pod_node[slots], self.units.of_slot[slots]
        gone = self.gone[unit_of]
        freed = np.where(gone[:, None], 0, snapshot.pod_requests[slots])
        price = np.where(gone, 0, self.price[unit_of])
        total = np.concatenate((np.zeros((1, freed.shape[1]), np.int64), np.cumsum(freed, axis=0)))
        paid = np.concatenate(([0], np.cumsum(price & _MOST_LOST)))
        first, last = np.array(self.edges[:-1]), np.array(self.edges[1:])
        missing = simulation.used + simulation.requests_of(pending.pod_class)
        missing = missing - snapshot.allocatable + total[last] - total[first]
        cost = np.where((missing > 0).any(axis=1), _NEVER, 0)
        alone = (freed >= missing[nodes]).all(axis=1)
        np.minimum.at(cost, nodes[alone], price[alone])
        enough = (total[1:] - total[first][nodes] >= missing[nodes]).all(axis=1)
        lost = np.minimum(paid[1:] - paid[first][nodes], _MOST_LOST)
        together = (price >> _LOST_BITS << _LOST_BITS) | lost
        np.minimum.at(cost, nodes[enough], together[enough])
        return cost

    def _leaving(self, simulation: Simulation, pending: Pending, node: int) -> _Leaving:
        """Return who leaves the node."""
        known = self.known.get(node)
        if known is None:
            known = self.known[node] = self._worked_out(simulation, pending, node)
        return known

    def _worked_out(self, simulation: Simulation, pending: Pending, node: int) -> _Leaving:
        snapshot = simulation.snapshot
        slots = self.slots[self.edges[node] : self.edges[node + 1]]
        unit_of = self.units.of_slot[slots]
        there = ~self.gone[unit_of]
        here, amounts = _summed(unit_of[there], snapshot.pod_requests[slots[there]])
        missing = simulation.used[node] + simulation.requests_of(pending.pod_class)
        missing = missing - snapshot.allocatable[node] + amounts.sum(axis=0)
        if not (missing > 0).any():
            return _Leaving(0)
        if (missing > amounts.sum(axis=0)).any():
            return _Leaving(_NEVER)  # full
        order = np.lexsort((self.turn[here], self.price[here]))
        here, amounts = here[order], amounts[order]
        chosen = _least_set if len(here) <= _FEW else _greedy_set
        leaving = chosen(self.price[here], amounts, missing)
        price = self.price[here[leaving]]
        lost = min(int((price & _MOST_LOST).sum()), _MOST_LOST)
        cost = int(price.max()) >> _LOST_BITS << _LOST_BITS | lost
        return _Leaving(cost, tuple(here[leaving].tolist()))


def _summed(unit_of: I64, requests: I64) -> tuple[I64, I64]:
    """Return the units, and what all pods of each request."""
    if len(set(unit_of.tolist())) == len(unit_of):
        return unit_of, requests
    here, row = np.unique(unit_of, return_inverse=True)
    amounts = np.zeros((len(here), requests.shape[1]), np.int64)
    np.add.at(amounts, row, requests)
    return here, amounts


def _least_set(price: I64, amounts: I64, missing: I64) -> I64:
    """Return the indices of the cheapest set that frees enough; all units do."""
    sets = _sets(len(price))
    enough = (sets @ amounts >= missing).all(axis=1)
    sets = sets[enough]
    highest = (sets * (price >> _LOST_BITS)).max(axis=1)
    lost = sets @ (price & _MOST_LOST)
    best = np.lexsort((sets.sum(axis=1), lost, highest))[0]
    return np.flatnonzero(sets[best])


@cache
def _sets(count: int) -> I64:
    """Return all sets of so many things but the empty one: (2**count - 1, count) of 0 and 1."""
    return (np.arange(1, 1 << count)[:, None] >> np.arange(count)) & 1


def _greedy_set(price: I64, amounts: I64, missing: I64) -> I64:
    """Return the indices of the cheapest that free enough, without those needed for nothing."""
    freed = np.cumsum(amounts, axis=0)
    count = int(np.argmax((freed >= missing).all(axis=1))) + 1
    spare = freed[count - 1] - missing
    leaving = []
    for index in range(count - 1, -1, -1):
        if (amounts[index] <= spare).all():
            spare = spare - amounts[index]
        else:
            leaving.append(index)
    return np.array(leaving[::-1], np.int64)
