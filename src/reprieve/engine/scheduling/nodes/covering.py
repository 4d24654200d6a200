"""Chooses which units to evict so that members fit, at least cost: exact where it is small.

Members are counted by class, nodes hold amounts of a few resources, and a unit frees an amount on
each node that it has pods on. For every node there is a table (`node_table`): what the cheapest
units are that free capacity for so many members of each class. The tables are combined node by node
into the least cost for all members (dynamic programming over the members that are still to be
placed). Pods that budgets do not allow cost more: how much of each budget is left is a part of the
state. Where the numbers of pods in domains are limited, nodes are combined domain by domain, and
how many a domain has is a part of the state within it.

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
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.scheduling.nodes.covered import Cover, Evenness, Instance
from reprieve.engine.scheduling.nodes.node_table import NEVER, Part, Row, Rules, node_rows

__all__ = ["CELLS", "Effort", "cover"]

CELLS: Final = 1 << 22  # of tables that one search fills at most
_STATES: Final = 1 << 12  # of members that are still to be placed
_BUDGETS: Final = 1 << 8  # of budgets that are left
_DIVES: Final = 8
_CLOSED: Final = -1  # a domain that gets no member


@dataclass(slots=True)
class Effort:
    """What one search may use. `cut`: its answer is not sure, since it ended early or was cut."""

    cells: int = CELLS
    cut: bool = False


def cover(instance: Instance, effort: Effort | None = None) -> Cover | None:
    """Return the cheapest cover that is found; None where there is none, or it is too large."""
    effort = Effort() if effort is None else effort
    search = _Search.of(instance, effort)
    if search is None:
        effort.cut = True
        return None
    return search.run()


@dataclass(frozen=True, slots=True)
class _Table:
    """What members on one node cost: (rows,) each.

    `steps`: (rows, states), the state before each. `beyond`: (rows, states) what pods cost that
    budgets do not allow, None where none do.
    """

    rows: Sequence[Row]
    costs: I64
    steps: I64
    beyond: I64 | None


@dataclass(frozen=True, slots=True)
class _Domain:
    """Nodes that are combined together; `number`: -1 where nothing is counted."""

    number: int
    nodes: Sequence[int]


@dataclass(slots=True)
class _Board:
    """States of the search: members that are placed, what budgets allow, pods in a domain.

    `members`: (states, classes). `left`: (budget states, budgets). `low`: the first number of pods
    beyond the least that a domain may have; `width`: how many numbers there are.
    """

    members: I64
    strides: I64
    left: I64
    low: int = 0
    width: int = 1
    exactly: bool = False  # members are counted as they are placed, not capacity for them
    known: dict[tuple[object, ...], I64] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return the number of states outside of a domain."""
        return len(self.members) * len(self.left)

    def step(self, row: Row, width: int) -> I64:
        """Return for each state the one before members of this row were placed.

        The last one where there is none.
        """
        key = row.pattern, row.used, row.change, width
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._step(row, width)
        return found

    def _step(self, row: Row, width: int) -> I64:
        before = self.members - np.array(row.pattern, np.int64)
        possible = (before >= 0).all(axis=1)
        at = np.maximum(before, 0) @ self.strides
        if self.left.shape[1] or width > 1:
            sizes = self.left.max(axis=0, initial=0) + 1
            strides = np.cumprod([1, *sizes[:0:-1]])[::-1].astype(np.int64)
            left = np.maximum(self.left - np.array(row.used, np.int64), 0) @ strides[: len(sizes)]
            pods = np.arange(width) - (row.change if width > 1 else 0)
            fits = (pods >= 0) & (pods < width)
            whole = (at[:, None, None] * len(self.left) + left[None, :, None]) * width + np.clip(
                pods, 0, width - 1
            )
            there = np.broadcast_to(fits, whole.shape)
            if self.exactly:
                there = np.logical_and(there, possible.reshape(-1, 1, 1))
            return np.where(there, whole, self.size * width).ravel()
        return np.where(possible, at, self.size) if self.exactly else at

    def beyond(self, row: Row, cost: int, width: int) -> I64:
        """Return what pods cost that budgets do not allow in each state."""
        over = np.maximum(np.array(row.used, np.int64) - self.left, 0).sum(axis=1) * cost
        return np.tile(np.repeat(over, width), len(self.members))


