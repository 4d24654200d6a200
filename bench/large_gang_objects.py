"""The objects of `bench.large_gang`: full nodes, and a gang that needs whole nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from reprieve.api.crds import load
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Resource

__all__ = [
    "GROUP",
    "MEMBER",
    "OPERATOR_NAMESPACE",
    "POD_GROUPS",
    "PRIORITY_CLASSES",
    "SCHEDULER",
    "gang",
    "low_pod",
    "member",
    "node",
    "objects_first",
]

SCHEDULER: Final = "reprieve-large-gang"
OPERATOR_NAMESPACE: Final = "reprieve-large-gang"
GROUP: Final = "training"
MEMBER: Final = "member-"
_LOW, _HIGH = "large-gang-low", "large-gang-high"
_CRDS: Final = (
    "preemptions.reprieve.dev",
    "preemptionparts.reprieve.dev",
    "disruptions.reprieve.dev",
)

POD_GROUPS: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)


def objects_first(namespace: str) -> Iterator[tuple[Resource, dict[str, Any]]]:
    """Yield what has to be there before all else, with its resource."""
    for name in _CRDS:
        yield CUSTOM_RESOURCE_DEFINITIONS, load(name)
    for name in (OPERATOR_NAMESPACE, namespace):
        yield NAMESPACES, {"metadata": {"name": name}}
    for name, value in ((_LOW, 1_000), (_HIGH, 100_000)):
        yield PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value}


def node(number: int, cpus: int) -> dict[str, Any]:
    """Return a node that is ready and has so many cpus."""
    name = f"large-gang-{number:05}"
    amounts = {"cpu": str(cpus), "memory": "1024Gi", "pods": "250"}
    condition = {"type": "Ready", "status": "True", "reason": "Bench", "message": ""}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    }


def low_pod(namespace: str, number: int, per_node: int) -> dict[str, Any]:
    """Return one of the pods that fill the nodes, bound already."""
    pod = _pod(namespace, f"low-{number:06}", "1", _LOW)
    pod["spec"]["nodeName"] = f"large-gang-{number // per_node:05}"
    return pod


def member(namespace: str, number: int, cpus: int) -> dict[str, Any]:
    """Return a pod of the gang, which needs so many cpus."""
    pod = _pod(namespace, f"{MEMBER}{number:05}", str(cpus), _HIGH)
    pod["spec"]["schedulingGroup"] = {"podGroupName": GROUP}
    return pod


def gang(namespace: str, size: int) -> dict[str, Any]:
    """Return the PodGroup, whose members come all or not at all."""
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": GROUP, "namespace": namespace},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": size}},
            "disruptionMode": {"single": {}},
            "priorityClassName": _HIGH,
        },
    }


def _pod(namespace: str, name: str, cpus: str, priority: str) -> dict[str, Any]:
    requests = {"cpu": cpus, "memory": "1Gi"}
    container = {
        "name": "c",
        "image": "registry.example/app:1",
        "resources": {"requests": requests},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "large-gang"}},
        "spec": {
            "schedulerName": SCHEDULER,
            "priorityClassName": priority,
            "containers": [container],
            # Nobody keeps these nodes ready.
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
        },
    }
