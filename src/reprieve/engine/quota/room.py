"""The capacity that a cycle still has for an entry when its turn comes.

A designated victim counts as evicted, for the entry that it is preempted for and for those of its
tree that come after it; nothing is preempted for two entries of one cycle. What an entry uses is
counted before the next one is looked at (`Snapshot.add_usage`), and what one waits for without
victims is kept for it (`reserved_amounts`).

Source: specification of the quota plane, section 8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import available
from reprieve.engine.quota.targets.classical import subtract

__all__ = ["Room", "reserved_amounts"]


class Room:
    """What is free in a snapshot, as the entries of one cycle are decided one after the other."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._designated: set[str] = set()
        self._designated_in: dict[int, list[Holder]] = {}  # by root

    def overlaps(self, entry: Entry) -> bool:
        """Return whether one of its targets is preempted for another already."""
        return any(target.holder.key in self._designated for target in entry.targets)

    def designate(self, entry: Entry) -> None:
        """Count the targets of an entry as being preempted from now on."""
        root = self._snapshot.tree.root(entry.queue)
        for target in entry.targets:
            if target.holder.key not in self._designated:
                self._designated.add(target.holder.key)
                self._designated_in.setdefault(root, []).append(target.holder)

    def leaving(self, entry: Entry) -> list[Holder]:
        """Return who is preempted already in the entry's tree; the others free nothing for it."""
        return self._designated_in.get(self._snapshot.tree.root(entry.queue), [])

    def fits(self, entry: Entry) -> bool:
        """Return whether the entry fits without all that is evicted, its own targets too."""
        gone = self._gone(entry)
        return self._has_quota(entry, gone) and self._has_places(entry, gone)

    def lacks_places_alone(self, entry: Entry) -> bool:
        """Return whether the entry has quota left without all that is evicted, but no places."""
        gone = self._gone(entry)
        return self._has_quota(entry, gone) and not self._has_places(entry, gone)

    def _has_quota(self, entry: Entry, gone: Collection[Holder]) -> bool:
        free = self._available(entry, gone)
        return all(amount <= free[column] for column, amount in entry.counted.items())

    def _has_places(self, entry: Entry, gone: Collection[Holder]) -> bool:
        """Return whether the entry's pods fit where it was assigned, without these holders."""
        places = self._snapshot.places
        if places is None or not entry.placed:
            return True
        if gone:
            places = places.copy()
            for holder in gone:
                places.change(holder.placed, -1)
        slots = self._snapshot.settings.best
        return all(
            flavor in places.trees and places.has_room(flavor, pods, slots)
            for flavor, pods in entry.placed
        )

    def _gone(self, entry: Entry) -> list[Holder]:
        """Return what has left when the entry gets its quota."""
        gone = {holder.key: holder for holder in self.leaving(entry)}
        if entry.replaced is not None:
            gone[entry.replaced.key] = entry.replaced
        gone.update({target.holder.key: target.holder for target in entry.targets})
        return [*gone.values()]

    def free_for(self, entry: Entry) -> dict[int, int]:
        """Return what is free for an entry without those who are preempted for others before it."""
        return self._available(entry, self.leaving(entry))

    def _available(self, entry: Entry, gone: Collection[Holder]) -> dict[int, int]:
        """Return what the entry's queue has of what it requests, without these holders."""
        snapshot = self._snapshot
        columns = {column: snapshot.usage[column] for column in entry.counted}
        if gone:
            columns = {column: usage[:] for column, usage in columns.items()}
            for holder in gone:
                subtract(snapshot.tree, columns, holder)
        path = snapshot.tree.path[entry.queue]
        return {
            column: max(0, available(snapshot.tree, column, usage, path))
            for column, usage in columns.items()
        }


def reserved_amounts(
    snapshot: Snapshot, queue: int, usage: Mapping[int, int], level: int
) -> dict[int, int]:
    """Return what is held back for an entry without targets, by flavor-resource."""
    tree = snapshot.tree
    kept = {}
    for column, amount in usage.items():
        used = snapshot.usage[column][queue]
        nominal = tree.subtree[column][queue]
        limit = tree.borrowing_limit[column][queue]
        if level > 0:
            kept[column] = amount if limit is None else min(amount, nominal + limit - used)
        else:
            kept[column] = max(0, min(amount, nominal - used))
    return kept
