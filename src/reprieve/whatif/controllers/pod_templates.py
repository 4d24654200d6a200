"""The pods that a controller would make of a template, with what admission and defaulting add.

Source: `kubeworld.admission.pods`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from kubeworld.admission.pods import (
    bind_host_ports,
    complete_limit_range,
    complete_whole_pod,
    default_class,
    give_class,
    give_runtime,
    range_containers,
    request_limits,
    tolerate_failing_nodes,
)
from kubeworld.objects.paths import Json, first
from kubeworld.objects.quality import quality
from reprieve.kube.resource import Resource
from reprieve.whatif.copy.overlay import Overlay

__all__ = [
    "LIMIT_RANGES",
    "PRIORITIES",
    "RUNTIME_CLASSES",
    "admitted_group",
    "admitted_pod",
    "labels_of_flavors",
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
_RANGE: Final = msgspec.json.Decoder(Json)
_FLAVORS: Final = ("kueue.x-k8s.io", "resourceflavors")


def preempting_classes(overlay: Overlay) -> Iterator[tuple[int, str]]:
    """Yield value and name of the priority classes by which others are preempted."""
    for (_, name), raw in overlay.raw(PRIORITIES):
        found = _CLASS.decode(raw)
        if found.preemption_policy != "Never":
            yield found.value, name


def labels_of_flavors(overlay: Overlay) -> frozenset[str]:
    """Return the keys by which the quota plane selects nodes in the pods that it starts."""
    resource = overlay.table(*_FLAVORS)
    flavors = () if resource is None else overlay.all(resource)
    return frozenset(key for each in flavors for key in first(each, "spec.nodeLabels") or ())


def admitted_pod(overlay: Overlay, pod: Json) -> Json:
    """Return a pod with what the API server fills in where the document leaves it out."""
    spec = pod["spec"]
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    request_limits(spec)
    bind_host_ports(spec)
    range_containers(spec, _range_items(overlay, pod["metadata"].get("namespace", "")))
    complete_whole_pod(spec)
    if spec.get("priority") is None:
        name = spec.get("priorityClassName")
        give_class(spec, _class(overlay, name))
    runtime = overlay.get(RUNTIME_CLASSES, "", spec.get("runtimeClassName") or "")
    if runtime is not None:
        give_runtime(spec, runtime)
    tolerate_failing_nodes(spec)
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


def _class(overlay: Overlay, name: str | None) -> Json | None:
    if name:
        return overlay.get(PRIORITIES, "", name)
    return default_class(overlay.all(PRIORITIES))


def _range_items(overlay: Overlay, namespace: str) -> Iterator[Json]:
    """Yield the items of the LimitRanges of a namespace, complete, in their names' order."""
    found = [raw for (space, name), raw in overlay.raw(LIMIT_RANGES) if space == namespace]
    ranges = (_RANGE.decode(raw) for raw in found)
    for each in sorted(ranges, key=lambda one: one["metadata"]["name"]):
        for item in (each.get("spec") or {}).get("limits") or ():
            complete_limit_range(item)
            yield item
