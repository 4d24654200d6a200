"""What waits for GPU quota is a demand for the idle plane, which reclaims once for it.

Both planes run beside each other: this one here, the idle plane as a process of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve.jobs.table import queued_kinds
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import GPU_WORKLOADS, PODS
from reprieve.scenarios.model import NodeSpec
from tests.quota_plane.gated_site import QUEUE, gated_site
from tests.quota_plane.site import JOBS, NAMESPACE, Object, Site, cluster_queue, flavor, local_queue

pytestmark = pytest.mark.real_time  # the idle plane is a process of its own

GPU = "amd.com/gpu"
ENABLED = {"kaiwo.silogen.ai/gpu-preemption.enabled": "true"}
ENVIRONMENT = {
    "GPU_PREEMPTION_ENABLED": "true",
    "GPU_PREEMPTION_POLLING_INTERVAL": "300ms",
    "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "1s",
}
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"


def gpus(count: int) -> Object:
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(count)}}}
    return {"terminationGracePeriodSeconds": 1, "containers": [container]}


def gpu_job(name: str, pods: int, each: int) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**metadata, "labels": {QUEUE: "q"}, "annotations": ENABLED},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"restartPolicy": "Never", **gpus(each)}},
        },
    }


def gang(name: str, size: int, each: int) -> list[Object]:
    labels, annotations = {QUEUE: "q", GROUP: name}, {**ENABLED, TOTAL: str(size)}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": NAMESPACE,
                "labels": labels,
                "annotations": annotations,
            },
            "spec": gpus(each),
        }
        for number in range(size)
    ]


def base(count: int) -> list[Object]:
    quotas = {"name": GPU, "nominalQuota": str(count)}
    flavors = [{"name": "default-flavor", "resources": [quotas]}]
    groups = [{"coveredResources": [GPU], "flavors": flavors}]
    return [flavor(), cluster_queue("cq", 0, resourceGroups=groups), local_queue("q", "cq")]


async def test_an_idle_job_is_reclaimed_once_for_a_queued_job_and_once_for_a_gang(
    tmp_path: Path,
) -> None:
    nodes = [NodeSpec("gpu-0", {GPU: "8", "cpu": "16", "memory": "32Gi", "pods": "110"})]
    kinds = queued_kinds(("batch/job", "pod"), {})
    async with gated_site(tmp_path, *base(8), kinds=kinds, nodes=nodes) as cluster:
        await cluster.create(gpu_job("idle-a", 1, 4), gpu_job("idle-b", 2, 2))
        await cluster.until_admitted("idle-a", "idle-b")
        async with idle_plane(cluster):
            await cluster.until("both are idle", lambda: idle(cluster, "idle-a", "idle-b"))
            await cluster.create(gpu_job("queued", 2, 2))
            await cluster.until("the queued job runs", lambda: runs(cluster, "queued", 2))
            (first,) = await reclaimed(cluster)
            kept = ({"idle-a", "idle-b"} - {first}).pop()
            assert first in ("idle-a", "idle-b")
            # Of two idle jobs of four GPUs each one is enough for a gang of four.
            await cluster.until("the others are idle", lambda: idle(cluster, kept, "queued"))
            for pod in gang("ring", 2, 2):
                await cluster.client.create(PODS, pod, dict)
            await cluster.until("the gang runs", lambda: gang_runs(cluster, "ring", 2))
            assert len(await reclaimed(cluster)) == 2
            left = [name for name in (kept, "queued") if await exists(cluster, name)]
            assert len(left) == 1


@asynccontextmanager
async def idle_plane(cluster: Site) -> AsyncIterator[None]:
    """Run the idle plane as a process; what fails meanwhile is told with what it said and saw."""
    operator = cluster.embedded.stage.launch(ENVIRONMENT, 1)
    await operator.start()
    try:
        yield
    except Exception as error:
        page = await cluster.client.list(GPU_WORKLOADS, dict, namespace=NAMESPACE)
        for each in page.items:
            error.add_note(f"{each['spec']['workloadRef']}: {each.get('status')}")
        for intent in await cluster.intents():
            error.add_note(f"{intent['metadata']['name']}: {intent['spec']['victims']}")
        error.add_note("\n".join(["the operator:", *operator.tail(200)]))
        raise
    finally:
        await operator.stop()


async def idle(cluster: Site, *names: str) -> bool:
    page = await cluster.client.list(GPU_WORKLOADS, dict, namespace=NAMESPACE)
    found = {
        each["spec"]["workloadRef"]["name"]
        for each in page.items
        if (each.get("status") or {}).get("phase") == "Idle"
    }
    return set(names) <= found


async def runs(cluster: Site, name: str, pods: int) -> bool:
    return len(running(await cluster.pods_of(name))) == pods


async def gang_runs(cluster: Site, name: str, pods: int) -> bool:
    page = await cluster.client.list(
        PODS, dict, namespace=NAMESPACE, label_selector=f"{GROUP}={name}"
    )
    return len(running(page.items)) == pods


def running(pods: list[Any]) -> list[Any]:
    return [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]


async def reclaimed(cluster: Site) -> list[str]:
    """Return the names of all roots that the idle plane has evicted."""
    return [
        victim["root"]["name"]
        for intent in await cluster.intents()
        if intent["spec"]["plane"] == "idle"
        for victim in intent["spec"]["victims"]
    ]


async def exists(cluster: Site, name: str) -> bool:
    try:
        job: Object = await cluster.client.get(JOBS, NAMESPACE, name, dict)
    except NotFound:
        return False
    return "deletionTimestamp" not in job["metadata"]
