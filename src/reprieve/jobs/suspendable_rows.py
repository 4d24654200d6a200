"""The rows of kinds with a suspend field.

Source: specification of the quota plane, sections 10.2 and 10.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reprieve.jobs.model import (
    Asked,
    Components,
    JobKind,
    Labelled,
    PodSetSource,
    Progress,
    Reaches,
    Runtime,
    Sidecar,
    Test,
)
from reprieve.jobs.training import RUNTIME

__all__ = ["JOB_SET", "SUSPENDABLE"]

_COMPLETE: Final = [Test(condition="Complete")]
_COMPLETED: Final = [Test(condition="Completed")]
_SUCCEEDED: Final = [Test(condition="Succeeded")]
_FAILED: Final = [Test(condition="Failed")]
_RUNNING: Final = [Test(condition="Running")]
_SUSPEND: Final = "spec.suspend"
_JOB_SET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
_RAY_CLUSTER: Final = "ray.io/cluster"
_AS_WORKER: Final = Test(field="spec.runLauncherAsWorker", values=["true"])
_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"


def _job() -> JobKind:
    return JobKind(
        api_version="batch/v1",
        kind="Job",
        plural="jobs",
        framework="batch/job",
        suspend=_SUSPEND,
        pod_sets=[
            PodSetSource(
                "spec.template",
                counts=[["spec.parallelism", "spec.completions"]],
                index=_COMPLETION_INDEX,
            )
        ],
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
        marked=False,
        min_count="kueue.x-k8s.io/job-min-parallelism",
        equal_count="kueue.x-k8s.io/job-completions-equal-parallelism",
        dropped_labels=[
            "job-name",
            "controller-uid",
            "batch.kubernetes.io/controller-uid",
        ],
        clear_status="status.startTime",
        stopping="kueue.x-k8s.io/stopping",
    )


def _job_set() -> JobKind:
    return JobKind(
        api_version="jobset.x-k8s.io/v1alpha2",
        kind="JobSet",
        plural="jobsets",
        framework="jobset.x-k8s.io/jobset",
        suspend=_SUSPEND,
        pod_sets=[
            PodSetSource(
                "template.spec.template",
                each="spec.replicatedJobs",
                name_from="name",
                counts=[
                    ["replicas"],
                    ["template.spec.parallelism", "template.spec.completions"],
                ],
                index=_COMPLETION_INDEX,
                replica="jobset.sigs.k8s.io/job-index",
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
        pods=[Labelled(_JOB_SET_NAME)],
        marked=False,
        progress=Progress("status.replicatedJobsStatus"),
    )


def _train_job() -> JobKind:
    group = "trainer.kubeflow.org"
    version = f"{group}/v1alpha1"
    return JobKind(
        api_version=version,
        kind="TrainJob",
        plural="trainjobs",
        framework=f"{group}/trainjob",
        suspend=_SUSPEND,
        runtime=Runtime(
            name="spec.runtimeRef.name",
            kind="spec.runtimeRef.kind",
            kinds=[
                ("ClusterTrainingRuntime", version, "clustertrainingruntimes", False),
                ("TrainingRuntime", version, "trainingruntimes", True),
            ],
            patches="spec.runtimePatches",
        ),
        succeeded=_COMPLETE,
        failed=_FAILED,
        ready=[
            Test(
                reaches=Reaches(
                    ["status.jobsStatus.*.ready", "status.jobsStatus.*.succeeded"],
                    of=[f"{RUNTIME}.template.spec.replicatedJobs.*.replicas"],
                )
            )
        ],
        active=[Test(positive=["status.jobsStatus.*.active"])],
        # Of the JobSet of its name.
        pods=[Labelled(_JOB_SET_NAME)],
        marked=False,
        progress=Progress("status.jobsStatus"),
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
                index="training.kubeflow.org/replica-index",
                shifted=_AS_WORKER if (kind, role) == ("MPIJob", "Worker") else None,
            )
            for role in roles
        ],
        succeeded=_SUCCEEDED,
        failed=_FAILED,
        ready=_RUNNING,
        active=[Test(positive=["status.replicaStatuses.*.active"])],
        pods=[Labelled("training.kubeflow.org/job-name")],
        marked=False,
        priority=["spec.runPolicy.schedulingPolicy.priorityClass"],
    )


def _ray(at: str, *more: Sidecar) -> list[PodSetSource]:
    autoscaler = Sidecar(
        "autoscaler",
        when=Test(field=f"{at}.enableInTreeAutoscaling", values=["true"]),
        resources=f"{at}.autoscalerOptions.resources",
        requests={"cpu": "500m", "memory": "512Mi"},
    )
    # Once the cluster is deleted, a pod like the head's cleans up the Redis that held its state.
    options = f"{at}.gcsFaultToleranceOptions"
    annotated = Test(field="metadata.annotations.ray.io/ft-enabled", values=["true"])
    cleanups = [
        Sidecar("redis-cleanup", when=when, requests={"cpu": "200m", "memory": "256Mi"}, alone=True)
        for when in (
            Test(field=options, without=[""]),
            Test(field=options, values=[""], also=annotated),
        )
    ]
    head = [autoscaler, *more, *cleanups]
    return [
        PodSetSource(f"{at}.headGroupSpec.template", name="head", sidecars=head),
        PodSetSource(
            "template",
            each=f"{at}.workerGroupSpecs",
            name_from="groupName",
            counts=[["replicas"], ["numOfHosts"]],
            least="minReplicas",
            most="maxReplicas",
        ),
    ]


def _ray_kinds() -> list[JobKind]:
    mode, asks = "spec.submissionMode", {"cpu": "500m", "memory": "200Mi"}
    submitter = {"name": "ray-job-submitter", "resources": {"requests": asks}}
    over = Test(field="status.jobDeploymentStatus", values=["Complete", "Failed"])
    return [
        JobKind(
            api_version="ray.io/v1",
            kind="RayJob",
            plural="rayjobs",
            framework="ray.io/rayjob",
            suspend=_SUSPEND,
            pod_sets=[
                *_ray(
                    "spec.rayClusterSpec",
                    Sidecar(
                        "ray-job-submitter",
                        when=Test(field=mode, values=["SidecarMode"]),
                        requests=asks,
                    ),
                ),
                PodSetSource(
                    "spec.submitterPodTemplate",
                    name="submitter",
                    when=Test(field=mode, values=["", "K8sJobMode"]),
                    otherwise={"spec": {"containers": [submitter], "restartPolicy": "Never"}},
                ),
            ],
            succeeded=[
                Test(
                    field=over.field,
                    values=over.values,
                    also=Test(field="status.jobStatus", values=["SUCCEEDED"]),
                )
            ],
            failed=[over],
            message="status.message",
            ready=[Test(field="status.rayClusterStatus.state", values=["ready"])],
            active=[Test(field="status.jobDeploymentStatus", without=["Suspended", "New", ""])],
            pods=[Labelled(_RAY_CLUSTER, ["status.rayClusterName"])],
            on_hold=[Test(field="status.jobDeploymentStatus", values=["ValidationFailed"])],
            unmanaged=[Test(field="spec.clusterSelector", without=["", "{}"])],
        ),
        JobKind(
            api_version="ray.io/v1",
            kind="RayCluster",
            plural="rayclusters",
            framework="ray.io/raycluster",
            suspend=_SUSPEND,
            pod_sets=_ray("spec"),
            ready=[Test(field="status.state", values=["ready"])],
            active=[Test(field="status.state", values=["ready"])],
            pods=[Labelled(_RAY_CLUSTER)],
            marked=False,
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
            pods=[
                Labelled(
                    _RAY_CLUSTER,
                    [
                        "status.activeServiceStatus.rayClusterName",
                        "status.pendingServiceStatus.rayClusterName",
                    ],
                )
            ],
        ),
    ]


def _app_wrapper() -> JobKind:
    return JobKind(
        api_version="workload.codeflare.dev/v1beta2",
        kind="AppWrapper",
        plural="appwrappers",
        framework="workload.codeflare.dev/appwrapper",
        suspend=_SUSPEND,
        components=Components("spec.components"),
        succeeded=[
            Test(
                field="status.phase",
                values=["Succeeded"],
                message="AppWrapper finished successfully",
            )
        ],
        failed=[
            Test(
                field="status.phase",
                values=["Failed"],
                lacks="ResourcesDeployed",
                message="AppWrapper failed",
            )
        ],
        ready=[Test(condition="PodsReady")],
        active=[Test(condition="QuotaReserved")],
        pods=[Labelled("workload.codeflare.dev/appwrapper")],
    )


def _spark() -> JobKind:
    def part(role: str, container: str, counts: list[list[str]]) -> PodSetSource:
        asked = Asked(
            container,
            limits={"cpu": "coreLimit", "memory": "memoryLimit"},
            java=["memory"],
            device="gpu",
            spark=role,
        )
        return PodSetSource(
            f"spec.{role}.template",
            name=role,
            flat=f"spec.{role}",
            asked=asked,
            counts=counts,
            default=0,
        )

    state = "status.applicationState.state"
    return JobKind(
        api_version="sparkoperator.k8s.io/v1beta2",
        kind="SparkApplication",
        plural="sparkapplications",
        framework="sparkoperator.k8s.io/sparkapplication",
        suspend=_SUSPEND,
        pod_sets=[
            part("driver", "spark-kubernetes-driver", []),
            part("executor", "spark-kubernetes-executor", [["spec.executor.instances"]]),
        ],
        succeeded=[Test(field=state, values=["COMPLETED"])],
        failed=[Test(field=state, values=["FAILED", "SUBMISSION_FAILED"])],
        message="status.applicationState.errorMessage",
        ready=[
            Test(
                field=state,
                values=["RUNNING"],
                reaches=Reaches(
                    ["status.executorState.*"],
                    of=["spec.executor.instances"],
                    values=["RUNNING", "COMPLETED"],
                ),
            )
        ],
        active=[Test(field=state, values=["RUNNING"])],
        pods=[Labelled("sparkoperator.k8s.io/app-name")],
        marked=False,
        feature="SparkApplicationIntegration",
    )


JOB_SET: Final = _job_set()
SUSPENDABLE: Final[tuple[JobKind, ...]] = (
    _job(),
    JOB_SET,
    _train_job(),
    _training("PyTorchJob", "pytorchReplicaSpecs", ("Master", "Worker")),
    _training("XGBoostJob", "xgbReplicaSpecs", ("Master", "Worker")),
    _training("PaddleJob", "paddleReplicaSpecs", ("Master", "Worker")),
    _training("TFJob", "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator")),
    _training("JAXJob", "jaxReplicaSpecs", ("Worker",)),
    _training("MPIJob", "mpiReplicaSpecs", ("Launcher", "Worker"), "v2beta1"),
    *_ray_kinds(),
    _app_wrapper(),
    _spark(),
)
