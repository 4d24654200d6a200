"""How pod groups hang together: trees of composite groups above them, by the groups' indices.

The way up from a group has at most `MOST_LEVELS` groups, itself included, and ends where a parent
is missing. For pods that run, what was found so far decides; pods that wait do so until the way
leads to a root. Children are placed in the order of their creation. Source: specification 4.3 and
13; KEP-6012, "Scheduling sequence for PodGroups".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import cached_property
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.rows import GroupRow

__all__ = ["MOST_LEVELS", "GroupTrees", "Way"]

MOST_LEVELS: Final = 4


class Way(Enum):
    """Where the way up from a group ends."""

    ROOT = auto()
    MISSING = auto()  # an object is not there (yet)
    ENDLESS = auto()  # more levels than there may be, or a circle


class GroupTrees:
    """Columns of (groups + 1,), the last entry for pods of no group; worked out when requested."""

    def __init__(self, rows: Sequence[GroupRow | None], index: Mapping[str, int]) -> None:
        self._rows = rows
        self._index = index

    def way(self, group: int) -> Way:
        """Return where the way up from a group ends."""
        last = self._ways[group][-1:]
        row = self._rows[last[0]] if last else None
        if row is None:
            return Way.MISSING
        if not row.parent:
            return Way.ROOT
        return Way.ENDLESS if self._row(row.parent_key) >= 0 else Way.MISSING

    def up(self, group: int) -> tuple[int, ...]:
        """Return the groups whose objects are there on the way up from a group, itself first."""
        return self._ways[group]

    def leaves(self, group: int) -> tuple[int, ...]:
        """Return the pod groups at and below a group, in the order in which they are placed."""
        row = self._rows[group]
        if row is None or not row.composite:
            return () if row is None else (group,)
        below = (self.leaves(child) for child in self.children.get(group, ()))
        return tuple(leaf for leaves in below for leaf in leaves)

    @cached_property
    def children(self) -> Mapping[int, tuple[int, ...]]:
        """Return the children of each composite group that has some, in the order of creation.

        A group in a cycle of parents, or below one, is no child of any group.
        """
        found: dict[int, list[tuple[int, str, bool, int]]] = {}
        for group, row in enumerate(self._rows):
            if row is None or not row.parent or self.way(group) is Way.ENDLESS:
                continue
            parent = self._row(row.parent_key)
            if parent >= 0:
                order = (row.created, row.name, row.composite, group)
                found.setdefault(parent, []).append(order)
        return {p: tuple(group for *_, group in sorted(those)) for p, those in found.items()}

    @cached_property
    def known(self) -> Mask:
        """Return which groups have an object."""
        return np.array([*(row is not None for row in self._rows), False], np.bool_)

    @cached_property
    def own_priority(self) -> I64:
        """Return each group's own priority, 0 where it has no object."""
        rows = self._rows
        found = (0 if row is None else row.priority for row in rows)
        return np.append(np.fromiter(found, np.int64, len(rows)), 0)

    @cached_property
    def alone(self) -> I32:
        """Return the group itself where its disruption mode is `all`, else -1: without trees."""
        found = np.full(len(self._rows) + 1, -1, np.int32)
        whole = [group for group, row in enumerate(self._rows) if row and row.all_or_nothing]
        found[whole] = whole
        return found

    @cached_property
    def root(self) -> I32:
        """Return the topmost group on the way up, the group itself where it has no parent."""
        return self._column([way[-1] if way else -1 for way in self._ways])

    @cached_property
    def unit(self) -> I32:
        """Return the highest group on the way up whose disruption mode is `all`, -1 for none."""
        return self._column([self._highest(way) for way in self._ways])

    def priority(self, *, nearest: bool) -> I64:
        """Return the priority that counts for pods of each group: the root's, or the group's."""
        if nearest:
            rows = [*self._rows, None]
        else:
            rows = [self._rows[group] if group >= 0 else None for group in self.root.tolist()]
        return np.array([0 if row is None else row.priority for row in rows], np.int64)

    @cached_property
    def _ways(self) -> list[tuple[int, ...]]:
        return [self._up(group) for group in range(len(self._rows))]

    def _up(self, group: int) -> tuple[int, ...]:
        found: list[int] = []
        while group >= 0 and len(found) < MOST_LEVELS:
            row = self._rows[group]
            if row is None:
                break
            found.append(group)
            group = self._row(row.parent_key) if row.parent else -1
        return tuple(found)

    def _row(self, key: str) -> int:
        """Return the index of a group whose object is there, else -1."""
        group = self._index.get(key, -1)
        return group if group >= 0 and self._rows[group] is not None else -1

    def _highest(self, way: Sequence[int]) -> int:
        for group in reversed(way):
            row = self._rows[group]
            if row is not None and row.all_or_nothing:
                return group
        return -1

    def _column(self, groups: list[int]) -> I32:
        return np.array([*groups, -1], np.int32)
