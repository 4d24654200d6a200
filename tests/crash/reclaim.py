"""One reclaim on an embedded cluster, with the operator as processes that can be killed.

Two idle Jobs of two GPUs are preempted for one of four: a set of two victims, marked and evicted
for one demand, so that a crash may fall between any two of its writes.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from kubelocal.cluster import Stage, Write
from kubelocal.server.writing.options import PatchType, WriteOptions
from reprieve.scenarios.embedded import (
    OPERATOR_NAMESPACE,
    OPERATOR_USER,
    EmbeddedStage,
    embedded_stage,
)
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.operator import OperatorProcesses
from tests.crash.evicted import evicted, together

NAMESPACE = "team"
ENVIRONMENT = {
    "GPU_PREEMPTION_ENABLED": "true",
    "GPU_PREEMPTION_POLLING_INTERVAL": "300ms",
    "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "1s",
}
GPU_WORKLOADS = "gpuworkloads.kaiwo.silogen.ai"
PREEMPTIONS = "preemptions.reprieve.dev"
_RENEWAL = "/leases/reprieve"
_PATIENCE_S = 120.0

Hook = Callable[[int, Write, Stage], Awaitable[None]]


def job(name: str, gpus: int, **annotations: str) -> dict[str, Any]:
    container = {
        "name": "work",
        "image": "busybox",
        "resources": {"limits": {"amd.com/gpu": str(gpus)}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {"kaiwo.silogen.ai/gpu-preemption.enabled": "true", **annotations},
        },
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


@dataclass
class Reclaim:
    """The stage, the writes that count, and the processes that were started."""

    embedded: EmbeddedStage
    counted: int = 0
    numbers: dict[int, int] = field(default_factory=dict)
    hook: Hook | None = None
    deleted: Counter[str] = field(default_factory=Counter)
    started: list[OperatorProcesses] = field(default_factory=list)

    async def on_write(self, write: Write, stage: Stage) -> None:
        # Renewals of the process lease come with time, not with progress.
        if write.user != OPERATOR_USER or write.path.split("?")[0].endswith(_RENEWAL):
            return
        if stage is Stage.BEFORE:
            self.counted += 1
            self.numbers[write.index] = self.counted
            return
        if stage is Stage.STORED and write.verb == "delete" and "/jobs/" in write.path:
            self.deleted[orjson.loads(write.body)["preconditions"]["uid"]] += 1
        if self.hook is not None:
            await self.hook(self.numbers[write.index], write, stage)

    async def start_operator(self, module: str = "reprieve") -> OperatorProcesses:
        operator = self.embedded.stage.launch(ENVIRONMENT, 1)
        if module != "reprieve":
            operator = OperatorProcesses(
                self.embedded.operator_kubeconfig,
                {
                    "GPU_PREEMPTION_METRICS_ENDPOINT": self.embedded.metrics_endpoint,
                    "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
                    **ENVIRONMENT,
                },
                arguments=("--metrics-port", "0"),
                module=module,
            )
        self.started.append(operator)
        await operator.start()
        return operator

    async def free_leases(self) -> None:
        """Let the leases of a process that is dead run out at once."""
        kind = self.embedded.cluster.registry.stored("coordination.k8s.io", "leases")
        assert kind is not None
        for lease in await self.objects(kind.resource):
            metadata = lease["metadata"]
            if metadata["namespace"] == OPERATOR_NAMESPACE:
                free = orjson.dumps({"spec": {"holderIdentity": ""}})
                await self.embedded.cluster.api.patch(
                    kind,
                    OPERATOR_NAMESPACE,
                    metadata["name"],
                    free,
                    PatchType.MERGE,
                    WriteOptions(),
                )

    async def objects(self, resource: str) -> list[dict[str, Any]]:
        api = self.embedded.cluster.api
        plural, _, group = resource.partition(".")
        kind = self.embedded.cluster.registry.stored(group, plural)
        assert kind is not None
        listed = await api.list(kind, None)
        return listed.objects

    async def until_over(self) -> None:
        """Wait until the demand runs, both victims are Preempted and no intent is open."""
        for _ in range(int(_PATIENCE_S / 0.1)):
            if await self._over():
                return
            await asyncio.sleep(0.1)
        log = [line for operator in self.started for line in operator.tail(40)]
        state = {
            "workloads": await self.outcome(),
            "intents": [i.get("status") for i in await self.objects(PREEMPTIONS)],
        }
        raise AssertionError(f"not over after {_PATIENCE_S} s: {state}\n" + "\n".join(log))

    async def until_led_by(self, operator: OperatorProcesses) -> None:
        """Wait until the process lease is held by this process."""
        for _ in range(int(_PATIENCE_S / 0.1)):
            for lease in await self.objects("leases.coordination.k8s.io"):
                holder = lease["spec"].get("holderIdentity", "")
                named = lease["metadata"]["name"] == "reprieve"
                if named and f"_{operator.pids[0]}_" in holder:
                    return
            await asyncio.sleep(0.1)
        raise AssertionError("nobody took over: " + "\n".join(operator.tail()))

    async def outcome(self) -> dict[str, Any]:
        """Return what must be the same whatever was killed: without uids and times."""
        workloads = {}
        for found in await self.objects(GPU_WORKLOADS):
            status = found.get("status", {})
            workloads[_named(found["metadata"]["name"])] = {
                "spec": {
                    key: value for key, value in found["spec"].items() if key != "workloadRef"
                },
                "phase": status.get("phase"),
                "preemptedFor": _named(status.get("preemptedFor", "")),
                "preemptionReason": _named(status.get("preemptionReason", "")),
                "ownerChain": _chain(status.get("ownerChain", "")),
            }
        return {
            "gpuworkloads": workloads,
            "jobs": sorted(found["metadata"]["name"] for found in await self.objects("jobs.batch")),
        }

    async def committed(self) -> Counter[str]:
        """Return how many intents that evicted somebody name each root uid."""
        heads = [
            intent
            for intent in await self.objects(PREEMPTIONS)
            if intent["status"]["phase"] in ("Evicting", "Completed")
        ]
        return evicted(together(heads, await self.objects("preemptionparts.reprieve.dev")))

    async def _over(self) -> bool:
        outcome = await self.outcome()
        phases = sorted(found["phase"] or "" for found in outcome["gpuworkloads"].values())
        intents = await self.objects(PREEMPTIONS)
        return (
            outcome["jobs"] == ["demand"]
            and phases in (["Active", "Preempted", "Preempted"], ["Idle", "Preempted", "Preempted"])
            and bool(intents)
            and all(
                intent.get("status", {}).get("phase") in ("Completed", "Abandoned")
                for intent in intents
            )
        )


@asynccontextmanager
async def reclaim(folder: Path, *arguments: str) -> AsyncIterator[Reclaim]:
    """Two idle victims run, the demand waits; no operator yet."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    async with embedded_stage(
        [NodeSpec("gpu-0", {"amd.com/gpu": "4"})],
        folder,
        operator_arguments=arguments,
    ) as embedded:
        objects = embedded.stage.objects
        await objects.create("namespaces", {"metadata": {"name": NAMESPACE}} | _core("Namespace"))
        await objects.create("jobs.batch", job("victim-a", 2))
        await objects.create("jobs.batch", job("victim-b", 2))
        await _running(embedded, 2)
        # Busy afterwards, so that the end of the story is the same however long it takes.
        embedded.stage.exporter.set_utilization(
            NAMESPACE, "Job/demand", 90.0, gpu=None, pod_index=None
        )
        await objects.create("jobs.batch", job("demand", 4))
        story = Reclaim(embedded)
        embedded.cluster.on_write = story.on_write
        try:
            yield story
        finally:
            for operator in story.started:
                await operator.stop()


async def _running(embedded: EmbeddedStage, count: int) -> None:
    def running() -> bool | None:
        pods = embedded.stage.observer.all("pods", NAMESPACE)
        ready = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
        return True if len(ready) == count else None

    assert await embedded.stage.observer.until(running, _PATIENCE_S)


def _core(kind: str) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": kind}


def _named(text: str) -> str:
    """Names and texts without the parts that are made of uids."""
    return re.sub(r"-[0-9a-f]{8}\b", "", text)


def _chain(text: str) -> str:
    return re.sub(r"Pod/([a-z-]+)-[a-z0-9]{5}", r"Pod/\1", text)


__all__ = ["NAMESPACE", "OPERATOR_NAMESPACE", "Reclaim", "job", "reclaim"]
