"""What disruption budgets allow of victims, as `covering` counts it.

A pod counts under each budget that selects it, unless the budget counts it as disrupted already.
Budgets that allow all pods of units that could be evicted limit nothing. Counted are those that
the victims found without them exceed, as long as there are few cases of what is left of them.
Source: specification 7.6.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.scheduling.nodes.covered import Budgets
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches
from reprieve.engine.scheduling.victims.units import Units

__all__ = ["Allowances", "allowances"]

_STATES: Final = 1 << 8  # of what is left of all budgets that are counted


@dataclass(frozen=True, slots=True)
class Allowances:
    """Budgets that limit something.

    `allowed`: (budgets,). `under`: (parts, budgets) whether a pod counts. `unit`: (parts,) its
    unit. `cost`: of each pod that is not allowed. `chosen`: the budgets that are counted.
    """

    allowed: I64
    under: Mask
    unit: I64
    cost: int = 0
    chosen: tuple[int, ...] = ()

    def pods(self, units: int) -> I64:
        """Return how many pods of each unit are under budgets, once for each budget: (units,)."""
        under = self.under.sum(axis=1)
        return np.bincount(self.unit, weights=under, minlength=units).astype(np.int64)

    def exceeded(self, leaving: Mask) -> list[int]:
        """Return the budgets that units exceed which are not counted yet; `leaving`: (units,)."""
        going = self.under[leaving[self.unit]].sum(axis=0)
        over: list[int] = np.flatnonzero(going > self.allowed).tolist()
        return [each for each in over if each not in self.chosen]

    def can_count(self, more: Collection[int]) -> bool:
        """Return whether these budgets can be counted beside those that are."""
        every = [*self.chosen, *more]
        return prod(int(self.allowed[each]) + 1 for each in every) <= _STATES

    def on(self, nodes: int, parts: Sequence[tuple[int, int, int]]) -> Budgets | None:
        """Return the budgets that are counted, None for none.

        `parts`: place of the node, unit and place of each part.
        """
        if not self.chosen:
            return None
        used: list[dict[int, tuple[int, ...]]] = [{} for _ in range(nodes)]
        under: list[list[bool]] = self.under[:, self.chosen].tolist()
        place_of: dict[int, int] = {}  # a node of each unit
        for at, unit, part in parts:
            place_of.setdefault(unit, at)
            self._count(used[at], unit, under[part])
        counted = {part for _, _, part in parts}
        for part, unit in enumerate(self.unit.tolist()):
            if part not in counted and unit in place_of:
                # What a unit has on other nodes is evicted with it.
                self._count(used[place_of[unit]], unit, under[part])
        return Budgets(tuple(self.allowed[list(self.chosen)].tolist()), used, self.cost)

    def _count(self, used: dict[int, tuple[int, ...]], unit: int, under: Sequence[bool]) -> None:
        if any(under):
            had = used.get(unit, (0,) * len(under))
            used[unit] = tuple(a + b for a, b in zip(had, under, strict=True))


def allowances(units: Units, parts: tuple[I64, I64], budgets: BudgetMatches) -> Allowances | None:
    """Return the budgets that limit something; None where none does.

    `parts`: the slots of all units, and each one's unit.
    """
    slots, unit = parts
    labels = units.snapshot.pod_labels[slots]
    if not budgets.limited[labels].any():
        return None
    allowed, under = [], []
    for budget, selected in zip(budgets.budgets, budgets.selected, strict=True):
        counts: Mask = np.isin(labels, selected)
        if budget.disrupted and counts.any():
            keys = (units.snapshot.pod_keys[slot].partition("/")[2] for slot in slots.tolist())
            counts &= np.array([name not in budget.disrupted for name in keys], np.bool_)
        if int(counts.sum()) > budget.allowed:
            allowed.append(max(0, budget.allowed))
            under.append(counts)
    if not allowed:
        return None
    return Allowances(np.array(allowed, np.int64), np.stack(under, axis=1), unit)
