"""What is lost when work is evicted: the time since its last checkpoint, times its devices.

Time counts from the last checkpoint that the pod or its PodGroup states, but no earlier than from
the pod's start; without one from the start, though never more than `maxLostWork`, so that stating
nothing does not pay. A checkpoint in the future counts as none. Work that the idle plane knows to
be idle loses nothing and is evicted first; what was measured more than three minutes ago is not
known. Work that would get notice before its eviction counts as losing what it is expected to lose
with notice, where that is less (`engine.notice.expected`).
Devices are the extended resources that a pod requests, and those of its claims; a claim of several
pods counts for the one that has used it the longest, that of a group for its first pod. Source:
KEP-5710, "Future extensions"; promise "Silence is not idleness" of the design.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.claimed import devices_held
from reprieve.engine.cluster.rows import GroupRow, Kind, PodRow
from reprieve.engine.cluster.snapshot import NO_START, Snapshot
from reprieve.engine.lost_work import devices_of, is_device, lost_device_seconds
from reprieve.engine.notice.expected import Terms, counts_from
from reprieve.engine.placement.simulation import Simulation
from reprieve.units.ids import Uid

__all__ = [
    "IDLE",
    "claimed_by",
    "devices_of_pods",
    "idle_pods",
    "lost_by",
    "lost_pods",
    "lost_work",
]

#: Stands for the lost work of idle pods: less than nothing.
IDLE: Final = -1

_FRESH: Final = 180  # seconds
_HELD: Final = "devices held by claims"
_NONE: Final = -2  # no number of a group


def lost_pods(simulation: Simulation) -> I64 | None:
    """Return what is evicted with each pod, (slots,), or None where the policy does not need it."""
    policy = simulation.policy
    if not policy.harm_order:
        return None
    return lost_work(simulation.snapshot, simulation.now, policy.max_lost_work)


def lost_work(snapshot: Snapshot, now: int, most: int) -> I64:
    """Return device-seconds that would be lost, `IDLE` for idle pods: (slots,) int64.

    `now`: Unix seconds. `most`: seconds that work without a checkpoint loses at most.
    """
    start = np.where(snapshot.pod_start == NO_START, now, snapshot.pod_start)
    checkpoint = snapshot.pod_checkpoint
    said = [0 if row is None else row.checkpoint for row in snapshot.group_rows]
    if any(said):
        # Group -1 reads the last entry.
        checkpoint = np.maximum(checkpoint, np.array([*said, 0], np.int64)[snapshot.pod_group])
    known = (checkpoint > 0) & (checkpoint <= now)
    silent = np.clip(now - start, 0, most)
    since = np.clip(now - np.maximum(start, checkpoint), 0, None)
    undone, devices = np.where(known, since, silent), devices_of_pods(snapshot)
    for slot, terms in _reported(snapshot):
        undone[slot] = now - counts_from(now - int(undone[slot]), now, terms)
    lost: I64 = undone * devices
    lost[idle_pods(snapshot, now)] = IDLE
    return lost


def lost_by(row: PodRow, group: GroupRow | None, now: int, claimed: int = 0) -> int:
    """Return the device-seconds that one pod loses; without a checkpoint all since its start.

    `claimed`: the devices that it holds by claims.
    """
    said = max(row.checkpoint, 0 if group is None else group.checkpoint)
    devices = devices_of(row.pod_class.requests) + claimed
    return lost_device_seconds(row.start, said, devices, now)


def claimed_by(snapshot: Snapshot) -> Mapping[Uid, int]:
    """Return how many devices pods and groups hold by claims, by uid."""
    rows = snapshot.tables.get(Kind.RESOURCE_CLAIM, {})
    return snapshot.derived.of(_HELD, (rows,), lambda: devices_held(rows.values()))


def idle_pods(snapshot: Snapshot, now: int) -> Mask:
    """Return which pods belong to work that was idle when it was last measured: (slots,)."""
    rows = snapshot.tables.get(Kind.IDLE, {}).values()
    keys = {
        f"{row.namespace}/{name}"
        for row in rows
        if 0 <= now - row.measured <= _FRESH
        for name in row.pods
    }
    if not keys:
        return np.zeros(len(snapshot.pod_node), np.bool_)
    return np.array([key in keys for key in snapshot.pod_keys], np.bool_)


def _reported(snapshot: Snapshot) -> Iterator[tuple[int, Terms]]:
    """Yield the slots of pods that would get notice, with what they are granted."""
    rows = snapshot.tables.get(Kind.NOTICE, {})
    if not rows:
        return
    keys = {f"{row.namespace}/{row.name}": row for row in rows.values()}
    for slot, key in enumerate(snapshot.pod_keys):
        row = keys.get(key)
        if row is not None:
            yield slot, Terms(row.time, row.save, credit=row.credit)


def devices_of_pods(snapshot: Snapshot) -> I64:
    """Return the devices that each pod holds: (slots,)."""
    columns = [number for number, name in enumerate(snapshot.resources) if is_device(name)]
    devices: I64 = snapshot.pod_requests[:, columns].sum(axis=1)
    claimed = claimed_by(snapshot)
    if not claimed:
        return devices
    groups = {row.uid: number for number, row in enumerate(snapshot.group_rows) if row is not None}
    members = enumerate(snapshot.pod_group.tolist())
    first = {group: slot for slot, group in reversed(tuple(members))}
    slots = {uid: slot for slot, uid in enumerate(snapshot.pod_uids) if uid in claimed}
    for uid, count in claimed.items():
        slot = slots.get(uid, first.get(groups.get(uid, _NONE)))
        if slot is not None:
            devices[slot] += count
    return devices
