"""Finds cheap victims for equal members on many nodes, and a lower bound of their cost.

For every node the pods of units that may be evicted are sorted by what a slot for one member costs
with them. The lowest priority with which there are enough slots comes first. From
then on each node has a few points, so many slots for so much, which are combined into the least
cost for all members on the nodes where slots cost least. The bound counts parts of pods as well,
and for each node the resource that it has least of; what a unit with pods on several nodes costs is
split among its pods. Then those that are evicted are charged to the nodes that have capacity by
them, all others in full, and the combination is made again while it gets cheaper. Source: KEP-5710,
"Future extensions".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from reprieve.engine.cluster.arrays import I64, Mask

__all__ = ["Slots", "Wide", "cheapest_nodes", "wide"]

_MORE: Final = 32  # nodes beyond those that the bound uses
_NODES: Final = 512  # on which slots are combined at most
_NEVER: Final = 1 << 61
_ROUNDS: Final = 1  # in which units on several nodes are brought together
_SLACK: Final = 1e-9  # what sums of fractions may be off by

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Slots:
    """Capacity for equal members, and what units free: pods as (parts,) columns.

    `need`: (resources,) of one member, above zero; `free`: (nodes, resources) with all units there;
    `passes`: (nodes,) where members may be placed; `cost` and `priority`: (units,).
    """

    need: I64
    count: int
    free: I64
    passes: Mask
    unit: I64
    node: I64
    frees: I64  # (parts, resources)
    cost: I64
    priority: I64


@dataclass(frozen=True, slots=True)
class Wide:
    """Units to evict, (units,), and how many members each node gets; `bound`: of their cost."""

    leaving: Mask
    nodes: tuple[int, ...]  # of each member
    priority: int
    cost: int
    bound: int


@dataclass(frozen=True, slots=True)
class _Lined:
    """Parts by node, those that free most for their cost first."""

    unit: I64
    node: I64
    edges: I64  # (nodes + 1,)
    amount: F64  # of a member's need, of the resource of which the part frees most
    share: F64  # of its unit's cost
    slots: I64  # on the node once it and those before it are removed
    begin: I64  # (nodes,) slots that are free
    most: I64  # (nodes,) slots with all parts removed


def wide(room: Slots) -> Wide | None:
    """Return cheap units without which all members fit; None where no units are enough."""
    level = _level(room)
    if level is None:
        return None
    pods = np.bincount(room.unit, minlength=len(room.cost))
    share = room.cost / np.maximum(pods, 1)
    lined = _lined(room, level, share)
    steps = _increments(room, lined)
    if steps.size < room.count:
        return None
    lowest = np.partition(steps, room.count - 1, axis=None)[: room.count]
    if lowest.max() >= _NEVER:
        return None
    bound = int(lowest.sum() * (1 - _SLACK))
    nodes = _chosen(steps, room.count)
    leaving, at = _combined(room, lined, nodes)
    if len(at) < room.count:
        return None
    best = Wide(leaving, at, level, int(room.cost[leaving].sum()), bound)
    if not (pods[leaving] > 1).any():
        return best
    near = _near(room, leaving, nodes)
    for _ in range(_ROUNDS):
        # What is evicted for one node costs nothing more on another.
        chosen = np.zeros(len(room.passes), np.bool_)
        chosen[list(at)] = True
        there = chosen[room.node] & leaving[room.unit]
        used = np.bincount(room.unit[there], minlength=len(room.cost))
        share = room.cost / np.maximum(used, 1)
        lined = _lined(near, level, share)
        steps = _increments(near, lined)
        leaving, at = _combined(near, lined, _chosen(steps, room.count))
        if len(at) < room.count:
            break
        cost = int(room.cost[leaving].sum())
        if cost >= best.cost:
            break
        best = Wide(leaving, at, level, cost, bound)
    return best


def _near(room: Slots, leaving: Mask, nodes: I64) -> Slots:
    """Return the capacity of these nodes, and of those where units have pods that are evicted."""
    passes = np.zeros(len(room.passes), np.bool_)
    passes[nodes] = True
    passes[room.node[leaving[room.unit]]] = True
    passes &= room.passes
    there = passes[room.node]
    return replace(
        room,
        passes=passes,
        unit=room.unit[there],
        node=room.node[there],
        frees=room.frees[there],
    )


def cheapest_nodes(room: Slots, most: int) -> I64:
    """Return the nodes on which the first slots cost least, `most` of them at most."""
    level = _level(room)
    if level is None:
        return np.zeros(0, np.int64)
    pods = np.bincount(room.unit, minlength=len(room.cost))
    steps = _increments(room, _lined(room, level, room.cost / np.maximum(pods, 1)))
    if not steps.size:
        return np.zeros(0, np.int64)
    order = np.argsort(steps[:, 0], kind="stable")[:most]
    return np.sort(order[steps[order, 0] < _NEVER])


def _level(room: Slots) -> int | None:
    """Return the lowest priority up to which units are enough."""
    levels = np.unique(room.priority)
    of_part = room.priority[room.unit]
    low, high = 0, len(levels)
    while low < high:
        middle = (low + high) // 2
        there = of_part <= levels[middle]
        free = room.free + _by_node(room, there)
        slots = np.floor_divide(free, room.need).min(axis=1)
        if int(np.clip(slots[room.passes], 0, room.count).sum()) >= room.count:
            high = middle
        else:
            low = middle + 1
    return int(levels[low]) if low < len(levels) else None


def _by_node(room: Slots, there: Mask) -> I64:
    """Return what these parts free on each node: (nodes, resources)."""
    parts = np.flatnonzero(there)
    node = room.node[parts]
    columns = [
        np.bincount(node, weights=column[parts], minlength=len(room.free))
        for column in room.frees.T
    ]
    return np.stack(columns, axis=1).astype(np.int64)


def _lined(room: Slots, level: int, of_pod: F64) -> _Lined:
    """Return the parts in order; `of_pod`: (units,) what one pod of each counts as."""
    there = (room.priority[room.unit] <= level) & room.passes[room.node]
    parts = np.flatnonzero(there & (room.frees > 0).any(axis=1))
    amount = (room.frees[parts] / room.need).max(axis=1)
    share = of_pod[room.unit[parts]]
    order = np.argsort(share / amount, kind="stable")
    small = room.node[parts].astype(np.uint16 if len(room.free) < 1 << 16 else np.int64)
    order = order[np.argsort(small[order], kind="stable")]
    parts, amount, share = parts[order], amount[order], share[order]
    node = room.node[parts]
    edges = np.searchsorted(node, np.arange(len(room.free) + 1))
    total = np.zeros((len(parts) + 1, room.frees.shape[1]), np.int64)
    np.cumsum(room.frees[parts], axis=0, out=total[1:])
    had = room.free[node] + total[1:] - total[edges[node]]
    slots = np.clip(np.floor_divide(had, room.need).min(axis=1), 0, room.count)
    begin = np.clip(np.floor_divide(room.free, room.need).min(axis=1), 0, room.count)
    begin[~room.passes] = 0
    most = begin.copy()
    filled = np.flatnonzero(edges[1:] > edges[:-1])
    most[filled] = slots[edges[filled + 1] - 1]
    return _Lined(room.unit[parts], node, edges, amount, share, slots, begin, most)


def _increments(room: Slots, lined: _Lined) -> F64:
    """Return what each slot more costs on each node at least: (nodes, slots), in ascending order.

    Beyond what a node has with all parts removed it is larger than any other value.
    """
    most = int(lined.most.max(initial=0))
    if not most:
        return np.zeros((0, 1))
    cost = np.zeros((len(room.free), most + 1))
    amounts = np.concatenate(([0.0], np.cumsum(lined.amount)))
    paid = np.concatenate(([0.0], np.cumsum(lined.share)))
    first, last = lined.edges[:-1], lined.edges[1:]
    ratio = (room.free / room.need).min(axis=1)
    for slots in range(1, most + 1):
        nodes = np.flatnonzero(room.passes & (lined.most >= slots) & (lined.begin < slots))
        wanted = slots - ratio[nodes] + amounts[first[nodes]]
        # The part that is used last, of which only so much is needed.
        part = np.searchsorted(amounts, wanted * (1 - _SLACK), side="left") - 1
        part = np.clip(part, first[nodes], np.maximum(last[nodes] - 1, first[nodes]))
        rest = np.clip(wanted - amounts[part], 0, lined.amount[part])
        found = paid[part] - paid[first[nodes]] + rest * (lined.share[part] / lined.amount[part])
        cost[nodes, slots] = found
        cost[~room.passes | (lined.most < slots), slots] = _NEVER
    steps = np.diff(cost, axis=1)
    steps[cost[:, 1:] >= _NEVER] = _NEVER
    return steps


def _chosen(steps: F64, count: int) -> I64:
    """Return the nodes whose first slots cost least, some more than there are members."""
    order = np.argsort(steps[:, 0], kind="stable")[: min(count + _MORE, _NODES)]
    return np.sort(order[steps[order, 0] < _NEVER])


def _combined(room: Slots, lined: _Lined, nodes: I64) -> tuple[Mask, tuple[int, ...]]:
    """Return the units that are evicted on these nodes, and the node of each member.

    No members where the nodes have not enough capacity.
    """
    states = np.arange(room.count + 1)
    slots = np.arange(int(lined.most[nodes].max(initial=0)) + 1)
    left = np.maximum(states - slots[:, None], 0)
    least = np.full(room.count + 1, _NEVER, np.float64)
    least[0] = 0.0
    paid = np.concatenate(([0.0], np.cumsum(lined.share)))
    chosen: list[tuple[I64, I64]] = []
    for node in nodes.tolist():
        first, last = lined.edges.item(node), lined.edges.item(node + 1)
        have = lined.most.item(node) + 1
        ends = lined.slots[first:last].searchsorted(slots[:have])
        ends += first + 1
        ends[: lined.begin.item(node) + 1] = first
        price = paid[ends] - paid.item(first)
        costs = least[left[:have]]
        costs += price[:, None]
        which = costs.argmin(axis=0)
        least = costs[which, states]
        chosen.append((ends, which))
    leaving = np.zeros(len(room.cost), np.bool_)
    at: list[int] = []
    state = room.count if least[-1] < _NEVER else 0
    for node, (ends, which) in zip(reversed(nodes.tolist()), reversed(chosen), strict=True):
        most = min(int(which[state]), state)
        leaving[lined.unit[lined.edges[node] : int(ends[int(which[state])])]] = True
        at += [node] * most
        state -= most
    return leaving, tuple(at)
