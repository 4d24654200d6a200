"""The table of kinds that have a suspend field, and how users add rows to it.

Source: specification of the quota plane, section 10.2. Kinds without a suspend field (pods and what
stands on them) are no rows: their pods are gated one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from reprieve.jobs.model import JobKind, PodSetSource, Reaches, Test
from reprieve.units.errors import UsageError

__all__ = ["BUILT_IN", "job_kinds"]

_COMPLETE: Final = [Test(condition="Complete")]
_COMPLETED: Final = [Test(condition="Completed")]
_SUCCEEDED: Final = [Test(condition="Succeeded")]
_FAILED: Final = [Test(condition="Failed")]
_RUNNING: Final = [Test(condition="Running")]


def _job() -> JobKind:
    return JobKind(
        api_version="batch/v1",
        kind="Job",
        plural="jobs",
        framework="batch/job",
        suspend="spec.suspend",
        pod_sets=[PodSetSource("spec.template", counts=[["spec.parallelism", "spec.completions"]])],
        succeeded=_COMPLETE,
        failed=_FAILED,
        ready=[
            Test(
                reaches=Reaches(
                    [
                        "status.succeeded",
                        "status.ready",
                        "status.uncountedTerminatedPods.succeeded",
                    ]
                )
            )
        ],
        active=[Test(positive=["status.active", "status.terminating"])],
        min_count="kueue.x-k8s.io/job-min-parallelism",
        equal_count="kueue.x-k8s.io/job-completions-equal-parallelism",
        dropped_labels=[
            "job-name",
            "controller-uid",
            "batch.kubernetes.io/controller-uid",
        ],
        clear_status="status.startTime",
    )


def _job_set() -> JobKind:
    return JobKind(
        api_version="jobset.x-k8s.io/v1alpha2",
        kind="JobSet",
        plural="jobsets",
        framework="jobset.x-k8s.io/jobset",
        suspend="spec.suspend",
        pod_sets=[
            PodSetSource(
                "template.spec.template",
                each="spec.replicatedJobs",
                name_from="name",
                counts=[
                    ["replicas"],
                    ["template.spec.parallelism", "template.spec.completions"],
                ],
            )
        ],
        succeeded=_COMPLETED,
        failed=_FAILED,
        ready=[
            Test(
                reaches=Reaches(
                    [
                        "status.replicatedJobsStatus.*.ready",
                        "status.replicatedJobsStatus.*.succeeded",
                    ],
                    of=["spec.replicatedJobs.*.replicas"],
                )
            )
        ],
        active=[Test(positive=["status.replicatedJobsStatus.*.active"])],
    )


def _training(kind: str, replicas: str, roles: Sequence[str], version: str = "v1") -> JobKind:
    return JobKind(
        api_version=f"kubeflow.org/{version}",
        kind=kind,
        plural=f"{kind.lower()}s",
        framework=f"kubeflow.org/{kind.lower()}",
        suspend="spec.runPolicy.suspend",
        pod_sets=[
            PodSetSource(
                f"spec.{replicas}.{role}.template",
                name=role.lower(),
                counts=[[f"spec.{replicas}.{role}.replicas"]],
            )
            for role in roles
        ],
        succeeded=_SUCCEEDED,
        failed=_FAILED,
        ready=_RUNNING,
        active=[Test(positive=["status.replicaStatuses.*.active"])],
    )


def _ray(at: str) -> list[PodSetSource]:
    return [
        PodSetSource(f"{at}.headGroupSpec.template", name="head"),
        PodSetSource(
            "template",
            each=f"{at}.workerGroupSpecs",
            name_from="groupName",
            counts=[["replicas"], ["numOfHosts"]],
        ),
    ]


def _ray_kinds() -> list[JobKind]:
    return [
        JobKind(
            api_version="ray.io/v1",
            kind="RayJob",
            plural="rayjobs",
            framework="ray.io/rayjob",
            suspend="spec.suspend",
            pod_sets=_ray("spec.rayClusterSpec"),
            succeeded=[Test(field="status.jobStatus", values=["SUCCEEDED"])],
            failed=[Test(field="status.jobDeploymentStatus", values=["Complete", "Failed"])],
            message="status.message",
            ready=[Test(field="status.rayClusterStatus.state", values=["ready"])],
            active=[Test(field="status.jobDeploymentStatus", without=["Suspended", "New", ""])],
        ),
        JobKind(
            api_version="ray.io/v1",
            kind="RayCluster",
            plural="rayclusters",
            framework="ray.io/raycluster",
            suspend="spec.suspend",
            pod_sets=_ray("spec"),
            ready=[Test(field="status.state", values=["ready"])],
            active=[Test(field="status.state", values=["ready"])],
        ),
        JobKind(
            api_version="ray.io/v1",
            kind="RayService",
            plural="rayservices",
            framework="ray.io/rayservice",
            suspend="spec.rayClusterConfig.suspend",
            pod_sets=_ray("spec.rayClusterConfig"),
            ready=[Test(condition="Ready")],
            active=[Test(condition="Ready")],
        ),
    ]


BUILT_IN: Final[tuple[JobKind, ...]] = (
    _job(),
    _job_set(),
    _training("PyTorchJob", "pytorchReplicaSpecs", ("Master", "Worker")),
    _training("XGBoostJob", "xgbReplicaSpecs", ("Master", "Worker")),
    _training("PaddleJob", "paddleReplicaSpecs", ("Master", "Worker")),
    _training("TFJob", "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator")),
    _training("JAXJob", "jaxReplicaSpecs", ("Worker",)),
    _training("MPIJob", "mpiReplicaSpecs", ("Launcher", "Worker"), "v2beta1"),
    *_ray_kinds(),
)


def job_kinds(more: Sequence[Any] = (), where: str = "quota.jobKinds") -> tuple[JobKind, ...]:
    """Return the built-in kinds and those of configuration; one of these replaces its namesake.

    Raises:
        UsageError: a row cannot be read; it says where, and what is wrong.
    """
    kinds = {kind.key: kind for kind in BUILT_IN}
    for index, row in enumerate(more):
        try:
            kind = msgspec.convert(row, JobKind)
        except msgspec.ValidationError as error:
            raise UsageError(f"{where}[{index}]: {error}") from None
        if not kind.suspend or not kind.pod_sets:
            raise UsageError(f"{where}[{index}]: suspend and podSets must be given")
        kinds[kind.key] = kind
    return tuple(kinds.values())
