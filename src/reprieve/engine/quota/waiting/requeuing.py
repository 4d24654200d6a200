"""Evictions that are not preemptions, and how long a workload waits after them.

A workload is evicted because it was deactivated, or because its LocalQueue or ClusterQueue, in this
order, is stopped and drained. After an eviction for pods that were not ready or by an admission
check it waits `base * 2^(n-1)` seconds, at most the maximum, n being how often that happened;
beyond the limit it is deactivated. A preempted workload waits for nothing.

Source: specification of the quota plane, sections 1.6, 9 and 10.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.model import Configuration, StopPolicy, Workload

__all__ = ["Backoff", "EvictionReason", "backoff_end", "eviction_reason"]


class EvictionReason(StrEnum):
    """Reasons of the condition `Evicted` that follow from configuration alone."""

    DEACTIVATED = "Deactivated"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds of the first wait and of the longest one; a limit of None is endless."""

    base_s: int = 60
    max_s: int = 3_600
    limit: int | None = None


def backoff_end(backoff: Backoff, count: int, now: Nanos) -> Nanos | None:
    """Return when a workload evicted for the `count`-th time is queued again, None for never."""
    if backoff.limit is not None and count > backoff.limit:
        return None
    # A shift that no int64 of seconds would hold is longer than any maximum.
    wait = backoff.max_s if count > 62 else min(backoff.max_s, backoff.base_s << (count - 1))
    return Nanos(now + wait * SECOND)


def eviction_reason(configuration: Configuration, workload: Workload) -> EvictionReason | None:
    """Return why a workload that holds quota must give it back, None if it may keep it."""
    if not workload.active:
        return EvictionReason.DEACTIVATED
    if workload.admission is None:
        return None
    local = configuration.local_queues.get(workload.queue)
    if local is not None and local.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        return EvictionReason.LOCAL_QUEUE_STOPPED
    queue = configuration.cluster_queues.get(workload.admission.cluster_queue)
    if queue is not None and queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        return EvictionReason.CLUSTER_QUEUE_STOPPED
    return None
