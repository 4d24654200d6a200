"""What decisions work out of whole tables, kept for the next ones while the tables are the same.

To read what 65,000 nodes publish takes longer than to decide on it, and it hardly ever changes.
Whoever keeps something here makes it of nothing but the tables that it names, and never changes it
afterwards, so that no decision can tell whether it was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Derived"]

T = TypeVar("T")


class Derived:
    """Values by name, each with the tables that it was made of."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[object, ...], Any]] = {}

    def of(self, name: str, tables: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return what `make` returns, or did when it was last asked with these very tables."""
        known = self._known.get(name)
        if known is None or not all(
            mine is given for mine, given in zip(known[0], tables, strict=True)
        ):
            known = self._known[name] = (tables, make())
        found: T = known[1]
        return found
