"""Pods that are queued: their gates, their labels, and what they state of themselves.

A pod is held back by a scheduling gate, and ends for good when it is stopped. Source: specification
of the quota plane, section 10.4.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubeworld.objects.paths import Json, first
from kubeworld.units.instants import Nanos, parse_instant
from kubeworld.units.untrusted import integer_or_none

__all__ = [
    "FAST",
    "FINALIZER",
    "GROUP_NAME",
    "GROUP_TOTAL",
    "IS_GROUP",
    "MANAGED",
    "PARENT",
    "PREBUILT",
    "RETRIABLE",
    "ROLE",
    "SERVING",
    "SURPLUS",
    "TOPOLOGY_GATE",
    "annotations_of",
    "controller_of",
    "gated",
    "gone_at",
    "group_of",
    "has_finalizer",
    "is_fast",
    "is_gated",
    "is_managed",
    "is_missed",
    "is_ready",
    "is_runnable",
    "is_serving",
    "is_surplus",
    "is_unretriable",
    "labels_of",
    "next_gone_at",
    "ordinal_of",
    "prebuilt_of",
    "role_of",
    "shape",
    "still_runs",
    "total_of",
]

MANAGED: Final = "kueue.x-k8s.io/managed"
FINALIZER: Final = MANAGED
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
GROUP_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
FAST: Final = "kueue.x-k8s.io/pod-group-fast-admission"
SERVING: Final = "kueue.x-k8s.io/pod-group-serving"
PARENT: Final = "kueue.x-k8s.io/pod-suspending-parent"
ROLE: Final = "kueue.x-k8s.io/role-hash"
RETRIABLE: Final = "kueue.x-k8s.io/retriable-in-group"
PREBUILT: Final = "kueue.x-k8s.io/prebuilt-workload-name"
IS_GROUP: Final = "kueue.x-k8s.io/is-group-workload"
#: Condition of a pod that is one more than its group may have.
SURPLUS: Final = "reprieve.dev/Surplus"
_INDEX: Final = "kueue.x-k8s.io/pod-group-pod-index"
_INDEX_FROM: Final = f"{_INDEX}-label"
_ORDINAL: Final = "apps.kubernetes.io/pod-index"
_SHAPE: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)


def labels_of(pod: Json) -> Mapping[str, str]:
    """Return the labels of a pod."""
    return first(pod, "metadata.labels") or {}


def annotations_of(pod: Json) -> Mapping[str, str]:
    """Return the annotations of a pod."""
    return first(pod, "metadata.annotations") or {}


def is_managed(pod: Json) -> bool:
    """Return whether the pod was managed at its creation, or by what it stands below."""
    return labels_of(pod).get(MANAGED) == "true"


def is_gated(pod: Json, gate: str) -> bool:
    """Return whether the pod is held back."""
    return any(each.get("name") == gate for each in first(pod, "spec.schedulingGates") or ())


def is_missed(pod: Json, gate: str) -> bool:
    """Return whether the pod was never held back, since no webhook was called at its creation."""
    return not is_gated(pod, gate) and ROLE not in annotations_of(pod)


def is_surplus(pod: Json, message: str = "") -> bool:
    """Return whether the pod states that it is one too many; with `message`, in these words."""
    return any(
        each.get("type") == SURPLUS
        and each.get("status") == "True"
        and message in ("", each.get("message"))
        for each in first(pod, "status.conditions") or ()
    )


def controller_of(pod: Json) -> str:
    """Return the uid of what makes the pod again when it is deleted, empty for nothing."""
    owners = first(pod, "metadata.ownerReferences") or ()
    return next((str(each.get("uid", "")) for each in owners if each.get("controller")), "")


def is_ready(pod: Json) -> bool:
    """Return whether the pod is ready, or has succeeded."""
    return str(first(pod, "status.phase")) == "Succeeded" or any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in first(pod, "status.conditions") or ()
    )


def is_runnable(pod: Json) -> bool:
    """Return whether the pod runs, has succeeded or can still run."""
    if first(pod, "metadata.deletionTimestamp") and not first(pod, "spec.nodeName"):
        return False
    return str(first(pod, "status.phase")) != "Failed"


def has_finalizer(pod: Json) -> bool:
    """Return whether the pod waits for us before its deletion."""
    return any(each == FINALIZER for each in first(pod, "metadata.finalizers") or ())


def is_unretriable(pod: Json) -> bool:
    """Return whether the group ends with this pod's failure."""
    return annotations_of(pod).get(RETRIABLE) == "false"


