"""Classical preemption: which workloads are preempted when no shares are compared.

Candidates are the preemptor's own queue, and the queues of the tree that use more than their own,
walked from its parent to the root. Those found where the preemptor's side has capacity of its own
(*advantage*) form the hierarchy list, the others the priority list. A candidate is chosen only
while its queue, and every cohort between it and the common ancestor, still exceed their quota. Up
to two attempts are made, with and without borrowing; the first that fits is then filled back: every
victim but the last is reprieved if the preemptor still fits without it.

A search works on copies of the columns that it needs and reads the sorted lists from their front,
so its cost follows from what it reads, not from what there is.

Source: specification of the quota plane, section 6.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from heapq import heapify, heappop, heapreplace

from reprieve.engine.quota.holdings.holders import Holder, Row
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import Column, Tree, add, available, remove
from reprieve.engine.quota.model import Policy, Reason
from reprieve.engine.quota.targets.borrowers import Gathered, beside, of_queue
from reprieve.engine.quota.targets.candidates import (
    Preemptor,
    Target,
    by_local_queue,
    cut,
    in_order,
    order_holders,
)
from reprieve.engine.topology.standing import PlaceSearch

__all__ = [
    "Found",
    "attempts_of",
    "candidates_of",
    "classical_targets",
    "fill_back",
    "fits",
    "give_back",
    "in_turn",
    "subtract",
]

Amounts = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Found:
    """The targets, and usage without them, in the columns that the search changed."""

    targets: tuple[Target, ...]
    usage: Mapping[int, Column]


@dataclass(frozen=True, slots=True)
class Source:
    """Candidates of one kind: lists of rows, each in order.

    Their queues, and the cohorts below the common ancestor `top`, must all exceed their quota for
    one to be chosen; for the preemptor's own queue `top` is that. While the preemptor borrows, only
    candidates with a priority below `limit` are allowed (None: all); below it they are chosen as
    `reason`, others as reclamation.
    """

    lists: Sequence[Sequence[Row]]
    top: int
    reason: Reason
    limit: int | None = None

    def reason_for(self, row: Row) -> Reason:
        if self.limit is not None and row[0] >= self.limit:
            return Reason.IN_COHORT_RECLAMATION
        return self.reason

    def allowed(self, row: Row, borrow: bool) -> bool:
        return not borrow or self.limit is None or row[0] < self.limit

    def end(self, rows: Sequence[Row], borrow: bool) -> int:
        """Return how many rows of a list by priority are allowed."""
        if not borrow or self.limit is None:
            return len(rows)
        return bisect_left(rows, (self.limit,))


@dataclass(slots=True)
class Candidates:
    """The three lists, each split by evicted before not evicted."""

    hierarchy: tuple[list[Source], list[Source]]
    priority: tuple[list[Source], list[Source]]
    own: tuple[list[Source], list[Source]]

    def in_sequence(self) -> Iterator[tuple[list[Source], bool]]:
        """Yield them in order, and whether all of each are evicted."""
        for position in (0, 1):
            yield self.hierarchy[position], not position
            yield self.priority[position], not position
            yield self.own[position], not position


def classical_targets(
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
    candidates = candidates_of(snapshot, who, requests, need)
    amounts = tuple(requests.items())
    for borrow in attempts_of(snapshot, who, candidates, need):
        found = _attempt(snapshot, who, candidates, amounts, need, borrow, places)
        if found is not None:
            return found
    return None


def attempts_of(
    snapshot: Snapshot, who: Preemptor, candidates: Candidates, need: frozenset[int]
) -> tuple[bool, ...]:
    """Return the attempts that are made, in order: whether the preemptor may borrow in each."""
    tree, queue = snapshot.tree, who.queue
    forbidden = not snapshot.configuration.cluster_queues[tree.names[queue]].preemption.borrows
    foreign = any(candidates.hierarchy) or any(candidates.priority)
    under = all(tree.subtree[column][queue] > snapshot.usage[column][queue] for column in need)
    if not foreign or (forbidden and not under):
        return (True,)
    if forbidden and not any(candidates.hierarchy):
        return False, True
    return True, False


def fits(
    tree: Tree, usage: Mapping[int, Column], path: Sequence[int], amounts: Amounts, borrow: bool
) -> bool:
    """Return whether the amounts fit at `path[0]`, by borrowing only if that is allowed."""
    queue = path[0]
    for column, amount in amounts:
        row = usage[column]
        if not borrow and tree.subtree[column][queue] < row[queue] + amount:
            return False
        if amount > 0 and amount > available(tree, column, row, path):
            return False
    return True


def fill_back(
    tree: Tree,
    usage: Mapping[int, Column],
    path: Sequence[int],
    amounts: Amounts,
    borrow: bool,
    targets: list[Target],
    places: PlaceSearch | None = None,
) -> None:
    """Reprieve every target but the last that is not needed; the last moves into its place."""
    for position in range(len(targets) - 2, -1, -1):
        holder = targets[position].holder
        give_back(tree, usage, holder)
        if places is not None:
            places.give_back(holder.placed)
        if fits(tree, usage, path, amounts, borrow) and (places is None or places.fits()):
            targets[position] = targets[-1]
            targets.pop()
            continue
        subtract(tree, usage, holder)
        if places is not None:
            places.remove(holder.placed)


def subtract(tree: Tree, usage: Mapping[int, Column], holder: Holder) -> None:
    """Remove what `holder` holds from the columns at hand."""
    path = tree.path[holder.queue]
    for column, amount in holder.held:
        row = usage.get(column)
        if row is not None:
            remove(tree.local[column], row, path, amount)


def give_back(tree: Tree, usage: Mapping[int, Column], holder: Holder) -> None:
    """Undo `subtract`."""
    path = tree.path[holder.queue]
    for column, amount in holder.held:
        row = usage.get(column)
        if row is not None:
            add(tree.local[column], row, path, amount)


def sources_of(
    snapshot: Snapshot, queue: int, who: Preemptor, policy: Policy, need: frozenset[int]
) -> Gathered:
    """Return a queue's candidates that hold a flavor-resource of `need`."""
    evicted, others = of_queue(snapshot, queue, need)
    return _chosen(snapshot, evicted, who, policy), _chosen(snapshot, others, who, policy)


