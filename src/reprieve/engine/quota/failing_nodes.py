"""Which nodes of a workload's places have failed.

A node has failed for a workload once it is gone, or once it is no place for the workload's pods any
more and none of them runs there: it is not ready, it is not schedulable, it lost a label, or it has
a taint that the pods do not tolerate, or only for some seconds. Only leaves that are host names are
nodes. What one plain pod has is left alone, since nothing would make that pod anew.

Source: specification of topology-aware scheduling, section 7.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reprieve.engine.quota.assigning.constraints import Taint
from reprieve.engine.quota.model import Configuration, Workload
from reprieve.engine.topology.leaves import first_untolerated
from reprieve.engine.topology.places import Places

__all__ = ["failing_nodes"]


def failing_nodes(
    workload: Workload,
    configuration: Configuration,
    places: Places,
    runs_on: Callable[[str], bool],
    taints_of: Callable[[str], Sequence[Taint] | None],
) -> list[str]:
    """Return the host names of the nodes of a workload's places that have failed, in order.

    Args:
        workload: it holds quota.
        configuration: of which the flavors' tolerations and the gates are read.
        places: the trees of the nodes that are places now.
        runs_on: whether a pod of the workload still runs on the node of a host name; never where
            that node is gone.
        taints_of: the taints of the node of a host name, None where it is gone.
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
            lasting = [
                toleration
                for toleration in (
                    *(row.tolerations if row is not None else ()),
                    *places.flavors[flavor].tolerations,
                )
                if toleration.lasting
            ]
            for domain in each.topology.domains:
                host = domain.values[0]
                if host in found:
                    continue
                taints = taints_of(host) if domain.values in tree.index else None
                if taints is not None and not (
                    taints
                    and gates.tas_replace_node_on_node_taints
                    and first_untolerated(taints, lasting) is not None
                ):
                    continue
                if not runs_on(host):
                    found.add(host)
    return sorted(found)
