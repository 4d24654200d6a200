"""One cluster to test on, embedded or real, seen through the client alone.

What a test may do is the same on both: create, change and delete objects, start operator processes,
set what the exporter reports, cut all watches. Waits that are in vain end with the objects as they
are and the operator's last lines.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from kubelocal.crds import permissive_definitions
from kubelocal.machines.objects import AlreadyThere
from kubelocal.machines.run import IN_CONTROLLER_MANAGER
from kubeworld.units.clock import SystemClock
from reprieve.api.crds import all_crds
from reprieve.api.disruption import KEY_SECRET
from reprieve.kube.bodies import Propagation
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import AlreadyExists, NotFound
from reprieve.kube.resource import (
    EVENTS,
    GPU_WORKLOADS,
    LEASES,
    NODES,
    PODS,
    PREEMPTIONS,
    SECRETS,
    Resource,
)
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, OPERATOR_USER, embedded_stage
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.stage import Stage
from reprieve.scenarios.staging import staged
from tests.integration.control_plane import ADMINISTRATOR, ControlPlane
from tests.integration.roles import RBAC, RoleRights, operator_rights

__all__ = ["NAMESPACE", "OPERATOR_NAMESPACE", "Site", "embedded_site", "job", "real_site"]

NAMESPACE = "team"
PREFIX = "kaiwo.silogen.ai/gpu-preemption."
NODES_OF_THE_SITE = (NodeSpec("gpu-0", {"amd.com/gpu": "4"}),)
ENVIRONMENT = {
    "GPU_PREEMPTION_ENABLED": "true",
    "GPU_PREEMPTION_POLLING_INTERVAL": "500ms",
    "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "1s",
}
JOBS = Resource("batch", "v1", "jobs", "Job")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
_PATIENCE_S = 120.0
_LOOK_S = 0.1


def _kinds(definitions: Iterable[Mapping[str, Any]]) -> Iterator[Resource]:
    """Yield the stored kinds of CustomResourceDefinitions."""
    for spec in (definition["spec"] for definition in definitions):
        for version in spec["versions"]:
            if version["storage"]:
                names = spec["names"]
                found = Resource(spec["group"], version["name"], names["plural"], names["kind"])
                yield replace(found, namespaced=spec["scope"] == "Namespaced")


# Owners before what they own; of our own kinds all, since a HarmBudget holds what others test.
_LEFT_BEHIND = (
    *_kinds(permissive_definitions()),
    JOBS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    REPLICA_SETS,
    PODS,
    *_kinds(all_crds()),
    CONFIG_MAPS,
    NODES,
    LEASES,
    EVENTS,
)

Object = dict[str, Any]
Answer = TypeVar("Answer")


def job(name: str, gpus: int, **annotations: str) -> Object:
    """Return a Job; `grace_period="1s"` stands for the annotation with the prefix."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": prefixed(annotations)},
        "spec": {"template": {"spec": {"restartPolicy": "Never", **_containers(gpus)}}},
    }


