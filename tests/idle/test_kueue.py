"""Kueue's queues beside the idle plane: a job that waits for GPU quota is a demand (difference D8).

Kueue itself is not there: the test writes what its controller writes, over a permissive CRD.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.scenarios.embedded import EmbeddedStage, embedded_stage
from reprieve.scenarios.model import NodeSpec

pytestmark = pytest.mark.real_time


NAMESPACE = "team"
WORKLOADS = "workloads.kueue.x-k8s.io"
ENVIRONMENT = {
    "GPU_PREEMPTION_ENABLED": "true",
    "GPU_PREEMPTION_POLLING_INTERVAL": "300ms",
    "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "1s",
}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": WORKLOADS},
    "spec": {
        "group": "kueue.x-k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "Workload",
            "listKind": "WorkloadList",
            "plural": "workloads",
            "singular": "workload",
        },
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def job(name: str, gpus: int, *, suspend: bool = False) -> dict[str, Any]:
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
            "annotations": {"kaiwo.silogen.ai/gpu-preemption.enabled": "true"},
        },
        "spec": {
            "suspend": suspend,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def waiting_for(owner: dict[str, Any], message: str) -> dict[str, Any]:
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    condition = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": message,
        "lastTransitionTime": "2026-03-04T10:00:00Z",
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{owner['metadata']['name']}",
            "namespace": NAMESPACE,
            "ownerReferences": [reference],
        },
        "status": {"conditions": [condition]},
    }


def phase_is(embedded: EmbeddedStage, root: str, phase: str) -> bool | None:
    found = embedded.stage.observer.gpuworkload(NAMESPACE, root)
    return True if found is not None and found.get("status", {}).get("phase") == phase else None


async def test_a_suspended_job_that_waits_for_gpu_quota_is_served_and_one_for_cpu_is_not(
    tmp_path: Path,
) -> None:
    nodes = [NodeSpec("gpu-0", {"amd.com/gpu": "4"})]
    async with embedded_stage(nodes, tmp_path) as embedded:
        stage = embedded.stage
        objects, until = stage.objects, stage.observer.until
        await objects.create("customresourcedefinitions.apiextensions.k8s.io", CRD)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await objects.create("namespaces", namespace)
        await objects.refresh()
        await objects.create("jobs.batch", job("victim", 4))
        operator = stage.launch(ENVIRONMENT, 1)
        await operator.start()
        try:
            assert await until(lambda: phase_is(embedded, "Job/victim", "Idle"), 60)
            for name, resource in (("held-by-cpu", "cpu"), ("held-by-gpu", "amd.com/gpu")):
                held = await objects.create("jobs.batch", job(name, 4, suspend=True))
                message = f"couldn't assign flavors: insufficient quota for {resource}"
                workload = waiting_for(held, message)
                await objects.create(WORKLOADS, workload)
                stored = await objects.get(WORKLOADS, NAMESPACE, f"job-{name}")
                assert stored is not None
                await objects.update(
                    WORKLOADS, stored | {"status": workload["status"]}, subresource="status"
                )
            assert await until(lambda: phase_is(embedded, "Job/victim", "Preempted"), 60), (
                operator.tail()
            )
            victim = stage.observer.gpuworkload(NAMESPACE, "Job/victim")
            demand = stage.observer.gpuworkload(NAMESPACE, "Job/held-by-gpu")
            assert victim is not None
            assert demand is not None
            assert victim["status"]["preemptedFor"] == demand["metadata"]["name"]
            assert demand["spec"]["gpuResources"] == {"amd.com/gpu": 4}
            other = stage.observer.gpuworkload(NAMESPACE, "Job/held-by-cpu")
            assert other is not None
            assert other["status"]["phase"] == "PendingOther"
        finally:
            await operator.stop()
