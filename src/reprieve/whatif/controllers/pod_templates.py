"""The pods that a controller would make of a template, with what admission and defaulting add.

Source: the API's defaults of pods; the admission plugins Priority, RuntimeClass, LimitRanger and
DefaultTolerationSeconds; `batch/v1` Jobs for labels and names.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kubeworld.objects.owners import owner_reference
from kubeworld.objects.paths import Json, first
from kubeworld.objects.quality import quality
from reprieve.api.core import ContainerResources
from reprieve.api.kueue import PodSpec
from reprieve.intake.pod_defaults import completed
from reprieve.intake.quota_limits import LimitRange, container_limits
from reprieve.kube.resource import Resource
from reprieve.whatif.copy.overlay import Overlay

__all__ = [
    "LIMIT_RANGES",
    "PRIORITIES",
    "RUNTIME_CLASSES",
    "admitted_group",
    "admitted_pod",
    "labels_of_flavors",
    "pod_of",
    "preempting_classes",
]

PRIORITIES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
RUNTIME_CLASSES: Final = Resource(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False
)


LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")


class _PriorityClass(msgspec.Struct, gc=False, rename="camel"):
    value: int = 0
    preemption_policy: str = ""


_CLASS: Final = msgspec.json.Decoder(_PriorityClass)
_RANGE: Final = msgspec.json.Decoder(LimitRange)
_FLAVORS: Final = ("kueue.x-k8s.io", "resourceflavors")
_NEVER_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_WAIT_SECONDS: Final = 300


def pod_of(overlay: Overlay, owner: Json, template: Json, name: str, labels: Json) -> Json:
    """Return a pod of a controller, as the API server would store it; `labels` come on top."""
    metadata = copy.deepcopy(template.get("metadata") or {})
    metadata = {
        "name": name,
        "namespace": owner["metadata"].get("namespace", ""),
        "labels": {**(metadata.get("labels") or {}), **labels},
        "annotations": metadata.get("annotations") or {},
        "finalizers": metadata.get("finalizers") or [],
        "ownerReferences": [owner_reference(owner)],
    }
    spec = copy.deepcopy(template.get("spec") or {})
    return admitted_pod(
        overlay, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )


def preempting_classes(overlay: Overlay) -> Iterator[tuple[int, str]]:
    """Yield value and name of the priority classes by which others make way."""
    for (_, name), raw in overlay.raw(PRIORITIES):
        found = _CLASS.decode(raw)
        if found.preemption_policy != "Never":
            yield found.value, name


def labels_of_flavors(overlay: Overlay) -> frozenset[str]:
    """Return the keys by which the quota plane selects nodes in the pods that it lets start."""
    resource = overlay.table(*_FLAVORS)
    flavors = () if resource is None else overlay.all(resource)
    return frozenset(key for each in flavors for key in first(each, "spec.nodeLabels") or ())


def admitted_pod(overlay: Overlay, pod: Json) -> Json:
    """Return a pod with what the API server fills in where the document leaves it out."""
    spec = pod["spec"]
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    _prioritised(overlay, spec)
    _with_overhead(overlay, spec)
    _tolerating(spec)
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for container in containers:
        for port in (container.get("ports") or ()) if spec.get("hostNetwork") else ():
            port["hostPort"] = port.get("hostPort") or port.get("containerPort")
    _with_requests(overlay, pod["metadata"].get("namespace", ""), spec)
    pod["status"] = {"phase": "Pending", "qosClass": quality(spec), **(pod.get("status") or {})}
    return pod


def admitted_group(overlay: Overlay, group: Json) -> Json:
    """Return a PodGroup with the priority of its class, which its pods have to have."""
    spec = group.get("spec") or {}
    name = spec.get("priorityClassName")
    found = overlay.get(PRIORITIES, "", name) if name else None
    if found is not None:
        spec.setdefault("priority", found.get("value", 0))
    return group


def _prioritised(overlay: Overlay, spec: Json) -> None:
    if spec.get("priority") is not None:
        return
    name = spec.get("priorityClassName")
    found = overlay.get(PRIORITIES, "", name) if name else None
    if not name:
        found = next((each for each in overlay.all(PRIORITIES) if each.get("globalDefault")), None)
    spec["priority"] = 0 if found is None else found.get("value", 0)
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
    policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    spec.setdefault("preemptionPolicy", policy)


def _with_overhead(overlay: Overlay, spec: Json) -> None:
    name = spec.get("runtimeClassName")
    found: Any = overlay.get(RUNTIME_CLASSES, "", name) if name else None
    if found is None:
        return
    fixed = (found.get("overhead") or {}).get("podFixed")
    if fixed and not spec.get("overhead"):
        spec["overhead"] = fixed
    scheduling = found.get("scheduling") or {}
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **scheduling["nodeSelector"]}
    if scheduling.get("tolerations"):
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *scheduling["tolerations"]]


def _with_requests(overlay: Overlay, namespace: str, spec: Json) -> None:
    """Give containers, and the whole pod, the requests and limits that they have by default."""
    found = [
        _RANGE.decode(raw) for (space, _), raw in overlay.raw(LIMIT_RANGES) if space == namespace
    ]
    read = msgspec.convert(spec, PodSpec)
    given = completed(read, container_limits(found))
    for names, before, after in (
        ("containers", read.containers, given.containers),
        ("initContainers", read.init_containers, given.init_containers),
    ):
        for container, old, new in zip(
            spec.get(names) or (), before or (), after or (), strict=True
        ):
            _with_resources(container, old.resources, new.resources)
    _with_resources(spec, read.resources, given.resources)


def _with_resources(
    holder: Json, before: ContainerResources | None, after: ContainerResources | None
) -> None:
    if after is not None and after != before:
        filled = {"requests": after.requests or {}, "limits": after.limits or {}}
        holder["resources"] = {**(holder.get("resources") or {}), **filled}


def _tolerating(spec: Json) -> None:
    given = spec.get("tolerations") or []
    known = {each.get("key") for each in given}
    spec["tolerations"] = [
        *given,
        *(
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _WAIT_SECONDS,
            }
            for key in _NEVER_READY
            if key not in known
        ),
    ]