def _chosen(
    snapshot: Snapshot, lists: Sequence[Sequence[Row]], who: Preemptor, policy: Policy
) -> Sequence[Sequence[Row]]:
    """Return candidates that the policy allows, in their order; without empty lists."""
    if policy is Policy.ANY and who.spares is None and not by_local_queue(snapshot):
        return lists
    found = []
    for rows in lists:
        chosen = cut(rows, policy, who)
        if who.spares is not None:
            chosen = [row for row in chosen if not who.spares(row[4])]
        if chosen:
            found.append(in_order(snapshot, chosen, who.queue))
    return found


def _is_anybody_left(lists: Sequence[Sequence[Row]], who: Preemptor) -> bool:
    """Return whether any candidate in the lists is not held; `in_turn` leaves out who is."""
    holds = who.holds
    if holds is None:
        return bool(lists)
    for rows in lists:
        for row in rows:  # nearly always the first one
            if not holds(row[4]):
                return True
    return False


def candidates_of(
    snapshot: Snapshot, who: Preemptor, requests: Mapping[int, int], need: frozenset[int]
) -> Candidates:
    """Return candidates that the policies allow, by where they are."""
    tree, queue = snapshot.tree, who.queue
    rules = snapshot.configuration.cluster_queues[tree.names[queue]].preemption
    found = Candidates(([], []), ([], []), ([], []))
    policy = rules.within_cluster_queue
    own = sources_of(snapshot, queue, who, policy, need)
    for sources, lists in zip(found.own, own, strict=True):
        if _is_anybody_left(lists, who):
            sources.append(Source(lists, queue, Reason.IN_CLUSTER_QUEUE))
    policy = rules.reclaim_within_cohort
    if policy in (Policy.NEVER, Policy.UNSET):
        return found
    limit = None if not rules.borrows else who.priority
    if limit is not None and rules.borrow_within_cohort is not None:
        threshold = rules.borrow_within_cohort.max_priority_threshold
        limit = limit if threshold is None else min(limit, threshold + 1)
    lowest = -(2**63)  # no priority is lower: reclamation without borrowing only
    advantage, rest = _fits_quota(tree, snapshot.usage, queue, requests)
    below = queue
    for top in tree.path[queue][1:]:
        into = found.hierarchy if advantage else found.priority
        reason, most = Reason.IN_COHORT_RECLAMATION, None
        if not advantage:
            reason = Reason.IN_COHORT_RECLAIM_WHILE_BORROWING
            most = lowest if limit is None else limit
        for sources, lists in zip(into, beside(snapshot, top, below, need), strict=True):
            chosen = _chosen(snapshot, lists, who, policy)
            if _is_anybody_left(chosen, who):
                sources.append(Source(chosen, top, reason, most))
        ok, rest = _fits_quota(tree, snapshot.usage, top, rest)
        advantage, below = advantage or ok, top
    return found


