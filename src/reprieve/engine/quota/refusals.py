"""What is refused once more without another search: no candidate could free enough for it.

Whatever comes free has every shape of pending work looked at again, and most of it is refused as
before. That a head has no chance is known from two amounts: what its ClusterQueue could use if all
were evicted that may be preempted for it, and if only its own candidates were. Both are worked out
once for each ClusterQueue, priority and state of the holdings, and are good for heads of all sizes:

1. within its nominal quota: refused if it requests more than is free once all are evicted
2. beyond: others are preempted for what is within the nominal quota alone, so that it is refused if
   it requests more than is free once its own are evicted, and besides for more than is left of its
   nominal quota then, or than is free once all are evicted
3. with `borrowWithinCohort`, or where age decides who is reclaimed, nothing can be known

Another ClusterQueue gives up what it borrows, its candidates being evicted in their order until it
borrows nothing any more. With fair sharing it gives up what it borrows beyond what the preemptor
would borrow itself once its own are evicted, in any order, so that the last victim may be the
largest; so that is worked out for each head, where all of a tree borrow of one flavor-resource with
one weight.

Amounts are bounds from above: no head is refused that would get its quota. What is reported of the
refusal is the assignment of the first one, whose texts state what was missing then; so it is for
callers that decide and do not report.

It looks at heads that request one resource of one flavor, in a cohort without others below and
without lending limits; about all else it knows nothing. Source: specification of the quota plane,
sections 5, 6 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reprieve.engine.quota.assigning.assignment import Assignment, Bookmark, Mode
from reprieve.engine.quota.holdings.holders import Row
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Configuration, Policy, Workload
from reprieve.engine.quota.targets.candidates import Preemptor

__all__ = ["Refusal", "Refusals"]

# What a ClusterQueue may use once all candidates, or its own ones, are evicted, and how much of its
# own quota is left then.
_Reach = tuple[int, int, int]
_NOBODY = frozenset((Policy.NEVER, Policy.UNSET))


#: Shares of smaller amounts differ wherever these differ.
_EXACT: Final = 2**43


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a head was refused with: an assignment of `amount` of one flavor-resource.

    `names` are those of the pod sets; `bookmark` and `is_pending` state where the scan ended.
    """

    assignment: Assignment
    names: tuple[str, ...]
    level: int
    column: int
    amount: int
    bookmark: Bookmark
    is_pending: bool


