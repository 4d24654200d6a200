"""Whose holders may have to be evicted below a cohort: queues that use more than their own.

A ClusterQueue counts where it and every cohort between it and the common ancestor exceed their
quota of what is needed. Their lists are gathered from the queues up, and what is known of a node
for one flavor-resource is kept from search to search, and from snapshot to snapshot, until a holder
below it is added, removed or changed (`state`): a cycle searches once for each resource and flavor
of each head, and little has changed since the last one.

In sequence: the cohort's own queues by name, then its cohorts, the last name first.

Source: specification of the quota plane, section 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from reprieve.engine.quota.holdings.holders import Row
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import Column

__all__ = ["Gathered", "beside", "of_queue"]

# Lists of rows: of holders that are evicted, and of others.
Gathered = tuple[Sequence[Sequence[Row]], Sequence[Sequence[Row]]]
_Limits = Sequence[tuple[Column, Column]]  # usage and quota of what is needed


def of_queue(snapshot: Snapshot, queue: int, need: frozenset[int]) -> Gathered:
    """Return a queue's lists that hold any of `need`."""
    evicted: list[Sequence[Row]] = []
    others: list[Sequence[Row]] = []
    for (gone, columns), rows in snapshot.lists[queue].items():
        if not need.isdisjoint(columns):
            (evicted if gone else others).append(rows)
    return evicted, others


def beside(snapshot: Snapshot, top: int, below: int, need: frozenset[int]) -> Gathered:
    """Return the lists below the cohort `top` that hold any of `need`, without those of `below`.

    `below` is the child of `top` on the preemptor's side, or the preemptor's queue itself.
    """
    limits = [(snapshot.usage[column], snapshot.tree.subtree[column]) for column in need]
    known: dict[int, Gathered] = {}
    if len(need) == 1:
        (column,) = need
        known = snapshot.borrowers.setdefault(column, known)
    return _below(snapshot, top, below, need, limits, known)


def _below(
    snapshot: Snapshot,
    top: int,
    without: int,
    need: frozenset[int],
    limits: _Limits,
    known: dict[int, Gathered],
) -> Gathered:
    evicted: list[Sequence[Row]] = []
    others: list[Sequence[Row]] = []
    tree = snapshot.tree
    for node in _over(limits, tree.child_queues[top]):
        if node != without:
            found = known.get(node)
            if found is None:
                found = known[node] = of_queue(snapshot, node, need)
            evicted += found[0]
            others += found[1]
    for node in reversed(_over(limits, tree.child_cohorts[top])):
        if node != without:
            found = known.get(node)
            if found is None:
                found = known[node] = _below(snapshot, node, -1, need, limits, known)
            evicted += found[0]
            others += found[1]
    return evicted, others


def _over(limits: _Limits, nodes: Sequence[int]) -> list[int]:
    """Return the nodes that use more than their own of anything that is needed."""
    if len(limits) == 1:
        ((used, own),) = limits
        return [node for node in nodes if used[node] > own[node]]
    return [node for node in nodes if any(used[node] > own[node] for used, own in limits)]
