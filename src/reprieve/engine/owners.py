"""Which plane decides about a pending demand, where several planes run in one process.

A demand is a lineage of work (a job, a gang, a root), not an object of one plane. Only its owner
evicts for it; the other planes answer that they do not.

| state of the demand | owner |
| --- | --- |
| its quota is not reserved, and the quota plane of this process decides about it | quota |
| its quota is not reserved, and another Kueue decides | idle |
| its pods are pending, and the scheduling plane of this process schedules them | scheduling |
| its pods are pending, and another scheduler schedules them | idle |

Where the scheduling plane is the owner, the idle plane searches first and the scheduling plane
confirms what it found: idle work is evicted before busy work. Source: the design's "Where the
planes meet".
"""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.engine.plan import Plane

__all__ = ["DemandState", "owner_of"]


@dataclass(frozen=True, slots=True)
class DemandState:
    """What decides about the owner of a demand.

    `awaits_quota`: it has a Kueue Workload without reserved quota. `quota_is_ours`: the quota plane
    of this process decides about Workloads. `scheduler_is_ours`: the scheduling plane of this
    process schedules its pods.
    """

    awaits_quota: bool
    quota_is_ours: bool
    scheduler_is_ours: bool


def owner_of(state: DemandState) -> Plane:
    """Return the plane that evicts for a demand in this state."""
    if state.awaits_quota:
        return Plane.QUOTA if state.quota_is_ours else Plane.IDLE
    return Plane.SCHEDULING if state.scheduler_is_ours else Plane.IDLE
