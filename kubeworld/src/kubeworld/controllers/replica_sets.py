"""The ReplicaSet controller: as many active pods as wanted."""

from __future__ import annotations

from collections.abc import Sequence

from kubeworld.controllers.acts import Act, Create, Delete, Event, Object, Outcome, Suffix
from kubeworld.controllers.replicas import (
    availability,
    in_order_of_removal,
    replicas_of,
    with_status,
)
from kubeworld.objects.owners import child
from kubeworld.objects.pods import is_active
from kubeworld.units.instants import Nanos

__all__ = ["replica_pod", "step"]


def step(owner: Object, pods: Sequence[Object], now: Nanos, suffix: Suffix) -> Outcome:
    """Return what brings a ReplicaSet to its number of pods; `pods`: those that it selects."""
    active = [pod for pod in pods if is_active(pod)]
    surplus = len(active) - replicas_of(owner)
    acts: list[Act] = []
    for pod in in_order_of_removal(active)[: max(0, surplus)]:
        active.remove(pod)
        text = f"Deleted pod: {pod['metadata']['name']}"
        acts += [Delete(pod), Event("SuccessfulDelete", text)]
    for _ in range(-surplus):
        pod = replica_pod(owner, suffix)
        active.append(pod)
        text = f"Created pod: {pod['metadata']['name']}"
        acts += [Create(pod, "Error creating"), Event("SuccessfulCreate", text)]
    ready, available, again = availability(owner, active, now)
    labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    status = {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "replicas": len(active),
        "fullyLabeledReplicas": sum(
            labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active
        ),
        "readyReplicas": ready,
        "availableReplicas": available,
    }
    return Outcome(with_status(acts, owner, status), again)


def replica_pod(owner: Object, suffix: Suffix) -> Object:
    """Return a new pod of a ReplicaSet."""
    stem = f"{owner['metadata']['name']}-"
    return child(owner, "v1", "Pod", stem + suffix(stem), owner["spec"]["template"])
