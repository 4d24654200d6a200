"""What Kueue's webhooks state of Ray's and Spark's kinds that it manages, in its words.

Elastic jobs are not made here, so that autoscaling is refused for all of them.

Source: specification of the quota plane, section 12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from reprieve.api import field_errors as wrong

__all__ = ["KIND_ERRORS"]

Json = Mapping[str, Any]

_MOST_POD_SETS: Final = 18
_HEAD: Final = "head"
_AUTOSCALING: Final = (
    "a kueue managed job should only use autoscaling when workload slicing is enabled"
)
_DYNAMIC: Final = (
    "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices "
    "feature gate is on and the job is an elastic job"
)


def _ray_job(job: Json) -> Iterator[str]:
    spec = job.get("spec") or {}
    selector, cluster = spec.get("clusterSelector"), spec.get("rayClusterSpec")
    if not spec.get("shutdownAfterJobFinishes"):
        why = "a kueue managed job should delete the cluster after finishing"
        yield wrong.invalid("spec.shutdownAfterJobFinishes", False, why)
    if selector and cluster is not None:
        why = "a kueue managed job should not use an existing cluster"
        yield wrong.invalid("spec.clusterSelector", selector, why)
    if not selector and cluster is None:
        why = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector"
        yield wrong.required("spec.rayClusterSpec", why)
    if cluster is not None:
        # The pod that submits the job is a pod set of its own.
        submits = spec.get("submissionMode", "K8sJobMode") == "K8sJobMode"
        yield from _cluster(cluster, "spec.rayClusterSpec", 2 if submits else 1)


def _ray_cluster(job: Json) -> Iterator[str]:
    yield from _cluster(job.get("spec") or {}, "spec", 1)


def _ray_service(job: Json) -> Iterator[str]:
    cluster = (job.get("spec") or {}).get("rayClusterConfig")
    yield from _cluster(cluster or {}, "spec.rayClusterConfig", 1)


def _cluster(cluster: Json, at: str, others: int) -> Iterator[str]:
    """Yield what is wrong with a cluster that has `others` pod sets beside its workers'."""
    if cluster.get("enableInTreeAutoscaling"):
        yield wrong.invalid(f"{at}.enableInTreeAutoscaling", True, _AUTOSCALING)
    groups = cluster.get("workerGroupSpecs") or []
    if len(groups) > _MOST_POD_SETS - others:
        yield wrong.too_many(f"{at}.workerGroupSpecs", len(groups), _MOST_POD_SETS - others)
    for index, group in enumerate(groups):
        if group.get("groupName") == _HEAD:
            path = f"{at}.workerGroupSpecs[{index}].groupName"
            yield wrong.forbidden(path, f'"{_HEAD}" is reserved for the head group')


def _spark_application(job: Json) -> Iterator[str]:
    spec = job.get("spec") or {}
    mode = spec.get("mode", "cluster")
    if mode != "cluster":
        why = "only Cluster mode is supported for a kueue managed job"
        yield wrong.invalid("spec.mode", mode, why)
    if (spec.get("dynamicAllocation") or {}).get("enabled"):
        yield wrong.invalid("spec.dynamicAllocation", True, _DYNAMIC)


# By group and kind; what is wrong at creation and after a change.
KIND_ERRORS: Final[Mapping[tuple[str, str], Callable[[Json], Iterator[str]]]] = {
    ("ray.io", "RayJob"): _ray_job,
    ("ray.io", "RayCluster"): _ray_cluster,
    ("ray.io", "RayService"): _ray_service,
    ("sparkoperator.k8s.io", "SparkApplication"): _spark_application,
}
