"""Devices of a demand: how many it lacks at least, and how many pods hold of what it requests.

What a demand costs is counted in these in all planes. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from reprieve.engine.cluster.snapshot import Flag, Snapshot
from reprieve.engine.lost_work import is_device
from reprieve.engine.scheduling.nodes.leaving import are_named
from reprieve.engine.scheduling.outcome import Unit
from reprieve.units.ids import Uid

__all__ = ["held_devices", "least_lacking", "priority_of"]

_EVERY_POD: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


def priority_of(snapshot: Snapshot, unit: Unit) -> int:
    """Return the highest priority of a unit: that of its group, or of one of its pods."""
    rows = [snapshot.pending[uid].row for uid in unit.pods if uid in snapshot.pending]
    group = snapshot.group_index.get(unit.group, -1)
    found = snapshot.group_rows[group] if group >= 0 else None
    of_group = [] if found is None else [found.priority]
    return max([*of_group, *(row.priority for row in rows)], default=0)


def held_devices(
    snapshot: Snapshot,
    units: Sequence[Unit],
    pods: Collection[Uid],
    known: Mapping[Uid, int] | None,
) -> tuple[int, int]:
    """Return how much pods hold of what the units request but cpu and memory, and their number.

    `known`: slots of all these pods, where they are known (`are_named`).
    """
    slots = np.flatnonzero(are_named(snapshot, pods, known))
    asked = {
        name
        for unit in units
        for uid in unit.pods
        if (pending := snapshot.pending.get(uid)) is not None
        and (entry := snapshot.classes[pending.pod_class]) is not None
        for name, amount in entry.requests
        if amount and name not in _EVERY_POD
    }
    columns = [number for number, name in enumerate(snapshot.resources) if name in asked]
    return int(snapshot.pod_requests[slots][:, columns].sum()), len(slots)


def least_lacking(snapshot: Snapshot, units: Sequence[Unit]) -> int:
    """Return how many devices at least have to be evicted for these units, whichever victims.

    Each node that has capacity for some of the largest pods lacks for one more what is left over of
    it; only pods that request one kind of devices are counted.
    """
    pods = [snapshot.pending[uid] for unit in units for uid in unit.pods if uid in snapshot.pending]
    asked = [dict(e.row.pod_class.requests) for e in pods]
    names = {name for each in asked for name, amount in each.items() if amount and is_device(name)}
    if len(names) != 1:
        return 0
    (name,) = names
    column = snapshot.resources.index(name) if name in snapshot.resources else -1
    sizes = [each.get(name, 0) for each in asked]
    size = min(sizes, default=0)
    if column < 0 or not size:
        return 0
    free = snapshot.allocatable[:, column] - snapshot.used[:, column]
    ends = np.flatnonzero((snapshot.pod_flags & Flag.DELETING > 0) & (snapshot.pod_node >= 0))
    np.add.at(free, snapshot.pod_node[ends], snapshot.pod_requests[ends, column])
    free = np.clip(free[snapshot.allocatable[:, column] >= size], 0, None)
    more = len(sizes) - int((free // size).sum())
    if more <= 0 or not len(free):
        return 0
    lacking = np.sort(size - free % size)[:more]
    return int(lacking.sum()) + size * (more - len(lacking))
