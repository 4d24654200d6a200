"""The heartbeat of every node: its Lease in `kube-node-lease`, renewed every 10 s.

Source: kubelet (node leases): lease duration 40 s, owned by the node. The renewals of many nodes
are spread evenly over the 10 s. A node whose readiness is `unknown` renews nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kubelocal.machines.informer import Informer
from kubelocal.machines.objects import Change, ChangeType, Object
from kubelocal.machines.simulation import Readiness, effective_readiness
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_micro

__all__ = ["Heartbeats"]

_LEASES: Final = "leases.coordination.k8s.io"
_NAMESPACE: Final = "kube-node-lease"
_INTERVAL: Final = 10 * SECOND
_DURATION_SECONDS: Final = 40


class Heartbeats:
    """Renews the Leases of the nodes with these names, as long as they exist."""

    name = "heartbeats"

    def __init__(self, informer: Informer, clock: Clock, names: Collection[str]) -> None:
        self._informer = informer
        self._clock = clock
        self._offsets = {name: _INTERVAL * index // len(names) for index, name in enumerate(names)}
        # node -> its Lease as last written.
        self._leases: dict[str, Object] = {}

    def concerns(self, change: Change, before: Object | None) -> Iterable[str]:
        name = change.object["metadata"]["name"]
        if change.resource != "nodes" or name not in self._offsets:
            return []
        gone = change.type is ChangeType.DELETED
        same = before is not None and effective_readiness(before) is effective_readiness(
            change.object
        )
        return [] if same and not gone else [name]

    async def reconcile(self, name: str) -> int | None:
        node = self._informer.get("nodes", "", name)
        if node is None:
            self._leases.pop(name, None)
            await self._informer.objects.delete(_LEASES, _NAMESPACE, name)
            return None
        if effective_readiness(node) is Readiness.UNKNOWN:
            return None
        await self._renew(name, node)
        return _INTERVAL - (self._clock.monotonic() - self._offsets[name]) % _INTERVAL

    async def _renew(self, name: str, node: Object) -> None:
        objects = self._informer.objects
        held = self._leases.pop(name, None) or await objects.get(_LEASES, _NAMESPACE, name)
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _DURATION_SECONDS,
            "renewTime": format_micro(self._clock.wall()),
        }
        if held is not None:
            self._leases[name] = await objects.update(_LEASES, {**held, "spec": spec})
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": _NAMESPACE, "ownerReferences": [owner]},
            "spec": spec,
        }
        self._leases[name] = await objects.create(_LEASES, lease)
