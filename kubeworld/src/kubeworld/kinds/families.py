"""The table of kinds whose controllers are not part of Kubernetes: what they make of a template.

| kind | makes | from |
|---|---|---|
| RayCluster | pods, per group | `headGroupSpec.template`, `workerGroupSpecs[].template` |
| RayJob | RayCluster; then the Job that submits | `rayClusterSpec`, `submitterPodTemplate` |
| RayService | RayCluster | `rayClusterConfig` |
| KaiwoJob | Job or RayJob | `job`, `rayJob`, else `image` and `gpus` |
| KaiwoService | Deployment or RayService | `deployment`, `rayService`, else `image` and `gpus` |
| AIMService | Deployment | `template` (a pod template) |
| InferenceService | Deployment | `predictor` with containers, or a model with resources |
| AppWrapper | its components | `components[].template` |
| JobSet | Jobs | `replicatedJobs[].template` |
| LeaderWorkerSet | StatefulSets: of the leaders, of each group's workers | `leaderWorkerTemplate` |
| PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob | pods, numbered | `*ReplicaSpecs.*.template` |
| MPIJob | a launcher Job and worker pods, numbered | `mpiReplicaSpecs.*.template` |
| SparkApplication | a driver; once it runs, executors | `driver`, `executor` |
| TrainJob | a JobSet | its runtime, by `kinds.training` |

An object whose spec has no template has no children, nor has one that names another controller in
`managedBy` (KEP-4368, and what the kinds adopted from it). What the real controllers do beyond
making children (services, ingress, autoscaling, the end of a RayJob) is not imitated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeGuard

from kubeworld.kinds.app_wrappers import wrapped_objects
from kubeworld.kinds.spark import java_memory, spark_requests
from kubeworld.kinds.training import Read, job_set_of
from kubeworld.objects.owners import template_hash

__all__ = ["FAMILIES", "TRAINING", "Child", "Family", "Pods", "children"]

Object = dict[str, Any]
_Spec: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """One object with a fixed name; `body` has its spec and, if any, labels and annotations.

    `follows`: it is made once all pods of the others run.
    """

    api_version: str
    kind: str
    name: str
    body: Object
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Pods:
    """A group of like pods; `labels` separate them from those of other groups.

    `numbered`: their names end in 0, 1, ... and one that has failed is made anew under its name.
    `follows`: they are made once all pods of the others run.
    """

    stem: str
    count: int
    template: Object
    labels: dict[str, str] = field(default_factory=dict)
    numbered: bool = False
    follows: bool = False


_Maker: TypeAlias = Callable[[str, _Spec], list[Child | Pods]]


@dataclass(frozen=True, slots=True)
class Family:
    """One kind: `make` gives the children of an object of this name and spec.

    `suspends`: where in the spec `true` removes the children. `prunes`: children of the same kinds
    that are not wanted any more are deleted. `controller`: the value of `managedBy` that means this
    one, which stands beside `suspend`; empty: the kind has no such field. `described`: returns the
    spec that `make` is given, of an object and a reader of others, None where there is none.
    """

    make: _Maker
    suspends: tuple[str, ...] = ()
    prunes: bool = False
    controller: str = ""
    described: Callable[[Object, Read], _Spec | None] | None = None


def children(
    family: Family, obj: Object, read: Read = lambda *where: None
) -> tuple[list[Child | Pods], bool]:
    """Return what belongs below this object, and whether it is suspended.

    Whatever in the spec is not of the expected shape counts as no template. `read` returns an
    object by API version, kind, namespace and name.
    """
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [], False
    suspended = False
    try:
        *path, last = family.suspends or ("",)
        inner = spec
        for part in path:
            inner = inner.get(part) or {}
        if family.controller and inner.get("managedBy", family.controller) != family.controller:
            return [], False
        suspended = inner.get(last) is True
        if family.described is not None:
            found = family.described(obj, read)
            if found is None:
                return [], suspended
            spec = found
        return family.make(obj["metadata"]["name"], spec), suspended
    except (AttributeError, KeyError, TypeError, ValueError):
        return [], suspended


def _ray_cluster(name: str, spec: _Spec) -> list[Child | Pods]:
    groups: list[Child | Pods] = []
    head = (spec.get("headGroupSpec") or {}).get("template")
    if _is_pod_template(head):
        labels = {"ray.io/cluster": name, "ray.io/group": "headgroup", "ray.io/node-type": "head"}
        groups.append(Pods(f"{name}-head", 1, head, labels))
    for group in spec.get("workerGroupSpecs") or ():
        if not _is_pod_template(group.get("template")):
            continue
        group_name = group.get("groupName") or "workers"
        labels = {"ray.io/cluster": name, "ray.io/group": group_name, "ray.io/node-type": "worker"}
        count = 0 if group.get("suspend") else _workers(group)
        count *= _count(group.get("numOfHosts"), 1)
        groups.append(Pods(f"{name}-{group_name}-worker", count, group["template"], labels))
    return groups


def _workers(group: _Spec) -> int:
    """Return the replicas of a group of workers: at least `minReplicas`, else `maxReplicas`."""
    replicas = _count(group.get("replicas"), 1)
    least, most = _count(group.get("minReplicas"), 0), group.get("maxReplicas")
    return least if replicas < least else min(replicas, _count(most, replicas))


def _ray_cluster_of(path: str, middle: str) -> _Maker:
    def make(name: str, spec: _Spec) -> list[Child | Pods]:
        inner = spec.get(path)
        if not isinstance(inner, dict) or not _ray_cluster(name, inner):
            return []
        unique = template_hash(name)[:5]
        body = {"spec": inner}
        return [Child("ray.io/v1", "RayCluster", f"{name}{middle}-{unique}", body)]

    return make


def _ray_job(name: str, spec: _Spec) -> list[Child | Pods]:
    """Return the cluster, and unless another mode is named the Job that submits to it.

    KubeRay makes that Job once the cluster is ready.
    """
    made = _ray_cluster_of("rayClusterSpec", "")(name, spec)
    if not made or spec.get("submissionMode") not in (None, "", "K8sJobMode"):
        return made
    template = spec.get("submitterPodTemplate")
    if not _is_pod_template(template):
        # It runs for as long as the head does.
        head = (spec["rayClusterSpec"].get("headGroupSpec") or {}).get("template") or {}
        notes = (head.get("metadata") or {}).get("annotations") or {}
        template = {"metadata": {"annotations": notes}, "spec": {"containers": [_SUBMITTER]}}
    return [*made, replace(_job(name, copy.deepcopy(template), 1), follows=True)]


def _kaiwo(
    inner: Mapping[str, tuple[str, str]], plain: Callable[[str, Object, int], Child]
) -> _Maker:
    """Return the maker for a Kaiwo kind: whole objects at `inner`, else the short form."""

    def make(name: str, spec: _Spec) -> list[Child | Pods]:
        for path, (api_version, kind) in inner.items():
            whole = spec.get(path)
            if isinstance(whole, dict) and isinstance(whole.get("spec"), dict):
                return [Child(api_version, kind, name, whole)]
        template = _short_form(name, spec)
        return [] if template is None else [plain(name, template, _count(spec.get("replicas"), 1))]

    return make


def _short_form(name: str, spec: _Spec) -> Object | None:
    """Return the pod template for `image`, `gpus`, `gpuVendor` and `resources`."""
    if not spec.get("image"):
        return None
    container: Object = {"name": "workload", "image": spec["image"]}
    resources = copy.deepcopy(spec.get("resources") or {})
    gpus = _count(spec.get("gpus"), 0)
    if gpus:
        vendor = (
            "nvidia.com/gpu" if str(spec.get("gpuVendor")).lower() == "nvidia" else "amd.com/gpu"
        )
        for field_name in ("requests", "limits"):
            resources.setdefault(field_name, {}).setdefault(vendor, str(gpus))
    if resources:
        container["resources"] = resources
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}


def _job(name: str, template: Object, replicas: int) -> Child:
    template["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": replicas, "completions": replicas, "template": template}
    return Child("batch/v1", "Job", name, {"spec": spec})


def _deployment(name: str, template: Object, replicas: int) -> Child:
    """Return a Deployment; labels that select its pods are added to the template."""
    labels = {"app": name}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": _labelled(template, labels),
    }
    return Child("apps/v1", "Deployment", name, {"spec": spec})


def _aim_service(name: str, spec: _Spec) -> list[Child | Pods]:
    template = spec.get("template")
    if not _is_pod_template(template):
        return []
    return [_deployment(f"{name}-predictor", template, _count(spec.get("replicas"), 1))]


def _inference_service(name: str, spec: _Spec) -> list[Child | Pods]:
    predictor = spec.get("predictor") or {}
    pod_spec = {
        key: predictor[key]
        for key in ("containers", "initContainers", "nodeSelector", "tolerations", "affinity")
        if predictor.get(key)
    }
    model = predictor.get("model") or {}
    if not pod_spec.get("containers"):
        if not model.get("resources"):
            return []
        image = model.get("image") or "kserve/model-server"
        container = {"name": "kserve-container", "image": image, "resources": model["resources"]}
        pod_spec["containers"] = [container]
    replicas = _count(predictor.get("minReplicas"), 1)
    metadata = {key: predictor[key] for key in ("labels", "annotations") if predictor.get(key)}
    return [_deployment(f"{name}-predictor", {"metadata": metadata, "spec": pod_spec}, replicas)]


def _app_wrapper(name: str, spec: _Spec) -> list[Child | Pods]:
    made: list[Child | Pods] = []
    for position, whole in enumerate(wrapped_objects(name, spec)):
        named = (whole.get("metadata") or {}).get("name") or f"{name}-{position}"
        made.append(Child(whole["apiVersion"], whole["kind"], named, whole))
    return made


def _job_set(name: str, spec: _Spec) -> list[Child | Pods]:
    made: list[Child | Pods] = []
    for replicated in spec.get("replicatedJobs") or ():
        template = replicated.get("template") or {}
        if not _is_pod_template((template.get("spec") or {}).get("template")):
            continue
        group = replicated["name"]
        for index in range(_count(replicated.get("replicas"), 1)):
            labels = {
                "jobset.sigs.k8s.io/jobset-name": name,
                "jobset.sigs.k8s.io/replicatedjob-name": group,
                "jobset.sigs.k8s.io/job-index": str(index),
            }
            job = {**template["spec"], "suspend": spec.get("suspend") is True}
            job["template"] = _labelled(job["template"], labels)
            job["template"]["spec"] = {"restartPolicy": "OnFailure", **job["template"]["spec"]}
            metadata = _labelled(template, labels)["metadata"]
            body = {"metadata": metadata, "spec": job}
            made.append(Child("batch/v1", "Job", f"{name}-{group}-{index}", body))
    return made


def _of_runtime(name: str, spec: _Spec) -> list[Child | Pods]:
    """Return the JobSet of a TrainJob; `spec` is that of the JobSet."""
    return [Child("jobset.x-k8s.io/v1alpha2", "JobSet", name, {"spec": spec})]


def _leader_worker_set(name: str, spec: _Spec) -> list[Child | Pods]:
    whole = spec["leaderWorkerTemplate"]
    worker = whole["workerTemplate"]
    leader = whole.get("leaderTemplate") or worker
    if not (_is_pod_template(worker) and _is_pod_template(leader)):
        return []
    prefix, groups = "leaderworkerset.sigs.k8s.io", _count(spec.get("replicas"), 1)

    def stateful_set(title: str, template: Object, role: str, count: int, first: int) -> Child:
        labels = {f"{prefix}/name": name, f"{prefix}/role": role}
        if role == "leader":
            labels[f"{prefix}/worker-index"] = "0"
        if role == "worker":
            labels[f"{prefix}/group-index"] = title.removeprefix(f"{name}-")
            template = _annotated(template, {f"{prefix}/leader-name": title})
        body = {
            "serviceName": name,
            "replicas": count,
            "ordinals": {"start": first},
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": _labelled(template, labels),
        }
        return Child("apps/v1", "StatefulSet", title, {"spec": body})

    workers = _count(whole.get("size"), 1) - 1
    return [
        stateful_set(name, leader, "leader", groups, 0),
        *(
            stateful_set(f"{name}-{index}", worker, "worker", workers, 1)
            for index in range(groups if workers > 0 else 0)
        ),
    ]


def _kubeflow(path: str, *, launcher: str = "") -> _Maker:
    """Return the maker for a Kubeflow job: numbered pods per role; the launcher's is a Job.

    The launcher comes when the others are made.
    """

    def make(name: str, spec: _Spec) -> list[Child | Pods]:
        made: list[Child | Pods] = []
        for role, replica in sorted(spec[path].items(), key=lambda each: each[0] == launcher):
            if not _is_pod_template(replica.get("template")):
                continue
            title = role.lower()
            labels = {
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/replica-type": title,
            }
            template = _labelled(replica["template"], labels)
            policy = replica.get("restartPolicy") or "Never"
            inner = {
                **template["spec"],
                "restartPolicy": "Never" if policy == "ExitCode" else policy,
            }
            template, count = {**template, "spec": inner}, _count(replica.get("replicas"), 1)
            if role == launcher:
                made.append(_job(f"{name}-{title}", copy.deepcopy(template), count))
            else:
                made.append(Pods(f"{name}-{title}", count, template, labels, numbered=True))
        return made

    return make


def _spark(name: str, spec: _Spec) -> list[Child | Pods]:
    """Return the driver, and the executors, which it makes itself once it runs."""
    made: list[Child | Pods] = []
    for role, stem, default in (("driver", "driver", 1), ("executor", "exec", 0)):
        said = spec.get(role)
        if not isinstance(said, dict):
            continue
        labels = {"sparkoperator.k8s.io/app-name": name, "spark-role": role}
        template = _spark_template(role, said, spec)
        count = 1 if role == "driver" else _count(said.get("instances"), default)
        executors = role == "executor"
        made.append(Pods(f"{name}-{stem}", count, template, labels, follows=executors))
    return made


def _spark_template(role: str, said: _Spec, spec: _Spec) -> Object:
    template = copy.deepcopy(said.get("template") or {})
    inner = template.setdefault("spec", {})
    inner["restartPolicy"] = "Never"
    for part in ("nodeSelector", "tolerations", "affinity"):
        if said.get(part):
            inner[part] = said[part]
    main = f"spark-kubernetes-{role}"
    containers = inner.setdefault("containers", [])
    container = next((each for each in containers if each.get("name") == main), None)
    if container is None:
        container = {"name": main}
        containers.insert(0, container)
    container.setdefault("image", said.get("image") or spec.get("image") or "spark")
    requests, limits = spark_requests(role, spec), dict[str, str]()
    if said.get("coreLimit"):
        limits["cpu"] = str(said["coreLimit"])
    if said.get("memoryLimit"):
        limits["memory"] = java_memory(str(said["memoryLimit"]))
    gpu = said.get("gpu") or {}
    if gpu.get("name") and gpu.get("quantity"):
        limits[gpu["name"]] = requests[gpu["name"]] = str(gpu["quantity"])
    resources = container.setdefault("resources", {})
    for part, amounts in (("requests", requests), ("limits", limits)):
        if amounts:
            resources[part] = {**(resources.get(part) or {}), **amounts}
    metadata = template.setdefault("metadata", {})
    for part in ("labels", "annotations"):
        if said.get(part):
            metadata[part] = {**(metadata.get(part) or {}), **said[part]}
    return template


def _labelled(template: Object, labels: dict[str, str]) -> Object:
    """Return the template with these labels added."""
    metadata = template.get("metadata") or {}
    return {
        **template,
        "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}},
    }


def _annotated(template: Object, annotations: dict[str, str]) -> Object:
    """Return the template with these annotations added."""
    metadata = template.get("metadata") or {}
    said = {**(metadata.get("annotations") or {}), **annotations}
    return {**template, "metadata": {**metadata, "annotations": said}}


def _is_pod_template(value: object) -> TypeGuard[Object]:
    return isinstance(value, dict) and bool((value.get("spec") or {}).get("containers"))


def _count(value: object, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default


#: What submits a RayJob that states nothing of it.
_SUBMITTER: Final = {
    "name": "ray-job-submitter",
    "image": "rayproject/ray",
    "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}},
}
_SUSPEND: Final = ("suspend",)
_RUN_POLICY: Final = ("runPolicy", "suspend")
_KUBERAY: Final = "ray.io/kuberay-operator"

#: Kinds of Kubeflow's training operator, and how the fields of their replicas begin.
TRAINING: Final[Mapping[str, str]] = {
    "PyTorchJob": "pytorch",
    "TFJob": "tf",
    "XGBoostJob": "xgb",
    "PaddleJob": "paddle",
    "JAXJob": "jax",
}

FAMILIES: Final[Mapping[str, Family]] = {
    "rayclusters.ray.io": Family(_ray_cluster, suspends=_SUSPEND, controller=_KUBERAY),
    "rayjobs.ray.io": Family(_ray_job, suspends=_SUSPEND, controller=_KUBERAY),
    "rayservices.ray.io": Family(
        _ray_cluster_of("rayClusterConfig", "-raycluster"),
        suspends=_SUSPEND,
        controller=_KUBERAY,
    ),
    "kaiwojobs.kaiwo.silogen.ai": Family(
        _kaiwo({"job": ("batch/v1", "Job"), "rayJob": ("ray.io/v1", "RayJob")}, _job)
    ),
    "kaiwoservices.kaiwo.silogen.ai": Family(
        _kaiwo(
            {"deployment": ("apps/v1", "Deployment"), "rayService": ("ray.io/v1", "RayService")},
            _deployment,
        )
    ),
    "aimservices.aim.silogen.ai": Family(_aim_service),
    "aimservices.aim.eai.amd.com": Family(_aim_service),
    "inferenceservices.serving.kserve.io": Family(_inference_service),
    "appwrappers.workload.codeflare.dev": Family(
        _app_wrapper, suspends=_SUSPEND, controller="workload.codeflare.dev/appwrapper"
    ),
    "jobsets.jobset.x-k8s.io": Family(
        _job_set, prunes=True, controller="jobset.sigs.k8s.io/jobset-controller"
    ),
    "leaderworkersets.leaderworkerset.x-k8s.io": Family(_leader_worker_set, prunes=True),
    **{
        f"{kind.lower()}s.kubeflow.org": Family(
            _kubeflow(f"{stem}ReplicaSpecs"),
            suspends=_RUN_POLICY,
            controller="kubeflow.org/training-operator",
        )
        for kind, stem in TRAINING.items()
    },
    "sparkapplications.sparkoperator.k8s.io": Family(_spark, suspends=_SUSPEND),
    "trainjobs.trainer.kubeflow.org": Family(
        _of_runtime,
        suspends=_SUSPEND,
        controller="trainer.kubeflow.org/trainjob-controller",
        described=job_set_of,
    ),
    "mpijobs.kubeflow.org": Family(
        _kubeflow("mpiReplicaSpecs", launcher="Launcher"),
        suspends=_RUN_POLICY,
        controller="kubeflow.org/mpi-operator",
    ),
}
"""By resource. The chain of owners down to the pods comes about by itself: a RayCluster made for a
RayJob is looked at like any other."""
