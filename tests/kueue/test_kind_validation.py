"""What is told of Ray's and Spark's kinds that are managed."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.api.kueue_validation_kinds import KIND_ERRORS
from tests.kueue.objects import Json

RAY_JOB, RAY_CLUSTER = ("ray.io", "RayJob"), ("ray.io", "RayCluster")
RAY_SERVICE = ("ray.io", "RayService")
SPARK = ("sparkoperator.k8s.io", "SparkApplication")
SLICING = "a kueue managed job should only use autoscaling when workload slicing is enabled"


def workers(count: int, name: str = "workers") -> list[Json]:
    return [{"groupName": f"{name}-{index}" if count > 1 else name} for index in range(count)]


def ray_job(**spec: Any) -> Json:
    return {"spec": {"shutdownAfterJobFinishes": True, "rayClusterSpec": {}, **spec}}


@pytest.mark.parametrize(
    ("kind", "job", "errors"),
    [
        (RAY_JOB, ray_job(), []),
        (
            RAY_JOB,
            ray_job(shutdownAfterJobFinishes=False),
            [
                (
                    "spec.shutdownAfterJobFinishes: Invalid value: false: a kueue managed job "
                    "should delete the cluster after finishing"
                )
            ],
        ),
        (
            RAY_JOB,
            ray_job(clusterSelector={"a": "b"}),
            [
                (
                    'spec.clusterSelector: Invalid value: {"a":"b"}: a kueue managed job should '
                    "not use an existing cluster"
                )
            ],
        ),
        (
            RAY_JOB,
            {"spec": {"shutdownAfterJobFinishes": True}},
            [
                (
                    "spec.rayClusterSpec: Required value: rayClusterSpec is required for "
                    "Kueue-managed jobs that don't use clusterSelector"
                )
            ],
        ),
        (
            RAY_JOB,
            {"spec": {"shutdownAfterJobFinishes": True, "clusterSelector": {"a": "b"}}},
            [],
        ),
        (
            RAY_JOB,
            ray_job(rayClusterSpec={"enableInTreeAutoscaling": True}),
            [f"spec.rayClusterSpec.enableInTreeAutoscaling: Invalid value: true: {SLICING}"],
        ),
        (RAY_JOB, ray_job(rayClusterSpec={"workerGroupSpecs": workers(16)}), []),
        (
            RAY_JOB,
            ray_job(rayClusterSpec={"workerGroupSpecs": workers(17)}),
            ["spec.rayClusterSpec.workerGroupSpecs: Too many: 17: must have at most 16 items"],
        ),
        (
            RAY_JOB,
            ray_job(submissionMode="HTTPMode", rayClusterSpec={"workerGroupSpecs": workers(17)}),
            [],
        ),
        (RAY_CLUSTER, {"spec": {"workerGroupSpecs": workers(17)}}, []),
        (
            RAY_CLUSTER,
            {"spec": {"workerGroupSpecs": workers(18)}},
            ["spec.workerGroupSpecs: Too many: 18: must have at most 17 items"],
        ),
        (
            RAY_SERVICE,
            {"spec": {"rayClusterConfig": {"workerGroupSpecs": workers(1, "head")}}},
            [
                (
                    "spec.rayClusterConfig.workerGroupSpecs[0].groupName: Forbidden: "
                    '"head" is reserved for the head group'
                )
            ],
        ),
        (SPARK, {"spec": {"mode": "cluster"}}, []),
        (
            SPARK,
            {"spec": {"mode": "client"}},
            [
                (
                    'spec.mode: Invalid value: "client": only Cluster mode is supported for a '
                    "kueue managed job"
                )
            ],
        ),
        (
            SPARK,
            {"spec": {"mode": "cluster", "dynamicAllocation": {"enabled": True}}},
            [
                (
                    "spec.dynamicAllocation: Invalid value: true: a kueue managed job can use "
                    "dynamicAllocation only when the ElasticJobsViaWorkloadSlices feature gate is "
                    "on and the job is an elastic job"
                )
            ],
        ),
    ],
)
def test_a_managed_job_of_a_kind_is_told(
    kind: tuple[str, str], job: Json, errors: list[str]
) -> None:
    assert list(KIND_ERRORS[kind](job)) == errors
