"""Groups by key as they are created and deleted, and their trees: what `trees` of a snapshot holds.

For callers that query one group at a time between decisions: the queue, and the writers of
statuses. With `trees` off every pod group stands for itself, whatever parent it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reprieve.engine.cluster.rows import COMPOSITE, GroupRow
from reprieve.engine.cluster.trees import MOST_LEVELS, Way

__all__ = ["Forest"]


class Forest:
    """The groups that are there."""

    def __init__(self, *, trees: bool = False) -> None:
        """`trees`: gate CompositePodGroup."""
        self._trees = trees
        self._rows: dict[str, GroupRow] = {}
        self._children: dict[str, set[str]] = {}  # also of parents that are not there
        #: Called with the key of each group that is added, changed or deleted.
        self.observers: list[Callable[[str], None]] = []

    def __iter__(self) -> Iterator[GroupRow]:
        return iter(self._rows.values())

    def get(self, key: str) -> GroupRow | None:
        """Return a group, None where it is not there."""
        return self._rows.get(key)

    def apply(self, row: GroupRow) -> None:
        """Apply a group, or what has changed about it."""
        self.remove(row.key)
        self._rows[row.key] = row
        if self.has_parent(row):
            self._children.setdefault(row.parent_key, set()).add(row.key)

    def remove(self, key: str) -> None:
        """Forget a group; its children stay."""
        row = self._rows.pop(key, None)
        self._notify(key)
        if row is not None and self.has_parent(row):
            siblings = self._children[row.parent_key]
            siblings.discard(key)
            if not siblings:
                del self._children[row.parent_key]

    def _notify(self, key: str) -> None:
        for reported in self.observers:
            reported(key)

    def has_parent(self, row: GroupRow) -> bool:
        """Return whether the group names a parent that counts."""
        return self._trees and bool(row.parent)

    def root(self, key: str) -> tuple[Way, str]:
        """Return where the way up from a group ends, and the key of its root.

        Where something is missing it is the key of that; on an endless way the group's own.
        """
        at = key
        for _ in range(MOST_LEVELS):
            row = self._rows.get(at)
            if row is None:
                return Way.MISSING, at
            if not self.has_parent(row):
                return Way.ROOT, at
            at = row.parent_key
        return (Way.ENDLESS, key) if at in self._rows else (Way.MISSING, at)

    def children(self, key: str) -> list[str]:
        """Return the keys of the groups that name this one as their parent, by name."""
        return sorted(self._children.get(key, ()))

    def leaves(self, key: str) -> list[str]:
        """Return the pod groups at and below a group."""
        return list(self._below(key, MOST_LEVELS))

    def _below(self, key: str, levels: int) -> Iterator[str]:
        if not key.startswith(COMPOSITE):
            yield key
        elif levels:
            for child in self.children(key):
                yield from self._below(child, levels - 1)
