"""One embedded cluster, the operator beside it, and what both leave behind.

In virtual time the operator runs in this process, else as processes of its own.

Waits end with the objects as they are and the operator's last lines when nothing comes, so that a
failure explains itself.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, overload

import aiohttp
import orjson

from kubelocal.cluster import EmbeddedCluster, Stage, Write
from kubelocal.machines.node.gpus import Root
from kubelocal.server.errors import StatusError
from kubelocal.server.writing.options import DeleteOptions, PatchType, Propagation, WriteOptions
from reprieve.scenarios import with_parent
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
PREFIX = "kaiwo.silogen.ai/gpu-preemption."
ENVIRONMENT = {
    "GPU_PREEMPTION_ENABLED": "true",
    "GPU_PREEMPTION_POLLING_INTERVAL": "300ms",
    "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "1s",
}
GPU_WORKLOADS = "gpuworkloads.kaiwo.silogen.ai"
PREEMPTIONS = "preemptions.reprieve.dev"
_PATIENCE_S = 120.0
_LOOK_S = 0.05

Object = dict[str, Any]
Answer = TypeVar("Answer")


def container(**gpus: int) -> Object:
    """Return a container; `gpu=2` stands for 2 `amd.com/gpu`, `gpu_0=1` for 1 `amd.com/gpu-0`."""
    limits = {f"amd.com/{name.replace('_', '-')}": str(count) for name, count in gpus.items()}
    return with_limits(limits)


def with_limits(limits: Mapping[str, str]) -> Object:
    """Return a container with these limits."""
    return {"name": "work", "image": "busybox", "resources": {"limits": dict(limits)}}


def job(name: str, *containers: Object, namespace: str = NAMESPACE, **annotations: str) -> Object:
    """Return a Job; `grace_period="1s"` stands for the annotation with the prefix."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "annotations": prefixed(annotations)},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": list(containers or [container(gpu=4)]),
                }
            }
        },
    }


def deployment(name: str, replicas: int, gpus: int, **annotations: str) -> Object:
    """Return a Deployment in the team's namespace."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": prefixed(annotations)},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container(gpu=gpus)]},
            },
        },
    }


def pod(name: str, gpus: int = 1, **annotations: str) -> Object:
    """Return a Pod without owner in the team's namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": prefixed(annotations)},
        "spec": {"containers": [container(gpu=gpus)]},
    }