class Refusals:
    """Assignments without candidates, to be given again; `saved` counts how often they were."""

    def __init__(self) -> None:
        self.saved = 0
        self._known: dict[tuple[int, object], Refusal] = {}
        self._reach: dict[tuple[int, int, int], _Reach | None] = {}
        # What each ClusterQueue of a tree gives up, by root, flavor-resource, policy and priority.
        self._given: dict[tuple[int, int, Policy, int], dict[int, int]] = {}
        # What candidates of a ClusterQueue hold, and the version of its holders it is of: until
        # it borrows nothing; all, and the largest.
        self._held: dict[tuple[int, int, Policy, int], tuple[int, int]] = {}
        self._all_held: dict[tuple[int, int, Policy, int], tuple[int, int, int]] = {}
        #: By ClusterQueue and namespace, what `refused_heads` found out of this configuration.
        self.places: dict[tuple[str, str], bool] = {}
        self._alike: dict[tuple[int, int], bool] = {}  # by root and flavor-resource
        self._configuration: Configuration | None = None
        self._version = -1

    def again(self, holdings: Holdings, who: Preemptor, shape: object) -> Refusal | None:
        """Return how a head is refused once more, None if that is not known."""
        if holdings.configuration is not self._configuration:
            return None
        queue = who.queue
        known = self._known.get((queue, shape))
        if known is None or known.names != _names(who.workload):
            return None
        tree, column, amount = holdings.tree, known.column, known.amount
        within = tree.subtree[column][queue] - holdings.usage[column][queue] >= amount
        if known.level != (0 if within else tree.height[tree.path[queue][-1]]):
            return None
        if holdings.configuration.settings.fair_sharing is not None:
            if not self._has_no_fair_chance(holdings, who, column, amount):
                return None
        elif not self._has_no_chance(holdings, who, column, amount, within):
            return None
        self.saved += 1
        return known

    def record(self, holdings: Holdings, who: Preemptor, shape: object, found: Assignment) -> None:
        """Keep the assignment of a head for which no workload could be preempted."""
        if found.mode is not Mode.PREEMPT or len(found.usage) != 1:
            return
        if any(each.min_count is not None for each in who.workload.pod_sets):
            return
        config = holdings.configuration.cluster_queues[holdings.tree.names[who.queue]]
        if any(len(group.flavors) != 1 for group in config.groups):
            return
        if holdings.configuration is not self._configuration:
            self._configuration = holdings.configuration
            for each in (self._known, self._held, self._all_held, self._alike, self.places):
                each.clear()
            self._version = -1
        ((column, amount),) = found.usage.items()
        if not _is_flat(holdings, who.queue, column):
            return
        self._known[who.queue, shape] = Refusal(
            found,
            _names(who.workload),
            found.level,
            column,
            amount,
            found.bookmark,
            found.has_pending_flavors,
        )

    def _has_no_chance(
        self, holdings: Holdings, who: Preemptor, column: int, amount: int, within: bool
    ) -> bool:
        reach = self._reach_of(holdings, who, column)
        if reach is None:
            return False
        all_gone, own_gone, nominal_left = reach
        if within:
            return amount > all_gone
        return amount > own_gone and (amount > nominal_left or amount > all_gone)

    def _has_no_fair_chance(
        self, holdings: Holdings, who: Preemptor, column: int, amount: int
    ) -> bool:
        tree, queue = holdings.tree, who.queue
        root, subtree = tree.path[queue][-1], tree.subtree[column]
        usage = holdings.usage[column]
        if not self._are_alike(holdings, root, column) or max(usage) + amount >= _EXACT:
            return False
        rules = holdings.configuration.cluster_queues[tree.names[queue]].preemption
        own, _ = self._all_of(holdings, queue, column, rules.within_cluster_queue, who.priority)
        # What the preemptor borrows at least while another workload is preempted for it.
        borrows = max(0, usage[queue] - own + amount - subtree[queue])
        gates = holdings.configuration.settings.gates
        if gates.fair_sharing_preempt_within_nominal and usage[queue] + amount <= subtree[queue]:
            borrows = 0
        policy, given = rules.reclaim_within_cohort, 0
        for node in tree.child_queues[root] if policy not in _NOBODY else ():
            beyond = usage[node] - subtree[node] - borrows
            if node != queue and beyond > 0:
                held, largest = self._all_of(holdings, node, column, policy, who.priority)
                given += min(held, beyond - 1 + largest)
        return amount > _free(holdings, queue, column, own, given)

    def _are_alike(self, holdings: Holdings, root: int, column: int) -> bool:
        """Return whether shares of a tree's ClusterQueues compare as what they borrow does."""
        key = (root, column)
        known = self._alike.get(key)
        if known is None:
            tree = holdings.tree
            resource = tree.flavor_resources[column].resource
            queues = tree.child_queues[root]
            known = self._alike[key] = (
                len({tree.weight[node] for node in queues}) == 1
                and tree.weight[queues[0]] > 0
                and all(tree.defined[node] == (column,) for node in queues)
                and 0 < tree.lendable[root].get(resource, 0) < _EXACT
            )
        return known

    def _all_of(
        self, holdings: Holdings, node: int, column: int, policy: Policy, priority: int
    ) -> tuple[int, int]:
        """Return what all candidates of a ClusterQueue hold, and the largest of them.

        Worked out anew where holders came to it or left it.
        """
        if policy in _NOBODY:
            return 0, 0
        key = (node, column, policy, 0 if policy is Policy.ANY else priority)
        version = holdings.version_of(node)
        known = self._all_held.get(key)
        if known is None or known[0] != version:
            rows = _candidates(holdings, node, policy, priority, column)
            held = [_held(row, column) for row in rows]
            known = self._all_held[key] = version, sum(held), max(held, default=0)
        return known[1:]

    def _reach_of(self, holdings: Holdings, who: Preemptor, column: int) -> _Reach | None:
        if holdings.version != self._version:
            self._version = holdings.version
            self._reach.clear()
            self._given.clear()
        key = (who.queue, who.priority, column)
        if key not in self._reach:
            self._reach[key] = self._reach_now(holdings, who, column)
        return self._reach[key]

    def _reach_now(self, holdings: Holdings, who: Preemptor, column: int) -> _Reach | None:
        """Return what is free once candidates have left, None where that is not known."""
        tree, queue, priority = holdings.tree, who.queue, who.priority
        rules = holdings.configuration.cluster_queues[tree.names[queue]].preemption
        policy = rules.reclaim_within_cohort
        if policy is Policy.LOWER_OR_NEWER_EQUAL_PRIORITY or rules.borrows:
            # A candidate that is spared, for its age or for a priority beyond the borrower's, may
            # cause the eviction of a later and larger one.
            return None
        own, _ = self._all_of(holdings, queue, column, rules.within_cluster_queue, priority)
        given = 0
        if policy not in _NOBODY:
            key = (tree.root(queue), column, policy, 0 if policy is Policy.ANY else priority)
            by_queue = self._given.get(key)
            if by_queue is None:
                by_queue = self._given[key] = self._given_by(holdings, *key)
            given = sum(by_queue.values()) - by_queue.get(queue, 0)
        return (
            _free(holdings, queue, column, own, given),
            _free(holdings, queue, column, own, 0),
            tree.subtree[column][queue] - holdings.usage[column][queue] + own,
        )

    def _given_by(
        self, holdings: Holdings, root: int, column: int, policy: Policy, priority: int
    ) -> dict[int, int]:
        """Return what candidates of each ClusterQueue hold that borrows, until it does not.

        Worked out anew where holders came to it or left it.
        """
        usage, subtree = holdings.usage[column], holdings.tree.subtree[column]
        found = {}
        for node in holdings.tree.child_queues[root]:
            over = usage[node] - subtree[node]
            if over <= 0:
                continue
            key, version = (node, column, policy, priority), holdings.version_of(node)
            known = self._held.get(key)
            if known is None or known[0] != version:
                given = 0
                for row in _candidates(holdings, node, policy, priority, column):
                    if given >= over:
                        break
                    given += _held(row, column)
                known = self._held[key] = version, given
            found[node] = known[1]
        return found


def _names(workload: Workload) -> tuple[str, ...]:
    return tuple([each.name for each in workload.pod_sets])


def _is_flat(holdings: Holdings, queue: int, column: int) -> bool:
    """Return whether its cohort is a root without others below, and all lend to it."""
    tree = holdings.tree
    path = tree.path[queue]
    return len(path) == 2 and not tree.child_cohorts[path[1]] and not any(tree.local[column])


def _free(holdings: Holdings, queue: int, column: int, own: int, given: int) -> int:
    """Return what a ClusterQueue may use once it and others hold so much less."""
    tree, usage = holdings.tree, holdings.usage[column]
    root = tree.path[queue][1]
    left = tree.subtree[column][root] - usage[root] + own + given
    return min(left, tree.cap[column][queue] - (usage[queue] - own))


def _candidates(
    holdings: Holdings, node: int, policy: Policy, priority: int, column: int
) -> Sequence[Row]:
    """Return who may be preempted in a ClusterQueue, in order: more rather than fewer."""
    lists = holdings.lists[node].items()
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
        return [row for row in found if row[0] < priority]
    return [row for row in found if row[0] <= priority]


def _held(row: Row, column: int) -> int:
    return sum([amount for each, amount in row[4].held if each == column])
