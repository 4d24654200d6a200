"""Preemption with fair sharing: victims come from the queues with the highest shares.

The incoming workload is counted in its own queue first, so every share includes it. A walk down the
tree yields the ClusterQueue to preempt from next: at each cohort the child with the highest share,
a cohort before a queue of the same share. A candidate of the preemptor's own queue, and any while
the preemptor stays within its nominal quota, is chosen without a comparison. Otherwise the share of
the preemptor's side below the lowest common cohort is compared with the other side's:

* `LessThanOrEqualToFinalShare`: with the other side's share once the candidate is evicted (<=)
* `LessThanInitialShare`: with the other side's share before (<)

One success leaves the queue, since shares have changed. With two strategies, queues whose
candidates failed get a second round with the second inequality, at most one victim each.

Equal shares of two cohorts, undefined in the reference, are decided by name here.

Source: specification of the quota plane, section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge

from reprieve.engine.quota.holdings.holders import Holder, Row
from reprieve.engine.quota.holdings.shares import ShareKey, Shares
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import Column, Tree, add, remove
from reprieve.engine.quota.model import Policy, Reason, Settings, Strategy
from reprieve.engine.quota.targets.candidates import (
    Preemptor,
    Target,
    by_local_queue,
    in_order,
    order_holders,
)
from reprieve.engine.quota.targets.classical import Found, fill_back, sources_of, subtract
from reprieve.engine.topology.standing import PlaceSearch

__all__ = [
    "Pending",
    "TargetWalk",
    "fair_candidates",
    "fair_targets",
    "is_within_nominal",
    "sides_of",
]


class Pending:
    """The candidates of one ClusterQueue that are left, in order, read as they are needed."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self.first = next(rows, None)

    def pop(self) -> Row:
        """Choose the first candidate.

        Raises:
            IndexError: none is left.
        """
        row = self.first
        if row is None:
            raise IndexError("no candidate is left")
        self.first = next(self._rows, None)
        return row

    def left(self) -> Iterator[Row]:
        """Choose and yield all that are left, in order."""
        while self.first is not None:
            yield self.pop()


class TargetWalk:
    """Yields the ClusterQueue of the next victim."""

    def __init__(
        self,
        tree: Tree,
        shares: Shares,
        own: int,
        pending: Mapping[int, Pending],
    ) -> None:
        self._tree = tree
        self._shares = shares
        self._own = own
        self._above_own = set(tree.path[own])
        self._pending = pending
        self._pruned: set[int] = set()

    def drop(self, queue: int) -> None:
        """Never yield `queue` again."""
        self._pruned.add(queue)

    def next(self) -> int | None:
        """Return the next ClusterQueue, None when nothing is left."""
        tree, own = self._tree, self._own
        if tree.parent[own] < 0:
            pending = self._pending.get(own)
            left = pending is not None and pending.first is not None and own not in self._pruned
            return own if left else None
        root = tree.root(own)
        while root not in self._pruned:
            queue = self._descend(root)
            if queue is not None:
                return queue
        return None

    def _descend(self, cohort: int) -> int | None:
        queue, queue_share = self._best_queue(cohort)
        child, child_share = self._best_cohort(cohort)
        if queue is None and child is None:
            self._pruned.add(cohort)
            return None
        if child is not None and (queue is None or child_share >= queue_share):
            return self._descend(child)
        return queue

    def _best_queue(self, cohort: int) -> tuple[int | None, ShareKey]:
        best: int | None = None
        best_share: ShareKey = (0, 0.0)
        best_row: Row | None = None
        pruned, pending, of = self._pruned, self._pending, self._shares.of
        for queue in self._tree.child_queues[cohort]:
            if queue in pruned:
                continue
            row = pending[queue].first if queue in pending else None
            borrowing, share = of(queue) if row is not None else (False, best_share)
            if row is None or not (borrowing or queue == self._own):
                pruned.add(queue)
                continue
            if (
                best_row is None
                or share > best_share
                or (share == best_share and order_holders(row, best_row, self._own, None) < 0)
            ):
                best, best_share, best_row = queue, share, row
        return best, best_share

    def _best_cohort(self, cohort: int) -> tuple[int | None, ShareKey]:
        best: int | None = None
        best_share: ShareKey = (0, 0.0)
        for child in self._tree.child_cohorts[cohort]:
            if child in self._pruned:
                continue
            borrowing, share = self._shares.of(child)
            if not borrowing and child not in self._above_own:
                self._pruned.add(child)
                continue
            if best is None or share > best_share:
                best, best_share = child, share
        return best, best_share


