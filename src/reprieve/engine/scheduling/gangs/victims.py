"""Possible victims of a job as units: single pods, or gangs that are evicted as a whole.

Units are in the order in which they are reprieved: higher priority, then job key, then name.
Source: specification of gang jobs, 7.4; issue of gang jobs, `victimGangs`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.scheduling.gangs.job import Job
from reprieve.engine.scheduling.gangs.possible import Possible
from reprieve.engine.scheduling.victims.units import Units

__all__ = ["victim_units", "whole_gangs"]


def whole_gangs(snapshot: Snapshot, job: Job, possible: Possible) -> tuple[Possible, list[I64]]:
    """Return the possible victims without gangs that stay whole, and the other gangs."""
    slot_of = {
        uid: slot for slot, uid in enumerate(snapshot.pod_uids) if snapshot.pod_node[slot] >= 0
    }
    there = np.zeros(len(snapshot.pod_node), np.bool_)
    there[possible.slots] = True
    whole: list[I64] = []
    for gang in job.gangs:
        slots = np.array(sorted(slot_of[uid] for uid in gang if uid in slot_of), np.int64)
        if len(slots) and there[slots].all():
            whole.append(slots)
        else:
            there[slots] = False
    slots = possible.slots[there[possible.slots]]
    here = np.zeros(len(possible.here), np.bool_)
    here[snapshot.pod_node[slots]] = True
    return Possible(slots, possible.job, np.where(here, possible.cost, 0), here), whole


def victim_units(snapshot: Snapshot, possible: Possible, whole: Sequence[I64]) -> Units:
    """Return the possible victims as units in the order of 7.4: priority, job key, name.

    The job key's rank stands where other planes have the start time.
    """
    in_gang = np.zeros(len(snapshot.pod_node), np.bool_)
    for slots in whole:
        in_gang[slots] = True
    singles = possible.slots[~in_gang[possible.slots]]
    first = np.array([slots[0] for slots in whole], np.int64)
    every = np.concatenate((singles, first))
    of_slot = np.full(len(snapshot.pod_node), -1, np.int64)
    of_slot[singles] = np.arange(len(singles))
    size = np.ones(len(every), np.int64)
    priority = snapshot.pod_priority[every].copy()
    for offset, slots in enumerate(whole, len(singles)):
        of_slot[slots] = offset
        size[offset] = len(slots)
        priority[offset] = snapshot.pod_priority[slots].max()

    def name(unit: int) -> str:
        namespace, _, own = snapshot.pod_keys[int(every[unit])].partition("/")
        return f"{own}\0{namespace}"

    return Units(
        snapshot=snapshot,
        first=every,
        priority=priority,
        grouped=np.zeros(len(every), np.int64),
        size=size,
        start=possible.job[every],
        groups=(-1,) * len(whole),  # older gangs are no groups of the API
        group_pods=tuple(whole),
        singles=len(singles),
        of_slot=of_slot,
        tie=name,
    )
