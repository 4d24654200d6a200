"""Hostile objects of every plane against a running operator: it answers, and serves everybody else.

One tenant writes long, nested, numeric, odd and regex-like text into all annotations and fields
that the operator reads, of pods, jobs, groups, queues' workloads and idle workloads. All planes run
in one process that knows a kubeconfig and a metrics URL. Somebody else asks it for its health all
the while, and good objects come in between. How long it is silent is told in processor time that it
spends meanwhile, so that a machine with other work says nothing about it.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from kubelocal.server.errors import StatusError
from kubelocal.server.writing.options import WriteOptions
from kubelocal.store import TooLarge
from reprieve.api.kaiwo import ANNOTATION_PREFIX
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, EmbeddedStage, embedded_stage
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.operator import OperatorProcesses
from tests.hostile.objects import Object, hostile
from tests.ports import free_port

NAMESPACES: Final = ("team", "other")
SCHEDULER: Final = "default-scheduler"
#: Processor seconds of the operator between question and answer.
SILENT_FOR_S: Final = 1.0
MOST_MEMORY: Final = 512 * 2**20  # the chart's limit
PATIENCE_S: Final = 900.0


def _object(api: str, kind: str, metadata: Object, spec: Object) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


class Health(threading.Thread):
    """Asks for `/healthz` all the while.

    `slowest` answer in seconds, `silent` in seconds of the operator's own processor time;
    `answers` by what was answered.
    """

    def __init__(self, port: int, process: int) -> None:
        super().__init__(daemon=True)
        self._port, self._process, self._end = port, process, threading.Event()
        self.slowest, self.silent, self.answers = 0.0, 0.0, Counter[str]()

    def run(self) -> None:
        while not self._end.wait(0.1):
            start, spent = time.monotonic(), spent_by(self._process)
            try:
                asked = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
                asked.request("GET", "/healthz")
                self.answers[str(asked.getresponse().status)] += 1
                asked.close()
            except (OSError, http.client.HTTPException) as error:
                self.answers[repr(error)] += 1
            self.slowest = max(self.slowest, time.monotonic() - start)
            self.silent = max(self.silent, spent_by(self._process) - spent)

    def stop(self) -> None:
        self._end.set()
        self.join()


def spent_by(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    """Return the resident set of a process in bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024


class Site:
    def __init__(self, embedded: EmbeddedStage) -> None:
        self.embedded = embedded
        self.refused: Counter[str] = Counter()
        self.stored: Counter[str] = Counter()

    async def create(self, *objects: Object) -> None:
        for obj in objects:
            cluster = self.embedded.cluster
            kind = cluster.registry.by_kind(obj["apiVersion"], obj["kind"])
            assert kind is not None, (obj["apiVersion"], obj["kind"])
            namespace = obj["metadata"].get("namespace", "")
            await cluster.api.create(kind, namespace, obj, WriteOptions())

    async def try_to_create(self, obj: Object) -> None:
        try:
            await self.create(obj)
            self.stored[obj["kind"]] += 1
        except (StatusError, TooLarge):
            self.refused[obj["kind"]] += 1

    async def get(self, api: str, kind: str, name: str) -> Object | None:
        cluster = self.embedded.cluster
        found = cluster.registry.by_kind(api, kind)
        assert found is not None
        for each in (await cluster.api.list(found, "other")).objects:
            if each["metadata"]["name"].startswith(name):
                return each
        return None

    async def told(self, number: int, lines: list[str]) -> str:
        found = [
            await self.get("v1", "Pod", f"good-pod-{number}"),
            await self.get("kaiwo.silogen.ai/v1alpha1", "GpuWorkload", f"job-good-idle-{number}"),
            await self.get("kueue.x-k8s.io/v1beta2", "Workload", f"job-good-queued-{number}"),
        ]
        return "\n".join([*map(str, found), *lines[-30:]])


async def is_served(site: Site, number: int) -> bool:
    """Tell whether the good objects of all three planes have got what they want."""
    pod = await site.get("v1", "Pod", f"good-pod-{number}")
    idle = await site.get("kaiwo.silogen.ai/v1alpha1", "GpuWorkload", f"job-good-idle-{number}")
    queued = await site.get("kueue.x-k8s.io/v1beta2", "Workload", f"job-good-queued-{number}")
    conditions = (queued or {}).get("status", {}).get("conditions", ())
    return (
        pod is not None
        and bool(pod["spec"].get("nodeName"))
        and (idle or {}).get("status", {}).get("phase") in ("Idle", "Active")
        and any(each["type"] == "Admitted" and each["status"] == "True" for each in conditions)
    )


def good(number: int) -> list[Object]:
    spec = {"containers": [{"name": "c", "image": "b", "resources": {"requests": {"cpu": "1m"}}}]}
    never = {**spec, "restartPolicy": "Never"}
    gpus = {"name": "c", "image": "b", "resources": {"limits": {"amd.com/gpu": "1"}}}
    idle = {"containers": [gpus], "restartPolicy": "Never"}
    notes = {f"{ANNOTATION_PREFIX}grace-period": "1h"}
    queue = {"kueue.x-k8s.io/queue-name": "q"}

    def named(what: str, **more: Any) -> Object:
        return {"name": f"good-{what}-{number}", "namespace": "other", **more}

    return [
        _object("v1", "Pod", named("pod"), spec),
        _object("batch/v1", "Job", named("idle", annotations=notes), {"template": {"spec": idle}}),
        _object(
            "batch/v1",
            "Job",
            named("queued", labels=queue),
            {"suspend": True, "template": {"spec": never}},
        ),
    ]


