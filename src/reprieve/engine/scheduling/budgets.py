"""Which potential victims break a disruption budget: the split that orders the reprieve passes.

Counters start at each budget's `disruptionsAllowed` and fall with every pod of every unit, most
important unit first, whether or not the unit is reprieved later. A pod whose budget falls below
zero violates, and further budgets are not visited for it. Source: specification 7.6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprieve.engine.cluster.rows import BudgetRow
from reprieve.engine.cluster.snapshot import I64, Mask, Snapshot
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.scheduling.units import Units, stable_order
from reprieve.engine.selectors import selects

__all__ = ["BudgetMatches", "budget_matches", "violating_pods"]


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
    if most == 1 and not any(budget.disrupted for budget in matches.budgets):
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
