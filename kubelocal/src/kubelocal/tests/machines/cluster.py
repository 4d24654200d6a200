"""An imitated cluster on a dictionary and a clock that stands still, with short ways to act."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kubelocal.machines.node.kubelet import KubeletTimes
from kubelocal.machines.node.nodes import NodeSpec
from kubelocal.machines.objects import Object
from kubelocal.machines.run import Machines
from kubelocal.machines.scheduler import with_scheduler
from kubelocal.tests.machines.store import KINDS, DictObjects
from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND

SETTLE = 400
"""Turns of the event loop in which everything due at one instant is done."""


class Cluster:
    """Machines, store and clock."""

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        *,
        seed: int = 0,
        times: KubeletTimes | None = None,
        without: Sequence[str] = ("heartbeats",),
    ) -> None:
        self.clock = VirtualClock()
        self.store = DictObjects(self.clock)
        self.machines = Machines(
            self.store,
            self.clock,
            nodes,
            seed=seed,
            times=times,
            without=without,
            more=[with_scheduler],
        )

    @property
    def exporter(self) -> Any:
        return self.machines.exporter

    async def wait(self, seconds: float = 0) -> None:
        """Have the machines work for this long."""
        await self.clock.advance(int(seconds * SECOND), settle=SETTLE)
        await self.clock.advance(0, settle=SETTLE)

    async def create(self, *objects: Object) -> Object:
        """Create the objects, return the last as stored."""
        created: Object = {}
        for obj in objects:
            created = await self.store.create(KINDS[obj["apiVersion"], obj["kind"]], obj)
        return created

    async def delete(self, resource: str, name: str, propagation: str = "Background") -> None:
        await self.store.delete(resource, "default", name, propagation=propagation)

    async def change(self, resource: str, name: str, **spec: Any) -> Object:
        """Replace fields of the spec."""
        obj = self.one(resource, name)
        return await self.store.update(resource, {**obj, "spec": {**obj["spec"], **spec}})

    async def annotate(self, resource: str, name: str, **annotations: str) -> None:
        """Set `sim.reprieve.dev` annotations; underscores stand for hyphens."""
        obj = self.one(resource, name)
        obj["metadata"].setdefault("annotations", {}).update(sim(**annotations))
        await self.store.update(resource, obj)

    def all(self, resource: str) -> list[Object]:
        return [obj for key, obj in self.store.held.items() if key[0] == resource]

    def names(self, resource: str) -> list[str]:
        return sorted(obj["metadata"]["name"] for obj in self.all(resource))

    def one(self, resource: str, name: str) -> Object:
        """Return a copy of the object that a test may change."""
        namespace = "" if resource == "nodes" else "default"
        return copy.deepcopy(self.store.held[resource, namespace, name])

    def phases(self) -> dict[str, str]:
        return {p["metadata"]["name"]: p["status"]["phase"] for p in self.all("pods")}

    def nodes_of(self) -> dict[str, str | None]:
        return {p["metadata"]["name"]: p["spec"].get("nodeName") for p in self.all("pods")}

    def conditions(self, resource: str, name: str) -> dict[str, tuple[str, str, str]]:
        return {
            c["type"]: (c["status"], c.get("reason", ""), c.get("message", ""))
            for c in self.one(resource, name)["status"].get("conditions", [])
        }


@asynccontextmanager
async def running(
    nodes: Sequence[NodeSpec] | None = None, *existing: Object, **options: Any
) -> AsyncIterator[Cluster]:
    """Run the machines on one node of 8 GPUs, or on these; `existing` is there before them."""
    cluster = Cluster([gpu_node("gpu-0")] if nodes is None else nodes, **options)
    await cluster.create(*existing) if existing else None
    await cluster.machines.start()
    await cluster.wait()
    try:
        yield cluster
    finally:
        await cluster.machines.stop()


def gpu_node(name: str, gpus: int = 8, **more: Any) -> NodeSpec:
    return NodeSpec.of(name, {"amd.com/gpu": gpus, **more.pop("allocatable", {})}, **more)


def template(gpus: int = 0, **spec: Any) -> Object:
    """Return a pod template requesting GPUs (and whatever `requests` adds)."""
    requests = {**({"amd.com/gpu": str(gpus)} if gpus else {}), **spec.pop("requests", {})}
    annotations, labels = spec.pop("annotations", {}), spec.pop("labels", {})
    container: Object = {"name": "main", "image": "example.com/main:1"}
    if requests:
        container["resources"] = {"requests": requests, "limits": dict(requests)}
    return {
        "metadata": {"annotations": annotations, "labels": labels},
        "spec": {"containers": [container], **spec},
    }


def pod(name: str, gpus: int = 0, owner: Object | None = None, **spec: Any) -> Object:
    body = template(gpus, **spec)
    metadata = {"name": name, **{k: v for k, v in body["metadata"].items() if v}}
    if owner is not None:
        metadata["ownerReferences"] = [reference(owner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body["spec"]}


def job(name: str, gpus: int = 0, *, pod_spec: Object | None = None, **spec: Any) -> Object:
    annotations = spec.pop("annotations", {})
    body = template(gpus, **{"restartPolicy": "Never", **(pod_spec or {})})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {**spec, "template": body},
    }


def workload(kind: str, name: str, gpus: int = 0, **spec: Any) -> Object:
    """Return a Deployment, ReplicaSet or StatefulSet."""
    labels = {"app": name}
    pod_spec = spec.pop("pod_spec", {})
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": template(gpus, labels=labels, **pod_spec),
            **spec,
        },
    }


def reference(owner: Object, **more: Any) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
        **more,
    }


def sim(**settings: str) -> dict[str, str]:
    """Return the annotations: `sim(run_time="5s")`."""
    return {f"sim.reprieve.dev/{k.replace('_', '-')}": v for k, v in settings.items()}