def configuration() -> list[Object]:
    queue = {"name": "cpu", "nominalQuota": "1000"}
    # Without it, a Job of 2^31-1 pods that ask for nothing is admitted and fills the store.
    pods = {"name": "pods", "nominalQuota": "20000"}
    group = {
        "coveredResources": ["cpu", "pods"],
        "flavors": [{"name": "default-flavor", "resources": [queue, pods]}],
    }
    api = "kueue.x-k8s.io/v1beta2"
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    driver = "gpu.example.com"
    device = {
        "attributes": {"b": {"string": "a" * 64}},
        "capacity": {"b": {"value": "40Gi"}},
    }
    devices = {
        "driver": driver,
        "nodeName": "good",
        "pool": {"name": "good", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}", **device} for number in range(4)],
    }
    return [
        _object("resource.k8s.io/v1", "DeviceClass", {"name": "gpu"}, {}),
        _object("resource.k8s.io/v1", "ResourceSlice", {"name": "good"}, devices),
        *(_object("v1", "Namespace", {"name": name}, {}) for name in NAMESPACES),
        _object(api, "ResourceFlavor", {"name": "default-flavor"}, {}),
        _object(api, "ClusterQueue", {"name": "cq"}, spec),
        *(
            _object(api, "LocalQueue", {"name": "q", "namespace": name}, {"clusterQueue": "cq"})
            for name in NAMESPACES
        ),
    ]


async def until(what: str, holds: Any, told: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not await holds():
        assert time.monotonic() < end, f"{what}: never; {await told()}"
        await asyncio.sleep(0.5)


def tracebacks(lines: list[str]) -> list[str]:
    """Return the line before each traceback of the log, and what it ends with."""
    found = []
    for number, line in enumerate(lines):
        if line.startswith("  Traceback"):
            end = next((e for e in lines[number + 1 :] if not e.startswith("    ")), "")
            found.append(f"{lines[number - 1][:300]}: {end.strip()[:300]}")
    return found


@pytest.mark.parametrize(
    "count", [200, pytest.param(10_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
async def test_hostile_objects_hold_nobody_up(count: int, tmp_path: Path) -> None:
    gpus = str(32 + count // 7)  # the exporter tells of each
    amounts = {"cpu": "4000", "memory": "4000Gi", "pods": "20000", "amd.com/gpu": gpus}
    nodes = [NodeSpec(name, dict(amounts)) for name in ("good", "odd")]
    lines, port = list[str](), free_port()
    log = (tmp_path / "operator.log").open("w", buffering=1)

    def keep(line: str) -> None:
        lines.append(line)
        print(line, file=log)

    async with embedded_stage(nodes, tmp_path, kueue=True, scheduler=False) as embedded:
        site = Site(embedded)
        await site.create(*configuration())
        operator = OperatorProcesses(
            embedded.operator_kubeconfig,
            {
                "GPU_PREEMPTION_ENABLED": "true",
                "GPU_PREEMPTION_POLLING_INTERVAL": "1s",
                "GPU_PREEMPTION_METRICS_ENDPOINT": embedded.metrics_endpoint,
                "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
            },
            arguments=(
                *("--controllers", "idle,quota,scheduling"),
                *("--scheduler-name", SCHEDULER, "--metrics-port", str(port)),
            ),
            on_line=keep,
        )
        await operator.start()
        try:
            await operator.until_said("telemetry on port", PATIENCE_S)
            await site.create(*good(0))
            await until(
                "the first good objects", lambda: is_served(site, 0), lambda: site.told(0, lines)
            )
            before = memory_of(operator.pids[0])
            health = Health(port, operator.pids[0])
            health.start()
            random = Random(count)
            for number in range(count):
                await site.try_to_create(hostile(random, number))
                await asyncio.sleep(0.01)
            await site.create(*good(1))
            await until(
                "good objects amid hostile ones",
                lambda: is_served(site, 1),
                lambda: site.told(1, lines),
            )
            health.stop()
            memory = memory_of(operator.pids[0])
        finally:
            await operator.stop()
            log.close()
    print(
        f"{sum(site.stored.values())} stored {dict(site.stored)}, refused {dict(site.refused)}; "
        f"/healthz: {sum(health.answers.values())} answers, the slowest after "
        f"{health.slowest:.2f} s, of which the operator worked {health.silent:.2f} s at most; "
        f"memory {before / 2**20:.0f} to {memory / 2**20:.0f} MiB"
    )
    assert sum(site.stored.values()) > count / 3, site.refused
    assert len(site.stored) >= 6, site.stored
    assert set(health.answers) == {"200"}, (health.answers, lines[-20:])
    assert health.silent < SILENT_FOR_S
    assert memory < MOST_MEMORY
    assert tracebacks(lines) == []
