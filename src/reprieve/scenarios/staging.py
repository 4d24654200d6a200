"""Makes a stage out of an API server without controllers: kinds, machines, exporter, observer.

The API server is the embedded one, or a real one that a kubeconfig leads to and that no other
client uses: CRDs, nodes and namespaces are created in it and stay.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from kubelocal.crds import permissive_definitions
from kubelocal.machines.node.gpus import Root
from kubelocal.machines.node.kubelet import KubeletTimes
from kubelocal.machines.node.nodes import NodeSpec as MachineSpec
from kubelocal.machines.objects import AlreadyThere, ChangeType, Objects
from kubelocal.machines.run import Machines
from kubeworld.units.clock import Clock
from kubeworld.units.durations import MILLISECOND
from reprieve.api.crds import all_crds, gang_crds, kueue_crds
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.transport import HttpWire
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.observer import CLUSTER_QUEUES, GPUWORKLOADS, WORKLOADS, Observer
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.real import KubeObjects
from reprieve.scenarios.scheduler import scheduling
from reprieve.scenarios.stage import Rights, Stage

__all__ = ["OPERATOR_NAMESPACE", "Staging", "staged"]

OPERATOR_NAMESPACE: Final = "kaiwo-system"
_OBSERVED: Final = ("nodes", "pods", "events", GPUWORKLOADS, "disruptions.reprieve.dev")
_OBSERVED_WITH_KUEUE: Final = (CLUSTER_QUEUES, WORKLOADS)
_CONNECTIONS: Final = 1_000
_LOOK: Final = 20 * MILLISECOND


class Staging(TypedDict, total=False):
    """What may be otherwise on a stage, whatever API server it is on.

    Attributes:
        operator_arguments: flags of the operators that are started.
        operator_module: what they run; the product unless a test plays around it.
        on_operator_line: called with each line of their logs.
        machines_without: machines that are not to run, as real controllers do their work.
        scheduler: off: the operator is the one that schedules.
        kueue: its kinds are there too.
        kubelet_times: how long pods need to start and to end.
    """

    operator_arguments: Sequence[str]
    operator_module: str
    on_operator_line: Callable[[str], None] | None
    machines_without: Collection[str]
    scheduler: bool
    kueue: bool
    kubelet_times: KubeletTimes | None


@asynccontextmanager
async def staged(
    kubeconfig: Path,
    operator_kubeconfig: Path,
    nodes: Sequence[NodeSpec],
    clock: Clock,
    *,
    store: Objects | None = None,
    rights: Rights | None = None,
    **staging: Unpack[Staging],
) -> AsyncIterator[tuple[Stage, Machines]]:
    """Bring up everything but the operator, and stop it in the reverse order.

    `store` is what the machines work on; None means the API server, through the client.
    """
    kueue = staging.get("kueue", False)
    async with contextlib.AsyncExitStack() as stack:
        connection = await load_connection(str(kubeconfig))
        # Each watched kind holds a connection, and a real server may have hundreds of kinds.
        wire = HttpWire(connection, limit=_CONNECTIONS)
        client = connect(connection, clock, field_manager="scenario", wire=wire)
        stack.push_async_callback(client.close)
        objects = KubeObjects(client, clock)
        await _install(objects, clock, kueue=kueue)
        machines = Machines(
            store or objects,
            clock,
            [MachineSpec.of(n.name, n.allocatable, n.labels, n.taints) for n in nodes],
            without=staging.get("machines_without", ()),
            times=staging.get("kubelet_times"),
        )
        await machines.start()
        stack.push_async_callback(machines.stop)
        if staging.get("scheduler", True):
            await stack.enter_async_context(scheduling(kubeconfig, OPERATOR_NAMESPACE, clock))
        observer = Observer(clock)
        stack.push_async_callback(
            _cancel, asyncio.create_task(_observe(objects, observer, kueue=kueue))
        )

        def launch(environment: Mapping[str, str], replicas: int) -> OperatorProcesses:
            return OperatorProcesses(
                operator_kubeconfig,
                {
                    "GPU_PREEMPTION_METRICS_ENDPOINT": machines.exporter.url,
                    "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
                    **environment,
                },
                arguments=("--metrics-port", "0", *staging.get("operator_arguments", ())),
                replicas=replicas,
                on_line=staging.get("on_operator_line"),
                module=staging.get("operator_module", "reprieve"),
            )

        yield Stage(objects, observer, _Exporter(machines), rights, clock, launch), machines


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


async def _install(objects: KubeObjects, clock: Clock, *, kueue: bool) -> None:
    """Create the CRDs and the operator's namespace, and wait until the kinds are served."""
    await objects.refresh()
    crds = [*all_crds(), *gang_crds(), *permissive_definitions(), *(kueue_crds() if kueue else ())]
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


async def _observe(objects: KubeObjects, observer: Observer, *, kueue: bool) -> None:
    observed = (*_OBSERVED, *(_OBSERVED_WITH_KUEUE if kueue else ()))
    async for change in objects.changes(observed):
        if change.type is ChangeType.DELETED:
            observer.drop(change.resource, change.object)
        elif change.type is not ChangeType.SYNCED:
            observer.apply(change.resource, change.object)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
