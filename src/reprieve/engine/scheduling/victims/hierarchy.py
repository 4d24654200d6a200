"""What trees of composite groups change about priorities and units, once their gate is on.

The priority of a pod is that of its tree's root, or with `CompositePriority.NEAREST` that of its
own group. Pods that are evicted together have the highest of their priorities, and a tree that
needs capacity has the lowest of its waiting pods', so that it evicts no work that could evict one
of them. Source: specification 4.3, 13 and 18; KEP-5710, "Pod Group priorities".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.cluster.trees import GroupTrees
from reprieve.engine.placement.profile import CompositePriority, Policy
from reprieve.engine.scheduling.victims.protection import protected

__all__ = [
    "as_preemptor",
    "effective_priority",
    "group_priority",
    "leaf_groups",
    "members_of",
    "raised_above",
    "trees_of",
    "whole_groups",
]


def trees_of(snapshot: Snapshot, policy: Policy) -> GroupTrees | None:
    """Return the trees of the snapshot's groups, None when their gate is off."""
    gates = policy.gates
    return snapshot.trees if gates.generic_workload and gates.composite_pod_group else None


def effective_priority(snapshot: Snapshot, policy: Policy) -> I64:
    """Return the priority of each pod that victim decisions use: (slots,) (specification 4.3)."""
    trees = trees_of(snapshot, policy)
    if trees is None:
        own = snapshot.effective_priority(policy.gates.generic_workload)
        return protected(snapshot, policy, own)
    of_groups = trees.priority(nearest=policy.composite_priority is CompositePriority.NEAREST)
    groups = snapshot.pod_group
    found = np.where(trees.known[groups], of_groups[groups], snapshot.pod_priority)
    found = protected(snapshot, policy, found)
    units = trees.unit[groups]
    together = np.flatnonzero((units >= 0) & (snapshot.pod_node >= 0))
    highest = np.full(len(of_groups), np.iinfo(np.int64).min, np.int64)
    np.maximum.at(highest, units[together], found[together])
    found[together] = highest[units[together]]
    return found


def raised_above(snapshot: Snapshot, policy: Policy, priority: int) -> int:
    """Return how many placed pods of a lower priority are protected by a class of their own."""
    if policy.protection is None:
        return 0
    plain = effective_priority(snapshot, replace(policy, protection=None)) < priority
    kept = effective_priority(snapshot, policy) >= priority
    return int((plain & kept & (snapshot.pod_node >= 0)).sum())


def whole_groups(snapshot: Snapshot, policy: Policy) -> I32:
    """Return the group each group's pods are evicted with as a whole, -1: none: (groups + 1,)."""
    trees = trees_of(snapshot, policy)
    if trees is not None:
        return trees.unit
    if policy.gates.generic_workload:
        return snapshot.trees.alone
    return np.full(len(snapshot.group_rows) + 1, -1, np.int32)


def group_priority(snapshot: Snapshot, policy: Policy, group: int) -> int | None:
    """Return the priority that counts for members of a group, None where it has no object."""
    row = snapshot.group_rows[group]
    trees = trees_of(snapshot, policy)
    if row is None or trees is None:
        return None if row is None else row.priority
    nearest = policy.composite_priority is CompositePriority.NEAREST
    return int(trees.priority(nearest=nearest)[group])


def as_preemptor(
    snapshot: Snapshot, policy: Policy, group: GroupRow, queued: Sequence[Pending]
) -> GroupRow:
    """Return the group with the priority at which it preempts for these pods."""
    if not group.composite or policy.composite_priority is CompositePriority.ROOT:
        return group
    keys = {f"{pending.row.namespace}/{pending.row.group}" for pending in queued}
    rows = [snapshot.group_rows[snapshot.group_index[key]] for key in keys]
    lowest = min((row.priority for row in rows if row is not None), default=group.priority)
    return replace(group, priority=lowest)


def leaf_groups(snapshot: Snapshot, group: GroupRow) -> tuple[int, ...]:
    """Return the indices of the pod groups of a tree in placement order, or of the one group."""
    index = snapshot.group_index.get(group.key, -1)
    if index < 0:
        return ()
    return snapshot.trees.leaves(index) if group.composite else (index,)


def members_of(snapshot: Snapshot, group: GroupRow) -> I64:
    """Return the slots of the group's placed pods, assumed ones included; of all of a tree."""
    leaves = leaf_groups(snapshot, group)
    if len(leaves) == 1:
        return np.flatnonzero((snapshot.pod_group == leaves[0]) & (snapshot.pod_node >= 0))
    return np.flatnonzero(np.isin(snapshot.pod_group, leaves) & (snapshot.pod_node >= 0))
