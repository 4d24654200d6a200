"""In which order the entries of a cycle are processed.

Classical, fixed at the start:

1. with the gate PrioritizePreemptorWorkloads, those waiting for their own preemptions
2. lower borrowing level, as a number
3. with the gate PrioritySortingWithinCohort, higher effective priority
4. older timestamp; then the name of the ClusterQueue

Fair sharing, decided anew for every entry: in the tree of the next entry, every entry is counted in
its own queue, one at a time, and the shares of the nodes from its queue up to below the root are
noted. Each cohort then passes its best child on, up to the root:

1. with the gate PrioritizePreemptorWorkloads, those waiting for their own preemptions
2. with the gate FairSharingPrioritizeNonBorrowing, a child that does not borrow what is requested
3. lower share
4. with the gate PrioritySortingWithinCohort, higher effective priority
5. older timestamp; then the name of the ClusterQueue, or of the cohort it came through last

Source: specification of the quota plane, section 8.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from reprieve.engine.quota.holdings.holders import effective_priority
from reprieve.engine.quota.holdings.shares import share
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.model import Settings, Workload
from reprieve.engine.quota.waiting.timing import queue_timestamp

__all__ = ["Contender", "classical_order", "fair_order"]

Rank = tuple[object, ...]


class Contender(Protocol):
    """What the order of entries looks at. `counted` is what it would use, by flavor-resource."""

    @property
    def workload(self) -> Workload: ...
    @property
    def queue(self) -> int: ...
    @property
    def level(self) -> int: ...
    @property
    def preempts(self) -> bool: ...
    @property
    def counted(self) -> Mapping[int, int]: ...


def classical_order(entry: Contender, settings: Settings) -> Rank:
    """Return what sorts an entry of a classical cycle."""
    return (_preemptor(entry, settings), entry.level, *_seniority(entry, settings))


def fair_order(snapshot: Snapshot, entries: list[Contender]) -> Iterator[Contender]:
    """Yield the entries in order; the snapshot's usage may change between two of them.

    It may change on the path of the entry yielded last only, as processing does: what was noted
    for entries that share no cohort below the root with it still holds.
    """
    tree = snapshot.tree
    by_root: dict[int, dict[int, Contender]] = {}
    for entry in entries:
        by_root.setdefault(tree.root(entry.queue), {})[entry.queue] = entry
    for root, remaining in by_root.items():
        noted: dict[int, dict[int, Rank]] = {}
        while remaining:
            for queue, entry in remaining.items():
                if queue not in noted:
                    noted[queue] = _notes(snapshot, entry)
            winner = _best(snapshot, root, remaining, noted)
            del remaining[winner.queue], noted[winner.queue]
            yield winner
            shared = set(tree.path[winner.queue][1:-1])
            if shared:
                for queue in list(noted):
                    if not shared.isdisjoint(tree.path[queue]):
                        del noted[queue]


def _notes(snapshot: Snapshot, entry: Contender) -> dict[int, Rank]:
    """Return by cohort how the entry's child of it ranks, the entry being counted."""
    tree, usage, settings = snapshot.tree, snapshot.usage, snapshot.settings
    path = tree.path[entry.queue]
    columns = tuple(entry.counted)
    before = [[usage[column][node] for node in path] for column in columns]
    snapshot.add_usage(entry.queue, entry.counted.items())
    first, last = _preemptor(entry, settings), _seniority(entry, settings)
    found: dict[int, Rank] = {}
    for node in path[:-1]:
        borrows = settings.gates.fair_sharing_prioritize_non_borrowing and any(
            usage[column][node] > tree.subtree[column][node] for column in columns
        )
        found[tree.parent[node]] = (first, borrows, share(tree, usage, node).key, *last)
    for column, amounts in zip(columns, before, strict=True):
        for node, amount in zip(path, amounts, strict=True):
            usage[column][node] = amount
    return found


def _best(
    snapshot: Snapshot,
    cohort: int,
    entries: Mapping[int, Contender],
    noted: Mapping[int, Mapping[int, Rank]],
) -> Contender:
    """Return the entry that wins the tree; an entry without a cohort is alone in it."""
    tree = snapshot.tree
    if len(entries) == 1:
        return next(iter(entries.values()))

    def winner(node: int) -> Contender | None:
        contenders = [entries[queue] for queue in tree.child_queues[node] if queue in entries]
        for child in tree.child_cohorts[node]:
            best = winner(child)
            if best is not None:
                contenders.append(best)
        return min(contenders, key=lambda each: noted[each.queue][node], default=None)

    best = winner(cohort)
    assert best is not None
    return best


def _preemptor(entry: Contender, settings: Settings) -> bool:
    """Return False, which sorts first, for one that waits for its own preemptions."""
    return not (settings.preemptors_first and entry.preempts)


def _seniority(entry: Contender, settings: Settings) -> Rank:
    workload = entry.workload
    sorting = settings.gates.priority_sorting_within_cohort
    priority = effective_priority(workload, settings) if sorting else 0
    return (-priority, queue_timestamp(workload, settings))
