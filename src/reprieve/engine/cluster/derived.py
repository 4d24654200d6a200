"""What decisions work out of whole tables, kept for the next ones while the tables are the same.

Reading what 65,000 nodes publish costs more than deciding on it, and it hardly ever changes. A
caller derives a value kept here only from the tables that it names, and never changes it
afterwards, so that no decision depends on whether the value was already there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import compress
from operator import is_not
from typing import Any, TypeVar

__all__ = ["Derived"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Derived:
    """Values by name, each with the tables that it was made of."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[object, ...], Any]] = {}
        # The latest two tables of a kind, and the keys in which they differ.
        self._steps: dict[str, tuple[Any, Any, Collection[Any]]] = {}

    def of(
        self,
        name: str,
        tables: tuple[object, ...],
        make: Callable[[], T],
        change: Callable[[T, tuple[Any, ...]], T | None] | None = None,
    ) -> T:
        """Return what `make` returns, or returned when it was last called with these very tables.

        `change` makes it of what was kept and the tables that this was made of, None if it cannot.
        """
        known = self._known.get(name)
        if known is None or not all(
            mine is given for mine, given in zip(known[0], tables, strict=True)
        ):
            changed = None if known is None or change is None else change(known[1], known[0])
            known = self._known[name] = (tables, make() if changed is None else changed)
        found: T = known[1]
        return found

    def step(
        self, kind: str, before: Mapping[K, V], after: Mapping[K, V], keys: Collection[K]
    ) -> None:
        """Note that a table follows on another one, and differs from it in no other keys."""
        self._steps[kind] = (before, after, keys)

    def between(
        self, kind: str, before: Mapping[K, V], after: Mapping[K, V]
    ) -> tuple[list[V], list[V]]:
        """Return the rows that only the first of two tables has, and those that only the second."""
        first, last, keys = self._steps.get(kind, (None, None, ()))
        if first is not before or last is not after:
            came = compress(after, map(is_not, map(before.get, after), after.values()))
            keys = [*came, *(key for key in before if key not in after)]
            self.step(kind, before, after, keys)
        return [before[k] for k in keys if k in before], [after[k] for k in keys if k in after]
