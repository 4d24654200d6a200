"""The ReplicaSet controller: as many active pods as wanted.

A pod counts when the ReplicaSet is its controller and its selector matches; others that name it as
their owner are neither counted nor released, orphans are not adopted.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, Object
from kubelocal.machines.workloads.pod_creation import create_pod
from kubelocal.machines.workloads.replicas import (
    availability,
    by_controller,
    in_order_of_removal,
    matching,
    replicas_of,
    same_status,
)
from kubeworld.objects.owners import child, suffix
from kubeworld.objects.pods import is_active
from kubeworld.units.clock import Clock

__all__ = ["ReplicaSetController"]

_REPLICA_SETS: Final = "replicasets.apps"


class ReplicaSetController:
    """Runs ReplicaSets."""

    name = "replicasets"

    def __init__(
        self, informer: Informer, clock: Clock, recorder: Recorder, generator: random.Random
    ) -> None:
        self._informer = informer
        self._clock = clock
        self._recorder = recorder
        self._generator = generator

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        return by_controller(change, _REPLICA_SETS, "ReplicaSet", "pods")

    async def reconcile(self, key: Key) -> int | None:
        owner = self._informer.at(key)
        if owner is None or owner["metadata"].get("deletionTimestamp"):
            return None
        active = [p for p in matching(self._informer, owner, "pods") if is_active(p)]
        surplus = len(active) - replicas_of(owner)
        for pod in in_order_of_removal(active)[: max(0, surplus)]:
            await self._informer.delete("pods", pod)
            name = pod["metadata"]["name"]
            self._recorder.normal(owner, "SuccessfulDelete", f"Deleted pod: {name}")
        for _ in range(-surplus):
            name = f"{owner['metadata']['name']}-{suffix(self._generator)}"
            pod = child(owner, "v1", "Pod", name, owner["spec"]["template"])
            await create_pod(self._informer, self._recorder, owner, pod)
            self._recorder.normal(owner, "SuccessfulCreate", f"Created pod: {name}")
        return await self._report(owner)

    async def _report(self, owner: Object) -> int | None:
        active = [p for p in matching(self._informer, owner, "pods") if is_active(p)]
        seconds = int(owner["spec"].get("minReadySeconds") or 0)
        ready, available, again = availability(active, seconds, self._clock.wall())
        wanted_labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
        status: dict[str, Any] = {
            **(owner.get("status") or {}),
            "replicas": len(active),
            "fullyLabeledReplicas": sum(
                wanted_labels.items() <= (p["metadata"].get("labels") or {}).items() for p in active
            ),
            "readyReplicas": ready,
            "availableReplicas": available,
            "observedGeneration": owner["metadata"].get("generation", 1),
        }
        if not same_status(owner, status):
            fresh = self._informer.at(key_of(_REPLICA_SETS, owner)) or owner
            await self._informer.update(
                _REPLICA_SETS, {**fresh, "status": status}, subresource="status"
            )
        return again