def deployment(name: str, gpus: int, **annotations: str) -> Object:
    """Return a Deployment of one replica."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": prefixed(annotations)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _containers(gpus)},
        },
    }


def _containers(gpus: int) -> Object:
    amounts = {"amd.com/gpu": str(gpus)}
    resources = {"requests": amounts, "limits": amounts}
    return {
        "containers": [
            {"name": "main", "image": "registry.example/main:1"} | {"resources": resources}
        ]
    }


def prefixed(annotations: Mapping[str, str]) -> dict[str, str]:
    return {PREFIX + name.replace("_", "-"): value for name, value in annotations.items()}


@dataclass
class Site:
    """A cluster with one node of four GPUs, its machines and exporter; no operator yet.

    `client` and `kubeconfig` are an administrator's, `operator_client` has the rights of the
    operator. `cut_watches` breaks every watch and makes the server forget the versions that they
    were at.
    """

    name: str
    stage: Stage
    client: Client
    operator_client: Client
    kubeconfig: Path
    cut_watches: Callable[[], AbstractAsyncContextManager[None]]
    _operators: list[OperatorProcesses] = field(default_factory=list)

    async def operator(self, replicas: int = 1, **environment: str) -> OperatorProcesses:
        """Start operator processes."""
        operator = self.stage.launch({**ENVIRONMENT, **environment}, replicas)
        self._operators.append(operator)
        await operator.start()
        return operator

    async def end_operators(self) -> None:
        for operator in self._operators:
            await operator.stop()

    def reports(self, root: str, percent: float) -> None:
        """Let the exporter report this for the pods below `Kind/name`, also for later ones."""
        self.stage.exporter.set_utilization(NAMESPACE, root, percent, gpu=None, pod_index=None)

    async def create(self, *manifests: Object) -> Object:
        """Create objects; return the last one as stored."""
        stored: Object = {}
        for manifest in manifests:
            resource = self.stage.objects.resource_of(manifest["apiVersion"], manifest["kind"])
            assert resource is not None, manifest["kind"]
            stored = await self.stage.objects.create(resource, manifest)
        return stored

    async def find(self, resource: Resource, name: str, namespace: str = NAMESPACE) -> Object:
        """Return the object as of now; an empty one when it does not exist."""
        try:
            return await self.client.get(
                resource, namespace if resource.namespaced else "", name, dict
            )
        except NotFound:
            return {}

    async def all(self, resource: Resource, namespace: str = "") -> list[Object]:
        return (await self.client.list(resource, dict, namespace=namespace)).items

    async def delete(self, resource: Resource, name: str) -> None:
        """Delete an object of the team as people do, and wait until it and its pods are gone."""
        await self.stage.objects.delete(resource.qualified, NAMESPACE, name)

        async def gone() -> bool:
            pods = await self.all(PODS, NAMESPACE)
            mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
            return not mine and not await self.find(resource, name)

        await self.until(gone, f"{name} is gone")

    async def workloads(self) -> list[Object]:
        return await self.all(GPU_WORKLOADS, NAMESPACE)

    async def workload(self, root: str, uid: str = "") -> Object:
        """Return the GpuWorkload of a root `Kind/name`, an empty one without any.

        `uid` chooses among roots that had the same name one after the other.
        """
        for item in await self.workloads():
            reference = item["spec"]["workloadRef"]
            if f"{reference['kind']}/{reference['name']}" == root and uid in ("", reference["uid"]):
                return item
        return {}

    async def in_phase(self, root: str, *phases: str, uid: str = "") -> Object:
        """Wait until a root's GpuWorkload is in one of the phases and return it."""

        async def there() -> Object | None:
            found = await self.workload(root, uid)
            return found if found.get("status", {}).get("phase") in phases else None

        return await self.until(there, f"{root} is {' or '.join(phases)}")

    async def events(self, subject: Object) -> set[str]:
        """Return `Type Reason` of the events about an object."""
        uid = subject["metadata"]["uid"]
        return {
            f"{event['type']} {event['reason']}"
            for event in await self.all(EVENTS)
            if event["involvedObject"].get("uid") == uid
        }

    async def until(self, condition: Callable[[], Awaitable[Answer | None]], what: str) -> Answer:
        """Return the first answer that is neither None nor False."""
        for _ in range(int(_PATIENCE_S / _LOOK_S)):
            answer = await condition()
            if answer is not None and answer is not False:
                return answer
            await asyncio.sleep(_LOOK_S)
        raise AssertionError(f"after {_PATIENCE_S:.0f} s not: {what}\n{await self._report()}")

    async def _report(self) -> str:
        lines = [
            f"{item.get('kind', resource.kind)} {item['metadata']['name']}: "
            f"{item.get('spec', {}).get('nodeName', '')} {item.get('status')}"
            for resource in (JOBS, PODS, GPU_WORKLOADS, PREEMPTIONS)
            for item in await self.all(resource)
        ]
        for operator in self._operators:
            lines += ["operator:", *operator.tail(40)]
        return "\n".join(lines)


