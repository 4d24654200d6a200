"""Hostile objects of every plane against a running operator: it answers, and serves everybody else.

One tenant writes long, nested, numeric, odd and regex-like text into all annotations and fields
that the operator reads, of pods, jobs, groups, queues' workloads and idle workloads. All planes run
in one process that knows a kubeconfig and a metrics URL. Somebody else asks it for its health all
the while, and good objects come in between.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from reprieve.api.kaiwo import ANNOTATION_PREFIX, DERIVED_ANNOTATION, SUFFIXES
from reprieve.api.reprieve import ON_PREEMPTION
from reprieve.local.server.errors import StatusError
from reprieve.local.server.options import WriteOptions
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, EmbeddedStage, embedded_stage
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.operator import OperatorProcesses
from tests.fuzz.targets import POD_NOTES
from tests.ports import free_port

TEAM: Final = "team"
NAMESPACES: Final = ("team", "other")
SCHEDULER: Final = "default-scheduler"
#: A generous order of magnitude: a broken rule stops the operator for minutes.
ANSWERS_WITHIN_S: Final = 10.0
MOST_MEMORY: Final = 768 * 2**20
PATIENCE_S: Final = 240.0

Object = dict[str, Any]


def texts(random: Random) -> str:
    """Return some hostile text."""
    size = random.choice((1, 40, 300, 5_000, 5_000, 60_000))
    piece = random.choice(
        (
            *("1", "9", "1.", "1s", "[", '{"a":', "(.|.)", "a*", "\\", "ä", "٣", "\N{SNOWMAN}"),
            *("-", "1e9", "0x", "T", "%s", "${jndi:", "../", "\x1b[0m", "true", "null", "Ki"),
        )
    )
    end = random.choice(("", "x", "s", "m", "e99999", "]", "Z", "!", '"'))
    return (piece * size)[:size] + end


def annotations(random: Random) -> dict[str, str]:
    keys = (
        *POD_NOTES,
        *(f"{ANNOTATION_PREFIX}{suffix}" for suffix in (*SUFFIXES, "unknown")),
        DERIVED_ANNOTATION,
        ON_PREEMPTION,
        "kueue.x-k8s.io/job-min-parallelism",
        "kueue.x-k8s.io/retriable-in-group",
    )
    return {key: texts(random) for key in random.sample(keys, random.choice((1, 3, 5)))}


def pod_spec(random: Random, *, node: str = "", gpus: int = 0) -> Object:
    requests = {"cpu": random.choice(("1m", "1", texts(random)))}
    container: Object = {"name": "c", "image": "busybox", "resources": {"requests": requests}}
    if gpus:
        container["resources"]["limits"] = {"amd.com/gpu": str(gpus)}
    spec: Object = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if node:
        spec["nodeName"] = node
    if random.random() < 0.3:
        spec["tolerations"] = [{"key": "k", "operator": "Equal", "value": texts(random)[:63]}]
    if random.random() < 0.3:
        value = {"key": "zone", "operator": "Gt", "values": [texts(random)]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [value]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required}
    return spec


def hostile(random: Random, number: int) -> Object:
    """Return an object that a tenant may write."""
    metadata = {"name": f"odd-{number}", "namespace": TEAM, "annotations": annotations(random)}
    queue = {"kueue.x-k8s.io/queue-name": random.choice(("q", "none"))}
    match random.choice(
        ("pod", "pod", "bound", "job", "queued", "group", "workload", "gpu", "claim")
    ):
        case "pod":
            return _object("v1", "Pod", metadata, pod_spec(random))
        case "bound":
            return _object("v1", "Pod", metadata, pod_spec(random, node="odd"))
        case "job":
            template = {"spec": {**pod_spec(random, gpus=1), "restartPolicy": "Never"}}
            return _object("batch/v1", "Job", metadata, {"template": template})
        case "queued":
            template = {"spec": {**pod_spec(random), "restartPolicy": "Never"}}
            spec = {"suspend": True, "template": template}
            return _object("batch/v1", "Job", {**metadata, "labels": queue}, spec)
        case "group":
            policy = {"gang": {"minCount": random.choice((1, 2**31 - 1))}}
            spec = {"schedulingPolicy": policy}
            return _object("scheduling.k8s.io/v1alpha3", "PodGroup", metadata, spec)
        case "workload":
            pods = {"name": "main", "count": 1, "template": {"spec": pod_spec(random)}}
            spec = {"queueName": "q", "podSets": [pods]}
            return _object("kueue.x-k8s.io/v1beta2", "Workload", metadata, spec)
        case "claim":
            expression = f'device.attributes["a"].b.matches("{texts(random)[:4_000]}")'
            asked = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}
            spec = {"devices": {"requests": [{"name": "r", "exactly": asked}]}}
            return _object("resource.k8s.io/v1", "ResourceClaim", metadata, spec)
        case _:
            root = {"apiVersion": "v1", "kind": "Pod", "name": texts(random)[:253], "uid": "u"}
            spec = {
                "workloadRef": root,
                "gpuResources": {"amd.com/gpu": 1},
                "gracePeriod": texts(random),
                "ttlAfterFinished": texts(random),
            }
            return _object("kaiwo.silogen.ai/v1alpha1", "GpuWorkload", metadata, spec)


def _object(api: str, kind: str, metadata: Object, spec: Object) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


class Health(threading.Thread):
    """Asks for `/healthz` all the while; `slowest` in seconds, `answers` by what was answered."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port, self._end = port, threading.Event()
        self.slowest, self.answers = 0.0, Counter[str]()

    def run(self) -> None:
        while not self._end.wait(0.1):
            start = time.monotonic()
            try:
                asked = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
                asked.request("GET", "/healthz")
                self.answers[str(asked.getresponse().status)] += 1
                asked.close()
            except (OSError, http.client.HTTPException) as error:
                self.answers[repr(error)] += 1
            self.slowest = max(self.slowest, time.monotonic() - start)

    def stop(self) -> None:
        self._end.set()
        self.join()


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
            assert kind is not None, obj["kind"]
            namespace = obj["metadata"].get("namespace", "")
            await cluster.api.create(kind, namespace, obj, WriteOptions())

    async def try_to_create(self, obj: Object) -> None:
        try:
            await self.create(obj)
            self.stored[obj["kind"]] += 1
        except StatusError:
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
    random = Random(number)
    spec = pod_spec(random)
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
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "default-flavor", "resources": [queue]}],
    }
    api = "kueue.x-k8s.io/v1beta2"
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    return [
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


@pytest.mark.parametrize(
    "count", [200, pytest.param(10_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
async def test_hostile_objects_hold_nobody_up(count: int, tmp_path: Path) -> None:
    gpus = str(32 + count // 7)  # the exporter tells of each
    amounts = {"cpu": "4000", "memory": "4000Gi", "pods": "20000", "amd.com/gpu": gpus}
    nodes = [NodeSpec(name, dict(amounts)) for name in ("good", "odd")]
    lines, port = list[str](), free_port()
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
            on_line=lines.append,
        )
        await operator.start()
        try:
            await operator.until_said("telemetry on port", PATIENCE_S)
            await site.create(*good(0))
            await until(
                "the first good objects", lambda: is_served(site, 0), lambda: site.told(0, lines)
            )
            before = memory_of(operator.pids[0])
            health = Health(port)
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
    print(
        f"{sum(site.stored.values())} stored {dict(site.stored)}, refused {dict(site.refused)}; "
        f"/healthz: {sum(health.answers.values())} answers, the slowest {health.slowest:.2f} s; "
        f"memory {before / 2**20:.0f} to {memory / 2**20:.0f} MiB"
    )
    assert sum(site.stored.values()) > count / 3, site.refused
    assert len(site.stored) >= 6, site.stored
    assert set(health.answers) == {"200"}, (health.answers, lines[-20:])
    assert health.slowest < ANSWERS_WITHIN_S
    assert memory < MOST_MEMORY
    assert not [line for line in lines if "Traceback" in line], lines