def prefixed(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return short names as annotations; a name with a slash stays."""
    return {
        name if "/" in name else PREFIX + name.replace("_", "-"): value
        for name, value in annotations.items()
    }


def owned_by(obj: Object, *, controller: bool = True) -> list[Object]:
    """Return ownerReferences that name `obj`."""
    return [
        {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "name": obj["metadata"]["name"],
            "uid": obj["metadata"]["uid"],
            "controller": controller,
        }
    ]


@dataclass
class Operator:
    """An operator, in this process where time is virtual, and all that it printed."""

    processes: OperatorProcesses | OperatorInProcess
    lines: list[str]

    def said(self, *parts: str) -> list[str]:
        """Return the lines that hold all parts."""
        return [line for line in self.lines if all(part in line for part in parts)]

    async def start(self) -> Operator:
        await self.processes.start()
        return self

    async def stop(self) -> None:
        await self.processes.stop()

    async def readiness(self) -> tuple[int, str]:
        """Return what `/readyz` answers; status 0 while nobody listens."""
        ports = [m[1] for line in self.lines if (m := re.search(r"telemetry on port (\d+)", line))]
        if not ports:
            return 0, ""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://localhost:{ports[-1]}/readyz") as response,
            ):
                return response.status, await response.text()
        except aiohttp.ClientError:
            return 0, ""


@dataclass
class Site:
    """A running cluster. `writes`: of the operator's user, without those of its own lease."""

    embedded: EmbeddedStage
    folder: Path
    lines: list[str]
    writes: list[Write] = field(default_factory=list)
    _operators: list[Operator] = field(default_factory=list)

    @property
    def cluster(self) -> EmbeddedCluster:
        return self.embedded.cluster

    # The operator

    def operator(
        self, environment: Mapping[str, str] | None = None, *arguments: str, config: str = ""
    ) -> Operator:
        """Make an operator process with these variables; `config` is the text of its file."""
        if config:
            path = self.folder / f"config-{len(self._operators)}.yaml"
            path.write_text(config)
            arguments = (*arguments, "--config", str(path))
        lines: list[str] = []
        variables = {
            "GPU_PREEMPTION_METRICS_ENDPOINT": self.embedded.metrics_endpoint,
            "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
            **ENVIRONMENT,
            **(environment or {}),
        }
        flags = ("--metrics-port", "0", *arguments)
        kubeconfig = self.embedded.operator_kubeconfig

        def said(line: str) -> None:
            lines.append(line)
            self.lines.append(line)

        processes = operator_of_this_time(kubeconfig, variables, arguments=flags, on_line=said)
        operator = Operator(processes, lines)
        self._operators.append(operator)
        return operator

    async def run(
        self, environment: Mapping[str, str] | None = None, *arguments: str, config: str = ""
    ) -> Operator:
        """Start an operator."""
        return await self.operator(environment, *arguments, config=config).start()

    async def command(
        self,
        environment: Mapping[str, str | None] | None = None,
        *arguments: str,
    ) -> asyncio.subprocess.Process:
        """Start `reprieve run` with pipes of its own; None takes a variable away."""
        variables = {
            "GPU_PREEMPTION_METRICS_ENDPOINT": self.embedded.metrics_endpoint,
            "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
            **ENVIRONMENT,
            **(environment or {}),
        }
        known = {name: value for name, value in variables.items() if value is not None}
        return await asyncio.create_subprocess_exec(
            *with_parent.command("reprieve", "run", "--metrics-port", "0"),
            *("--kubeconfig", str(self.embedded.operator_kubeconfig), *arguments),
            env={"PATH": os.defpath, "HOME": str(self.folder), **known},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def on_write(self, write: Write, stage: Stage) -> None:
        if stage is Stage.STORED and write.user == OPERATOR_USER and not _of_own_lease(write):
            self.writes.append(write)

    # What people do

    async def create(self, *objects: Object) -> Object:
        """Create objects; return the last one as stored."""
        stored: Object = {}
        for obj in objects:
            kind = self.cluster.registry.by_kind(obj["apiVersion"], obj["kind"])
            assert kind is not None, obj["kind"]
            namespace = obj["metadata"].get("namespace", "")
            stored = await self.cluster.api.create(kind, namespace, obj, _BY_HAND)
        return stored

    async def patch(
        self,
        resource: str,
        name: str,
        patch: Object,
        *,
        namespace: str = NAMESPACE,
        subresource: str = "",
        manager: str = "kubectl-edit",
    ) -> Object:
        """Change an object with a merge patch."""
        return await self.cluster.api.patch(
            self._kind(resource),
            namespace,
            name,
            orjson.dumps(patch),
            PatchType.MERGE,
            WriteOptions(field_manager=manager),
            subresource,
        )

    async def annotate(
        self, resource: str, name: str, *, namespace: str = NAMESPACE, **annotations: str | None
    ) -> None:
        """Set annotations by their short names; None removes one."""
        changes = {
            (key if "/" in key else PREFIX + key.replace("_", "-")): value
            for key, value in annotations.items()
        }
        await self.patch(
            resource, name, {"metadata": {"annotations": changes}}, namespace=namespace
        )

    async def delete(self, resource: str, name: str, *, namespace: str = NAMESPACE) -> None:
        """Delete an object in the background."""
        options = DeleteOptions(propagation=Propagation.BACKGROUND)
        await self.cluster.api.delete(self._kind(resource), namespace, name, options)

    def busy(self, root: str, percent: float, **which: int) -> None:
        """Let the exporter report a value for the pods below `Kind/name`."""
        kind, _, name = root.partition("/")
        self.embedded.machines.exporter.set_utilization(
            Root(NAMESPACE, kind, name), percent, **which
        )

    # What there is

    async def get(self, resource: str, name: str, *, namespace: str = NAMESPACE) -> Object | None:
        """Return an object, None when there is none."""
        try:
            return await self.cluster.api.get(self._kind(resource), namespace, name)
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    async def all(self, resource: str, namespace: str | None = None) -> list[Object]:
        """Return all objects of a resource."""
        return (await self.cluster.api.list(self._kind(resource), namespace)).objects

    async def workload(self, root: str, namespace: str = NAMESPACE) -> Object | None:
        """Return the newest GpuWorkload of `Kind/name`."""
        kind, _, name = root.partition("/")
        found = [
            item
            for item in await self.all(GPU_WORKLOADS, namespace)
            if (item["spec"]["workloadRef"]["kind"], item["spec"]["workloadRef"]["name"])
            == (kind, name)
        ]
        return max(found, key=lambda i: int(i["metadata"]["resourceVersion"]), default=None)

    async def phase(self, root: str, namespace: str = NAMESPACE) -> str | None:
        """Return the phase of a root's GpuWorkload, None when there is none."""
        found = await self.workload(root, namespace)
        return None if found is None else found.get("status", {}).get("phase", "")

    async def condition(self, root: str, type: str = "MetricsAvailable") -> tuple[str, str]:
        """Return status and reason of a condition, empty when there is none."""
        found = await self.workload(root)
        for condition in (found or {}).get("status", {}).get("conditions", ()):
            if condition["type"] == type:
                return condition["status"], condition["reason"]
        return "", ""

    async def events(self, about: str, reason: str = "") -> list[str]:
        """Return the messages of the events about `Kind/name` (a prefix of the name is enough)."""
        kind, _, name = about.partition("/")
        return [
            event["message"]
            for event in await self.all("events")
            if event["involvedObject"]["kind"] == kind
            and event["involvedObject"]["name"].startswith(name)
            and reason in ("", event["reason"])
        ]

    async def records(self) -> list[Object]:
        """Return the Preemptions of the operator's namespace, oldest first."""
        found = await self.all(PREEMPTIONS, OPERATOR_NAMESPACE)
        return sorted(found, key=lambda record: int(record["metadata"]["resourceVersion"]))

    def evictions(self) -> list[str]:
        """Return verb and path of the operator's writes to other people's objects."""
        own = (
            "/configmaps",
            "/disruptions",
            "/events",
            "/gpuworkloads",
            "/kaiwoconfigs",
            "/leases",
            "/preemptionnotices",
            "/preemptions",
            "/secrets",
            "/selfsubj",
        )
        return [
            f"{write.verb} {write.path.split('?')[0]}"
            for write in self.writes
            if not any(part in write.path for part in own)
        ]

    # Waiting

    @overload
    async def until(
        self, condition: Callable[[], Awaitable[Answer | None]], seconds: float = _PATIENCE_S
    ) -> Answer: ...

    @overload
    async def until(
        self, condition: Callable[[], Answer | None], seconds: float = _PATIENCE_S
    ) -> Answer: ...

    async def until(
        self,
        condition: Callable[[], Answer | Awaitable[Answer | None] | None],
        seconds: float = _PATIENCE_S,
    ) -> Answer:
        """Return the first answer that is true."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            answer = condition()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            if loop.time() > deadline:
                raise AssertionError(f"nothing came\n{await self.told()}")
            await asyncio.sleep(_LOOK_S)

    async def until_phase(self, root: str, *phases: str, seconds: float = _PATIENCE_S) -> Object:
        """Return the GpuWorkload once it is in one of the phases."""

        async def reached() -> Object | None:
            found = await self.workload(root)
            in_phase = found is not None and found.get("status", {}).get("phase") in phases
            return found if in_phase else None

        found = await self.until(reached, seconds)
        assert found is not None
        return found

    async def until_event(self, about: str, reason: str, *parts: str) -> str:
        """Return the message of the first event with this reason that holds all parts."""

        async def seen() -> str:
            messages = await self.events(about, reason)
            return next((m for m in messages if all(part in m for part in parts)), "")

        return await self.until(seen)

    async def told(self) -> str:
        """Return what there is, for a failure's message."""
        workloads = [
            (item["metadata"]["name"], item["spec"], item.get("status"))
            for item in await self.all(GPU_WORKLOADS)
        ]
        records = [(r["metadata"]["name"], r.get("status")) for r in await self.records()]
        events = [
            f"{event['involvedObject']['kind']}/{event['involvedObject']['name']} "
            f"{event['reason']}: {event['message']}"
            for event in await self.all("events")
            if event.get("reportingComponent") == "gpuworkload-controller"
        ]
        texts = [*map(str, workloads), *map(str, records), *events, *self.lines[-60:]]
        return "\n".join(texts)

    def _kind(self, resource: str) -> Any:
        plural, _, group = resource.partition(".")
        kind = self.cluster.registry.stored(group, plural)
        assert kind is not None, resource
        return kind


def _of_own_lease(write: Write) -> bool:
    path = write.path.split("?")[0]
    created = path.endswith("/leases") and b'"name":"reprieve"' in write.body
    return path.endswith("/leases/reprieve") or created


_BY_HAND = WriteOptions(field_manager="kubectl-client-side-apply")


@asynccontextmanager
async def open_site(
    folder: Path, nodes: Sequence[NodeSpec] = (), *, kueue: bool = False
) -> AsyncIterator[Site]:
    """Start a cluster of one node with 8 GPUs (or `nodes`) and the team's namespace.

    `kueue`: it serves the kinds of Kueue.
    """
    nodes = nodes or [NodeSpec("gpu-0", {"amd.com/gpu": "8"})]
    async with embedded_stage(nodes, folder, clock=LoopClock(), kueue=kueue) as embedded:
        site = Site(embedded, folder, [])
        await site.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        embedded.cluster.on_write = site.on_write
        try:
            yield site
        finally:
            for operator in site._operators:
                await operator.stop()
