"""Which nodes of a workload's places have failed.

Only leaves that are host names are nodes. A node has failed for a workload:

1. once it is deleted, or no condition states whether it is ready
2. not ready, once no pod of the workload runs there; where a gate has it so, also or instead once
   it has been so for a fixed time, whatever runs there
3. with a taint that the pods do not tolerate, or only for some seconds, once none of them runs
   there, unless the gate is off
4. otherwise no place any more (not schedulable, or without a label), once none of them runs there

What one plain pod has is left alone, since nothing would make that pod anew.

Source: specification of topology-aware scheduling, section 7.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.constraints import Taint, Toleration
from reprieve.engine.quota.model import Configuration, Gates, Workload
from reprieve.engine.topology.leaves import first_untolerated
from reprieve.engine.topology.places import Places

__all__ = ["NodeCondition", "failing_nodes", "next_failure"]

#: So long a node is not ready before it counts as failed by time alone.
_FIXED_TIME: Final = 30 * SECOND


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """What is known of a node that is there.

    `unready_since`: of one that is not ready, None where no condition states it.
    """

    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unready_since: int | None = None


@dataclass(frozen=True, slots=True)
class _Host:
    """A host of a workload's places. `place`: whether pods may be placed there now."""

    name: str
    place: bool
    tolerations: Sequence[Toleration]


def failing_nodes(
    workload: Workload,
    configuration: Configuration,
    places: Places,
    now: Nanos,
    runs_on: Callable[[str], bool],
    node_of: Callable[[str], NodeCondition | None],
) -> list[str]:
    """Return the host names of the nodes of a workload's places that have failed, in order.

    Args:
        workload: it holds quota.
        configuration: of which the flavors' tolerations and the gates are read.
        places: the trees of the nodes that are places now.
        now: the instant of the look.
        runs_on: whether a pod of the workload still runs on the node of a host name.
        node_of: what is known of the node of a host name, None where it does not exist.
    """
    gates = configuration.settings.gates
    if workload.admission is None or not gates.tas_failed_node_replacement:
        return []
    if workload.of_one_pod and gates.topology.skip_pod_owned:
        return []
    found: set[str] = set()
    for host in _hosts(workload, places):
        if host.name not in found and _has_failed(host, node_of(host.name), gates, now, runs_on):
            found.add(host.name)
    return sorted(found)


def next_failure(
    nodes: Iterable[NodeCondition], configuration: Configuration, now: Nanos
) -> Nanos | None:
    """Return when the next of some nodes counts as failed by time alone, None where none does."""
    gates = configuration.settings.gates
    if not (gates.tas_failed_node_replacement and _by_time(gates)):
        return None
    ends = [
        each.unready_since + _FIXED_TIME
        for each in nodes
        if not each.ready and each.unready_since is not None
    ]
    return min((Nanos(end) for end in ends if end > now), default=None)


def _by_time(gates: Gates) -> bool:
    return gates.tas_replace_node_after_fixed_time or not gates.tas_replace_node_on_pod_termination


def _hosts(workload: Workload, places: Places) -> Iterator[_Host]:
    assert workload.admission is not None
    rows = {each.name: each for each in workload.pod_sets}
    for each in workload.admission.pod_sets:
        row = rows.get(each.name)
        for flavor in {*each.flavors.values()} & places.trees.keys() if each.topology else ():
            tree = places.trees[flavor]
            if not tree.by_host or each.topology is None:
                continue
            own = row.tolerations if row is not None else ()
            lasting = [t for t in (*own, *places.flavors[flavor].tolerations) if t.lasting]
            for domain in each.topology.domains:
                yield _Host(domain.values[0], domain.values in tree.index, lasting)


def _has_failed(
    host: _Host,
    node: NodeCondition | None,
    gates: Gates,
    now: Nanos,
    runs_on: Callable[[str], bool],
) -> bool:
    if node is None:
        return True
    if not node.ready:
        if node.unready_since is None:
            return True
        by_pods = gates.tas_replace_node_on_pod_termination
        if by_pods and not runs_on(host.name):
            return True
        return _by_time(gates) and now >= node.unready_since + _FIXED_TIME
    tainted = (
        gates.tas_replace_node_on_node_taints
        and first_untolerated(node.taints, host.tolerations) is not None
    )
    return (tainted or not host.place) and not runs_on(host.name)
