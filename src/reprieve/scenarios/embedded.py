"""A stage in this process: embedded cluster, machines and exporter, and the client that sees it.

The runner and people use one user, the operator another whose rights can be changed. Everything is
stopped in the reverse order of its start, whatever happened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reprieve.api.crds import all_crds
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.local.cluster import EmbeddedCluster
from reprieve.local.machines.embedded import EmbeddedObjects
from reprieve.local.machines.exporter import GpuExporter
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

__all__ = ["OPERATOR_NAMESPACE", "OPERATOR_USER", "EmbeddedStage", "embedded_stage"]

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
        kubeconfig, operator_kubeconfig = (
            directory / "kubeconfig",
            directory / "operator.kubeconfig",
        )
        cluster.write_kubeconfig(kubeconfig)
        cluster.write_kubeconfig(operator_kubeconfig, user=OPERATOR_USER)
        client = connect(await load_connection(str(kubeconfig)), clock, field_manager="scenario")
        stack.push_async_callback(client.close)
        objects = KubeObjects(client, clock)
        await _install(objects, clock)
        exporter = GpuExporter()
        await exporter.start()
        stack.push_async_callback(exporter.stop)
        machines = Machines(
            EmbeddedObjects(cluster.api),
            clock,
            [MachineSpec.of(n.name, n.allocatable, n.labels, n.taints) for n in nodes],
            exporter=exporter,
        )
        await _keep_running(stack, machines.run())
        observer = Observer(clock)
        await _keep_running(stack, _observe(objects, observer))

        def launch(environment: Mapping[str, str], replicas: int) -> OperatorProcesses:
            return OperatorProcesses(
                operator_kubeconfig,
                {
                    "GPU_PREEMPTION_METRICS_ENDPOINT": exporter.url,
                    "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
                    **environment,
                },
                arguments=("--metrics-port", "0", *operator_arguments),
                replicas=replicas,
                on_line=on_operator_line,
            )

        stage = Stage(objects, observer, exporter, _UserRights(cluster), clock, launch)
        yield EmbeddedStage(stage, cluster, machines, kubeconfig, operator_kubeconfig, exporter.url)


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
    crds = [*all_crds()]
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


async def _keep_running(stack: contextlib.AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` beside everything else until the stack is left."""
    task = asyncio.create_task(work)

    async def stop() -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    stack.push_async_callback(stop)