def fair_targets(
    snapshot: Snapshot,
    who: Preemptor,
    requests: Mapping[int, int],
    need: frozenset[int],
    places: PlaceSearch | None = None,
) -> Found | None:
    """Return who is preempted for `requests` by flavor-resource, or None.

    `need` are the flavor-resources that need preemption; `places` states whether the preemptor's
    pods get places, None where they request none.
    """
    pending = fair_candidates(snapshot, who, need)
    if not pending:
        return None
    return _Search(snapshot, who, requests, need, places).run(pending)


class _Search:
    """One search: the columns it changes and the targets so far."""

    def __init__(
        self,
        snapshot: Snapshot,
        who: Preemptor,
        requests: Mapping[int, int],
        need: frozenset[int],
        places: PlaceSearch | None,
    ) -> None:
        self.places = None if places is None else places.begin()
        self.tree, self.own, self.need = snapshot.tree, who.queue, need
        self.path = snapshot.tree.path[who.queue]
        self.settings = snapshot.settings
        self.usage = [column[:] for column in snapshot.usage]
        self.by_column = dict(enumerate(self.usage))
        self.amounts = tuple(requests.items())
        self.shares = Shares(self.tree, self.usage)
        self.targets: list[Target] = []

    def run(self, pending: dict[int, Pending]) -> Found | None:
        self._incoming(add)
        retry: dict[int, Row] = {}
        fitted = self._first_round(pending, retry)
        if not fitted and len(self.settings.strategies) > 1:
            fitted = self._second_round(retry)
        self._incoming(remove)
        if not fitted:
            return None
        fill_back(
            self.tree, self.by_column, self.path, self.amounts, True, self.targets, self.places
        )
        return Found(tuple(self.targets), self.by_column)

    def _incoming(self, change: Callable[[Column, Column, Sequence[int], int], None]) -> None:
        for column, amount in self.amounts:
            change(self.tree.local[column], self.usage[column], self.path, amount)
        self.shares.changed(self.path)

    def _fits(self) -> bool:
        """Return whether the requests fit, their own simulated usage aside."""
        tree, path = self.tree, self.path
        for column, amount in self.amounts:
            left = _available_without(tree, column, self.usage[column], path, amount)
            if amount > 0 and amount > left:
                return False
        return self.places is None or self.places.fits()

    def _designate(self, row: Row, reason: Reason) -> bool:
        """Designate a candidate; return whether the preemptor fits now."""
        holder = row[4]
        subtract(self.tree, self.by_column, holder)
        if self.places is not None:
            self.places.remove(holder.placed)
        self.shares.changed(self.tree.path[holder.queue])
        self.targets.append(Target(holder, reason))
        return self._fits()

    def _first_round(self, pending: dict[int, Pending], retry: dict[int, Row]) -> bool:
        within_nominal = is_within_nominal(
            self.settings, self.tree, self.by_column, self.own, self.need
        )
        walk = TargetWalk(self.tree, self.shares, self.own, pending)
        while (queue := walk.next()) is not None:
            if queue == self.own or within_nominal:
                reason = Reason.IN_COHORT_RECLAMATION
                if queue == self.own:
                    reason = Reason.IN_CLUSTER_QUEUE
                if self._designate(pending[queue].pop(), reason):
                    return True
            elif self._first_strategy(queue, pending[queue], retry):
                return True
        return False

    def _first_strategy(self, queue: int, pending: Pending, retry: dict[int, Row]) -> bool:
        mine, theirs = self._below_common_cohort(queue)
        new = self.shares.of(mine)[1]
        old = self.shares.of(theirs)[1]
        final = self.settings.strategies[0] is Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
        # The share without a candidate depends on nothing but what the candidate holds.
        known: dict[tuple[tuple[int, int], ...], bool] = {}
        while pending.first is not None:
            row = pending.pop()
            held = row[4].held
            passed = known.get(held)
            if passed is None:
                if final:
                    path = self.tree.path[queue]
                    passed = new <= self.shares.without(theirs, path, held)
                else:
                    passed = new < old
                known[held] = passed
            if passed:
                return self._designate(row, Reason.IN_COHORT_FAIR_SHARING)
            retry.setdefault(queue, row)
        return False

    def _second_round(self, retry: dict[int, Row]) -> bool:
        # One victim a queue at most, so the first that failed is the only one of interest.
        pending = {queue: Pending(iter((row,))) for queue, row in retry.items()}
        walk = TargetWalk(self.tree, self.shares, self.own, pending)
        while (queue := walk.next()) is not None:
            mine, theirs = self._below_common_cohort(queue)
            passed = self.shares.of(mine)[1] < self.shares.of(theirs)[1]
            row = pending[queue].pop()
            if passed and self._designate(row, Reason.IN_COHORT_FAIR_SHARING):
                return True
            walk.drop(queue)
        return False

    def _below_common_cohort(self, queue: int) -> tuple[int, int]:
        return sides_of(self.path, self.tree.path[queue])


