"""What the statuses of ClusterQueues and cohorts show: usage, borrowing, weighted share.

Source: specification of the quota plane, sections 1.1 and 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.engine.quota.holdings.shares import Share, share
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import FlavorResource

__all__ = ["FlavorUsage", "cluster_queue_share", "cluster_queue_usage", "cohort_share"]


@dataclass(frozen=True, slots=True)
class FlavorUsage:
    """Usage of one flavor-resource, and how much of it is above the nominal quota."""

    pair: FlavorResource
    total: int
    borrowed: int


def cluster_queue_usage(holdings: Holdings, name: str) -> tuple[FlavorUsage, ...]:
    """Return a ClusterQueue's usage of everything that it has quota for, in its own order."""
    tree, node = holdings.tree, holdings.tree.queues[name]
    found = []
    for group in holdings.configuration.cluster_queues[name].groups:
        for flavor in group.flavors:
            for resource, quota in flavor.resources.items():
                pair = FlavorResource(flavor.flavor, resource)
                total = holdings.usage[tree.index[pair]][node]
                # Without a cohort nothing can be borrowed, only over-admitted.
                over = max(0, total - quota.nominal) if tree.parent[node] >= 0 else 0
                found.append(FlavorUsage(pair, total, over))
    return tuple(found)


def cluster_queue_share(holdings: Holdings, name: str) -> Share:
    """Return a ClusterQueue's dominant resource share."""
    return share(holdings.tree, holdings.usage, holdings.tree.queues[name])


def cohort_share(holdings: Holdings, name: str) -> Share:
    """Return a cohort's dominant resource share."""
    return share(holdings.tree, holdings.usage, holdings.tree.cohorts[name])
