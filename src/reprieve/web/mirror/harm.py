"""What the page knows of harm budgets and their ledger."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.api.harm_budget import HarmBudget
from reprieve.engine.harm_budgets.sums import Amount, Key

__all__ = ["HarmRead"]


@dataclass(frozen=True, slots=True)
class HarmRead:
    """What was read. `versions`: of the objects, by which it is known whether any changed."""

    budgets: tuple[HarmBudget, ...] = ()
    rows: tuple[tuple[Key, Amount], ...] = ()
    versions: tuple[str, ...] = ()
