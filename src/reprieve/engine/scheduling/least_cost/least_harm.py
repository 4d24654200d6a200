"""Chooses nodes for a preemptor where the victims that this needs lose least.

With all potential victims removed, each pod is placed on the passing node where it costs least to
reprieve the others around it; the first difference decides:

1. lowest priority of a unit that could not return;
2. least lost work of these units, a group that is evicted as a whole counted once;
3. the node's score.

The costs of all nodes are estimated at once, from above: units are removed in the order of their
cost until there is capacity, or only one that frees enough capacity alone. The most promising nodes
are then examined exactly, one more for every pod, all sets of units where these are few. Only
capacity is checked; what else keeps victims from returning is left to the reprieve that follows.
Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.placing import Choose
from reprieve.engine.scheduling.victims.importance import importance_order
from reprieve.engine.scheduling.victims.units import Units, stable_order

__all__ = ["least_harm"]

_LOOKED_AT: Final = 4  # nodes, for the first pod
_FEW: Final = 10  # units of a node, any of which may have to leave: all sets of them are compared
_LOST_BITS: Final = 40
_MOST_LOST: Final = (1 << _LOST_BITS) - 1
_NEVER: Final = int(np.iinfo(np.int64).max)

_Pod: TypeAlias = tuple[int, int, list[int]]  # unit, its price, what the pod frees


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
    """Costs hold for one class of pods, and as long as every pod placed was chosen for here.

    Resources are those that the class requests.
    """

    units: Units
    choose: Choose
    slots: I64 = field(init=False)  # of the units, by node, then price, the least important first
    edges: I64 = field(init=False)  # (nodes + 1,) where each node's begin in `slots`
    unit_of: I64 = field(init=False)  # of each of `slots`
    price: I64 = field(init=False)  # of each of `slots`: rank of the priority, then lost work
    gone: Mask = field(init=False)  # (units,) cannot return any more
    columns: I64 = field(init=False)  # of the resources
    need: I64 = field(init=False)  # (resources,) what a pod requests
    frees: I64 = field(init=False)  # (resources, slots)
    short: I64 = field(
        init=False
    )  # (resources, nodes) with all units back that can; free below zero
    cost: I64 = field(init=False)  # (nodes,) what one pod more costs there, at most
    known: dict[int, _Leaving] = field(default_factory=dict)  # exactly, by node
    pods: dict[int, list[_Pod]] = field(default_factory=dict)  # that can return, by node
    promising: Iterator[int] = field(init=False)  # to be examined exactly
    placed: int = -1  # pods that should be placed when the next one is queried
    asked: int = -1  # class that the costs are for

    def __post_init__(self) -> None:
        """Sort the units' pods."""
        units, snapshot = self.units, self.units.snapshot
        assert units.lost is not None, "made with lost work"
        # Lost work replaces the type, which it comes before here.
        most_important = importance_order(
            units.priority,
            units.lost,
            units.size,
            units.start,
            units.leading_uid,
            units.grouped,
        )
        order = most_important[::-1]
        slots, place = units.flat(order)
        by_node = stable_order(snapshot.pod_node[slots], len(snapshot.nodes))
        self.slots, self.unit_of = slots[by_node], order[place[by_node]]
        nodes = snapshot.pod_node[self.slots]
        self.edges = np.searchsorted(nodes, np.arange(len(snapshot.nodes) + 1))
        _, rank = np.unique(units.priority, return_inverse=True)
        lost = np.clip(units.lost, 0, _MOST_LOST)
        price = (np.minimum(rank + 1, 1 << 20).astype(np.int64) << _LOST_BITS) | lost
        self.price = price[self.unit_of]

    def node_for(self, simulation: Simulation, pending: Pending, nodes: I64) -> int:
        """Return the node of least harm among these."""
        if len(simulation.simulated) != self.placed:
            self.gone = np.zeros(len(self.units), np.bool_)
            self.asked = -1
        if self.asked != pending.pod_class:
            self.asked = pending.pod_class
            self._begin(simulation, nodes)
        costs = self._look_further(nodes, 1)
        while True:
            least = int(costs.min())
            same = nodes[costs == least]
            node = int(same[0]) if len(same) == 1 else self.choose(simulation, pending, same)
            leaving = self._look_at(node)
            if leaving.cost <= least:
                break
            costs = self.cost[nodes]
        self.placed = len(simulation.simulated) + 1
        self._place(node, leaving.units)
        return node

    def _begin(self, simulation: Simulation, nodes: I64) -> None:
        """Find the costs for another class."""
        snapshot = simulation.snapshot
        need = simulation.requests_of(self.asked)
        self.columns = np.flatnonzero(need > 0)
        self.need = need[self.columns]
        requests = snapshot.pod_requests.take(self.slots, axis=0)[:, self.columns]
        self.frees = np.ascontiguousarray(requests.T)
        total = _sums(np.where(self.gone[self.unit_of], 0, self.frees))
        there = total[:, self.edges[1:]] - total[:, self.edges[:-1]]
        self.short = (simulation.used - snapshot.allocatable)[:, self.columns].T + there
        self.cost = np.zeros(len(snapshot.nodes), np.int64)
        self.known.clear()
        self.pods.clear()
        self._estimate(np.arange(len(snapshot.nodes)))
        order = nodes[np.argsort(self.cost[nodes], kind="stable")]
        self.promising = iter(order.tolist())
        self._look_further(nodes, _LOOKED_AT - 1)

    def _look_further(self, nodes: I64, count: int) -> I64:
        """Look exactly at that many nodes more, unless they cannot cost less than all others.

        Return the costs of these nodes.
        """
        costs = self.cost[nodes]
        least = int(costs.min())
        if not least & _MOST_LOST:
            return costs  # the estimates of the priorities are exact
        better = False
        for node in itertools.islice(self.promising, count):
            about = int(self.cost[node])
            if about >> _LOST_BITS == least >> _LOST_BITS:
                better |= self._look_at(node).cost != about
        return self.cost[nodes] if better else costs

    def _place(self, node: int, leaving: Sequence[int]) -> None:
        """Place a pod, for which these units leave for good."""
        del self.known[node]
        self.short[:, node] += self.need
        if leaving:
            self.gone[list(leaving)] = True
            for unit in leaving:
                if unit >= self.units.singles:
                    self._leave_elsewhere(unit, node)
            self.short[:, node] -= self._freed(node, leaving)
        # For one more, no less than this: it is examined when nothing else costs less.
        room = bool((self.short[:, node] + self.need <= 0).all())
        pods = self.pods.get(node)
        self.cost[node] = 0 if room or not pods else pods[0][1]

    def _freed(self, node: int, leaving: Container[int]) -> I64:
        """Return what these units leave on the node, and forget them there."""
        pods = self.pods[node]
        self.pods[node] = [pod for pod in pods if pod[0] not in leaving]
        freed: I64 = np.array([pod[2] for pod in pods if pod[0] in leaving], np.int64).sum(axis=0)
        return freed

    def _leave_elsewhere(self, unit: int, node: int) -> None:
        """Remove a group from all nodes but one: there is nothing more to lose."""
        snapshot = self.units.snapshot
        slots = self.units.pods(unit)
        at = snapshot.pod_node[slots]
        slots, at = slots[at != node], at[at != node]
        np.subtract.at(self.short.T, at, snapshot.pod_requests[slots][:, self.columns])
        others = sorted(set(at.tolist()))
        for other in others:
            self.known.pop(other, None)
            self.pods.pop(other, None)
        if others:
            self._estimate(np.array(others, np.int64))

    def _estimate(self, nodes: I64) -> None:
        """Write down what one pod more costs on these nodes, about and never less."""
        first, last = self.edges[nodes], self.edges[nodes + 1]
        missing = self.short[:, nodes] + self.need[:, None]
        scarce = (missing > 0).any(axis=1)
        missing = missing[scarce]
        cost = np.where((missing > 0).any(axis=0), _NEVER, 0)
        ends = np.cumsum(last - first)
        pods = np.arange(ends[-1]) + np.repeat(last - ends, last - first)
        place = np.repeat(np.arange(len(nodes)), last - first)
        there = ~self.gone[self.unit_of[pods]] & (cost[place] > 0)
        pods, place = pods[there], place[there]
        price, missing = self.price[pods], missing[:, place]
        frees = self.frees[scarce][:, pods]
        begin = np.searchsorted(place, np.arange(len(nodes)))[place]
        alone = (frees >= missing).all(axis=0)
        np.minimum.at(cost, place[alone], price[alone])
        total, paid = _sums(frees), _sums(price & _MOST_LOST)
        enough = (total[:, 1:] - total[:, begin] >= missing).all(axis=0)
        lost = np.minimum(paid[1:] - paid[begin], _MOST_LOST)
        together = (price >> _LOST_BITS << _LOST_BITS) | lost
        np.minimum.at(cost, place[enough], together[enough])
        self.cost[nodes] = cost

    def _look_at(self, node: int) -> _Leaving:
        """Return who leaves the node, exactly."""
        known = self.known.get(node)
        if known is None:
            known = self.known[node] = self._worked_out(node)
            self.cost[node] = known.cost
        return known

    def _worked_out(self, node: int) -> _Leaving:
        missing = (self.short[:, node] + self.need).tolist()
        short = [index for index, amount in enumerate(missing) if amount > 0]
        if not short:
            return _Leaving(0)
        missing = [missing[index] for index in short]
        price: dict[int, int] = {}  # by unit, the cheapest first
        frees: list[list[int]] = []
        for unit, own, amounts in self._pods_of(node):
            if unit in price:
                frees[-1] = [done + amounts[n] for done, n in zip(frees[-1], short, strict=True)]
            else:
                price[unit] = own
                frees.append([amounts[index] for index in short])
        units, prices = list(price), list(price.values())
        chosen = _cheapest(prices, frees, missing)
        if chosen is None:
            return _Leaving(_NEVER)  # full
        lost = min(sum([prices[index] & _MOST_LOST for index in chosen]), _MOST_LOST)
        cost = prices[chosen[-1]] >> _LOST_BITS << _LOST_BITS | lost
        return _Leaving(cost, tuple([units[index] for index in chosen]))

    def _pods_of(self, node: int) -> list[_Pod]:
        """Return the pods that can return to a node, the cheapest first."""
        known = self.pods.get(node)
        if known is None:
            first, last = self.edges[node], self.edges[node + 1]
            unit_of = self.unit_of[first:last]
            gone = self.gone[unit_of]
            if gone.any():
                pods = np.flatnonzero(~gone) + first
                rows = (self.unit_of[pods], self.price[pods], self.frees[:, pods].T)
            else:
                rows = (unit_of, self.price[first:last], self.frees[:, first:last].T)
            known = list(zip(*(each.tolist() for each in rows), strict=True))
            self.pods[node] = known
        return known


