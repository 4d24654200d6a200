"""What is lost when work is evicted: the time since its last checkpoint, times its devices.

Time counts from the last checkpoint that the pod or its PodGroup says, but no earlier than from the
pod's start; without one from the start, though never more than `maxLostWork`, so that saying
nothing does not pay. A checkpoint in the future says nothing. Work that the idle plane knows to be
idle loses nothing and goes first; what was measured more than three minutes ago is not known.
Devices are the extended resources that a pod requests. Source: KEP-5710, "Future extensions";
promise "Silence is not idleness" of the design.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from reprieve.engine.cluster.rows import GroupRow, Kind, PodRow
from reprieve.engine.cluster.snapshot import I64, NO_START, Mask, Snapshot
from reprieve.engine.lost_work import devices_of, is_device, lost_device_seconds
from reprieve.engine.placement.simulation import Simulation

__all__ = ["IDLE", "idle_pods", "lost_by", "lost_pods", "lost_work"]

#: Stands for the lost work of idle pods: less than nothing.
IDLE: Final = -1

_FRESH: Final = 180  # seconds


def lost_pods(simulation: Simulation) -> I64 | None:
    """Return what goes with each pod, (slots,), or None where the policy does not ask."""
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
    lost: I64 = np.where(known, since, silent) * _devices(snapshot)
    lost[idle_pods(snapshot, now)] = IDLE
    return lost


def lost_by(row: PodRow, group: GroupRow | None, now: int) -> int:
    """Return the device-seconds that one pod loses; without a checkpoint all since its start."""
    said = max(row.checkpoint, 0 if group is None else group.checkpoint)
    return lost_device_seconds(row.start, said, devices_of(row.pod_class.requests), now)


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


def _devices(snapshot: Snapshot) -> I64:
    columns = [number for number, name in enumerate(snapshot.resources) if is_device(name)]
    devices: I64 = snapshot.pod_requests[:, columns].sum(axis=1)
    return devices
