"""The nodes that a preemption by quota depends on, as they stand in its stored input.

Where a flavor has a topology, pods are placed on nodes, and each holder of places there uses them,
in whatever cohort. An input then holds the trees of all ClusterQueues that place pods, and of the
nodes what the decision reads: the labels of levels, flavors and selectors, the resources that pods
request, and taints. Source: promise "Explained" of the design; specification of topology-aware
scheduling, sections 2.2 to 2.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from reprieve.engine.quota.holdings.placed import queues_with_places
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Configuration, PodSet, Workload
from reprieve.engine.topology.model import TopologyNode
from reprieve.engine.topology.places import Grounds, NodeUse

__all__ = ["counted_pods", "grounds_of", "node_rows", "trees_with_places"]

_PODS: Final = "pods"


def trees_with_places(name: str, holdings: Holdings) -> frozenset[str]:
    """Return its ClusterQueue's tree, and the trees of all that place pods where it does."""
    names = {name, *holdings.related(name)}
    placing = () if holdings.places is None else queues_with_places(holdings.configuration)
    if names.isdisjoint(placing):
        return frozenset(names)
    for each in placing:
        names |= {each, *holdings.related(each)}
    return frozenset(names)


def counted_pods(workload: Workload) -> Workload:
    """Return a holder without what of its pods no decision about others reads."""
    held = () if workload.admission is None else workload.admission.pod_sets
    placed = {each.name for each in held if each.topology is not None}
    counts = tuple(
        PodSet(each.name, each.count, each.on_node if each.name in placed else {})
        for each in workload.pod_sets
    )
    if _is_placed_in_cycle(workload):
        counts = workload.pod_sets
    return replace(workload, pod_sets=counts, participant=None)


def _is_placed_in_cycle(workload: Workload) -> bool:
    """Return whether a holder gets nodes in the cycle, by all that its pods request."""
    admission = workload.admission
    return bool(workload.unhealthy_nodes) or (
        admission is not None and any(each.delayed for each in admission.pod_sets)
    )


def node_rows(
    holdings: Holdings, names: Iterable[str], heads: Iterable[Workload]
) -> tuple[tuple[TopologyNode, ...], tuple[NodeUse, ...]]:
    """Return the nodes that pods of these ClusterQueues may be placed on, and uses of them.

    `heads`: whose selectors and requests are read of them. Without places there are none.
    """
    grounds, configuration = holdings.grounds, holdings.configuration
    if holdings.places is None or grounds is None:
        return (), ()
    queues = [configuration.cluster_queues[name] for name in names]
    flavors = {
        each.flavor for row in queues for group in row.groups for each in group.flavors
    } & holdings.places.trees.keys()
    if not flavors:
        return (), ()
    holders = (holder.workload for holder in holdings.holders.values())
    heads = [*heads, *(each for each in holders if _is_placed_in_cycle(each))]
    pod_sets = [each for head in heads for each in head.pod_sets]
    labels = _labels_read(configuration, flavors, pod_sets)
    resources = {_PODS, *(name for each in pod_sets for name in each.on_node)}
    for holder in holdings.holders.values():
        resources |= {name for _, pods in holder.placed for name in pods.requests}
    wanted = [configuration.flavors[name].labels.items() for name in flavors]
    kept = tuple(
        replace(
            each,
            labels={key: value for key, value in each.labels.items() if key in labels},
            allocatable={key: n for key, n in each.allocatable.items() if key in resources},
        )
        for each in grounds.nodes
        if any(pairs <= each.labels.items() for pairs in wanted)
    )
    there = {each.name for each in kept}
    return kept, tuple(each for each in grounds.uses if each.node in there)


def grounds_of(nodes: Iterable[TopologyNode], uses: Iterable[NodeUse]) -> Grounds | None:
    """Return the nodes of an input, None where it has none."""
    rows = tuple(nodes)
    return Grounds(rows, uses) if rows else None


def _labels_read(
    configuration: Configuration, flavors: Iterable[str], pod_sets: Iterable[PodSet]
) -> set[str]:
    """Return the keys of labels that trees, flavors and selectors read."""
    found: set[str] = set()
    for name in flavors:
        flavor = configuration.flavors[name]
        found |= {*flavor.labels, *configuration.topologies[flavor.topology].levels}
    for each in pod_sets:
        found |= each.node_selector.keys()
        found |= {e.key for term in each.affinity or () for e in term}
        found |= {e.key for term in each.preferred for e in term.expressions}
    return found
