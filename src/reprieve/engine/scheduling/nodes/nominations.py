"""Which pods a node is kept for: nominations that an attempt has to respect (specification 8.7).

Those of equal or higher priority count, each on its own node only. The unit's own pods and other
members of its group or tree do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from reprieve.engine.cluster.snapshot import Nomination, Pending, Snapshot
from reprieve.engine.placement.profile import CompositePriority, Policy
from reprieve.engine.scheduling.victims.hierarchy import leaf_groups, trees_of
from reprieve.units.ids import Uid

__all__ = ["kept_for_others", "nominations_of"]


def nominations_of(snapshot: Snapshot, policy: Policy) -> tuple[Nomination, ...]:
    """Return the snapshot's nominations, those of pods in trees with the priority that counts."""
    trees = trees_of(snapshot, policy)
    if trees is None:
        return snapshot.nominations
    nearest = policy.composite_priority is CompositePriority.NEAREST
    of_groups = trees.priority(nearest=nearest).tolist()
    known = trees.known.tolist()
    return tuple(
        replace(each, priority=of_groups[each.group]) if known[each.group] else each
        for each in snapshot.nominations
    )


def kept_for_others(
    snapshot: Snapshot,
    nominations: Iterable[Nomination],
    own: Set[Uid],
    group: str,
    priority: int,
) -> dict[int, tuple[Pending, ...]]:
    """Return the pods by index of their node. `group`: the key of the unit's group, or empty."""
    found: dict[int, list[Pending]] = {}
    index = snapshot.group_index.get(group, -1)
    row = snapshot.group_rows[index] if index >= 0 else None
    own_groups = (index,) if row is None else leaf_groups(snapshot, row)
    for each in nominations:
        sibling = index >= 0 and each.group in own_groups
        if each.uid in own or sibling or each.priority < priority or each.node < 0:
            continue
        pending = snapshot.pending.get(each.uid)
        if pending is not None:
            found.setdefault(each.node, []).append(pending)
    return {node: tuple(pods) for node, pods in found.items()}
