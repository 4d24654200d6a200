"""What decisions work out of whole tables, kept for the next ones while the tables are the same.

To read what 65,000 nodes publish takes longer than to decide on it, and it hardly ever changes.
Whoever keeps something here makes it of nothing but the tables that it names, and never changes it
afterwards, so that no decision can tell whether it was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        self._latest: tuple[object, object, list[Any], list[Any]] | None = None

    def of(
        self,
        name: str,
        tables: tuple[object, ...],
        make: Callable[[], T],
        change: Callable[[T, tuple[Any, ...]], T | None] | None = None,
    ) -> T:
        """Return what `make` returns, or did when it was last asked with these very tables.

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

    def between(self, before: Mapping[K, V], after: Mapping[K, V]) -> tuple[list[V], list[V]]:
        """Return the rows that only the first of two tables has, and those that only the second."""
        latest = self._latest
        if latest is None or latest[0] is not before or latest[1] is not after:
            came = list(compress(after, map(is_not, map(before.get, after), after.values())))
            new = [after[key] for key in came]
            old = [before[key] for key in came if key in before]
            if len(before) + len(came) - len(old) != len(after):
                old += [row for key, row in before.items() if key not in after]
            latest = self._latest = (before, after, old, new)
        return latest[2], latest[3]
