"""Which places the holders of quota have, and on which nodes.

Source: specification of topology-aware scheduling, sections 1.2 and 2.4.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.model import Admission, Configuration, Workload
from reprieve.engine.topology.model import PlacedPods
from reprieve.engine.topology.places import Grounds, Placed, Places, TasFlavor

__all__ = ["placed_by", "places_of", "placing_keys", "queues_with_places"]


def places_of(configuration: Configuration, grounds: Grounds | None) -> Places | None:
    """Return the places of a configuration on the nodes, None without any flavor that has them."""
    gates = configuration.settings.gates
    if grounds is None or not gates.topology_aware_scheduling:
        return None
    flavors = {
        name: TasFlavor(name, configuration.topologies[row.topology], row.labels, row.tolerations)
        for name, row in configuration.flavors.items()
        if row.topology in configuration.topologies
    }
    if not flavors:
        return None
    trees = {name: grounds.tree(row) for name, row in flavors.items()}
    return Places(flavors, trees, gates.topology)


def placed_by(workload: Workload, admission: Admission | None, places: Places) -> list[Placed]:
    """Return the places that a workload holds by an admission."""
    if admission is None:
        return []
    rows = {each.name: each for each in workload.pod_sets}
    found: list[Placed] = []
    for each in admission.pod_sets:
        if each.topology is None:
            continue
        row = rows.get(each.name)
        pods = PlacedPods({} if row is None else row.on_node, each.topology)
        flavors = set(each.flavors.values()) & places.trees.keys()
        found += [(flavor, pods) for flavor in sorted(flavors)]
    return found


def placing_keys(holders: Iterable[Holder]) -> list[str]:
    """Return the keys of those whose pods are counted by the places that they hold."""
    return [
        holder.key
        for holder in holders
        if holder.workload.admission is not None
        and any(each.topology is not None for each in holder.workload.admission.pod_sets)
    ]


def queues_with_places(configuration: Configuration) -> list[str]:
    """Return the ClusterQueues with a flavor that has a topology."""
    if not configuration.settings.gates.topology_aware_scheduling:
        return []
    flavors = {name for name, row in configuration.flavors.items() if row.topology}
    return [
        name
        for name, queue in configuration.cluster_queues.items()
        if flavors
        and any(each.flavor in flavors for group in queue.groups for each in group.flavors)
    ]
