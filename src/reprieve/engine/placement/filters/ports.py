"""NodePorts: host ports that pods on the node already use (specification 21.2)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprieve.engine.cluster.arrays import U8
from reprieve.engine.cluster.rows import HostPort
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Placed, Reach, View
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection

__all__ = ["PortsFilter", "compile_ports", "ports_clash"]

_ANY = "0.0.0.0"  # stands for all addresses of the node


def ports_clash(first: Iterable[HostPort], second: Iterable[HostPort]) -> bool:
    """Return whether pods with these ports cannot share a node."""
    others = tuple(second)
    return any(
        (own.protocol, own.port) == (other.protocol, other.port)
        and (own.address == other.address or _ANY in (own.address, other.address))
        for own in first
        for other in others
    )


class PortsFilter:
    """Counts, on each node, the pods that use a port which the pending pod wants.

    `classes`: numbers of the pod classes that do. `counts`: (nodes,).
    """

    def __init__(self, classes: frozenset[int], nodes: Iterable[int], size: int) -> None:
        """`nodes`: where such pods are, once for each."""
        self.name = FilterName.NODE_PORTS
        self.classes = classes
        self.counts = np.bincount(np.fromiter(nodes, np.int64), minlength=size)
        self._codes: U8 = np.where(self.counts > 0, np.uint8(Rejection.PORTS), np.uint8(0))

    def codes(self) -> U8:
        return self._codes

    def code_at(self, node: int) -> int:
        return self._codes.item(node)

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        return (Reason(Rejection.PORTS),) if self._codes.item(node) else ()

    def add(self, pod: Placed) -> Reach:
        return self._count(pod, 1)

    def remove(self, pod: Placed) -> Reach:
        return self._count(pod, -1)

    def _count(self, pod: Placed, change: int) -> Reach:
        if pod.pod_class not in self.classes:
            return Reach.NOTHING
        self.counts[pod.node] += change
        self._codes[pod.node] = Rejection.PORTS if self.counts[pod.node] > 0 else 0
        return Reach.NODE


def compile_ports(view: View, pending: Pending) -> PortsFilter | None:
    """Return the filter of a pod with host ports."""
    snapshot = view.snapshot
    entry = snapshot.classes[pending.pod_class]
    assert entry is not None
    if not entry.host_ports:
        return None
    classes = frozenset(
        number
        for number, other in enumerate(snapshot.classes)
        if other is not None
        and other.host_ports
        and ports_clash(entry.host_ports, other.host_ports)
    )
    clashing = np.zeros(len(snapshot.classes), np.bool_)
    clashing[list(classes)] = True
    there = np.flatnonzero(clashing[snapshot.pod_class] & view.present)
    nodes = snapshot.pod_node[there].tolist()
    nodes += [pod.node for pod in view.simulated if pod.pod_class in classes]
    return PortsFilter(classes, nodes, len(snapshot.nodes))
