"""Which potential victims break a disruption budget: the split that orders the reprieve passes.

Counters start at each budget's `disruptionsAllowed` and fall with every pod of every unit, most
important unit first, whether or not the unit is reprieved later. A pod whose budget falls below
zero violates, and further budgets are not visited for it. Source: specification 7.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.rows import BudgetRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.scheduling.victims.units import Units, stable_order
from reprieve.engine.selectors import selects

__all__ = ["BudgetMatches", "budget_matches", "counted_units", "violating_pods"]

_MOST_CELLS: Final = 1 << 22  # of a table of budgets and priorities
_FEW_LEVELS: Final = 1 << 10  # of priorities, including those that no unit has


@dataclass(frozen=True, slots=True)
class BudgetMatches:
    """Which budgets select which pods, by the number of the pods' labels.

    `selected`: per budget the numbers of the labels that it selects, in order. `count`: (labels,)
    how many budgets select them; `first`: (labels,) the first of these.
    """

    budgets: tuple[BudgetRow, ...]
    selected: tuple[I64, ...]
    count: I64
    first: I64

    @property
    def limited(self) -> Mask:
        """Return whether any budget selects pods with these labels: (labels,)."""
        return self.count > 0

    @property
    def disrupted(self) -> bool:
        """Return whether any budget counts a pod as disrupted already, by its name."""
        return any(budget.disrupted for budget in self.budgets)

    def by_labels(self) -> dict[int, list[int]]:
        """Return the budgets, in order, that select pods with labels of a number, if any does."""
        found: dict[int, list[int]] = {}
        for index, selected in enumerate(self.selected):
            for number in selected.tolist():
                found.setdefault(number, []).append(index)
        return found


def budget_matches(view: View) -> BudgetMatches:
    """Return which labels each budget selects; a budget without usable selector selects none."""
    snapshot, selection = view.snapshot, selection_of(view)
    budgets = tuple(budget for budget in snapshot.budgets if budget.selector)
    count = np.zeros(len(snapshot.labels), np.int64)
    first = np.zeros(len(snapshot.labels), np.int64)
    labelled: Mask | None = None  # made when a budget is met that would select pods without labels
    selected = []
    for index, budget in enumerate(budgets):
        assert budget.selector, "others are left out"
        hit = selection.sets_in(budget.namespace, budget.selector)
        if selects(budget.selector, {}):
            # Pods without labels are under no budget.
            labelled = _labelled(snapshot) if labelled is None else labelled
            hit = hit[labelled[hit]]
        first[hit[count[hit] == 0]] = index
        count[hit] += 1
        selected.append(hit)
    return BudgetMatches(budgets, tuple(selected), count, first)


def _labelled(snapshot: Snapshot) -> Mask:
    """Return which of the labels have any label in them: (labels,)."""
    entries = snapshot.labels
    found = (entry is not None and bool(entry.labels) for entry in entries)
    return np.fromiter(found, np.bool_, len(entries))


def counted_units(units: Units, slots: I64, asked: Mask, matches: BudgetMatches) -> Mask:
    """Return the units by whose order it is decided which pods violate: (units,).

    `slots`: of all pods of the units. `asked`: (units,). These are all that are under a budget, if
    any budget counts some pods as disrupted already. Otherwise a pod violates for sure when so many
    come before it as its first budget allows, and then uses no other one. A unit with that many
    pods of a higher priority before it in the order need not be in it.
    """
    snapshot = units.snapshot
    labels = snapshot.pod_labels[slots]
    hit = np.flatnonzero(matches.limited[labels])
    counted = asked.copy()
    if not len(hit):
        return counted
    owner = units.of_slot[slots[hit]]
    level, levels = _levels(units.priority)
    if not matches.disrupted and levels * len(matches.budgets) <= _MOST_CELLS:
        allowed = np.array([budget.allowed for budget in matches.budgets], np.int64)
        cell = matches.first[labels[hit]] * levels + level[owner]
        pods = np.bincount(cell, minlength=len(allowed) * levels).reshape(-1, levels)
        above = pods[:, ::-1].cumsum(axis=1)[:, ::-1] - pods
        owner = owner[(above < allowed[:, None]).ravel()[cell]]
    counted[owner] = True
    return counted


def _levels(priority: I64) -> tuple[I64, int]:
    """Return priorities as small numbers in the same order, and below what all of these are."""
    low, high = int(priority.min()), int(priority.max())
    if high - low < _FEW_LEVELS:
        return priority - low, high - low + 1
    values = np.unique(priority)
    return np.searchsorted(values, priority), len(values)


def violating_pods(units: Units, order: I64, matches: BudgetMatches) -> I64:
    """Return how many pods of each unit violate a budget: (units in order,) int64.

    `order`: indices of the units, most important first.
    """
    snapshot = units.snapshot
    violating = np.zeros(len(order), np.int64)
    if not matches.budgets or not len(order):
        return violating
    slots, place = units.flat(order)
    labels = snapshot.pod_labels[slots]
    count = matches.count[labels]
    most = int(count.max(initial=0))
    if most == 1 and not matches.disrupted:
        hit = np.flatnonzero(count)
        budget_of = matches.first[labels[hit]]
        grouped = stable_order(budget_of, len(matches.budgets))
        budget_of = budget_of[grouped]
        rank = np.arange(len(hit)) - np.searchsorted(budget_of, budget_of)
        allowed = np.array([budget.allowed for budget in matches.budgets], np.int64)
        np.add.at(violating, place[hit[grouped[rank >= allowed[budget_of]]]], 1)
    elif most:
        left = [budget.allowed for budget in matches.budgets]
        by_labels = matches.by_labels()
        for position in np.flatnonzero(count).tolist():
            name = snapshot.pod_keys[slots[position]].partition("/")[2]
            for index in by_labels[labels.item(position)]:
                if name in matches.budgets[index].disrupted:
                    continue
                left[index] -= 1
                if left[index] < 0:
                    violating[place[position]] += 1
                    break
    return violating
