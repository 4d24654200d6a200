"""Chooses which units to evict so that members fit, at least cost: exact where it is small.

Members are counted by class, nodes hold amounts of a few resources, and a unit frees an amount on
each node that it has pods on. For every node there is a table: what the cheapest units are that
free capacity for so many members of each class. The tables are combined node by node into the least
cost for all members (dynamic programming over the members that are still to be placed).

A unit with pods on several nodes couples them. Its cost is split among its nodes, which gives a
lower bound; where the units chosen pay their whole cost the bound is the optimum. Otherwise a unit
that pays only in part is decided, evicted or kept, and both cases are solved, the lower bound
first (branch and bound). Effort is counted in cells of the tables, so that the answer depends on no
clock; the best answer so far and the lowest bound that is still open come back when it is used up.
Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64

__all__ = ["CELLS", "Cover", "Instance", "cover"]

CELLS: Final = 1 << 22  # of tables that one search fills at most
MOST_COST: Final = 1 << 60  # of all units together, at most
_NEVER: Final = 1 << 61
_STATES: Final = 1 << 12  # of members that are still to be placed
_PATTERNS: Final = 1 << 9  # of members on one node
_OPTIONS: Final = 1 << 8  # of units that leave one node

Amounts: TypeAlias = tuple[int, ...]  # by resource
Pattern: TypeAlias = tuple[int, ...]  # members by class


@dataclass(frozen=True, slots=True)
class Instance:
    """What is to be covered.

    `free`: by node, what is free there. `needs` and `counts`: by class of members, what one
    requests and how many there are. `allowed`: by node, the classes that may be placed there.
    `frees`: by node, what each unit frees there. `cost`: of each unit, at least 0. `least`: by
    node, so many members have to have capacity there; none where it is empty.
    """

    free: Sequence[Amounts]
    needs: Sequence[Amounts]
    counts: Pattern
    allowed: Sequence[Sequence[bool]]
    frees: Sequence[Mapping[int, Amounts]]
    cost: Sequence[int]
    least: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Cover:
    """The units that are evicted, and the members of each class by node.

    `bound`: no choice costs less; it is the optimum's cost where `cost` equals it. It is 0 where
    tables were cut short.
    """

    units: frozenset[int]
    members: tuple[Pattern, ...]
    cost: int
    bound: int


def cover(instance: Instance, cells: int = CELLS) -> Cover | None:
    """Return the cheapest cover that is found; None where there is none, or it is too large."""
    search = _Search.of(instance, cells)
    return None if search is None else search.run()


@dataclass(frozen=True, slots=True)
class _Table:
    """What members on one node cost: (patterns,) each; `units`: those evicted for them."""

    patterns: tuple[Pattern, ...]
    costs: I64
    units: tuple[tuple[int, ...], ...]
    steps: I64  # (patterns, states): the state that is left by each


@dataclass(slots=True)
class _Search:
    """Branch and bound over the units with pods on several nodes."""

    instance: Instance
    cells: int
    nodes_of: dict[int, list[int]]  # of units on several nodes
    share: dict[tuple[int, int], int]  # of a unit's cost, by unit and node
    states: I64  # (states, classes): members still to be placed
    strides: I64
    tables: dict[tuple[object, ...], _Table] = field(default_factory=dict)
    steps: dict[Pattern, I64] = field(default_factory=dict)
    best: Cover | None = None
    cut: bool = False  # some table does not hold all that is possible

    @classmethod
    def of(cls, instance: Instance, cells: int) -> _Search | None:
        """Return a search; None where members are of too many kinds."""
        sizes = [count + 1 for count in instance.counts]
        total = int(np.prod(sizes, dtype=np.float64))
        if total > _STATES:
            return None
        nodes_of: dict[int, list[int]] = {}
        for node, units in enumerate(instance.frees):
            for unit in units:
                nodes_of.setdefault(unit, []).append(node)
        share: dict[tuple[int, int], int] = {}
        for unit, nodes in nodes_of.items():
            each, rest = divmod(instance.cost[unit], len(nodes))
            for place, node in enumerate(nodes):
                share[unit, node] = each + (place < rest)
        strides = np.cumprod([1, *sizes[:0:-1]])[::-1].astype(np.int64)
        states = np.array(list(itertools.product(*map(range, sizes))), np.int64)
        several = {unit: nodes for unit, nodes in nodes_of.items() if len(nodes) > 1}
        return cls(instance, cells, several, share, states.reshape(-1, len(sizes)), strides)

    def run(self) -> Cover | None:
        """Return the best cover with the bound that is proven for it."""
        order = itertools.count()
        open_: list[tuple[int, int, dict[int, bool], Cover]] = []
        first = self._relaxed({})
        if first is None:
            return None
        heapq.heappush(open_, (first.bound, next(order), {}, first))
        proven = first.bound
        while open_:
            bound, _, decided, found = heapq.heappop(open_)
            assert self.best is not None
            proven = max(proven, min(bound, self.best.cost))
            if bound >= self.best.cost or self.cells <= 0:
                break
            unit = self._undecided(found, decided)
            if unit is None:
                continue
            for gone in (True, False):
                child = {**decided, unit: gone}
                solved = self._relaxed(child)
                if solved is not None and solved.bound < self.best.cost:
                    heapq.heappush(open_, (max(bound, solved.bound), next(order), child, solved))
        else:
            assert self.best is not None
            proven = self.best.cost
        best = self.best
        bound = 0 if self.cut else min(proven, best.cost)
        return Cover(best.units, best.members, best.cost, bound)

    def _undecided(self, found: Cover, decided: Mapping[int, bool]) -> int | None:
        """Return the unit that pays the least part of its cost; None where all pay it."""
        cost = self.instance.cost
        open_ = [unit for unit in found.units if unit in self.nodes_of and unit not in decided]
        return max(open_, key=lambda unit: (cost[unit], -unit), default=None)

    def _relaxed(self, decided: Mapping[int, bool]) -> Cover | None:
        """Solve with the cost of undecided units split; what all chosen cost may be the best."""
        instance, size = self.instance, len(self.states)
        base = sum(instance.cost[unit] for unit, gone in decided.items() if gone)
        least = np.full(size, _NEVER, np.int64)
        least[0] = 0
        chosen: list[tuple[_Table, I64]] = []
        for node in range(len(instance.free)):
            table = self._table(node, decided)
            costs = least[table.steps] + table.costs[:, None]
            self.cells -= costs.size
            which = costs.argmin(axis=0)
            least = np.minimum(costs[which, np.arange(size)], _NEVER)
            chosen.append((table, which))
        if least[-1] >= _NEVER:
            return None
        units = {unit for unit, gone in decided.items() if gone}
        members: list[Pattern] = []
        state = size - 1
        for table, which in reversed(chosen):
            pattern = int(which[state])
            units.update(table.units[pattern])
            members.append(table.patterns[pattern])
            state = int(table.steps[pattern, state])
        cost = sum(instance.cost[unit] for unit in units)
        bound = base + int(least[-1])
        found = Cover(frozenset(units), tuple(reversed(members)), cost, bound)
        if self.best is None or cost < self.best.cost:
            self.best = found
        return found

    def _table(self, node: int, decided: Mapping[int, bool]) -> _Table:
        instance = self.instance
        there = instance.frees[node]
        gone = tuple(unit for unit, out in decided.items() if out and unit in there)
        kept = tuple(unit for unit, out in decided.items() if not out and unit in there)
        free = instance.free[node]
        for unit in gone:
            free = tuple(a + b for a, b in zip(free, there[unit], strict=True))
        parts = [
            (self.share[unit, node], amounts, unit)
            for unit, amounts in there.items()
            if unit not in decided
        ]
        key: tuple[object, ...] = (node, frozenset(gone), frozenset(kept))
        known = self.tables.get(key)
        if known is None:
            known = self.tables[key] = self._made(node, free, parts)
        return known

    def _made(self, node: int, free: Amounts, parts: Sequence[tuple[int, Amounts, int]]) -> _Table:
        """Return the table of a node where these parts of units may be evicted."""
        instance = self.instance
        most = tuple(
            have + sum(amounts[index] for _, amounts, _ in parts) for index, have in enumerate(free)
        )
        patterns = _patterns(instance, instance.allowed[node], most)
        self.cut |= len(patterns) >= _PATTERNS
        needs = np.array(instance.needs, np.int64)
        asked = np.array(patterns, np.int64) @ needs - np.array(free, np.int64)
        asked[np.array(patterns, np.int64) @ (needs > 0) == 0] = 0
        options = _options(parts, tuple(np.maximum(asked.max(axis=0), 0).tolist()))
        self.cut |= len(options) >= _OPTIONS // 2
        freed = np.array([amounts for amounts, _, _ in options], np.int64)
        price = np.array([cost for _, cost, _ in options], np.int64)
        enough = (freed[None] >= asked[:, None]).all(axis=2)
        costs = np.where(enough, price[None], _NEVER)
        if instance.least and instance.least[node]:
            costs[np.array(patterns, np.int64).sum(axis=1) < instance.least[node]] = _NEVER
        self.cells -= costs.size
        which = costs.argmin(axis=1)
        least = costs[np.arange(len(patterns)), which]
        kept = _undominated(patterns, least) or [0]
        return _Table(
            tuple(patterns[each] for each in kept),
            least[kept],
            tuple(options[int(which[each])][2] for each in kept),
            np.array([self._step(patterns[each]) for each in kept]),
        )

    def _step(self, pattern: Pattern) -> I64:
        """Return for each state the one that is left when these members are placed."""
        known = self.steps.get(pattern)
        if known is None:
            left = np.maximum(self.states - np.array(pattern, np.int64), 0)
            known = self.steps[pattern] = left @ self.strides
        return known


def _patterns(instance: Instance, allowed: Sequence[bool], most: Amounts) -> list[Pattern]:
    """Return all numbers of members by class that a node holds at most, few of them first."""
    found: list[tuple[Pattern, Amounts]] = [((), most)]
    for need, count, may in zip(instance.needs, instance.counts, allowed, strict=True):
        longer: list[tuple[Pattern, Amounts]] = []
        for pattern, left in found:
            rest = left
            for number in range((count if may else 0) + 1):
                if number:
                    rest = tuple(a - b for a, b in zip(rest, need, strict=True))
                    if any(b and a < 0 for a, b in zip(rest, need, strict=True)):
                        break
                longer.append(((*pattern, number), rest))
        found = longer[:_PATTERNS]
    return [pattern for pattern, _ in found]


def _options(
    parts: Sequence[tuple[int, Amounts, int]], wanted: Amounts
) -> list[tuple[Amounts, int, tuple[int, ...]]]:
    """Return what sets of parts free at least cost: amounts, cost and units.

    No more than `wanted` of a resource is of use. Of equal ones the first.
    """
    best: dict[Amounts, tuple[int, tuple[int, ...]]] = {(0,) * len(wanted): (0, ())}
    for cost, amounts, unit in sorted(parts):
        for had, (paid, units) in list(best.items()):
            now = tuple(min(a + b, most) for a, b, most in zip(had, amounts, wanted, strict=True))
            known = best.get(now)
            if known is None or paid + cost < known[0]:
                best[now] = (paid + cost, (*units, unit))
        if len(best) > _OPTIONS:
            # What frees everything stays, so that what is possible is found.
            cheapest = sorted(best.items(), key=lambda each: (each[1][0], each[0]))
            largest = max(best.items(), key=lambda each: (sum(each[0]), -each[1][0]))
            best = dict([*cheapest[: _OPTIONS // 2], largest])
    return [(amounts, cost, units) for amounts, (cost, units) in best.items()]


def _undominated(patterns: Sequence[Pattern], costs: I64) -> list[int]:
    """Return the patterns that are possible and none of which costs no more and holds less."""
    possible = np.flatnonzero(costs < _NEVER)
    rows = np.array(patterns, np.int64)[possible]
    paid = costs[possible]
    if not len(rows):
        return []
    more = (rows[None] >= rows[:, None]).all(axis=2) & (paid[None] <= paid[:, None])
    equal = (rows[None] == rows[:, None]).all(axis=2)
    kept: list[int] = possible[~(more & ~equal).any(axis=1)].tolist()
    return kept