def is_fast(pod: Json) -> bool:
    """Return whether the pod's group is a workload before all of its pods are there."""
    return annotations_of(pod).get(FAST) == "true"


def is_serving(pod: Json) -> bool:
    """Return whether the pod's group never ends."""
    return annotations_of(pod).get(SERVING) == "true"


def group_of(pod: Json) -> str:
    """Return the name of the pod's group, empty for a pod of its own; the annotation wins."""
    return str(annotations_of(pod).get(GROUP_NAME) or labels_of(pod).get(GROUP_NAME) or "")


def prebuilt_of(pod: Json) -> str:
    """Return the name of the Workload that another makes; the annotation wins."""
    return str(annotations_of(pod).get(PREBUILT) or labels_of(pod).get(PREBUILT) or "")


def ordinal_of(pod: Json) -> int | None:
    """Return the ordinal of a StatefulSet's pod; None where it has none."""
    return integer_or_none(labels_of(pod).get(_ORDINAL, ""))


def total_of(pod: Json) -> int:
    """Return the number of pods in the pod's group; 0 where it states nothing of use."""
    return max(0, integer_or_none(annotations_of(pod).get(GROUP_TOTAL, "")) or 0)


def role_of(pod: Json) -> str:
    """Return the role of the pod in its group, which is the name of its pod set."""
    return str(annotations_of(pod).get(ROLE) or _role_hash(pod.get("spec") or {}))


def gone_at(pod: Json) -> Nanos | None:
    """Return when a pod that is being deleted is past its grace period."""
    text = first(pod, "metadata.deletionTimestamp")
    return parse_instant(str(text)) if text else None


def next_gone_at(pods: Iterable[Json], now: Nanos) -> Nanos | None:
    """Return when the next of these pods is past its grace period; those that are count no more."""
    ends = (gone_at(pod) for pod in pods)
    return min((end for end in ends if end is not None and end > now), default=None)


def still_runs(pod: Json, now: Nanos) -> bool:
    """Return whether a pod runs, and is not past its grace period."""
    until = gone_at(pod)
    return first(pod, "status.phase") == "Running" and (until is None or until > now)


def gated(
    pod: Json, gate: str, *, topology: bool = True, managed: bool = True, finalizer: bool = True
) -> Json:
    """Return the pod as it is held back at its creation.

    Its number in its group is copied from the label that an annotation names.

    Args:
        pod: as it was sent.
        gate: the scheduling gate.
        topology: whether the gate of topology-aware scheduling is added too.
        managed: whether it is labelled; pods below a set are stamped later.
        finalizer: whether it stays until its workload has seen its end.
    """
    changed = copy.deepcopy(pod)
    metadata, spec = changed.setdefault("metadata", {}), changed.setdefault("spec", {})
    gates = list(spec.get("schedulingGates") or ())
    names = {each.get("name") for each in gates}
    wanted = [gate, *([TOPOLOGY_GATE] if topology else [])]
    spec["schedulingGates"] = [*gates, *({"name": name} for name in wanted if name not in names)]
    metadata["annotations"] = {**annotations_of(pod), ROLE: role_of(pod)}
    more = {MANAGED: "true"} if managed else {}
    number = labels_of(pod).get(annotations_of(pod).get(_INDEX_FROM, ""))
    if number is not None:
        more[_INDEX] = number
    if more:
        metadata["labels"] = {**labels_of(pod), **more}
    if finalizer and not has_finalizer(pod):
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), FINALIZER]
    return changed


def shape(spec: Json) -> Json:
    """Return what of a pod's spec decides about its admission."""
    found: dict[str, Any] = {name: spec.get(name) for name in _SHAPE}
    for name in ("containers", "initContainers"):
        found[name] = [
            {
                "ports": each.get("ports"),
                "resources": {"requests": first(each, "resources.requests")},
            }
            for each in spec.get(name) or ()
        ] or None
    if spec.get("resources") is not None:
        found["resources"] = first(spec, "resources.requests")
    return dict(sorted(found.items()))


def _role_hash(spec: Json) -> str:
    text = json.dumps({"spec": shape(spec)}, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]