@asynccontextmanager
async def embedded_site(folder: Path, *arguments: str) -> AsyncIterator[Site]:
    """The embedded cluster with the chart's roles in force; `arguments` are the operator's."""
    given = operator_rights(OPERATOR_USER, OPERATOR_NAMESPACE)
    async with embedded_stage(
        NODES_OF_THE_SITE,
        folder,
        operator_arguments=arguments,
        rbac=True,
        operator_roles=[one for one in given if one["apiVersion"].startswith(RBAC)],
    ) as embedded:

        @asynccontextmanager
        async def cut() -> AsyncIterator[None]:
            faults = embedded.cluster.faults
            faults.configure(user=ADMINISTRATOR, seed=1, drop_watch=1.0, expire_watch=1.0)
            yield

            async def refused() -> bool:
                return "expire_watch" in faults.counts

            await site.until(refused, "a watch was refused")
            faults.clear()

        files = (embedded.kubeconfig, embedded.operator_kubeconfig)
        async with _open("embedded", embedded.stage, files, cut) as site:
            yield site


@asynccontextmanager
async def real_site(
    plane: ControlPlane,
    folder: Path,
    *arguments: str,
    nodes: Sequence[NodeSpec] = NODES_OF_THE_SITE,
) -> AsyncIterator[Site]:
    """A real API server, emptied of what an earlier test left; `arguments` are the operator's."""
    kubeconfig, operator_kubeconfig = folder / "kubeconfig", folder / "operator.kubeconfig"
    plane.write_kubeconfig(kubeconfig, ADMINISTRATOR)
    plane.write_kubeconfig(operator_kubeconfig, OPERATOR_USER)

    @asynccontextmanager
    async def cut() -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(plane.restart_api_server)

    await _empty(kubeconfig)
    async with (
        staged(
            kubeconfig,
            operator_kubeconfig,
            nodes,
            SystemClock(),
            operator_arguments=arguments,
            machines_without=IN_CONTROLLER_MANAGER if plane.has_controllers else (),
        ) as (stage, _),
        _open("real", stage, (kubeconfig, operator_kubeconfig), cut) as site,
    ):
        given = operator_rights(OPERATOR_USER, OPERATOR_NAMESPACE)
        for manifest in given:
            with contextlib.suppress(AlreadyThere):
                await site.create(manifest)
        # As the chart makes it: the operator may fill it, and create none.
        key = {"name": KEY_SECRET, "namespace": OPERATOR_NAMESPACE}
        with contextlib.suppress(AlreadyExists):
            await site.client.create(
                SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": key}, dict
            )
        rights = RoleRights(site.client, site.operator_client, given)
        site.stage = replace(stage, rights=rights)
        try:
            yield site
        finally:
            await rights.restore()


@asynccontextmanager
async def _open(
    name: str,
    stage: Stage,
    kubeconfigs: tuple[Path, Path],
    cut: Callable[[], AbstractAsyncContextManager[None]],
) -> AsyncIterator[Site]:
    async with AsyncExitStack() as exits:
        administrator, operator = [await _connected(kubeconfig) for kubeconfig in kubeconfigs]
        for client in (administrator, operator):
            exits.push_async_callback(client.close)
        site = Site(name, stage, administrator, operator, kubeconfigs[0], cut)
        with contextlib.suppress(AlreadyThere):
            await site.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            )
        exits.push_async_callback(site.end_operators)
        yield site


async def _connected(kubeconfig: Path) -> Client:
    connection = await load_connection(str(kubeconfig))
    return connect(connection, SystemClock(), field_manager="tests")


async def _empty(kubeconfig: Path) -> None:
    """Delete what tests leave behind, and wait until it is gone."""
    client = await _connected(kubeconfig)
    try:
        for resource in _LEFT_BEHIND:
            async with asyncio.timeout(_PATIENCE_S):
                while found := await _objects(client, resource):
                    for item in found:
                        metadata = item["metadata"]
                        with contextlib.suppress(NotFound):
                            await client.delete(
                                resource,
                                metadata.get("namespace", ""),
                                metadata["name"],
                                grace_seconds=0,
                                propagation=Propagation.BACKGROUND,
                            )
                    await asyncio.sleep(_LOOK_S)
    finally:
        await client.close()


async def _objects(client: Client, resource: Resource) -> list[Object]:
    # Other ConfigMaps are those of the cluster itself.
    namespace = OPERATOR_NAMESPACE if resource is CONFIG_MAPS else ""
    try:
        found: list[Object] = (await client.list(resource, dict, namespace=namespace)).items
        return [each for each in found if each["metadata"]["name"] != "kube-root-ca.crt"]
    except NotFound:  # the first test finds no definitions
        return []