def _sums(amounts: I64) -> I64:
    """Return the sums of the first ones, of none to all, along the last axis."""
    none = np.zeros((*amounts.shape[:-1], 1), np.int64)
    return np.concatenate((none, np.cumsum(amounts, axis=-1)), axis=-1)


def _cheapest(
    prices: Sequence[int], frees: Sequence[Sequence[int]], missing: Sequence[int]
) -> list[int] | None:
    """Return the indices of the cheapest units that free enough, None when all do not.

    They come in the order of their prices. The dearest rank of those that free enough in this order
    cannot be avoided, and nothing above it is needed.
    """
    left = list(missing)
    enough = 0
    for amounts in frees:
        enough += 1
        left = [need - amount for need, amount in zip(left, amounts, strict=True)]
        if max(left) <= 0:
            break
    else:
        return None
    rank = prices[enough - 1] >> _LOST_BITS
    count = enough
    while count < len(prices) and prices[count] >> _LOST_BITS == rank:
        count += 1
    if count > _FEW or count == enough:
        leaving = _without_needless(frees, enough, left)
        if count > _FEW or len(leaving) == enough:
            return leaving
    lost = [price & _MOST_LOST for price in prices[:count]]
    return _least_set(lost, frees[:count], missing)


def _without_needless(
    frees: Sequence[Sequence[int]], enough: int, left: Sequence[int]
) -> list[int]:
    """Return the first that free enough but for those that, the dearest first, may stay."""
    leaving = []
    for index in range(enough - 1, -1, -1):
        without = [need + amount for need, amount in zip(left, frees[index], strict=True)]
        if max(without) <= 0:
            left = without
        else:
            leaving.append(index)
    return leaving[::-1]


def _least_set(
    lost: Sequence[int], frees: Sequence[Sequence[int]], missing: Sequence[int]
) -> list[int]:
    """Return the indices of the set that frees enough and loses least; all together do.

    Of equals the smallest.
    """
    if len(lost) == 1:
        return [0]
    sets = _sets(len(lost))
    enough = (sets @ np.array(frees, np.int64) >= missing).all(axis=1)
    if any(lost):
        best = np.argmin(np.where(enough, sets @ np.array(lost, np.int64), _NEVER))
    else:
        best = np.argmax(enough)
    return np.flatnonzero(sets[best]).tolist()


@cache
def _sets(count: int) -> I64:
    """Return all sets of so many things, as rows of 0 and 1, the smallest first."""
    sets = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
    return sets[np.argsort(sets.sum(axis=1), kind="stable")]
