"""What members on one node cost: for each number of them the cheapest units that leave the node.

Sets of units are told apart by what they free of each resource, how many pods they have under each
budget, and how many of their pods count in a domain. Of two rows the one that holds no more at no
less is left out; where pods in domains are counted only of rows that count the same. Source:
KEP-5710, "Future extensions".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.scheduling.nodes.covered import (
    Amounts,
    Cover,
    Evenness,
    Instance,
    Pattern,
)

__all__ = ["NEVER", "Part", "Row", "Rules", "node_rows"]

NEVER: Final = 1 << 61
_PATTERNS: Final = 1 << 9  # of members on one node
_OPTIONS: Final = 1 << 8  # of units that leave one node
_MORE_OPTIONS: Final = 1 << 11  # where more than resources tells them apart
_ROWS: Final = 1 << 10  # of one table


@dataclass(frozen=True, slots=True)
class Part:
    """What a unit has on one node: its share of the unit's cost, and what it frees."""

    cost: int
    unit: int
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Row:
    """So many members of each class on a node, and the units that leave it for them.

    `used`: their pods under each budget, not more than it allows. `change`: how many more pods the
    domain has.
    """

    pattern: Pattern
    used: tuple[int, ...]
    change: int
    cost: int
    units: tuple[int, ...]


class Rules:
    """What an instance limits beside resources."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.nothing: Pattern = (0,) * len(instance.counts)
        self.needs = np.array(instance.needs, np.int64)
        self.allowed = () if instance.budgets is None else instance.budgets.allowed
        self.wide = instance.wide
        self.narrow = [each for each in instance.even if each is not self.wide]
        self.counted = len(self.allowed) + len(instance.even)  # what `extra` counts
        self._used: dict[int, list[int]] = {}
        if instance.budgets is not None:
            for units in instance.budgets.used:
                for unit, used in units.items():
                    own = self._used.setdefault(unit, [0] * len(used))
                    for place, pods in enumerate(used):
                        own[place] += pods

    def extra(self, node: int, unit: int) -> tuple[int, ...]:
        """Return a unit's pods on a node under each budget, then those that count in each limit."""
        budgets = self.instance.budgets
        used: tuple[int, ...] = ()
        if budgets is not None:
            used = budgets.used[node].get(unit, (0,) * len(self.allowed))
        return used + tuple(each.matched[node].get(unit, 0) for each in self.instance.even)

    def used(self, units: Collection[int]) -> list[int]:
        """Return how many pods of these units are under each budget."""
        found = [0] * len(self.allowed)
        for unit in units:
            for place, pods in enumerate(self._used.get(unit, ())):
                found[place] += pods
        return found

    def beyond(self, units: Collection[int]) -> int:
        """Return what the pods of these units cost that budgets do not allow."""
        if self.instance.budgets is None:
            return 0
        over = zip(self.used(units), self.allowed, strict=True)
        return self.instance.budgets.cost * sum(max(0, pods - most) for pods, most in over)

    def matched(self, even: Evenness, domain: int, decided: Mapping[int, bool]) -> int:
        """Return how many pods of a domain leave it by what is decided."""
        return sum(
            pods
            for number, units in zip(even.domain, even.matched, strict=True)
            if number == domain
            for unit, pods in units.items()
            if decided.get(unit)
        )

    def hold(self, found: Cover) -> bool:
        """Return whether a cover keeps to the limits of domains."""
        gone = dict.fromkeys(found.units, True)
        for even in self.instance.even:
            placed = dict.fromkeys(even.held, 0)
            for number, pattern in zip(even.domain, found.members, strict=True):
                if number >= 0:
                    placed[number] += sum(pattern)
            for number, held in even.held.items():
                pods = held + placed[number] - self.matched(even, number, gone)
                if pods < even.least or (placed[number] and pods > even.most):
                    return False
        return True


