"""Which nodes of a workload's places have failed.

A node has failed for a workload once it is gone, or once it is no place for the workload's pods any
more and none of them runs there: it is not ready, it is not schedulable, it lost a label, or it has
a taint that the pods do not tolerate. Only leaves that are host names are nodes. What one plain pod
has is left alone, since nothing would make that pod anew.

Source: specification of topology-aware scheduling, section 7.1.
"""

from __future__ import annotations

from collections.abc import Callable

from reprieve.engine.quota.model import Configuration, PodSet, Workload
from reprieve.engine.topology.leaves import first_untolerated
from reprieve.engine.topology.places import Places
from reprieve.engine.topology.tree import Tree

__all__ = ["failing_nodes"]


def failing_nodes(
    workload: Workload,
    configuration: Configuration,
    places: Places,
    runs_on: Callable[[str], bool],
) -> list[str]:
    """Return the host names of the nodes of a workload's places that have failed, in order.

    Args:
        workload: it holds quota.
        configuration: of which the flavors' tolerations and the gates are read.
        places: the trees of the nodes that are places now.
        runs_on: whether a pod of the workload still runs on the node of a host name; never where
            that node is gone.
    """
    gates = configuration.settings.gates
    if workload.admission is None or not gates.tas_failed_node_replacement:
        return []
    if workload.of_one_pod and gates.topology.skip_pod_owned:
        return []
    rows = {each.name: each for each in workload.pod_sets}
    found: set[str] = set()
    for each in workload.admission.pod_sets:
        row = rows.get(each.name)
        for flavor in {*each.flavors.values()} & places.trees.keys() if each.topology else ():
            tree = places.trees[flavor]
            if not tree.by_host or each.topology is None:
                continue
            for domain in each.topology.domains:
                if domain.values[0] in found or _does(
                    tree, domain.values, row, places, flavor, gates.tas_replace_node_on_node_taints
                ):
                    continue
                if not runs_on(domain.values[0]):
                    found.add(domain.values[0])
    return sorted(found)


def _does(
    tree: Tree,
    values: tuple[str, ...],
    row: PodSet | None,
    places: Places,
    flavor: str,
    by_taints: bool,
) -> bool:
    """Tell whether a domain is a place for the pods of a pod set."""
    leaf = tree.index.get(values)
    if leaf is None:
        return False
    taints = tree.first[leaf].taints
    if not taints or not by_taints:
        return True
    tolerations = (
        *(row.tolerations if row is not None else ()),
        *places.flavors[flavor].tolerations,
    )
    return first_untolerated(taints, tolerations) is None
