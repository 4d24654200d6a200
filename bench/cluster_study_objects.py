"""The objects of a study that is played on a cluster: a node, queues, priorities, Jobs.

Tenants are ClusterQueues in one cohort, as in `simulation.replaying.quota_cluster`, and each has a
namespace with a LocalQueue. A job is a Job of one pod on one large node, so that nothing is
fragmented. How long its pod runs stands on the Job, where it can be changed when the next pod has
less to do than the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubeworld.units.durations import MILLISECOND
from reprieve.api.kueue import API_VERSION
from reprieve.kube.resource import Resource
from reprieve.scenarios.model import NodeSpec
from reprieve.simulation.trace import Job

__all__ = [
    "LOCAL_QUEUES",
    "job_object",
    "job_of",
    "large_node",
    "local_queue",
    "priority_class",
    "queue_objects",
    "run_time",
]

Object = dict[str, Any]
DEVICE: Final = "nvidia.com/gpu"
LOCAL_QUEUES: Final = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
_RULES: Final = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def large_node(devices: int) -> NodeSpec:
    """Return the node that all jobs run on."""
    size: dict[str, str | int] = {
        DEVICE: str(devices),
        "cpu": "4000",
        "memory": "4000Gi",
        "pods": "4000",
    }
    return NodeSpec("node-0", size)


def queue_objects(tenants: Sequence[str], devices: int) -> list[Object]:
    """Return the flavor and one ClusterQueue a tenant, as `simulation.replaying.quota_cluster`."""
    even, left = divmod(devices, len(tenants))
    flavor = {"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "devices"}}
    queues = []
    for place, name in enumerate(tenants):
        quota = {"name": DEVICE, "nominalQuota": str(even + (place < left))}
        group = {
            "coveredResources": [DEVICE],
            "flavors": [{"name": "devices", "resources": [quota]}],
        }
        spec = {
            "cohortName": "cluster",
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": _RULES,
        }
        metadata = {"name": name}
        queues.append(
            {
                "apiVersion": API_VERSION,
                "kind": "ClusterQueue",
                "metadata": metadata,
                "spec": spec,
            }
        )
    return [flavor, *queues]


def local_queue(tenant: str) -> Object:
    """Return the LocalQueue of a tenant's namespace."""
    metadata = {"name": "jobs", "namespace": tenant}
    return {"metadata": metadata, "spec": {"clusterQueue": tenant}}


def priority_class(value: int) -> Object:
    """Return the WorkloadPriorityClass of a job's priority."""
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": f"priority-{value}"},
        "value": value,
    }


def job_object(job: Job) -> Object:
    """Return the Job, whose pod runs as long as the annotation of the Job says when it runs."""
    amounts = {DEVICE: str(job.devices)}
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "resources": {"requests": amounts, "limits": amounts},
    }
    annotations = {
        **run_time(job.duration),
        "sim.reprieve.dev/start-latency": "1ms",
        "sim.reprieve.dev/termination-time": "1ms",
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels = {
        "kueue.x-k8s.io/queue-name": "jobs",
        "kueue.x-k8s.io/priority-class": f"priority-{job.priority or 0}",
    }
    return {
        "metadata": {
            "name": job.id,
            "namespace": job.tenant,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"suspend": True, "parallelism": 1, "completions": 1, "template": template},
    }


def run_time(nanoseconds: int) -> dict[str, str]:
    """Return the annotation that says how long the pods below run from now on."""
    return {"sim.reprieve.dev/run-time": f"{nanoseconds // MILLISECOND}ms"}


def job_of(workload: Object) -> str:
    """Return the key of the job that a Workload is of, by the name that it gets for it."""
    name = str(workload["name"]).removeprefix("job-").rpartition("-")[0]
    return f"{workload['namespace']}/{name}"