@dataclass(slots=True)
class _Search:
    """Branch and bound over the units with pods on several nodes."""

    instance: Instance
    effort: Effort
    nodes_of: dict[int, list[int]]  # of units on several nodes
    share: dict[tuple[int, int], int]  # of a unit's cost, by unit and node
    board: _Board
    rules: Rules
    domains: Sequence[_Domain]
    tables: dict[tuple[object, ...], _Table] = field(default_factory=dict)
    best: Cover | None = None
    cut: bool = False  # some table does not hold all that is possible

    @classmethod
    def of(cls, instance: Instance, effort: Effort) -> _Search | None:
        """Return a search; None where members are of too many kinds."""
        sizes = [count + 1 for count in instance.counts]
        allowed = () if instance.budgets is None else instance.budgets.allowed
        left = int(np.prod([each + 1 for each in allowed], dtype=np.float64))
        if int(np.prod(sizes, dtype=np.float64)) > _STATES or left > _BUDGETS:
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
        several = {unit: nodes for unit, nodes in nodes_of.items() if len(nodes) > 1}
        board = _Board(
            np.array(list(itertools.product(*map(range, sizes))), np.int64),
            np.cumprod([1, *sizes[:0:-1]])[::-1].astype(np.int64),
            np.array(list(itertools.product(*(range(each + 1) for each in allowed))), np.int64),
            exactly=bool(instance.even),
        )
        wide = instance.wide
        if wide is not None:
            low, high = wide.bounds()
            board.low, board.width = low, high - low + 1
        rules = Rules(instance)
        return cls(instance, effort, several, share, board, rules, _domains(instance, wide))

    def run(self) -> Cover | None:
        """Return the best cover with the bound that is proven for it."""
        order = itertools.count()
        open_: list[tuple[int, int, dict[int, bool], Cover]] = []
        first = self._relaxed({})
        if first is None:
            self.effort.cut |= self.cut
            return None
        if self.best is None:
            self._dive(first)
        heapq.heappush(open_, (first.bound, next(order), {}, first))
        proven = first.bound
        while open_:
            bound, _, decided, found = heapq.heappop(open_)
            proven = max(proven, bound)
            if self.best is not None:
                proven = min(proven, self.best.cost)
            if self._is_beaten(bound) or self.effort.cells <= 0:
                break
            unit = self._undecided(found, decided)
            if unit is None:
                continue
            for gone in (True, False):
                child = {**decided, unit: gone}
                solved = self._relaxed(child)
                if solved is not None and not self._is_beaten(solved.bound):
                    heapq.heappush(open_, (max(bound, solved.bound), next(order), child, solved))
        else:
            proven = proven if self.best is None else self.best.cost
        self.effort.cut |= self.cut or self.effort.cells <= 0
        best = self.best
        if best is None:
            return None
        bound = 0 if self.cut else min(proven, best.cost)
        return Cover(best.units, best.members, best.cost, bound)

    def _dive(self, found: Cover) -> None:
        """Evict what is chosen on any node as a whole, until the limits of domains hold."""
        decided: dict[int, bool] = {}
        for _ in range(_DIVES):
            more = {unit: True for unit in found.units if unit in self.nodes_of}
            if more.keys() <= decided.keys():
                return
            decided |= more
            solved = self._relaxed(decided)
            if solved is None or self.best is not None:
                return
            found = solved

    def _is_beaten(self, bound: int) -> bool:
        return self.best is not None and bound >= self.best.cost

    def _undecided(self, found: Cover, decided: Mapping[int, bool]) -> int | None:
        """Return the unit that pays the least part of its cost; None where all pay it."""
        cost = self.instance.cost
        open_ = [unit for unit in found.units if unit in self.nodes_of and unit not in decided]
        return max(open_, key=lambda unit: (cost[unit], -unit), default=None)

    def _relaxed(self, decided: Mapping[int, bool]) -> Cover | None:
        """Solve with the cost of undecided units split; what all chosen cost may be the best."""
        instance, board = self.instance, self.board
        gone = [unit for unit, out in decided.items() if out]
        base, state = self._decided(gone)
        least = np.full(board.size, NEVER, np.int64)
        least[: len(board.left)] = 0
        trail: list[tuple[_Domain, list[tuple[_Table, I64]], I64 | None]] = []
        for domain in self.domains:
            least, steps, ends = self._through(domain, least, decided)
            trail.append((domain, steps, ends))
        if least[state] >= NEVER:
            return None
        units, members, at = set(gone), [self.rules.nothing] * len(instance.free), state
        for domain, steps, ends in reversed(trail):
            if ends is not None:
                if ends[at] == _CLOSED:
                    continue
                at = at * board.width + int(ends[at])
            for node, (table, which) in zip(reversed(domain.nodes), reversed(steps), strict=True):
                row = int(which[at])
                units.update(table.rows[row].units)
                members[node] = table.rows[row].pattern
                at = int(table.steps[row, at])
            if ends is not None:
                at //= board.width
        cost = sum(instance.cost[unit] for unit in units) + self.rules.beyond(units)
        found = Cover(frozenset(units), tuple(members), cost, base + int(least[state]))
        if (self.best is None or cost < self.best.cost) and self.rules.hold(found):
            self.best = found
        return found

    def _decided(self, gone: Sequence[int]) -> tuple[int, int]:
        """Return what these units cost, and the state in which all members are placed."""
        budgets, left = self.instance.budgets, self.board.left
        cost = sum(self.instance.cost[unit] for unit in gone) + self.rules.beyond(gone)
        at = len(left) - 1
        if budgets is not None and gone:
            used = self.rules.used(gone)
            rest = [max(0, a - b) for a, b in zip(budgets.allowed, used, strict=True)]
            at = (left == rest).all(axis=1).argmax().item()
        return cost, (len(self.board.members) - 1) * len(left) + at

    def _through(
        self, domain: _Domain, least: I64, decided: Mapping[int, bool]
    ) -> tuple[I64, list[tuple[_Table, I64]], I64 | None]:
        """Return the least cost after the nodes of a domain, and how it came about.

        The last value: by state, how many pods the domain has in the end, or `_CLOSED`.
        """
        wide, board = self.rules.wide, self.board
        if wide is None or domain.number < 0:
            least, steps = self._over(domain.nodes, least, decided, 1)
            return least, steps, None
        held = wide.held[domain.number] - self.rules.matched(wide, domain.number, decided)
        began = held - wide.least - board.low
        inside = np.full((len(least), board.width), NEVER, np.int64)
        inside[:, began] = least
        ended, steps = self._over(domain.nodes, inside.ravel(), decided, board.width)
        inside = ended.reshape(-1, board.width).copy()
        inside[:, : max(0, -board.low)] = NEVER
        inside[:, wide.most - wide.least - board.low + 1 :] = NEVER
        ends = inside.argmin(axis=1)
        found = inside[np.arange(len(least)), ends]
        if held >= wide.least:
            better = least <= found
            ends[better] = _CLOSED
            found = np.where(better, least, found)
        return found, steps, ends

    def _over(
        self, nodes: Sequence[int], least: I64, decided: Mapping[int, bool], width: int
    ) -> tuple[I64, list[tuple[_Table, I64]]]:
        steps: list[tuple[_Table, I64]] = []
        for node in nodes:
            table = self._table(node, decided, width)
            costs = np.append(least, NEVER)[table.steps] + table.costs[:, None]
            if table.beyond is not None:
                costs += table.beyond
            self.effort.cells -= costs.size
            which = costs.argmin(axis=0)
            least = np.minimum(costs[which, np.arange(costs.shape[1])], NEVER)
            steps.append((table, which))
        return least, steps

    def _table(self, node: int, decided: Mapping[int, bool], width: int) -> _Table:
        instance = self.instance
        there = instance.frees[node]
        gone = tuple(unit for unit, out in decided.items() if out and unit in there)
        kept = tuple(unit for unit, out in decided.items() if not out and unit in there)
        key: tuple[object, ...] = (node, frozenset(gone), frozenset(kept))
        known = self.tables.get(key)
        if known is not None:
            return known
        parts = [
            Part(self.share[unit, node], unit, amounts)
            for unit, amounts in there.items()
            if unit not in decided
        ]
        rows, cells, cut = node_rows(self.rules, node, gone, parts)
        self.effort.cells -= cells
        self.cut |= cut
        beyond = None
        if instance.budgets is not None:
            over = instance.budgets.cost
            beyond = np.array([self.board.beyond(row, over, width) for row in rows])
        self.tables[key] = found = _Table(
            rows,
            np.array([row.cost for row in rows], np.int64),
            np.array([self.board.step(row, width) for row in rows]),
            beyond,
        )
        return found


def _domains(instance: Instance, wide: Evenness | None) -> Sequence[_Domain]:
    """Return the nodes that are combined together, those that count nowhere first."""
    nodes = range(len(instance.free))
    if wide is None:
        return [_Domain(-1, nodes)]
    outside = [node for node in nodes if wide.domain[node] < 0]
    inside = [
        _Domain(number, [node for node in nodes if wide.domain[node] == number])
        for number in sorted(wide.held)
    ]
    return [_Domain(-1, outside), *inside]
