"""In which order the entries of a cycle are processed.

Classical, fixed at the start:

1. with the gate PrioritizePreemptorWorkloads, those waiting for their own preemptions
2. lower borrowing level, as a number
3. with the gate PrioritySortingWithinCohort, higher effective priority
4. older timestamp; then the name of the ClusterQueue

Fair sharing, decided anew for every entry: in the tree of the next entry, every entry is counted in
its own queue, one at a time, and the shares of the nodes from its queue up to below the root are
noted. Each cohort then lets its best child through, up to the root:

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

from reprieve.engine.quota.model import Gates, Settings, Workload
from reprieve.engine.quota.shares import share
from reprieve.engine.quota.state import Snapshot, effective_priority
from reprieve.engine.quota.timing import queue_timestamp

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
    return (_preemptor(entry, settings.gates), entry.level, *_seniority(entry, settings))


def fair_order(snapshot: Snapshot, entries: list[Contender]) -> Iterator[Contender]:
    """Yield the entries in order; the snapshot's usage may change between two of them."""
    remaining = {entry.queue: entry for entry in entries}
    while remaining:
        first = next(iter(remaining.values()))
        winner = first
        if snapshot.tree.parent[first.queue] >= 0:
            root = snapshot.tree.root(first.queue)
            tree = {q: e for q, e in remaining.items() if snapshot.tree.root(q) == root}
            winner = _tournament(snapshot, root, tree)
        del remaining[winner.queue]
        yield winner


def _tournament(snapshot: Snapshot, root: int, entries: Mapping[int, Contender]) -> Contender:
    if len(entries) == 1:
        return next(iter(entries.values()))
    tree, usage = snapshot.tree, snapshot.usage
    settings = snapshot.settings
    noted: dict[tuple[int, int], Rank] = {}  # by cohort and queue of the entry
    for queue, entry in entries.items():
        path = tree.path[queue]
        columns = tuple(entry.counted)
        before = [[usage[column][node] for node in path] for column in columns]
        snapshot.add_usage(queue, entry.counted.items())
        for node in path[:-1]:
            borrows = settings.gates.fair_sharing_prioritize_non_borrowing and any(
                usage[column][node] > tree.subtree[column][node] for column in columns
            )
            noted[(tree.parent[node], queue)] = (
                _preemptor(entry, settings.gates),
                borrows,
                share(tree, usage, node).key,
                *_seniority(entry, settings),
            )
        for column, amounts in zip(columns, before, strict=True):
            for node, amount in zip(path, amounts, strict=True):
                usage[column][node] = amount

    def best(cohort: int) -> Contender | None:
        contenders = [entries[q] for q in tree.child_queues[cohort] if q in entries]
        winners = (best(child) for child in tree.child_cohorts[cohort])
        contenders += [winner for winner in winners if winner is not None]
        return min(contenders, key=lambda each: noted[(cohort, each.queue)], default=None)

    winner = best(root)
    assert winner is not None
    return winner


def _preemptor(entry: Contender, gates: Gates) -> bool:
    """Return False, which sorts first, for one that waits for its own preemptions."""
    return not (gates.prioritize_preemptor_workloads and entry.preempts)


def _seniority(entry: Contender, settings: Settings) -> Rank:
    workload = entry.workload
    sorting = settings.gates.priority_sorting_within_cohort
    priority = effective_priority(workload, settings) if sorting else 0
    return (-priority, queue_timestamp(workload, settings))
