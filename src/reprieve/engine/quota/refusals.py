"""Who is refused once more without another search: no candidate could make room for it.

Whatever comes free has every shape of pending work looked at again, and most of it is refused as
before. That a head has no chance can be told from two amounts: what its ClusterQueue could use if
everybody went who may be preempted for it, and if only those of its own went. Both are worked out
once for each ClusterQueue, priority and state of the holdings, and are good for heads of all sizes:

1. within its nominal quota: refused if it asks for more than is free once all have gone
2. beyond: others make way for what is within the nominal quota alone, so that it is refused if it
   asks for more than is free once its own have gone, and besides for more than is left of its
   nominal quota then, or than is free once all have gone
3. with `borrowWithinCohort`, or where age decides who is reclaimed, nothing can be told

Another ClusterQueue gives up what it borrows, its candidates going in their order until it borrows
nothing any more. Amounts are bounds from above: nobody is refused who would get its quota. What
is told of the refusal is the assignment of the first one, whose texts say what was missing then; so
it is for those who decide and do not tell.

It looks at heads that ask for one resource of one flavor, in a cohort without others below, and not
at all at fair sharing; about all else it knows nothing. Source: specification of the quota plane,
sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from reprieve.engine.quota.assignment import Assignment, Mode
from reprieve.engine.quota.candidates import Preemptor
from reprieve.engine.quota.holders import Row
from reprieve.engine.quota.model import Policy
from reprieve.engine.quota.snapshot import Snapshot
from reprieve.engine.quota.tree import available, borrowing_level, remove

__all__ = ["Refusals"]

# What a ClusterQueue may use once all candidates, or its own ones, have gone, and how much of its
# own quota is left then.
_Reach = tuple[int, int, int]


class Refusals:
    """Assignments without candidates, to be given again; `saved` counts how often they were."""

    def __init__(self) -> None:
        self.saved = 0
        self._known: dict[object, Assignment] = {}
        self._reach: dict[tuple[int, int, int], _Reach | None] = {}
        self._configuration: object = None
        self._version = -1

    def again(
        self, snapshot: Snapshot, cluster_queue: str, who: Preemptor, shape: object
    ) -> Assignment | None:
        """Return the assignment of a head that is refused once more, None if that is not known."""
        known = self._known.get(self._key(snapshot, cluster_queue, who, shape))
        if known is None:
            return None
        ((column, amount),) = known.usage.items()
        usage, tree = snapshot.usage[column], snapshot.tree
        if known.level != borrowing_level(tree, column, usage, who.queue, amount)[0]:
            return None
        if not self._has_no_chance(snapshot, who, column, amount):
            return None
        self.saved += 1
        return known

    def note(
        self,
        snapshot: Snapshot,
        cluster_queue: str,
        who: Preemptor,
        shape: object,
        found: Assignment,
    ) -> None:
        """Keep the assignment of a head that nobody could make way for."""
        if (
            found.mode is not Mode.PREEMPT
            or len(found.usage) != 1
            or not _applies(snapshot, who.queue)
        ):
            return
        if any(each.min_count is not None for each in who.workload.pod_sets):
            return
        config = snapshot.configuration.cluster_queues[cluster_queue]
        if any(len(group.flavors) != 1 for group in config.groups):
            return
        self._known[self._key(snapshot, cluster_queue, who, shape)] = found

    def _key(self, snapshot: Snapshot, cluster_queue: str, who: Preemptor, shape: object) -> object:
        """Return what assignments have in common; those of another configuration are forgotten."""
        if snapshot.configuration is not self._configuration:
            self._configuration = snapshot.configuration
            self._known.clear()
        names = tuple(each.name for each in who.workload.pod_sets)
        return cluster_queue, shape, names

    def _has_no_chance(self, snapshot: Snapshot, who: Preemptor, column: int, amount: int) -> bool:
        reach = self._reach_of(snapshot, who, column)
        if reach is None:
            return False
        all_gone, own_gone, nominal_left = reach
        if _left_of_nominal(snapshot, who.queue, column) >= amount:
            return amount > all_gone
        return amount > own_gone and (amount > nominal_left or amount > all_gone)

    def _reach_of(self, snapshot: Snapshot, who: Preemptor, column: int) -> _Reach | None:
        if snapshot.version != self._version:
            self._version = snapshot.version
            self._reach.clear()
        key = (who.queue, who.priority, column)
        if key not in self._reach:
            self._reach[key] = _reach(snapshot, who, column)
        return self._reach[key]


def _applies(snapshot: Snapshot, queue: int) -> bool:
    """Tell whether its cohort and the settings are such that the bounds hold."""
    tree = snapshot.tree
    path = tree.path[queue]
    flat = len(path) == 2 and not tree.child_cohorts[path[1]]
    return flat and snapshot.settings.fair_sharing is None


def _left_of_nominal(snapshot: Snapshot, queue: int, column: int) -> int:
    return snapshot.tree.subtree[column][queue] - snapshot.usage[column][queue]


def _reach(snapshot: Snapshot, who: Preemptor, column: int) -> _Reach | None:
    """Return what is free once candidates have gone, None where that cannot be told."""
    tree, queue = snapshot.tree, who.queue
    path, root = tree.path[queue], tree.root(queue)
    rules = snapshot.configuration.cluster_queues[tree.names[queue]].preemption
    local, subtree = tree.local[column], tree.subtree[column]
    usage = snapshot.usage[column][:]
    for row in _candidates(snapshot, queue, rules.within_cluster_queue, who, column):
        remove(local, usage, path, _held(row, column))
    own_gone = available(tree, column, usage, path)
    policy = rules.reclaim_within_cohort
    if policy is Policy.LOWER_OR_NEWER_EQUAL_PRIORITY or rules.borrows:
        # Who is passed over, for its age or for a priority beyond that of who borrows, lets a later
        # and larger one go in its place.
        return None
    for node in tree.child_queues[root]:
        if node == queue or usage[node] <= subtree[node]:
            continue
        for row in _candidates(snapshot, node, policy, who, column):
            if usage[node] <= subtree[node]:
                break
            remove(local, usage, tree.path[node], _held(row, column))
    return available(tree, column, usage, path), own_gone, subtree[queue] - usage[queue]


def _candidates(
    snapshot: Snapshot, node: int, policy: Policy, who: Preemptor, column: int
) -> Sequence[Row]:
    """Return who may be preempted in a ClusterQueue, in order: more rather than fewer."""
    if policy in (Policy.NEVER, Policy.UNSET):
        return ()
    lists = snapshot.lists[node].items()
    found: list[Row] = []
    for wanted in (True, False):
        rows = [
            row
            for (evicted, columns), rows in lists
            for row in rows
            if evicted is wanted and column in columns
        ]
        found += sorted(rows, key=lambda row: row[:4])
    if policy is Policy.ANY:
        return found
    if policy is Policy.LOWER_PRIORITY:
        return [row for row in found if row[0] < who.priority]
    return [row for row in found if row[0] <= who.priority]


def _held(row: Row, column: int) -> int:
    return sum(amount for each, amount in row[4].held if each == column)
