"""A control plane with an audit log, nodes without machines, and operators under supervision.

Whoever stands in for kubelets here does what the API server needs of them and no more: pods with a
node run, pods that are being deleted are gone after a while. It looks at all pods once in a while,
and what it sees is what the load goes by, so that an API server that dies costs it one look.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import format_instant
from reprieve.api.crds import all_crds, kueue_crds
from reprieve.kube.bodies import PatchType
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import AlreadyExists, ApiError
from reprieve.kube.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    PREEMPTIONS,
    Resource,
)
from tests.chart.helm import CHART, run_helm
from tests.integration.control_plane import ADMINISTRATOR, Binaries, ControlPlane
from tests.integration.group_plane import group_flags
from tests.ports import free_ports
from tests.reliability.audit import audit_flags
from tests.reliability.operators import Operators

__all__ = ["NAMESPACE", "OPERATOR", "Stand", "stand", "tried"]

Object = dict[str, Any]
OPERATOR_NAMESPACE: Final = "reprieve-system"
#: As the chart has it, so that Priority and Fairness takes it for what it is in a cluster.
OPERATOR: Final = f"system:serviceaccount:{OPERATOR_NAMESPACE}:reprieve"
NAMESPACE: Final = "team"
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False
)
FLOW_SCHEMAS: Final = Resource(
    "flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", False
)
PRIORITIES: Final = {"low": 1_000, "middle": 10_000, "high": 100_000}
#: Without it no PodGroup of 1.37 that is deleted ever goes.
GROUP_CONTROLLERS: Final = (
    "--feature-gates=GenericWorkload=true",
    "--controllers=podgroup-protection-controller",
)
_AT_ONCE: Final = 20


async def tried(work: Awaitable[Any]) -> bool:
    """Await a call that may fail, as everything here may; return whether it did not."""
    try:
        await work
    except (ApiError, OSError, TimeoutError):
        return False
    return True


@dataclass
class Stand:
    """A running cluster. `pods`: as of the last look, by name; `nodes`: cpus by name.

    `ever`: Preemptions by uid as they were seen last, also those that are gone since.
    """

    plane: ControlPlane
    folder: Path
    client: Client
    nodes: dict[str, float]
    look_s: float = 0.5
    pods: dict[str, Object] = field(default_factory=dict)
    looks: int = 0
    ever: dict[str, Object] = field(default_factory=dict)
    _looked: asyncio.Event = field(default_factory=asyncio.Event)
    _calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    def operators(
        self,
        *arguments: str,
        replicas: int = 1,
        lease: str = "15s",
        kubeconfig: Path | None = None,
        environment: Mapping[str, str] | None = None,
        module: str = "reprieve",
    ) -> Operators:
        """Return operators, not started yet."""
        port = free_ports(1)[0] if replicas == 1 else 0
        return Operators(
            (
                "--kubeconfig",
                str(kubeconfig or self.folder / "operator.kubeconfig"),
                "--metrics-port",
                str(port),
                "--lease-duration",
                lease,
                *arguments,
            ),
            {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE, **(environment or {})},
            self.folder / "operator.log",
            replicas=replicas,
            module=module,
            port=port,
        )

    async def create(self, resource: Resource, *objects: Object) -> bool:
        """Create objects side by side; return whether all of them are there."""

        async def one(obj: Object) -> bool:
            async with self._calls:
                for _ in range(60):
                    try:
                        await self.client.create(resource, obj, dict)
                    except AlreadyExists:
                        return True
                    except (ApiError, OSError):
                        await asyncio.sleep(1)
                    else:
                        return True
            return False

        return all(await asyncio.gather(*(one(obj) for obj in objects)))

    async def delete(
        self, resource: Resource, names: Iterable[str], namespace: str = NAMESPACE, **options: Any
    ) -> None:
        """Delete objects; what fails is left."""

        async def one(name: str) -> None:
            async with self._calls:
                await tried(self.client.delete(resource, namespace, name, **options))

        await asyncio.gather(*(one(name) for name in names))

    async def add_nodes(self, names: Iterable[str]) -> None:
        """Create nodes of the names that `nodes` has."""
        found = []
        for name in names:
            cpus = f"{self.nodes[name]:g}"
            amounts = {"cpu": cpus, "amd.com/gpu": cpus, "memory": "256Gi", "pods": "250"}
            status = {
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            labels = {"kubernetes.io/hostname": name}
            found.append({"metadata": {"name": name, "labels": labels}, "status": status})
        await self.create(NODES, *found)

    async def records(self) -> list[Object]:
        """Return all Preemptions that are there."""
        found: list[Object] = []
        async for page in self.client.list_pages(
            PREEMPTIONS, dict, namespace=OPERATOR_NAMESPACE, page_size=50
        ):
            found += page.items
        self.ever |= {record["metadata"]["uid"]: record for record in found}
        return found

    async def look_again(self) -> None:
        """Return when whatever was written before is in `pods`."""
        for _ in range(2):
            await self._looked.wait()

    async def play_kubelets(self) -> None:
        """Run pods that have a node, and take away those that are being deleted, for ever."""
        while True:
            started = time.monotonic()
            try:
                page = await self.client.list(PODS, dict)
            except (ApiError, OSError):
                await asyncio.sleep(self.look_s)
                continue
            self.pods = {pod["metadata"]["name"]: pod for pod in page.items}
            self.looks += 1
            self._looked.set()
            self._looked = asyncio.Event()
            await asyncio.gather(*(self._kubelet(pod) for pod in page.items))
            await asyncio.sleep(max(0.05, self.look_s - (time.monotonic() - started)))

    async def _kubelet(self, pod: Object) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        if not node:
            return
        name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        async with self._calls:
            if metadata.get("deletionTimestamp"):
                await tried(self.client.delete(PODS, namespace, name, uid=uid, grace_seconds=0))
            elif pod["status"].get("phase") == "Pending" and node in self.nodes:
                now = format_instant(SystemClock().wall())
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
                patch = {
                    "metadata": {"uid": uid},
                    "status": {"phase": "Running", "startTime": now, "conditions": [ready]},
                }
                await tried(
                    self.client.patch(
                        PODS,
                        namespace,
                        name,
                        patch,
                        dict,
                        patch_type=PatchType.STRATEGIC,
                        subresource="status",
                    )
                )


@asynccontextmanager
async def stand(
    binaries: Binaries,
    folder: Path,
    *,
    nodes: int,
    cpus: int,
    flags: Mapping[str, Sequence[str]] | None = None,
    leases_first: bool = False,
    look_s: float = 0.5,
) -> AsyncIterator[Stand]:
    """Bring up a cluster of equal nodes whose kubelets are played; no operator runs yet.

    `leases_first`: with the chart's FlowSchema.
    """
    given = dict(flags or {})
    given["kube-apiserver"] = (
        *audit_flags(folder),
        *group_flags(binaries.release),
        *given.get("kube-apiserver", ()),
    )
    manager = "kube-controller-manager"
    if binaries.release >= (1, 37):
        given[manager] = (*GROUP_CONTROLLERS, *given.get(manager, ()))
    accounts = f"system:serviceaccounts,system:serviceaccounts:{OPERATOR_NAMESPACE}"
    users = {ADMINISTRATOR: "system:masters", OPERATOR: accounts}
    plane = ControlPlane(binaries, folder, users, given)
    client: Client | None = None
    kubelets: asyncio.Task[None] | None = None
    try:
        await asyncio.to_thread(plane.start)
        for user, name in ((ADMINISTRATOR, "kubeconfig"), (OPERATOR, "operator.kubeconfig")):
            plane.write_kubeconfig(folder / name, user)
        connection = await load_connection(str(folder / "kubeconfig"))
        client = connect(connection, SystemClock(), field_manager="reliability")
        found = Stand(plane, folder, client, {f"node-{i}": float(cpus) for i in range(nodes)})
        found.look_s = look_s
        await _furnish(found)
        if leases_first:
            await found.create(FLOW_SCHEMAS, await asyncio.to_thread(_flow_schema))
        kubelets = asyncio.create_task(found.play_kubelets())
        yield found
    finally:
        if kubelets is not None:
            kubelets.cancel()
            await asyncio.gather(kubelets, return_exceptions=True)
        if client is not None:
            await client.close()
        await asyncio.to_thread(plane.stop)


async def _furnish(found: Stand) -> None:
    """Create what everything else needs: rights, kinds, namespaces, priorities and nodes."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "operator"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OPERATOR}],
    }
    await found.create(CLUSTER_ROLE_BINDINGS, binding)
    await found.create(CUSTOM_RESOURCE_DEFINITIONS, *all_crds(), *kueue_crds())
    await found.create(
        NAMESPACES,
        *({"metadata": {"name": name}} for name in (OPERATOR_NAMESPACE, NAMESPACE)),
    )
    await found.create(
        PRIORITY_CLASSES,
        *({"metadata": {"name": name}, "value": value} for name, value in PRIORITIES.items()),
    )
    await found.add_nodes(found.nodes)
    for _ in range(150):  # until the kinds are served
        if await tried(found.records()):
            return
        await asyncio.sleep(0.2)


def _flow_schema() -> Object:
    text = run_helm(
        *("template", "reprieve", str(CHART), "--namespace", OPERATOR_NAMESPACE),
        *("--set", "flowSchema.enabled=true"),
    )
    schemas = (each for each in yaml.safe_load_all(text) if each and each["kind"] == "FlowSchema")
    found: list[Object] = list(schemas)
    (schema,) = found
    schema["metadata"].pop("namespace", None)
    return schema
