"""Which potential victims break a disruption budget: the split that orders the reprieve passes.

Counters start at each budget's `disruptionsAllowed` and fall with every pod of every unit, most
important unit first, whether or not the unit is reprieved later. A pod whose budget falls below
zero violates, and further budgets are not visited for it. Source: specification 7.6.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches
from reprieve.engine.scheduling.victims.units import Units, stable_order

__all__ = ["counted_units", "violating_pods"]

_MOST_CELLS: Final = 1 << 22  # of a table of budgets and priorities
_FEW_LEVELS: Final = 1 << 10  # of priorities, including those that no unit has


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
