"""An embedded cluster with nodes, a scheduler and the quota plane in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.crds import kueue_crds
from reprieve.execution.fence import Fence
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import AlreadyExists
from reprieve.kube.recording.events import EventRecorder
from reprieve.kube.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    NAMESPACES,
    PODS,
    PREEMPTIONS,
    Resource,
)
from reprieve.planes.quota.context import QuotaContext, QuotaOptions
from reprieve.planes.quota.plane import QuotaPlane
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, EmbeddedStage, embedded_stage
from reprieve.scenarios.model import NodeSpec
from reprieve.telemetry.decision_log import DecisionLog
from reprieve.telemetry.metrics import Metrics
from reprieve.telemetry.quota import QuotaMetrics
from tests.virtual_time import LoopClock

NAMESPACE = "team"
Object = dict[str, Any]
JOBS = Resource("batch", "v1", "jobs", "Job")


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource("kueue.x-k8s.io", "v1beta2", plural, kind, namespaced)


WORKLOADS = _kueue("workloads", "Workload", namespaced=True)
CLUSTER_QUEUES = _kueue("clusterqueues", "ClusterQueue")
ADMISSION_CHECKS = _kueue("admissionchecks", "AdmissionCheck")
LOCAL_QUEUES = _kueue("localqueues", "LocalQueue", namespaced=True)
FLAVORS = _kueue("resourceflavors", "ResourceFlavor")
TOPOLOGIES = _kueue("topologies", "Topology")
_RESOURCES = {
    each.kind: each
    for each in (
        NAMESPACES,
        JOBS,
        WORKLOADS,
        CLUSTER_QUEUES,
        LOCAL_QUEUES,
        _kueue("cohorts", "Cohort"),
        FLAVORS,
        TOPOLOGIES,
        _kueue("workloadpriorityclasses", "WorkloadPriorityClass"),
        ADMISSION_CHECKS,
    )
}
_PATIENCE_S = 120.0
_LOOK_S = 0.05


def node(name: str, cpu: int = 16, **labels: str) -> NodeSpec:
    """Return a node of that many cpus."""
    return NodeSpec(name, {"cpu": str(cpu), "memory": "32Gi", "pods": "110"}, labels)


def flavor(name: str = "default-flavor", **spec: Any) -> Object:
    """Return a ResourceFlavor."""
    return _object("ResourceFlavor", name, spec)


def cluster_queue(
    name: str, cpu: int, cohort: str = "", *, memory: str = "", **spec: Any
) -> Object:
    """Return a ClusterQueue with one flavor, and quota for cpus and perhaps for memory."""
    amounts = {"cpu": str(cpu), **({"memory": memory} if memory else {})}
    resources = [{"name": each, "nominalQuota": amount} for each, amount in amounts.items()]
    group = {
        "coveredResources": [*amounts],
        "flavors": [{"name": "default-flavor", "resources": resources}],
    }
    body = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    if cohort:
        body["cohortName"] = cohort
    return _object("ClusterQueue", name, body)


def local_queue(name: str, queue: str) -> Object:
    """Return a LocalQueue in the test's namespace."""
    return _object("LocalQueue", name, {"clusterQueue": queue}, NAMESPACE)


