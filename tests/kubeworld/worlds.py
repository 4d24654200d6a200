"""The two worlds around a plane, asked the same: the embedded server, and a plan's copy."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import yaml

from kubelocal.cluster import EmbeddedCluster
from kubelocal.crds import permissive_definitions
from kubelocal.machines.embedded import EmbeddedObjects
from kubelocal.machines.node.nodes import NodeSpec
from kubelocal.machines.objects import Refused as NotStored
from kubelocal.machines.run import Machines
from kubelocal.machines.scheduler import with_scheduler
from kubelocal.server.errors import StatusError
from kubelocal.server.writing.options import PatchType, WriteOptions
from kubeworld.time import LoopClock, run_virtually
from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.jobs.table import job_kinds
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.controllers.pod_templates import (
    LIMIT_RANGES,
    PRIORITIES,
    RUNTIME_CLASSES,
    admitted_pod,
)
from reprieve.whatif.controllers.stand_ins import StandIns
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot

__all__ = ["Object", "copied", "copy_of", "embedded", "plain", "stored", "yaml_objects"]

Object = dict[str, Any]
T = TypeVar("T")

NAMESPACE = "default"
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
_OTHERS = (
    BUDGETS,
    PRIORITIES,
    RUNTIME_CLASSES,
    LIMIT_RANGES,
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
    Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    Resource("", "v1", "resourcequotas", "ResourceQuota"),
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
    Resource("apps", "v1", "statefulsets", "StatefulSet"),
    Resource(
        "trainer.kubeflow.org",
        "v1alpha1",
        "clustertrainingruntimes",
        "ClusterTrainingRuntime",
        namespaced=False,
    ),
)


def _resources() -> dict[tuple[str, str], Resource]:
    found = {(PODS.api_version, PODS.kind): PODS}
    for each in _OTHERS:
        found[each.api_version, each.kind] = each
    for kind in job_kinds():
        group, _, version = kind.api_version.rpartition("/")
        resource = Resource(group, version, kind.plural, kind.kind)
        found[resource.api_version, resource.kind] = resource
    return found


RESOURCES = _resources()


def yaml_objects(text: str) -> list[Object]:
    """Return the documents of a text."""
    return list(yaml.safe_load_all(text))


class Embedded:
    """The embedded server, with its machines where `machines` says so."""

    def __init__(self, *, machines: bool) -> None:
        self.clock = VirtualClock()
        self.cluster = EmbeddedCluster(clock=self.clock)
        self.objects = EmbeddedObjects(self.cluster.api)
        node = NodeSpec.of("node-0", {"cpu": 1_000, "memory": "1000Gi", "pods": 1_000})
        self.machines = (
            Machines(
                self.objects,
                self.clock,
                [node],
                without=("heartbeats",),
                more=[with_scheduler],
            )
            if machines
            else None
        )

    async def wait(self, seconds: int) -> None:
        await self.clock.advance(seconds * SECOND, settle=600)
        await self.clock.advance(0, settle=600)

    async def create(self, obj: Object) -> Object | str:
        """Return the object as it is stored, or why it is refused."""
        resource = self.objects.resource_of(obj["apiVersion"], obj["kind"])
        assert resource is not None, obj["kind"]
        try:
            return await self.objects.create(resource, obj)
        except NotStored as refusal:
            return str(refusal)

    async def all(self, resource: str) -> list[Object]:
        """Return the objects of a resource in the namespace."""
        plural, _, group = resource.partition(".")
        kind = self.cluster.api.registry.stored(group, plural)
        assert kind is not None, resource
        return (await self.cluster.api.list(kind, NAMESPACE)).objects

    async def patch(self, obj: Object, patch: Object, how: PatchType) -> Object | int:
        """Return the object once it was patched, or the code of the refusal."""
        kind = self.cluster.api.registry.by_kind(obj["apiVersion"], obj["kind"])
        assert kind is not None
        name, body = obj["metadata"]["name"], msgspec.json.encode(patch)
        try:
            return await self.cluster.api.patch(
                kind, NAMESPACE, name, body, how, WriteOptions("tests")
            )
        except StatusError as error:
            return error.code


def embedded(ask: Callable[[Embedded], Awaitable[T]], *, machines: bool = False) -> T:
    """Ask the embedded server."""

    async def main() -> T:
        world = Embedded(machines=machines)
        async with world.cluster:
            for definition in permissive_definitions():
                await world.objects.create(
                    "customresourcedefinitions.apiextensions.k8s.io", definition
                )
            if world.machines is not None:
                await world.machines.start()
            try:
                return await ask(world)
            finally:
                if world.machines is not None:
                    await world.machines.stop()

    return asyncio.run(main())


def copy_of(objects: Sequence[Object]) -> Snapshot:
    """Return a snapshot with these objects, of all kinds that are asked about."""
    held: dict[tuple[str, str], dict[tuple[str, str], bytes]] = {}
    for number, obj in enumerate(objects):
        resource = RESOURCES[obj["apiVersion"], obj["kind"]]
        metadata = {"uid": f"uid-{number}", "resourceVersion": "1", **obj["metadata"]}
        if resource.namespaced:
            metadata["namespace"] = NAMESPACE
        place = (metadata.get("namespace", ""), metadata["name"])
        table = held.setdefault((resource.group, resource.plural), {})
        table[place] = msgspec.json.encode({**obj, "metadata": metadata})
    kinds = {
        (each.group, each.plural): Listed(each, held.get((each.group, each.plural), {}), 5)
        for each in RESOURCES.values()
    }
    return Snapshot(Nanos(1_772_618_400_000_000_000), kinds)


class Copied:
    """The copy of a cluster that a plan is made on, with its stand-ins."""

    def __init__(self, objects: Sequence[Object]) -> None:
        self.clock = LoopClock(asyncio.get_running_loop(), Nanos(1_772_618_400_000_000_000))
        self.overlay = Overlay(copy_of(objects), self.clock)
        self.stand_ins = StandIns(self.overlay, self.clock)

    async def wait(self, seconds: int) -> None:
        await self.clock.sleep(seconds * SECOND)

    def create(self, obj: Object) -> Object:
        """Create an object; a pod as its controller would."""
        body = copy.deepcopy(obj)
        resource = RESOURCES[obj["apiVersion"], obj["kind"]]
        if resource.namespaced:
            body["metadata"]["namespace"] = NAMESPACE
        if resource == PODS:
            body = admitted_pod(self.overlay, body)
        return self.overlay.create(resource, body)

    def pods(self) -> list[Object]:
        return list(self.overlay.all(PODS))

    def place_all(self) -> None:
        """Bind every pod, as a scheduler would."""
        for pod in self.pods():
            if not pod["spec"].get("nodeName"):
                self.overlay.change(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "node-0"}})


def copied(ask: Callable[[Copied], Awaitable[T]], objects: Sequence[Object] = ()) -> T:
    """Ask a copy that holds these objects."""

    async def main() -> T:
        world = Copied(objects)
        running = asyncio.create_task(world.stand_ins.run())
        try:
            return await ask(world)
        finally:
            running.cancel()

    return run_virtually(main)


def stored(obj: Object, **metadata: Any) -> Object:
    """Return an object of the namespace."""
    return {**obj, "metadata": {"namespace": NAMESPACE, **obj["metadata"], **metadata}}


def plain(obj: Mapping[str, Any]) -> Object:
    """Return an object without what a server notes about it."""
    noted = {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"}
    metadata = {name: value for name, value in obj["metadata"].items() if name not in noted}
    return {**obj, "metadata": metadata}
