"""The StatefulSet controller: pods with ordinals, one after the other or all at once.

Source: `apps/v1` StatefulSets: OrderedReady and Parallel, RollingUpdate with partition, OnDelete,
the first ordinal. Not imitated: volume claims, ControllerRevision objects, adoption.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, Object
from kubelocal.machines.workloads.pod_creation import create_pod
from kubelocal.machines.workloads.replicas import (
    availability,
    by_controller,
    matching,
    replicas_of,
    same_status,
)
from kubelocal.machines.workloads.scheduling_groups import Workloads
from kubeworld.objects.owners import child, template_hash
from kubeworld.objects.pods import is_active, is_ready
from kubeworld.units.clock import Clock

__all__ = ["StatefulSetController"]

_STATEFUL_SETS: Final = "statefulsets.apps"
_HASH: Final = "controller-revision-hash"


class StatefulSetController:
    """Runs StatefulSets."""

    name = "statefulsets"

    def __init__(
        self, informer: Informer, clock: Clock, recorder: Recorder, workloads: Workloads
    ) -> None:
        self._informer = informer
        self._clock = clock
        self._recorder = recorder
        self._workloads = workloads

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        return by_controller(change, _STATEFUL_SETS, "StatefulSet", "pods")

    async def reconcile(self, key: Key) -> int | None:
        owner = self._informer.at(key)
        if owner is None or owner["metadata"].get("deletionTimestamp"):
            return None
        revision = f"{owner['metadata']['name']}-{template_hash(owner['spec']['template'])}"
        await self._step(owner, self._pods(owner), revision)
        return await self._report(owner, revision)

    def _pods(self, owner: Object) -> dict[int, Object]:
        """Return the pods by ordinal."""
        stem = f"{owner['metadata']['name']}-"
        found = {}
        for pod in matching(self._informer, owner, "pods"):
            ordinal = pod["metadata"]["name"].removeprefix(stem)
            if ordinal.isdigit():
                found[int(ordinal)] = pod
        return found

    async def _step(self, owner: Object, pods: dict[int, Object], revision: str) -> None:
        first = int((owner["spec"].get("ordinals") or {}).get("start") or 0)
        wanted = range(first, first + replicas_of(owner))
        ordered = owner["spec"].get("podManagementPolicy") != "Parallel"
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is None:
                await self._create(owner, ordinal, revision)
            elif not is_active(pod):
                if not pod["metadata"].get("deletionTimestamp"):
                    await self._delete(owner, pod)  # ended: it is made anew under the same name
            elif is_ready(pod):
                continue
            if ordered:
                return  # the next one waits for this one
        surplus = sorted((o for o in pods if o not in wanted), reverse=True)
        for ordinal in surplus:
            if is_active(pods[ordinal]):
                await self._delete(owner, pods[ordinal])
            if ordered:
                return
        if not surplus:
            await self._roll(owner, {o: pods[o] for o in wanted if o in pods}, revision)

    async def _roll(self, owner: Object, pods: dict[int, Object], revision: str) -> None:
        """Replace the highest pod of an older template once all pods are ready."""
        strategy = owner["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete" or len(pods) < replicas_of(owner):
            return
        if not all(is_active(pod) and is_ready(pod) for pod in pods.values()):
            return
        partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        for ordinal in sorted(pods, reverse=True):
            if ordinal >= partition and _revision(pods[ordinal]) != revision:
                await self._delete(owner, pods[ordinal])
                return

    async def _create(self, owner: Object, ordinal: int, revision: str) -> None:
        name = f"{owner['metadata']['name']}-{ordinal}"
        labels = {
            "apps.kubernetes.io/pod-index": str(ordinal),
            "statefulset.kubernetes.io/pod-name": name,
            _HASH: revision,
        }
        pod = child(owner, "v1", "Pod", name, owner["spec"]["template"], labels=labels)
        pod["spec"]["hostname"] = name
        if owner["spec"].get("serviceName"):
            pod["spec"]["subdomain"] = owner["spec"]["serviceName"]
        self._workloads.join(pod, owner)
        said = f"create Pod {name} in StatefulSet {owner['metadata']['name']}"
        lead = f"{said} failed error"
        await create_pod(self._informer, self._recorder, owner, pod, lead)
        text = f"{said} successful"
        self._recorder.normal(owner, "SuccessfulCreate", text)

    async def _delete(self, owner: Object, pod: Object) -> None:
        await self._informer.delete("pods", pod)
        names = f"Pod {pod['metadata']['name']} in StatefulSet {owner['metadata']['name']}"
        self._recorder.normal(owner, "SuccessfulDelete", f"delete {names} successful")

    async def _report(self, owner: Object, revision: str) -> int | None:
        pods = [pod for pod in self._pods(owner).values() if is_active(pod)]
        seconds = int(owner["spec"].get("minReadySeconds") or 0)
        ready, available, again = availability(pods, seconds, self._clock.wall())
        updated = sum(_revision(pod) == revision for pod in pods)
        before = owner.get("status") or {}
        current = before.get("currentRevision") or revision
        if updated == len(pods) == replicas_of(owner) and ready == len(pods):
            current = revision
        status: dict[str, Any] = {
            **before,
            "observedGeneration": owner["metadata"].get("generation", 1),
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": available,
            "updatedReplicas": updated,
            "currentReplicas": sum(_revision(pod) == current for pod in pods),
            "currentRevision": current,
            "updateRevision": revision,
            "collisionCount": 0,
        }
        if not same_status(owner, status):
            fresh = self._informer.at(key_of(_STATEFUL_SETS, owner)) or owner
            await self._informer.update(
                _STATEFUL_SETS, {**fresh, "status": status}, subresource="status"
            )
        return again


def _revision(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_HASH, ""))