def sides_of(mine: Sequence[int], theirs: Sequence[int]) -> tuple[int, int]:
    """Return the children, towards each of two ClusterQueues, of the lowest cohort above both."""
    common = next(node for node in theirs if node in mine)
    return mine[mine.index(common) - 1], theirs[theirs.index(common) - 1]


def is_within_nominal(
    settings: Settings,
    tree: Tree,
    usage: Mapping[int, Column],
    own: int,
    need: frozenset[int],
) -> bool:
    """Return whether a preemptor that is counted in its queue is spared a comparison of shares."""
    return settings.gates.fair_sharing_preempt_within_nominal and all(
        usage[column][own] <= tree.subtree[column][own] for column in need
    )


def fair_candidates(snapshot: Snapshot, who: Preemptor, need: frozenset[int]) -> dict[int, Pending]:
    """Return the candidates by queue: the own ones, and those of every queue that borrows."""
    tree, own = snapshot.tree, who.queue
    rules = snapshot.configuration.cluster_queues[tree.names[own]].preemption
    found: dict[int, Pending] = {}
    columns = [(snapshot.usage[column], tree.subtree[column]) for column in need]
    queues = [(own, rules.within_cluster_queue)]
    reclaim = rules.reclaim_within_cohort
    if tree.parent[own] >= 0 and reclaim not in (Policy.NEVER, Policy.UNSET):
        queues += [
            (queue, reclaim)
            for queue in _queues_below(tree, tree.root(own))
            if queue != own and any(usage[queue] > quota[queue] for usage, quota in columns)
        ]
    for queue, policy in queues:
        evicted, others = sources_of(snapshot, queue, who, policy, need)
        if evicted or others:
            found[queue] = Pending(_chained(snapshot, own, evicted, others, who.holds))
    return found


def _chained(
    snapshot: Snapshot,
    own: int,
    evicted: Sequence[Sequence[Row]],
    others: Sequence[Sequence[Row]],
    holds: Callable[[Holder], bool] | None,
) -> Iterator[Row]:
    if evicted:  # they leave anyway
        yield from _in_order(snapshot, own, evicted)
    rows = _in_order(snapshot, own, others)
    if holds is None:
        yield from rows
        return
    for row in rows:
        if not holds(row[4]):
            yield row


def _in_order(snapshot: Snapshot, own: int, lists: Sequence[Sequence[Row]]) -> Iterable[Row]:
    return lists[0] if len(lists) == 1 else in_one_order(snapshot, own, lists)


def in_one_order(snapshot: Snapshot, own: int, lists: Sequence[Sequence[Row]]) -> Iterator[Row]:
    """Yield the rows of one queue's lists in the candidates' order."""
    if by_local_queue(snapshot):
        yield from in_order(snapshot, [row for rows in lists for row in rows], own)
    else:
        yield from merge(*lists)


def _queues_below(tree: Tree, cohort: int) -> Iterator[int]:
    yield from tree.child_queues[cohort]
    for child in tree.child_cohorts[cohort]:
        yield from _queues_below(tree, child)


def _available_without(
    tree: Tree, column: int, usage: Column, path: Sequence[int], amount: int
) -> int:
    """Return what is available at `path[0]` once `amount` is subtracted there."""
    local, subtree, cap = tree.local[column], tree.subtree[column], tree.cap[column]
    left_over = []
    for node in path:
        stored = usage[node] - local[node]
        left_over.append(usage[node] - amount)
        amount = max(0, min(amount, stored))
    left = subtree[path[-1]] - left_over[-1]
    for position in range(len(path) - 2, -1, -1):
        node = path[position]
        own = local[node] - left_over[position]
        left = min(left, cap[node]) + own if own >= 0 else min(left, cap[node] + own)
    return left
