"""A driver of devices: ResourceSlices of the nodes that are configured to have some.

The annotation `sim.reprieve.dev/devices` of a node, `gpu.example.com=8`, is what a driver finds
there; each driver has one pool and one slice per node, deleted with the node. Allocation is the
scheduler's. Source: `resource.k8s.io` v1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer
from kubelocal.machines.objects import Change, Object
from kubelocal.machines.simulation import InvalidSetting, devices

__all__ = ["DeviceDriver"]

_SLICES: Final = "resourceslices.resource.k8s.io"


class DeviceDriver:
    """Publishes what nodes are configured to have."""

    name = "devices"

    def __init__(self, informer: Informer, recorder: Recorder) -> None:
        self._informer = informer
        self._recorder = recorder

    def concerns(self, change: Change, before: Object | None) -> Iterable[str]:
        if change.resource != "nodes":
            return []
        same = before is not None and _annotations(before) == _annotations(change.object)
        return [] if same else [change.object["metadata"]["name"]]

    async def reconcile(self, name: str) -> None:
        node = self._informer.get("nodes", "", name)
        if node is None:
            return  # its slices have it as their owner
        try:
            wanted = devices(node)
        except InvalidSetting as problem:
            self._recorder.warning(node, "InvalidSimulation", str(problem))
            return
        made = {f"{name}-{driver}": (driver, count) for driver, count in wanted.items()}
        for held in list(self._informer.controlled(node["metadata"]["uid"], _SLICES)):
            found = made.get(held["metadata"]["name"])
            if found is None:
                await self._informer.delete(_SLICES, held)
            elif len(held["spec"].get("devices") or ()) != found[1]:
                pool = held["spec"]["pool"]
                pool = {**pool, "generation": pool["generation"] + 1}
                spec = {**held["spec"], "pool": pool, "devices": _devices(name, found[1])}
                await self._informer.update(_SLICES, {**held, "spec": spec})
        for title, (driver, count) in made.items():
            if self._informer.get(_SLICES, "", title) is None:
                await self._informer.create(_SLICES, _slice(node, title, driver, count))


def _slice(node: Object, title: str, driver: str, count: int) -> Object:
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": title, "ownerReferences": [{**owner, "controller": True}]},
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": _devices(name, count),
        },
    }


def _devices(node: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"gpu-{index}",
            "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"{node}-gpu-{index}"}},
        }
        for index in range(count)
    ]


def _annotations(node: Object) -> Any:
    return node["metadata"].get("annotations")
