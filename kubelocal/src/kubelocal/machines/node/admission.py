"""Whether a kubelet admits a pod that was bound to its node: the resources have to be there.

Counted are the pods that it has admitted and that have not ended, including those that are being
deleted. The first resource that is short is the reason: pods, cpu, memory, then the others.
Resources that the node does not have at all are not checked, as a kubelet leaves extended resources
of other nodes to those who offer them. Source: the kubelet's admission of pods and its texts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kubelocal.machines.informer import Informer
from kubelocal.machines.objects import Object
from kubeworld.objects.pods import is_over
from kubeworld.objects.requests import amounts, pod_requests

__all__ = ["Admission", "Rejected"]

_FIRST = ("pods", "cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a pod is not admitted; it has failed with this reason and message."""

    reason: str
    message: str


class Admission:
    """What the kubelets of all nodes have admitted."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self._used: dict[str, dict[str, int]] = {}  # by uid: of the admitted pods

    def let_in(self, pod: Object, node: Object) -> Rejected | None:
        """Count the pod, once, or return why it cannot be."""
        uid = pod["metadata"]["uid"]
        if uid in self._used:
            return None
        wanted = {"pods": 1, **pod_requests(pod)}
        allocatable = amounts((node.get("status") or {}).get("allocatable"))
        used: Counter[str] = Counter()
        for other in self._informer.on_node(node["metadata"]["name"]):
            if other["metadata"]["uid"] != uid:
                used.update(self._of(other))
        for name in sorted(wanted, key=lambda name: (*_FIRST, name).index(name)):
            if name in allocatable and used[name] + wanted[name] > allocatable[name]:
                return Rejected(
                    f"OutOf{name}",
                    f"Node didn't have enough resource: {name}, requested: {wanted[name]}, "
                    f"used: {used[name]}, capacity: {allocatable[name]}",
                )
        self._used[uid] = wanted
        return None

    def forget(self, uid: str) -> None:
        """The pod has left."""
        self._used.pop(uid, None)

    def _of(self, pod: Object) -> dict[str, int]:
        """Return what a pod uses; one that had started before counts as admitted."""
        status, uid = pod.get("status") or {}, pod["metadata"]["uid"]
        if is_over(pod):
            return {}
        if uid not in self._used and status.get("startTime"):
            self._used[uid] = {"pods": 1, **pod_requests(pod)}
        return self._used.get(uid, {})