def _fits_quota(
    tree: Tree, usage: Sequence[Column], node: int, amounts: Mapping[int, int]
) -> tuple[bool, dict[int, int]]:
    ok, rest = True, {}
    for column, amount in amounts.items():
        used = usage[column][node]
        ok = ok and tree.subtree[column][node] >= used + amount
        rest[column] = max(0, amount - max(0, tree.local[column][node] - used))
    return ok, rest


def _all_over(limits: Sequence[tuple[Column, Column]], path: Sequence[int], top: int) -> bool:
    """Return whether every node before `top` uses more than its own: `limits`: usage and quota."""
    for node in path:
        if node == top:
            return True
        for used, own in limits:
            if used[node] > own[node]:
                break
        else:
            return False
    return True


def _attempt(
    snapshot: Snapshot,
    who: Preemptor,
    candidates: Candidates,
    amounts: Amounts,
    need: frozenset[int],
    borrow: bool,
    places: PlaceSearch | None,
) -> Found | None:
    standing = None if places is None else places.begin()
    tree, path = snapshot.tree, snapshot.tree.path[who.queue]
    usage = {column: snapshot.usage[column][:] for column in {*need, *(c for c, _ in amounts)}}
    limits = [(usage[column], tree.subtree[column]) for column in need]
    targets: list[Target] = []
    for row, source, ended in in_turn(snapshot, who, candidates, borrow):
        holder = row[4]
        if not _all_over(limits, tree.path[holder.queue], source.top):
            # Usage only falls, so none of its later candidates can be chosen either.
            ended.append(True)
            continue
        subtract(tree, usage, holder)
        targets.append(Target(holder, source.reason_for(row)))
        if standing is not None:
            standing.remove(holder.placed)
        if fits(tree, usage, path, amounts, borrow) and (standing is None or standing.fits()):
            fill_back(tree, usage, path, amounts, borrow, targets, standing)
            return Found(tuple(targets), usage)
    return None


def in_turn(
    snapshot: Snapshot, who: Preemptor, candidates: Candidates, borrow: bool
) -> Iterator[tuple[Row, Source, list[bool]]]:
    """Yield the candidates of an attempt in order, with their source.

    One whose list is marked ends its rows early.
    """
    across = by_local_queue(snapshot)
    for sources, evicted in candidates.in_sequence():
        holds = None if evicted else who.holds
        if not across:
            yield from _merged(sources, borrow, holds)
            continue
        for each in _eager(snapshot, sources, borrow, who):
            if holds is None or not holds(each[0][4]):
                yield each


def _merged(
    sources: Iterable[Source], borrow: bool, holds: Callable[[Holder], bool] | None
) -> Iterator[tuple[Row, Source, list[bool]]]:
    """Yield the sources' candidates in one order; one whose list is marked ends its rows early.

    Equal uids, which only made-up workloads have, are ordered by nearness of the common ancestor.
    """
    heap: list[tuple[tuple[int, int, str], int, int, int, Sequence[Row], Source]] = []
    for source in sources:
        for rows in source.lists:
            end = source.end(rows, borrow)
            if end:
                heap.append((rows[0][:3], len(heap), 0, end, rows, source))
    heapify(heap)
    while heap:
        _, position, index, end, rows, source = heap[0]
        ended: list[bool] = []
        row = rows[index]
        if holds is None or not holds(row[4]):
            yield row, source, ended
        index += 1
        if ended or index == end:
            heappop(heap)
        else:
            heapreplace(heap, (rows[index][:3], position, index, end, rows, source))


def _eager(
    snapshot: Snapshot, sources: Iterable[Source], borrow: bool, who: Preemptor
) -> Iterator[tuple[Row, Source, list[bool]]]:
    """Yield the same where LocalQueues' usage orders candidates, which no index can know."""
    usage = snapshot.local_queue_usage
    pairs = sorted(
        (
            (row, source)
            for source in sources
            for rows in source.lists
            for row in rows
            if source.allowed(row, borrow)
        ),
        key=lambda pair: pair[0][:4],
    )

    def compare(left: tuple[Row, Source], right: tuple[Row, Source]) -> int:
        return order_holders(left[0], right[0], who.queue, usage)

    pairs.sort(key=cmp_to_key(compare))
    for row, source in pairs:
        yield row, source, []
