"""Whether the workloads of a ClusterQueue can be preempted at all, and by which setting.

Its own `Never` protects only against its own workloads: what it borrows, others may reclaim.

1. its own `withinClusterQueue` is not `Never`
2. it may use more than its nominal quota, and another queue of the same tree reclaims

It may use more than nominal if some flavor-resource has capacity above it (no borrowing limit of 0,
and a ClusterQueue or cohort that lends), or if it does so already.

Source: specification of the quota plane, section 10.7.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Policy

__all__ = ["Exposure", "exposures"]


@dataclass(frozen=True, slots=True)
class Exposure:
    """One setting of one ClusterQueue by which another one's workloads can be preempted."""

    cluster_queue: str
    setting: str


def exposures(holdings: Holdings, cluster_queue: str) -> tuple[Exposure, ...]:
    """Return the settings that can hit a ClusterQueue's workloads; its own first."""
    queues, tree = holdings.configuration.cluster_queues, holdings.tree
    node = tree.queues.get(cluster_queue)
    if node is None or not tree.path[node]:
        return ()
    found = []
    quiet = (Policy.NEVER, Policy.UNSET)
    own = queues[cluster_queue].preemption.within_cluster_queue
    if own not in quiet:
        found.append(Exposure(cluster_queue, f"withinClusterQueue: {own}"))
    # Of what it has no quota for nothing can be assigned to it, whatever others would lend.
    exceeds = any(
        tree.potential[column][node] > tree.subtree[column][node] for column in tree.defined[node]
    ) or any(
        usage[node] > tree.subtree[column][node] for column, usage in enumerate(holdings.usage)
    )
    if tree.parent[node] >= 0 and exceeds:
        root = tree.root(node)
        for name in sorted(queues):
            other = tree.queues[name]
            reclaim = queues[name].preemption.reclaim_within_cohort
            related = bool(tree.path[other]) and tree.root(other) == root
            if name != cluster_queue and related and reclaim not in quiet:
                found.append(Exposure(name, f"reclaimWithinCohort: {reclaim}"))
    return tuple(found)
