"""A consistent copy of what holds quota: what a cycle and its searches read and change.

The columns are its own; the lists of holders are shared with `Holdings`, which copies them before
their next change. Source: specification of the quota plane, sections 2 and 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reprieve.engine.quota.holdings.holders import Borrowers, Holder, Lists
from reprieve.engine.quota.holdings.reckoning import Reckoning
from reprieve.engine.quota.holdings.tree import Column, Tree, add, remove
from reprieve.engine.quota.model import Configuration
from reprieve.engine.topology.places import NodeUse, Placed, Places

__all__ = ["Snapshot"]


class Snapshot:
    """A consistent copy: columns are its own, lists of holders are never changed.

    Attributes:
        tree: the fixed part.
        usage: `[flavor-resource][node]`.
        lists: rows of holders, by ClusterQueue.
        local_queue_usage: what candidates' LocalQueues used, where admission fair sharing is on.
        reckoning: the quotas once more, for proofs.
        version: of the holdings that it is a copy of.
        borrowers: what `borrowers` found out about it, shared as long as it applies to others, too.
        places: the nodes of flavors with topologies, None where no flavor has one.
    """

    def __init__(
        self,
        configuration: Configuration,
        tree: Tree,
        usage: list[Column],
        lists: list[Lists],
        local_queue_usage: Mapping[str, float],
        reckoning: Reckoning,
        version: int = 0,
        borrowers: Borrowers | None = None,
        versions: Mapping[int, int] | None = None,
        places: Places | None = None,
    ) -> None:
        self.configuration = configuration
        self.settings = configuration.settings
        self.tree = tree
        self.usage = usage
        self.lists = lists
        self.local_queue_usage = local_queue_usage
        self.reckoning = reckoning
        self.version = version
        self.borrowers = {} if borrowers is None else borrowers
        self.places = places
        self._versions = {} if versions is None else versions

    def version_of(self, queue: int) -> int:
        """Return when a holder of a ClusterQueue's tree last came or left, as `version` counts."""
        path = self.tree.path[queue]
        return self._versions.get(path[-1], 0) if path else self.version

    def without(self, holders: Iterable[Holder]) -> Snapshot:
        """Return a copy without these holders."""
        copy = Snapshot(
            self.configuration,
            self.tree,
            [column[:] for column in self.usage],
            self.lists[:],
            self.local_queue_usage,
            self.reckoning,
            self.version,
            self.borrowers.copy(),
            self._versions,
            None if self.places is None else self.places.copy(),
        )
        gone: dict[int, set[str]] = {}
        for holder in holders:
            copy.remove_usage(holder.queue, holder.held)
            copy.place(holder.placed, -1)
            for column in holder.columns:
                copy.borrowers.pop(column, None)
            gone.setdefault(holder.queue, set()).add(holder.key)
        for queue, keys in gone.items():
            left = {
                name: [row for row in rows if row[3] not in keys]
                for name, rows in self.lists[queue].items()
            }
            copy.lists[queue] = {name: rows for name, rows in left.items() if rows}
        return copy

    def add_usage(self, queue: int, amounts: Iterable[tuple[int, int]]) -> None:
        """Count amounts by flavor-resource at a ClusterQueue."""
        for column, amount in amounts:
            self._extend(column)
            if amount:
                self.borrowers.pop(column, None)
            add(self.tree.local[column], self.usage[column], self.tree.path[queue], amount)

    def remove_usage(self, queue: int, amounts: Iterable[tuple[int, int]]) -> None:
        """Subtract amounts."""
        for column, amount in amounts:
            self.borrowers.pop(column, None)
            remove(self.tree.local[column], self.usage[column], self.tree.path[queue], amount)

    def place(self, placed: Iterable[Placed], times: int) -> None:
        """Count what holds places, `times` 1, or count it no more, -1."""
        if self.places is not None:
            self.places.change(placed, times)

    def free(self, uses: Iterable[NodeUse], times: int = 1) -> None:
        """Remove pods that no topology has placed from their nodes; `times` -1: add them again."""
        if self.places is not None:
            self.places.free(uses, times)

    def _extend(self, column: int) -> None:
        while column >= len(self.usage):
            self.usage.append([0] * len(self.tree.names))
