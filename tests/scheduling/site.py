"""One embedded cluster without stand-in scheduler, and operators beside it.

In virtual time an operator runs in this process, else as a process of its own.

Nobody plays kubelet unless asked to: pods run once `run` says so, and victims stay until `end`
takes them away, so that a test can look at every stage.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import orjson

from kubelocal.cluster import Stage, Write
from reprieve.kube.bodies import PatchType
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import AlreadyExists, NotFound
from reprieve.kube.resource import EVENTS, LEASES, NAMESPACES, PODS, PREEMPTIONS, Resource
from reprieve.scenarios.embedded import (
    OPERATOR_NAMESPACE,
    OPERATOR_USER,
    EmbeddedStage,
    embedded_stage,
)
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.operator import OperatorProcesses
from tests.operator_in_process import OperatorInProcess, operator_of_this_time
from tests.virtual_time import LoopClock

NAMESPACE = "team"
POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
COMPOSITE_GROUPS = Resource(
    "scheduling.k8s.io", "v1alpha3", "compositepodgroups", "CompositePodGroup"
)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
_RESOURCES = {
    resource.kind: resource
    for resource in (PODS, NAMESPACES, POD_GROUPS, COMPOSITE_GROUPS, PRIORITY_CLASSES, BUDGETS)
}
_PATIENCE_S = 120.0
_LOOK_S = 0.05

Object = dict[str, Any]


def node(name: str, cpu: int = 4, **labels: str) -> NodeSpec:
    """Return a node of that many cpus."""
    return NodeSpec(name, {"cpu": str(cpu), "memory": "32Gi", "pods": "110"}, labels)


def pod(
    name: str,
    cpu: int = 2,
    *,
    group: str = "",
    priority: str = "",
    scheduler: str = "default-scheduler",
    **spec: Any,
) -> Object:
    """Return a pod; `priority` is the name of a PriorityClass."""
    resources = {"requests": {"cpu": str(cpu)}}
    body: Object = {
        "schedulerName": scheduler,
        "containers": [{"name": "c", "image": "registry.example/app:1", "resources": resources}],
        **spec,
    }
    if group:
        body["schedulingGroup"] = {"podGroupName": group}
    if priority:
        body["priorityClassName"] = priority
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": group or name}},
        "spec": body,
    }


def group(
    name: str,
    *,
    min_count: int | None = None,
    mode: str = "single",
    priority: str = "",
    parent: str = "",
    resource: Resource = POD_GROUPS,
) -> Object:
    """Return a PodGroup, a gang if it has a minimum; `parent` is a composite group."""
    least = "minGroupCount" if resource is COMPOSITE_GROUPS else "minCount"
    policy: Object = {"basic": {}} if min_count is None else {"gang": {least: min_count}}
    spec: Object = {"schedulingPolicy": policy, "disruptionMode": {mode: {}}}
    if priority:
        spec["priorityClassName"] = priority
    if parent:
        spec["parentCompositePodGroupName"] = parent
        spec["workloadRef"] = {"workloadName": "workload", "templateName": "template"}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def composite(name: str, **facts: Any) -> Object:
    """Return a CompositePodGroup, with the facts of `group`; the minimum is one of groups."""
    return group(name, resource=COMPOSITE_GROUPS, **facts)


def priority_class(name: str, value: int, policy: str = "PreemptLowerPriority") -> Object:
    """Return a PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": policy,
    }


def _flags(names: Sequence[str], arguments: Sequence[str]) -> tuple[str, ...]:
    named = [part for name in names for part in ("--scheduler-name", name)]
    return ("--controllers", "scheduling", "--metrics-port", "0", *named, *arguments)


Hook = Callable[[Write, Stage], Awaitable[None]]
_Operator = TypeVar("_Operator", OperatorProcesses, OperatorInProcess | OperatorProcesses)
_ENVIRONMENT = {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE}


