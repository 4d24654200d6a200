"""Which node accepts a pod, for callers that place pods on nodes of their own choice.

The filters and their order are kube-scheduler's: unschedulable, node name, taints, node affinity,
resources; a node reports the first filter that rejects it. Not imitated: ports, volumes, pod
affinity, topology spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubelocal.machines.objects import Object
from kubeworld.objects.requests import amounts
from kubeworld.objects.selectors import matches_node_terms, tolerates

__all__ = ["NodeState", "Rejection", "reject"]


@dataclass(slots=True)
class NodeState:
    """A node and its usage; cpu in milli-CPU, the rest in base units."""

    node: Object
    allocatable: dict[str, int] = field(init=False)
    used: Counter[str] = field(default_factory=Counter)  # includes "pods"

    def __post_init__(self) -> None:
        self.allocatable = amounts((self.node.get("status") or {}).get("allocatable"))


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a node does not accept the pod; `hopeless`: not even without all its pods."""

    reasons: tuple[str, ...]
    hopeless: bool


def reject(pod: Object, requests: Mapping[str, int], state: NodeState) -> Rejection | None:
    """Return why this node does not accept the pod, None when it does."""
    spec, node = pod["spec"], state.node
    metadata, node_spec = node["metadata"], node.get("spec") or {}
    tolerations = spec.get("tolerations") or ()
    if node_spec.get("unschedulable") and not tolerates(
        tolerations, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return Rejection(("node(s) were unschedulable",), True)
    for taint in node_spec.get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint):
            return Rejection(("node(s) had untolerated taint(s)",), True)
    if not _selected(spec, metadata):
        return Rejection(("node(s) didn't match Pod's node affinity/selector",), True)
    return _short(requests, state)


def _selected(spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    selector, affinity = spec.get("nodeSelector"), spec.get("affinity")
    if not selector and not affinity:
        return True
    labels = metadata.get("labels") or {}
    if any(labels.get(name) != value for name, value in (selector or {}).items()):
        return False
    node_affinity = (affinity or {}).get("nodeAffinity")
    required = (node_affinity or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    terms = required.get("nodeSelectorTerms") or ()
    return matches_node_terms(terms, labels, str(metadata["name"]))


def _short(requests: Mapping[str, int], state: NodeState) -> Rejection | None:
    reasons: list[str] = []
    hopeless = False
    limit = state.allocatable.get("pods", 0)
    if state.used["pods"] + 1 > limit:
        reasons.append("Too many pods")
        hopeless |= limit < 1
    for name, amount in requests.items():
        allocatable = state.allocatable.get(name, 0)
        if amount > allocatable - state.used[name]:
            reasons.append(f"Insufficient {name}")
            hopeless |= amount > allocatable
    return Rejection(tuple(reasons), hopeless) if reasons else None
