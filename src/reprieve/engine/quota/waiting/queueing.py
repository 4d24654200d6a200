"""Whether a workload may be queued, where, at which place, and when it counts as the same.

Place inside a ClusterQueue, first difference decides:

1. higher effective priority
2. older timestamp (`timing`)
3. uid, then namespace/name

Not queued is what is not active, finished, gated or holds quota already, and what has no
ClusterQueue or a stopped LocalQueue.

Source: specification of the quota plane, sections 4 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reprieve.engine.quota.holdings.holders import effective_priority
from reprieve.engine.quota.model import (
    Configuration,
    QueueingStrategy,
    Settings,
    StopPolicy,
    Workload,
)
from reprieve.engine.quota.waiting.pending import Row
from reprieve.engine.quota.waiting.timing import queue_timestamp
from reprieve.engine.topology.model import TopologyAssignment

__all__ = [
    "QUIET",
    "WAKING",
    "cluster_queue_of",
    "decides_alike",
    "held_places",
    "is_best_effort",
    "may_queue",
    "offers_alike",
    "place_of",
]


def place_of(workload: Workload, settings: Settings) -> Row:
    """Return what a workload is sorted by in its ClusterQueue."""
    return (
        -effective_priority(workload, settings),
        int(queue_timestamp(workload, settings)),
        workload.uid,
        workload.key,
    )


def cluster_queue_of(workload: Workload, configuration: Configuration) -> str | None:
    """Return the ClusterQueue in which a workload may be queued."""
    local = configuration.local_queues.get(workload.queue)
    if local is None or local.stop_policy is not StopPolicy.NONE:
        return None
    return local.cluster_queue if local.cluster_queue in configuration.cluster_queues else None


def is_best_effort(configuration: Configuration, cluster_queue: str) -> bool:
    """Return whether others of its ClusterQueue may pass a head that does not fit."""
    strategy = configuration.cluster_queues[cluster_queue].strategy
    return strategy is QueueingStrategy.BEST_EFFORT_FIFO


def may_queue(workload: Workload) -> bool:
    """Return whether a workload is one that waits for quota."""
    return (
        workload.active
        and not workload.finished
        and not workload.admission_gated
        and workload.admission is None
    )


def decides_alike(before: Workload, after: Workload) -> bool:
    """Return whether nothing of a workload has changed that decides about it."""
    return (
        before.pod_sets == after.pod_sets
        and before.reclaimable == after.reclaimable
        and before.priority == after.priority
        and before.boost == after.boost
        and before.queue == after.queue
        and before.evicted == after.evicted
        and before.requeue_at == after.requeue_at
        and before.requeued == after.requeued
        and before.closed_gates == after.closed_gates
        and before.checks == after.checks
        and before.invalid == after.invalid
        and before.preempts_from == after.preempts_from
    )


#: What a decision about others reads of a workload with quota, and what wakes them when it changes.
WAKING: Final = (
    "priority",
    "boost",
    "queue",
    "reclaimable",
    "pods_ready",
    "replaces",
    "preempt_min_runtime_s",
    "reclaim_min_runtime_s",
)
#: The other fields, and why a change of them wakes no workload while this one keeps its quota.
QUIET: Final[Mapping[str, str]] = {
    "namespace": "never changes",
    "name": "never changes",
    "uid": "never changes",
    "created": "never changes",
    "job_uid": "for messages alone",
    "pod_sets": "what is held is what the admission states",
    "admission": "its places wake the others; the rest never changes while it is held",
    "reserved_at": "comes with the admission, and orders victims alone",
    "evicted": "who is evicted gives its quota back soon, which wakes the others",
    "preempted": "the same",
    "active": "who is made inactive is evicted",
    "finished": "who is finished gives its quota back",
    "requeued": "read of those who wait",
    "requeue_at": "read of those who wait",
    "checks": "read of the workload itself",
    "admission_gated": "read of those who wait",
    "closed_gates": "read of those who wait",
    "invalid": "read of those who wait",
    "preempts_from": "read of those who wait",
    "idle": "orders victims alone",
    "participant": "the governor wakes whom it held",
    "unhealthy_nodes": "of the workload itself, which is then given other nodes",
    "of_one_pod": "never changes",
    "checkpoint": "orders victims, and who waits for a save is looked at when it is due",
    "next_checkpoint": "the same",
    "counts_from": "orders victims alone",
    "rank": "orders victims alone",
}


def offers_alike(before: Workload, after: Workload) -> bool:
    """Return whether nothing of a workload with quota has changed that may admit others."""
    same = all(getattr(before, name) == getattr(after, name) for name in WAKING)
    return same and held_places(before) == held_places(after)


def held_places(workload: Workload) -> dict[str, TopologyAssignment]:
    """Return the places that a workload holds, by pod set."""
    held = () if workload.admission is None else workload.admission.pod_sets
    return {each.name: each.topology for each in held if each.topology is not None}