def node_rows(
    rules: Rules, node: int, gone: Collection[int], parts: Sequence[Part]
) -> tuple[list[Row], int, bool]:
    """Return the rows of a node, the cells that were filled for them, and whether some are missing.

    `gone`: units that have left already. `parts`: of those that may be evicted.
    """
    instance = rules.instance
    free = instance.free[node]
    for unit in gone:
        free = tuple(a + b for a, b in zip(free, instance.frees[node][unit], strict=True))
    most = tuple(
        have + sum(part.amounts[index] for part in parts) for index, have in enumerate(free)
    )
    patterns = _patterns(instance, instance.allowed[node], most)
    cut = len(patterns) >= _PATTERNS
    counted = np.array(patterns, np.int64)
    asked = counted @ rules.needs - np.array(free, np.int64)
    asked[counted @ (rules.needs > 0) == 0] = 0
    wanted = tuple(np.maximum(asked.max(axis=0), 0).tolist())
    extras = [rules.extra(node, part.unit) for part in parts]
    options, few = _options(parts, extras, wanted, (0,) * rules.counted)
    cut |= few
    freed = np.array([each[0] for each in options], np.int64)
    price = np.array([each[2] for each in options], np.int64)
    enough = (freed[None] >= asked[:, None]).all(axis=2)
    costs = np.where(enough, price[None], NEVER)
    rows: list[Row] = []
    for extra in sorted({each[1] for each in options}):
        chosen = np.array([each[1] == extra for each in options])
        own = np.where(chosen[None], costs, NEVER)
        which = own.argmin(axis=1)
        for at in np.flatnonzero(own[np.arange(len(patterns)), which] < NEVER).tolist():
            option = options[int(which[at])]
            row = _row(rules, node, gone, patterns[at], option)
            if row is not None:
                rows.append(row)
    if len(rows) > _ROWS:
        rows, cut = sorted(rows, key=lambda row: row.cost)[:_ROWS], True
    kept = _undominated(rows, exactly=bool(instance.even))
    # No row where a node has too many pods, or too few, in any case: it is none of a solution.
    return kept or [Row(rules.nothing, (0,) * len(rules.allowed), 0, NEVER, ())], costs.size, cut


_Option = tuple[Amounts, tuple[int, ...], int, tuple[int, ...]]  # frees, extra, cost, units


def _row(
    rules: Rules, node: int, gone: Collection[int], pattern: Pattern, option: _Option
) -> Row | None:
    """Return a row; None where a limit of a domain that is this node alone refuses it."""
    _, extra, cost, units = option
    used, matched = extra[: len(rules.allowed)], extra[len(rules.allowed) :]
    placed, change = sum(pattern), 0
    for even, leaving in zip(rules.instance.even, matched, strict=True):
        number = even.domain[node]
        if number < 0:
            continue
        if even is rules.wide:
            change = placed - leaving
            continue
        left = sum(even.matched[node].get(unit, 0) for unit in gone)
        pods = even.held[number] - left - leaving + placed
        if pods < even.least or (placed and pods > even.most):
            return None
    over = sum(max(0, pods - most) for pods, most in zip(used, rules.allowed, strict=True))
    if over:
        assert rules.instance.budgets is not None
        cost += over * rules.instance.budgets.cost
        used = tuple(min(pods, most) for pods, most in zip(used, rules.allowed, strict=True))
    return Row(pattern, used, change, cost, units)


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
    parts: Sequence[Part], extras: Sequence[tuple[int, ...]], wanted: Amounts, nothing: Amounts
) -> tuple[list[_Option], bool]:
    """Return what sets of parts free at least cost, and whether some were left out.

    No more than `wanted` of a resource is of use. Of equal ones the first.
    """
    best: dict[tuple[Amounts, tuple[int, ...]], tuple[int, tuple[int, ...]]]
    best = {((0,) * len(wanted), nothing): (0, ())}
    most = _MORE_OPTIONS if any(any(each) for each in extras) else _OPTIONS
    cut = False
    for part, extra in sorted(
        zip(parts, extras, strict=True), key=lambda each: (each[0].cost, each[0].amounts)
    ):
        for (had, counted), (paid, units) in list(best.items()):
            now = tuple(min(a + b, m) for a, b, m in zip(had, part.amounts, wanted, strict=True))
            key = now, tuple(a + b for a, b in zip(counted, extra, strict=True))
            known = best.get(key)
            if known is None or paid + part.cost < known[0]:
                best[key] = (paid + part.cost, (*units, part.unit))
        if len(best) > most:
            # What frees everything stays, so that what is possible is found.
            cheapest = sorted(best.items(), key=lambda each: (each[1][0], each[0]))
            largest = max(best.items(), key=lambda each: (sum(each[0][0]), -each[1][0]))
            best, cut = dict([*cheapest[: most // 2], largest]), True
    return [(*key, cost, units) for key, (cost, units) in best.items()], cut


def _undominated(rows: Sequence[Row], *, exactly: bool) -> list[Row]:
    """Return the rows but those beside which one is as good at no more cost.

    `exactly`: one with as many members and pods, else one with as many or more.
    """
    if len(rows) < 2:
        return [*rows]
    patterns = np.array([row.pattern for row in rows], np.int64)
    used = np.array([row.used for row in rows], np.int64)
    change = np.array([row.change for row in rows], np.int64)
    cost = np.array([row.cost for row in rows], np.int64)
    alike = (patterns[None] == patterns[:, None]).all(axis=2)
    better = cost[None] <= cost[:, None]
    if exactly:
        alike &= change[None] == change[:, None]
        better &= alike
    else:
        better &= (patterns[None] >= patterns[:, None]).all(axis=2)
    if used.shape[1]:
        better &= (used[None] <= used[:, None]).all(axis=2)
        alike &= (used[None] == used[:, None]).all(axis=2)
    alike &= cost[None] == cost[:, None]
    kept = np.flatnonzero(~(better & ~alike).any(axis=1))
    return [rows[at] for at in kept.tolist()]