def priority_class(name: str, value: int) -> Object:
    """Return a WorkloadPriorityClass."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def job(
    name: str,
    queue: str = "q",
    *,
    priority: str = "",
    pods: int = 2,
    cpu: str = "1",
    suspend: bool = True,
    annotations: dict[str, str] | None = None,
) -> Object:
    """Return a Job whose pods never end by themselves."""
    labels = {"kueue.x-k8s.io/queue-name": queue}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    container = {
        "name": "c",
        "image": "registry.example/app:1",
        "resources": {"requests": {"cpu": cpu}},
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": annotations or {},
        },
        "spec": {
            "suspend": suspend,
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": spec},
        },
    }


def _object(kind: str, name: str, spec: Object, namespace: str = "") -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    api = _RESOURCES[kind].api_version
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


@dataclass(frozen=True)
class _Leader:
    """A tenure that does not end."""

    clock: Clock
    epoch: int = 1
    identity: str = "test"

    @property
    def held_until(self) -> Nanos | None:
        return Nanos(self.clock.monotonic() + HOUR)


class TurnedClock:
    """The loop's clock, which a test turns forward; sleepers that are due then wake."""

    def __init__(self) -> None:
        self._inner = LoopClock()
        self._ahead = 0
        self._turned = asyncio.Event()

    def wall(self) -> Nanos:
        return Nanos(self._inner.wall() + self._ahead)

    def monotonic(self) -> Nanos:
        return Nanos(self._inner.monotonic() + self._ahead)

    async def sleep(self, nanoseconds: int) -> None:
        end = self.monotonic() + nanoseconds
        while (left := end - self.monotonic()) > 0:
            try:
                await asyncio.wait_for(self._turned.wait(), left / SECOND)
            except TimeoutError:
                return
        await asyncio.sleep(0)

    def turn(self, seconds: float) -> None:
        """Let that much time pass."""
        self._ahead += round(seconds * SECOND)
        self._turned.set()
        self._turned = asyncio.Event()


@dataclass
class Site:
    """A running cluster and, between `start` and `stop`, the plane."""

    embedded: EmbeddedStage
    client: Client
    clock: Clock = field(default_factory=LoopClock)
    metrics: Metrics = field(default_factory=Metrics)
    plane: QuotaPlane | None = None
    epoch: int = 0
    logged: list[bytes] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _client: Client | None = None

    async def start(self, options: QuotaOptions | None = None, lease: int = MINUTE) -> QuotaPlane:
        """Run the plane under a new epoch; writes may take a third of the lease.

        Much happens at once: a write whose answer comes late is not to count as failed.
        """
        self.epoch += 1
        clock = self.clock
        connection = await load_connection(str(self.embedded.operator_kubeconfig))
        self._client = connect(connection, clock)
        events = EventRecorder(self._client, clock, instance="test")
        self.metrics = Metrics(100)
        context = QuotaContext(
            full_client=self._client,
            clock=clock,
            fence=Fence(_Leader(clock, self.epoch, f"test-{self.epoch}"), clock, lease),
            events=events,
            metrics=self.metrics,
            quota_metrics=QuotaMetrics(self.metrics.registry),
            options=options or QuotaOptions(),
            decision_log=DecisionLog(clock, self.logged.append),
        )
        self.plane = QuotaPlane(context, OPERATOR_NAMESPACE)
        self._tasks = [
            asyncio.create_task(events.run()),
            asyncio.create_task(self.plane.run()),
        ]
        return self.plane

    async def stop(self) -> None:
        """End the plane as a crash would: wherever it is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def create(self, *objects: Object) -> None:
        """Create objects, in order."""
        for obj in objects:
            await self.client.create(_RESOURCES[obj["kind"]], obj, dict)

    async def change_queue(self, name: str, spec: Object) -> None:
        """Change the spec of a ClusterQueue."""
        await self.client.patch(CLUSTER_QUEUES, "", name, {"spec": spec}, dict)

    async def workloads(self) -> dict[str, Object]:
        """Return the Workloads by the name of their job."""
        page = await self.client.list(WORKLOADS, dict, namespace=NAMESPACE)
        return {
            (each["metadata"].get("ownerReferences") or [{"name": each["metadata"]["name"]}])[0][
                "name"
            ]: each
            for each in page.items
        }

    async def conditions(self, name: str) -> dict[str, tuple[str, str, str]]:
        """Return the conditions of a job's Workload: status, reason and message by type."""
        found = (await self.workloads()).get(name) or {}
        return {
            each["type"]: (each["status"], each["reason"], each["message"])
            for each in (found.get("status") or {}).get("conditions") or ()
        }

    async def admitted(self) -> set[str]:
        """Return the jobs whose Workload is admitted and not finished."""
        found = set()
        for name, each in (await self.workloads()).items():
            said = (each.get("status") or {}).get("conditions") or ()
            true = {condition["type"] for condition in said if condition["status"] == "True"}
            if "Admitted" in true and "Finished" not in true:
                found.add(name)
        return found

    async def job(self, name: str) -> Object:
        """Return a Job."""
        found: Object = await self.client.get(JOBS, NAMESPACE, name, dict)
        return found

    async def running(self) -> set[str]:
        """Return the jobs that have pods that run."""
        page = await self.client.list(PODS, dict, namespace=NAMESPACE)
        return {
            (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name", "")
            for pod in page.items
            if (pod.get("status") or {}).get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        }

    async def pods_of(self, name: str) -> list[Object]:
        """Return the pods of a Job."""
        page = await self.client.list(
            PODS, dict, namespace=NAMESPACE, label_selector=f"batch.kubernetes.io/job-name={name}"
        )
        return page.items

    async def events(self) -> list[tuple[str, str, str, str, str]]:
        """Return kind and name of the object, type, reason and message of all events."""
        page = await self.client.list(EVENTS, dict, namespace=NAMESPACE)
        return [
            (
                each["involvedObject"]["kind"],
                each["involvedObject"]["name"],
                each["type"],
                each["reason"],
                each["message"],
            )
            for each in page.items
        ]

    async def intents(self) -> list[Object]:
        """Return all Preemptions."""
        page = await self.client.list(PREEMPTIONS, dict, namespace=OPERATOR_NAMESPACE)
        return page.items

    async def until(
        self,
        what: str,
        holds: Callable[[], Awaitable[object]],
        patience: float = _PATIENCE_S,
    ) -> None:
        """Wait until it holds, and fail with what there is when it does not."""
        end = asyncio.get_running_loop().time() + patience
        while not await holds():
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"{what} never held\n" + await self._all())
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(_LOOK_S)

    async def until_admitted(self, *names: str) -> None:
        """Wait until exactly these jobs are admitted and have pods that run."""

        async def holds() -> bool:
            return await self.admitted() == set(names) == await self.running()

        await self.until(f"{sorted(names)} admitted", holds)

    async def _all(self) -> str:
        lines = []
        for name, each in (await self.workloads()).items():
            lines.append(f"{name}: {(each.get('status') or {}).get('conditions')}")
        lines += [str(await self.running()), *(str(each) for each in await self.events())]
        return "\n".join(lines)


