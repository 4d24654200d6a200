"""A stage in this process: embedded cluster, machines and exporter, and the client that sees it.

The runner and people use one user, the operator another whose rights can be changed. Everything is
stopped in the reverse order of its start, whatever happened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reprieve.api.crds import all_crds
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.local.cluster import EmbeddedCluster
from reprieve.local.crds import permissive_definitions
from reprieve.local.machines.embedded import EmbeddedObjects
from reprieve.local.machines.gpus import Root
from reprieve.local.machines.nodes import NodeSpec as MachineSpec
from reprieve.local.machines.objects import AlreadyThere, ChangeType
from reprieve.local.machines.run import Machines
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.observer import GPUWORKLOADS, Observer
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.real import KubeObjects
from reprieve.scenarios.stage import Stage
from reprieve.units.clock import Clock, SystemClock
from reprieve.units.durations import MILLISECOND

__all__ = [
    "OPERATOR_NAMESPACE",
    "OPERATOR_USER",
    "EmbeddedStage",
    "embedded_stage",
    "holds_cluster",
]

OPERATOR_NAMESPACE: Final = "kaiwo-system"
OPERATOR_USER: Final = "reprieve"
_OBSERVED: Final = ("nodes", "pods", "events", GPUWORKLOADS)
_LOOK: Final = 20 * MILLISECOND


@dataclass(frozen=True, slots=True)
class EmbeddedStage:
    """A running embedded cluster and the stage on it."""

    stage: Stage
    cluster: EmbeddedCluster
    machines: Machines
    kubeconfig: Path
    operator_kubeconfig: Path
    metrics_endpoint: str


@asynccontextmanager
async def embedded_stage(
    nodes: Sequence[NodeSpec],
    directory: Path,
    *,
    clock: Clock | None = None,
    port: int = 0,
    data: Path | None = None,
    kubeconfig: Path | None = None,
    operator_arguments: Sequence[str] = (),
    on_operator_line: Callable[[str], None] | None = None,
) -> AsyncIterator[EmbeddedStage]:
    """Start everything but the operator, with the CRDs and the operator's namespace in place.

    `directory` takes the kubeconfig files, but people's where `kubeconfig` names another place;
    `port` 0 is any free one; `data` None keeps the cluster in memory.

    Raises:
        OSError: the port is taken, or a file cannot be written.
    """
    clock = clock or SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        cluster = EmbeddedCluster(clock=clock, port=port, data=data)
        await cluster.start()
        stack.push_async_callback(cluster.stop)
        kubeconfig = kubeconfig or directory / "kubeconfig"
        operator_kubeconfig = directory / "operator.kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        cluster.write_kubeconfig(operator_kubeconfig, user=OPERATOR_USER)
        client = connect(await load_connection(str(kubeconfig)), clock, field_manager="scenario")
        stack.push_async_callback(client.close)
        objects = KubeObjects(client, clock)
        await _install(objects, clock)
        machines = Machines(
            EmbeddedObjects(cluster.api),
            clock,
            [MachineSpec.of(n.name, n.allocatable, n.labels, n.taints) for n in nodes],
        )
        await machines.start()
        stack.push_async_callback(machines.stop)
        observer = Observer(clock)
        stack.push_async_callback(_cancel, asyncio.create_task(_observe(objects, observer)))

        def launch(environment: Mapping[str, str], replicas: int) -> OperatorProcesses:
            return OperatorProcesses(
                operator_kubeconfig,
                {
                    "GPU_PREEMPTION_METRICS_ENDPOINT": machines.exporter.url,
                    "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
                    **environment,
                },
                arguments=("--metrics-port", "0", *operator_arguments),
                replicas=replicas,
                on_line=on_operator_line,
            )

        stage = Stage(objects, observer, _Exporter(machines), _UserRights(cluster), clock, launch)
        yield EmbeddedStage(
            stage, cluster, machines, kubeconfig, operator_kubeconfig, machines.exporter.url
        )


def holds_cluster(data: Path) -> bool:
    """Whether a folder has the objects of an embedded cluster from an earlier start."""
    return (data / "objects.sqlite").exists()


class _Exporter:
    """The exporter of the machines."""

    def __init__(self, machines: Machines) -> None:
        self._exporter = machines.exporter

    def set_utilization(
        self, namespace: str, root: str, value: float, *, gpu: int | None, pod_index: int | None
    ) -> None:
        kind, _, name = root.partition("/")
        target = Root(namespace, kind, name)
        self._exporter.set_utilization(target, value, gpu=gpu, pod_index=pod_index)

    async def down(self) -> None:
        await self._exporter.stop()

    async def up(self) -> None:
        await self._exporter.start()


class _UserRights:
    """The rights of the operator's user on an embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    async def deny(self, verb: str, group: str, resource: str) -> None:
        self._cluster.deny(OPERATOR_USER, verb, group, resource)

    async def allow(self, verb: str, group: str, resource: str) -> None:
        self._cluster.allow(OPERATOR_USER, verb, group, resource)


async def _install(objects: KubeObjects, clock: Clock) -> None:
    """Create the CRDs and the operator's namespace, and wait until the kinds are served."""
    await objects.refresh()
    crds = [*all_crds(), *permissive_definitions()]
    for crd in crds:
        with contextlib.suppress(AlreadyThere):
            await objects.create("customresourcedefinitions.apiextensions.k8s.io", crd)
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": OPERATOR_NAMESPACE},
    }
    with contextlib.suppress(AlreadyThere):
        await objects.create("namespaces", namespace)
    while not all(_served(objects, crd) for crd in crds):
        await clock.sleep(_LOOK)
        await objects.refresh()


def _served(objects: KubeObjects, crd: Mapping[str, Any]) -> bool:
    spec = crd["spec"]
    return all(
        objects.resource_of(f"{spec['group']}/{version['name']}", spec["names"]["kind"]) is not None
        for version in spec["versions"]
        if version["served"]
    )


async def _observe(objects: KubeObjects, observer: Observer) -> None:
    async for change in objects.changes(_OBSERVED):
        if change.type is ChangeType.DELETED:
            observer.drop(change.resource, change.object)
        elif change.type is not ChangeType.SYNCED:
            observer.put(change.resource, change.object)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