@dataclass
class Site:
    """A running cluster and its operators.

    `hook` is told of the operators' writes, but those of their lease, with `index` counting them;
    it answers in the server's place by raising. `deleted` counts deletions of pods by uid. Both are
    of the embedded cluster alone.
    """

    embedded: EmbeddedStage
    client: Client
    lines: list[str]
    hook: Hook | None = None
    deleted: Counter[str] = field(default_factory=Counter)
    operator_kubeconfig: Path | None = None  # another cluster's
    _operators: list[OperatorInProcess | OperatorProcesses] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)

    @property
    def operators(self) -> Sequence[OperatorInProcess | OperatorProcesses]:
        """The operators that were started and not stopped."""
        return self._operators

    async def on_write(self, write: Write, stage: Stage) -> None:
        path = write.path.partition("?")[0]
        if write.user != OPERATOR_USER or "/leases" in path:
            return
        if stage is Stage.BEFORE:
            self._numbers[write.index] = len(self._numbers) + 1
        if stage is Stage.STORED and write.verb == "delete" and "/pods/" in path:
            self.deleted[orjson.loads(write.body)["preconditions"]["uid"]] += 1
        if self.hook is not None:
            await self.hook(replace(write, index=self._numbers[write.index], path=path), stage)

    async def create(self, *objects: Object) -> None:
        """Create objects, in order."""
        for obj in objects:
            await self.client.create(_RESOURCES[obj["kind"]], obj, dict)

    async def operator(
        self,
        *arguments: str,
        names: Sequence[str] = ("default-scheduler",),
        environment: Mapping[str, str] | None = None,
    ) -> OperatorInProcess | OperatorProcesses:
        """Start an operator that schedules the pods of these names."""
        found = operator_of_this_time(
            self.operator_kubeconfig or self.embedded.operator_kubeconfig,
            {**_ENVIRONMENT, **(environment or {})},
            arguments=_flags(names, arguments),
            on_line=self.lines.append,
        )
        return await self._started(found)

    async def operator_process(
        self,
        *arguments: str,
        names: Sequence[str] = ("default-scheduler",),
        environment: Mapping[str, str] | None = None,
        lease: str = "15s",
        module: str = "reprieve",
    ) -> OperatorProcesses:
        """Start one that is a process of its own, with a lease and an end: not in virtual time.

        Its lease is longer than this machine ever stands still: one that is lost ends it.
        """
        found = OperatorProcesses(
            self.operator_kubeconfig or self.embedded.operator_kubeconfig,
            {**_ENVIRONMENT, **(environment or {})},
            arguments=(*_flags(names, arguments), "--lease-duration", lease),
            on_line=self.lines.append,
            module=module,
        )
        return await self._started(found)

    async def _started(self, operator: _Operator) -> _Operator:
        self._operators.append(operator)
        await operator.start()
        return operator

    async def free_leases(self) -> None:
        """Let the leases of a process that is dead run out at once."""
        page = await self.client.list(LEASES, dict, namespace=OPERATOR_NAMESPACE)
        for lease in page.items:
            name, free = lease["metadata"]["name"], {"spec": {"holderIdentity": ""}}
            await self.client.patch(LEASES, OPERATOR_NAMESPACE, name, free, dict)

    async def classes(self) -> None:
        """Create the priorities low and high."""
        await self.create(priority_class("low", 1000), priority_class("high", 100000))

    async def filled(self, *, mode: str = "single", count: int = 4, cpu: int = 2) -> None:
        """Create the priorities and a low-priority group that runs, with this disruption mode."""
        await self.classes()
        await self.create(group("low", min_count=count, mode=mode, priority="low"))
        await self.create(
            *(pod(f"low-{i}", cpu, group="low", priority="low") for i in range(count))
        )

        async def placed() -> bool:
            return len(await self.placed()) == count

        await self.until("the low side is placed", placed)
        await self.run()

    async def gang(self, count: int = 2, cpu: int = 4, name: str = "high") -> set[str]:
        """Create a gang of high priority; return the names of its pods."""
        await self.create(group(name, min_count=count, priority="high"))
        pods = [pod(f"{name}-{i}", cpu, group=name, priority="high") for i in range(count)]
        await self.create(*pods)
        return {each["metadata"]["name"] for each in pods}

    async def until_placed(self, names: set[str]) -> None:
        """Wait until all these pods have a node."""

        async def placed() -> bool:
            return names <= (await self.placed()).keys()

        await self.until(f"{sorted(names)} placed", placed)

    async def until_victims(self, count: int) -> set[str]:
        """Wait until that many pods are being deleted, and return them."""

        async def enough() -> bool:
            return len(await self.victims()) >= count

        await self.until(f"{count} victims", enough)
        return await self.victims()

    async def stop(self) -> None:
        """Stop all operators."""
        for processes in self._operators:
            await processes.stop()

    async def pods(self, namespace: str = NAMESPACE) -> dict[str, Object]:
        """Return the pods of a namespace by name."""
        page = await self.client.list(PODS, dict, namespace=namespace)
        return {pod["metadata"]["name"]: pod for pod in page.items}

    async def placed(self, namespace: str = NAMESPACE) -> dict[str, str]:
        """Return the node of each pod that has one."""
        pods = await self.pods(namespace)
        return {
            name: pod["spec"]["nodeName"]
            for name, pod in pods.items()
            if pod["spec"].get("nodeName")
        }

    async def victims(self, namespace: str = NAMESPACE) -> set[str]:
        """Return the pods that are being deleted."""
        pods = await self.pods(namespace)
        return {name for name, pod in pods.items() if pod["metadata"].get("deletionTimestamp")}

    async def events(self, namespace: str = NAMESPACE) -> list[Object]:
        """Return the events of a namespace."""
        return (await self.client.list(EVENTS, dict, namespace=namespace)).items

    async def intents(self) -> list[Object]:
        """Return all Preemptions."""
        page = await self.client.list(PREEMPTIONS, dict, namespace=OPERATOR_NAMESPACE)
        return page.items

    async def run(self, namespace: str = NAMESPACE) -> None:
        """Play kubelet: pods with a node run."""
        status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
        for name in await self.placed(namespace):
            patch = {"status": status}
            await self.client.patch(
                PODS,
                namespace,
                name,
                patch,
                dict,
                patch_type=PatchType.STRATEGIC,
                subresource="status",
            )

    async def end(self, *names: str, namespace: str = NAMESPACE) -> None:
        """Play kubelet: these pods, or all that are being deleted, are gone."""
        for name in names or sorted(await self.victims(namespace)):
            try:
                await self.client.delete(PODS, namespace, name, grace_seconds=0)
            except NotFound:
                continue

    async def until(self, what: str, holds: Callable[[], Awaitable[object]]) -> None:
        """Wait until it holds, and fail with what there is when it does not."""
        end = asyncio.get_running_loop().time() + _PATIENCE_S
        while not await holds():
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"{what} never held\n" + await self._all())
            await asyncio.sleep(_LOOK_S)

    async def never(
        self, what: str, holds: Callable[[], Awaitable[object]], seconds: float
    ) -> None:
        """Fail when it holds at any time within these seconds."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            if await holds():
                raise AssertionError(f"{what} held\n" + await self._all())
            await asyncio.sleep(_LOOK_S)

    async def _all(self) -> str:
        lines = []
        for pod in (await self.client.list(PODS, dict)).items:
            status = pod.get("status") or {}
            lines.append(
                f"{pod['metadata']['name']} on {pod['spec'].get('nodeName')} "
                f"nominated {status.get('nominatedNodeName')} "
                f"{pod['metadata'].get('deletionTimestamp') or ''} {status.get('conditions')}"
            )
        return "\n".join([*lines, "--- operator", *self.lines[-40:]])


@asynccontextmanager
async def site(
    nodes: Sequence[NodeSpec],
    folder: Path,
    *,
    kubelet: bool = False,
    lifecycle: bool = True,
    **stage: Any,
) -> AsyncIterator[Site]:
    """Start a cluster with these nodes; end everything afterwards. `stage`: of `embedded_stage`.

    Without `lifecycle` the taints of nodes are the test's.
    """
    machines = {"kubelet": kubelet, "node-lifecycle": lifecycle}
    without = tuple(name for name, there in machines.items() if not there)
    async with embedded_stage(
        nodes, folder, clock=LoopClock(), machines_without=without, scheduler=False, **stage
    ) as embedded:
        connection = await load_connection(str(embedded.kubeconfig))
        client = connect(connection, LoopClock(), field_manager="test")
        found = Site(embedded, client, [])
        embedded.cluster.on_write = found.on_write
        with contextlib.suppress(AlreadyExists):  # kept from an earlier start
            await found.create({"kind": "Namespace", "metadata": {"name": NAMESPACE}})
        try:
            yield found
        finally:
            await found.stop()
            await client.close()
