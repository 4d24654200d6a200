"""How far a set of victims reaches: which budgets it breaks, and its victims' priorities.

With `harmOrder` a plan reaches no further than the one that the same search finds without the
option: harm decides only among what the KEP's order holds equal. Choosing by harm alone does not
keep to that: the order of reprieves decides which evictions a budget still allows, and nodes on
which less is lost may require victims of a higher priority. A set reaches no further than another
one when

1. no disruption budget is overdrawn by more pods;
2. no more pods break a budget as the KEP counts them (specification 7.6);
3. no victim has a higher priority, neither the effective one nor, of the first, its own (8.6).

Source: specification 7.5, 7.6 and 8.6; KEP-5710, "Future extensions".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.rows import BudgetRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.scheduling.outcome import Preemption, pods_of
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches
from reprieve.engine.scheduling.victims.units import Units

__all__ = ["Reach", "own_priorities", "reach_of"]

_NONE: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a set of victims reaches; `overdrawn`: pods beyond what each budget allows."""

    overdrawn: tuple[int, ...]
    violating: int
    priority: int  # of the first victim
    own: int  # the highest among the first victim's pods

    def within(self, other: Reach) -> bool:
        """Return whether this reaches no further than the other one, over the same budgets."""
        return (
            self.violating <= other.violating
            and self.priority <= other.priority
            and self.own <= other.own
            and all(a <= b for a, b in zip(self.overdrawn, other.overdrawn, strict=True))
        )

    def least(self, lowest: int) -> bool:
        """Return whether nothing reaches less far, where a victim of this priority is needed."""
        return self.violating == 0 and self.priority <= lowest and self.own <= lowest


def reach_of(snapshot: Snapshot, found: Preemption, budgets: BudgetMatches) -> Reach:
    """Return how far these victims reach."""
    if not found.victims:
        return Reach((0,) * len(budgets.budgets), 0, _NONE, _NONE)
    slots = pods_of(found.victims)
    first = found.victims[0]
    own = snapshot.pod_priority[list(first.pods)]
    labels = snapshot.pod_labels[slots]
    going = np.bincount(labels, minlength=len(snapshot.labels))
    overdrawn = tuple(
        max(0, int(going[selected].sum()) - budget.allowed)
        if not budget.disrupted
        else _overdrawn(snapshot, slots[np.isin(labels, selected)], budget)
        for budget, selected in zip(budgets.budgets, budgets.selected, strict=True)
    )
    return Reach(overdrawn, found.violating, first.priority, int(own.max()))


def _overdrawn(snapshot: Snapshot, slots: I64, budget: BudgetRow) -> int:
    """Return how many of these pods are beyond what the budget allows.

    The API server has counted those that are disrupted already.
    """
    names = (snapshot.pod_keys[slot].partition("/")[2] for slot in slots.tolist())
    going = sum(name not in budget.disrupted for name in names)
    return max(0, going - budget.allowed)


def own_priorities(units: Units) -> bool:
    """Return whether each unit's priority is that of all its pods."""
    slots = units.slots()
    own = units.snapshot.pod_priority[slots]
    return bool((own == units.priority[units.of_slot[slots]]).all())
