"""Which instant a workload waits since.

First match wins:

1. evicted because its pods were not ready in time, where that counts from the eviction
2. evicted by an admission check
3. preempted by reclamation while borrowing, where priority does not sort a cycle: one millisecond
   later than the preemption, so that the preemptor comes first
4. its creation

Source: specification of the quota plane, section 4.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.model import Reason, Settings, Workload

__all__ = ["queue_timestamp"]

MILLISECOND: Final = 1_000_000


def queue_timestamp(workload: Workload, settings: Settings) -> Nanos:
    """Return the instant that orders the workload in its queue."""
    evicted, preempted = workload.evicted, workload.preempted
    if evicted is not None:
        if settings.eviction_timestamp and evicted.reason == "PodsReadyTimeout":
            return evicted.at
        if evicted.reason == "AdmissionCheck":
            return evicted.at
    if (
        not settings.gates.priority_sorting_within_cohort
        and preempted is not None
        and preempted.reason == Reason.IN_COHORT_RECLAIM_WHILE_BORROWING
    ):
        return Nanos(preempted.at + MILLISECOND)
    return workload.created
