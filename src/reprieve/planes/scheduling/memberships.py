"""Which pods are members of which PodGroup, known or not: those that have not finished.

A group is called by namespace and name, as the engine's columns have it. Source: specification of
the scheduling plane, section 2.
"""

from __future__ import annotations

from collections.abc import Set

from reprieve.engine.cluster.rows import PodRow
from reprieve.units.ids import Uid

__all__ = ["Memberships", "group_of"]


def group_of(row: PodRow) -> str:
    """Return the key of the pod's group, empty where it is in none."""
    return f"{row.namespace}/{row.group}" if row.group else ""


class Memberships:
    """Members by group."""

    def __init__(self) -> None:
        self._members: dict[str, set[Uid]] = {}

    def of(self, key: str) -> Set[Uid]:
        """Return the members of a group."""
        return self._members.get(key, frozenset())

    def seen(self, row: PodRow) -> None:
        """Record a pod as it is now."""
        if not row.group:
            return
        if row.finished:
            self.leave(row)
            return
        key = group_of(row)
        members = self._members.get(key)
        if members is None:
            members = self._members[key] = set()
        members.add(row.uid)

    def leave(self, row: PodRow) -> None:
        """A pod is no member of its group any more."""
        key = group_of(row)
        members = self._members.get(key)
        if members is not None:
            members.discard(row.uid)
            if not members:
                del self._members[key]
