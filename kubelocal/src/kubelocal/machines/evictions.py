"""The evictionrequest-controller: makes Evictions for EvictionRequests of pods.

There is one Eviction for each target, named after the pod and the first letters of its uid. It is
deleted when the last request for its target is deleted. The last responder of every pod deletes the
pod here; disruption budgets are not checked. A controller manager of Kubernetes 1.37 has no such
controller: this one works beside it, too. Source: `kubeworld.controllers.evictions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kubelocal.machines.informer import Informer
from kubelocal.machines.objects import Change, Object
from kubeworld.controllers.evictions import EVICTOR, eviction_status
from kubeworld.objects.conditions import condition
from kubeworld.units.clock import Clock

__all__ = ["EvictionRequests"]

_REQUESTS: Final = "evictionrequests.lifecycle.k8s.io"
_EVICTIONS: Final = "evictions.lifecycle.k8s.io"
_LONGEST: Final = 240  # letters of a pod's name, of 253 that the name of an object may have
_CONDITIONS: Final = ("TargetEvicted", "Failed")


class Target(NamedTuple):
    """A pod that is to be evicted."""

    namespace: str
    name: str
    uid: str


class EvictionRequests:
    """Reconciles Evictions, and the statuses of their requests."""

    name = "evictionrequests"

    def __init__(self, informer: Informer, clock: Clock) -> None:
        self._informer = informer
        self._clock = clock

    def concerns(self, change: Change, before: Object | None) -> Iterable[Target]:
        if change.resource in (_REQUESTS, _EVICTIONS):
            return [_target(change.object)]
        if change.resource != "pods" or not self._informer.all(_REQUESTS):
            return []
        return [Target(*_identity(pod)) for pod in (change.object, before) if pod is not None]

    async def reconcile(self, key: Target) -> int | None:
        requests = list(self._about(_REQUESTS, key))
        eviction = next(self._about(_EVICTIONS, key), None)
        if eviction is None:
            if not any(each["spec"]["intent"] == "Eviction" for each in requests):
                return None
            eviction = await self._made(key)
        elif not requests:
            await self._informer.delete(_EVICTIONS, eviction)
            return None
        intents = dict[str, str]()
        for each in requests:
            requester, intent = each["spec"]["requester"], each["spec"]["intent"]
            if intents.get(requester) != "Eviction":
                intents[requester] = intent
        pod = self._informer.get("pods", key.namespace, key.name)
        if pod is not None and pod["metadata"]["uid"] != key.uid:
            pod = None
        status, again = eviction_status(eviction, intents, pod, self._clock.wall())
        if pod is not None:
            await self._evict(status, pod)
        if status != (eviction.get("status") or {}):
            changed = {**eviction, "status": status}
            await self._informer.update(_EVICTIONS, changed, subresource="status")
        for request in requests:
            await self._report(request, status)
        return again

    async def _made(self, key: Target) -> Object:
        name = f"{key.name[:_LONGEST]}-{key.uid[:8]}"
        made: Object = {
            "apiVersion": "lifecycle.k8s.io/v1alpha1",
            "kind": "Eviction",
            "metadata": {"namespace": key.namespace, "name": name},
            "spec": {"target": {"pod": {"name": key.name, "uid": key.uid}}},
        }
        return await self._informer.create(_EVICTIONS, made)

    async def _evict(self, status: dict[str, Any], pod: Object) -> None:
        """Delete the pod when it is the turn of the last responder."""
        active = {turn["name"] for turn in status["targetResponders"] if turn["state"] == "Active"}
        if EVICTOR in active and not pod["metadata"].get("deletionTimestamp"):
            await self._informer.delete("pods", pod)

    async def _report(self, request: Object, status: dict[str, Any]) -> None:
        said = dict(request.get("status") or {})
        found = [condition({"status": status}, kind) for kind in _CONDITIONS]
        wanted = {
            **said,
            "observedGeneration": request["metadata"].get("generation", 1),
            "conditions": [each for each in found if each is not None],
        }
        if wanted != said:
            await self._informer.update(
                _REQUESTS, {**request, "status": wanted}, subresource="status"
            )

    def _about(self, resource: str, key: Target) -> Iterator[Object]:
        return (each for each in self._informer.all(resource) if _target(each) == key)


def _target(obj: Object) -> Target:
    pod = obj["spec"]["target"]["pod"]
    return Target(obj["metadata"]["namespace"], pod["name"], pod["uid"])


def _identity(pod: Object) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    return metadata["namespace"], metadata["name"], metadata["uid"]