@asynccontextmanager
async def site(
    folder: Path,
    *objects: Object,
    nodes: Sequence[NodeSpec] = (),
    options: QuotaOptions | None = None,
    start: bool = True,
    without: Sequence[str] = (),
    clock: Clock | None = None,
) -> AsyncIterator[Site]:
    """Start a cluster with these objects and the plane; end everything afterwards.

    `without`: machines that imitate controllers and are not to run. `clock`: the plane's.
    """
    nodes = nodes or [node("node-0")]
    async with embedded_stage(
        nodes, folder, clock=LoopClock(), machines_without=without
    ) as embedded:
        connection = await load_connection(str(embedded.kubeconfig))
        client = connect(connection, LoopClock(), field_manager="test")
        found = Site(embedded, client, clock or LoopClock())
        for crd in kueue_crds():
            try:
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd, dict)
            except AlreadyExists:
                await client.modify(
                    CUSTOM_RESOURCE_DEFINITIONS,
                    "",
                    crd["metadata"]["name"],
                    lambda held, crd=crd: {**crd, "metadata": held["metadata"]},  # type: ignore[misc]
                )
        await found.create({"kind": "Namespace", "metadata": {"name": NAMESPACE}})
        await found.create(*objects)
        try:
            if start:
                await found.start(options)
            yield found
        finally:
            await found.stop()
            await client.close()
