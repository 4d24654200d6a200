"""The table of kinds whose controllers are not part of Kubernetes: what they make of a template.

| kind | makes | from |
|---|---|---|
| RayCluster | pods, per group | `headGroupSpec.template`, `workerGroupSpecs[].template` |
| RayJob | RayCluster | `rayClusterSpec` |
| RayService | RayCluster | `rayClusterConfig` |
| KaiwoJob | Job or RayJob | `job`, `rayJob`, else `image` and `gpus` |
| KaiwoService | Deployment or RayService | `deployment`, `rayService`, else `image` and `gpus` |
| AIMService | Deployment | `template` (a pod template) |
| InferenceService | Deployment | `predictor` with containers, or a model with resources |
| AppWrapper | its components | `components[].template` |

An object whose spec has no template has no children. What the real controllers do beyond making
children (services, ingress, autoscaling, the end of a RayJob) is not imitated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeGuard

from reprieve.local.machines.objects import Object
from reprieve.local.machines.replicas import template_hash

__all__ = ["FAMILIES", "Child", "Family", "Pods", "children"]

_Spec: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """One object with a fixed name; `body` has its spec and, if any, labels and annotations."""

    api_version: str
    kind: str
    name: str
    body: Object


@dataclass(frozen=True, slots=True)
class Pods:
    """A group of like pods; `labels` tell them from those of other groups."""

    stem: str
    count: int
    template: Object
    labels: dict[str, str] = field(default_factory=dict)


_Maker: TypeAlias = Callable[[str, _Spec], list[Child | Pods]]


@dataclass(frozen=True, slots=True)
class Family:
    """One kind: `make` gives the children of an object of this name and spec.

    `suspends`: `spec.suspend: true` takes the children away.
    """

    make: _Maker
    suspends: bool = False


def children(family: Family, obj: Object) -> tuple[list[Child | Pods], bool]:
    """Return what belongs below this object, and whether it is suspended.

    Whatever in the spec is not of the expected shape counts as no template.
    """
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [], False
    suspended = family.suspends and spec.get("suspend") is True
    try:
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
        count = 0 if group.get("suspend") else _count(group.get("replicas"), 1)
        count *= _count(group.get("numOfHosts"), 1)
        groups.append(Pods(f"{name}-{group_name}-worker", count, group["template"], labels))
    return groups


def _ray_cluster_of(path: str, middle: str) -> _Maker:
    def make(name: str, spec: _Spec) -> list[Child | Pods]:
        inner = spec.get(path)
        if not isinstance(inner, dict) or not _ray_cluster(name, inner):
            return []
        unique = template_hash(name)[:5]
        body = {"spec": inner}
        return [Child("ray.io/v1", "RayCluster", f"{name}{middle}-{unique}", body)]

    return make


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
    """Return a Deployment; labels that tell its pods are added to the template."""
    labels = {"app": name}
    full = copy.deepcopy(template)
    metadata = full.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": full}
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
    for position, component in enumerate(spec.get("components") or ()):
        template = component.get("template")
        if isinstance(template, dict) and template.get("apiVersion") and template.get("kind"):
            named = (template.get("metadata") or {}).get("name") or f"{name}-{position}"
            made.append(Child(template["apiVersion"], template["kind"], named, template))
    return made


def _is_pod_template(value: object) -> TypeGuard[Object]:
    return isinstance(value, dict) and bool((value.get("spec") or {}).get("containers"))


def _count(value: object, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default


FAMILIES: Final[Mapping[str, Family]] = {
    "rayclusters.ray.io": Family(_ray_cluster, suspends=True),
    "rayjobs.ray.io": Family(_ray_cluster_of("rayClusterSpec", ""), suspends=True),
    "rayservices.ray.io": Family(_ray_cluster_of("rayClusterConfig", "-raycluster"), suspends=True),
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
    "appwrappers.workload.codeflare.dev": Family(_app_wrapper, suspends=True),
}
"""By resource. The chain of owners down to the pods comes about by itself: a RayCluster made for a
RayJob is looked at like any other."""
