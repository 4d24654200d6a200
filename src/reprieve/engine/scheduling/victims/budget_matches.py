"""Which pods a disruption budget selects, by the labels of pods. Source: specification 7.6."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.rows import BudgetRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.selectors import selects

__all__ = ["BudgetMatches", "budget_matches"]


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
