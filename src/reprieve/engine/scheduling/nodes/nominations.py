"""Which pods a node is kept for: nominations that an attempt has to respect (specification 8.7).

Those of equal or higher priority count, each on its own node only. The unit's own pods and other
members of its group or tree do not. Where victims of plans still save, the capacity that they hold
is the capacity that is kept: a unit that fits beside them now uses nothing that these plans need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.snapshot import Nomination, Pending, Snapshot
from reprieve.engine.placement.profile import CompositePriority, Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.victims.hierarchy import leaf_groups, trees_of
from reprieve.units.ids import Uid

__all__ = ["Saving", "kept_beside_saving", "kept_for_others", "nominations_of"]

#: A plan whose victims save: the pods that nodes are kept for, and the victims.
Saving: TypeAlias = tuple[frozenset[Uid], Sequence[Uid]]

_NOTHING: Final[I64] = np.zeros(1, np.int64)


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


def kept_beside_saving(
    simulation: Simulation, kept: Mapping[int, Sequence[Pending]], plans: Sequence[Saving]
) -> dict[int, tuple[Pending, ...]]:
    """Return what is kept, except capacity that the victims of its own plan still hold.

    A victim of several plans holds capacity for the oldest one that needs it. Only for an attempt
    that evicts no work: it sees the victims where they are.
    """
    snapshot = simulation.snapshot
    wanted = frozenset[Uid]().union(*(victims for _, victims in plans))
    slots = {uid: slot for slot, uid in enumerate(snapshot.pod_uids) if uid in wanted}
    standing = {uid: slot for uid, slot in slots.items() if simulation.present[slot]}
    found = {node: tuple(pods) for node, pods in kept.items()}
    for claims, victims in plans:
        for node, pods in kept.items():
            ours = [each for each in pods if each.row.uid in claims]
            left = [uid for uid in victims if uid in standing]
            there = [uid for uid in left if snapshot.pod_node[standing[uid]] == node]
            needed = sum((simulation.requests_of(each.pod_class) for each in ours), _NOTHING)
            held = _NOTHING
            used = list[Uid]()
            while ours and there and not bool((needed <= held).all()):
                used.append(there.pop(0))
                held = held + snapshot.pod_requests[standing[used[-1]]]
            if used and bool((needed <= held).all()):
                found[node] = tuple(each for each in found[node] if each.row.uid not in claims)
                for uid in used:
                    del standing[uid]
    return {node: pods for node, pods in found.items() if pods}
