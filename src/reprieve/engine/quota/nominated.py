"""What the head of each ClusterQueue was nominated with last, for as long as that holds.

Every cycle pops the heads of all ClusterQueues, and one that is requeued at once (it waits for its
victims, or its ClusterQueue is a strict one) is the head of the next cycle, too. What it is
nominated with follows from

1. the workload itself, and where the scan of its flavors continues
2. the configuration
3. who holds quota in its tree, and how much

and from nothing else, so that where all three are as before it is as before. Heads that leave
candidates alone for a time, or replace a slice, are looked at anew each time, and so are all where
admission fair sharing orders candidates, as the usage that it orders by changes with time. What
fits as it is is known by its shape besides (`fitting`).

Source: specification of the quota plane, sections 5, 6 and 7, which name nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.engine.quota.assigning.assignment import Assignment, Bookmark
from reprieve.engine.quota.assigning.fitting import Fitting
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import Tree
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.targets.candidates import Target, by_local_queue

__all__ = ["Nominated"]


@dataclass(frozen=True, slots=True)
class _Nomination:
    workload: Workload
    version: int
    resumed: Bookmark | None
    assignment: Assignment
    targets: tuple[Target, ...]


class Nominated:
    """Nominations by ClusterQueue; `saved` counts how often one was as before."""

    def __init__(self) -> None:
        self.saved = 0
        self.fitting = Fitting()
        self._known: dict[str, _Nomination] = {}
        self._tree: Tree | None = None  # made anew with each configuration

    def again(self, snapshot: Snapshot, entry: Entry) -> bool:
        """Nominate the entry as before; return False if that is not known."""
        known = self._of(snapshot).get(entry.cluster_queue)
        if (
            known is None
            or known.workload is not entry.workload
            or known.version != snapshot.version_of(entry.queue)
            or known.resumed != entry.resumed
            or not _stays(snapshot, entry)
        ):
            return False
        entry.assignment, entry.targets = known.assignment, known.targets
        self.saved += 1
        return True

    def record(self, snapshot: Snapshot, entry: Entry) -> None:
        """Keep what an entry was nominated with."""
        if entry.assignment is not None and _stays(snapshot, entry):
            self._of(snapshot)[entry.cluster_queue] = _Nomination(
                entry.workload,
                snapshot.version_of(entry.queue),
                entry.resumed,
                entry.assignment,
                entry.targets,
            )

    def _of(self, snapshot: Snapshot) -> dict[str, _Nomination]:
        """Return what is known of this configuration."""
        if snapshot.tree is not self._tree:
            self._tree = snapshot.tree
            self._known.clear()
        return self._known


def _stays(snapshot: Snapshot, entry: Entry) -> bool:
    """Return whether nothing else plays a role."""
    return entry.spared is None and not entry.workload.replaces and not by_local_queue(snapshot)
