"""Removes pods that no other removes: of deleted nodes, and the oldest finished ones.

Source: the pod garbage collector. A pod of a node that has been missing for 40 s is failed, with
the condition DisruptionTarget, and deleted without grace. Above the threshold those that finished
first are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubeworld.controllers import pod_statuses
from kubeworld.objects.pods import is_over
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant

__all__ = ["PodGarbageCollector"]

_QUARANTINE: Final = 40 * SECOND


class PodGarbageCollector:
    """Keeps at most `threshold` finished pods, and no pod of a node that does not exist."""

    name = "pod-gc"

    def __init__(self, informer: Informer, clock: Clock, threshold: int = 12_500) -> None:
        self._informer = informer
        self._clock = clock
        self._threshold = threshold
        # Finished pods, in the order in which they were seen to be.
        self._finished: dict[Key, None] = {}
        # uid of a pod -> since when its node is missing, monotonic.
        self._missing: dict[str, int] = {}

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == "nodes" and change.type is ChangeType.DELETED:
            pods = self._informer.on_node(change.object["metadata"]["name"])
            return [key_of("pods", pod) for pod in pods]
        if change.resource != "pods":
            return []
        key = key_of("pods", change.object)
        if change.type is ChangeType.DELETED:
            self._finished.pop(key, None)
            self._missing.pop(change.object["metadata"]["uid"], None)
            return []
        concerned = [key] if self._is_orphan(change.object) else []
        if is_over(change.object):
            self._finished.setdefault(key)
            concerned += islice(self._finished, max(0, len(self._finished) - self._threshold))
        return concerned

    async def reconcile(self, key: Key) -> int | None:
        pod = self._informer.at(key)
        if pod is None:
            return None
        surplus = max(0, len(self._finished) - self._threshold)
        if key in islice(self._finished, surplus):
            await self._informer.delete("pods", pod)
            return None
        uid, now = pod["metadata"]["uid"], self._clock.monotonic()
        if not self._is_orphan(pod):
            self._missing.pop(uid, None)
            return None
        rest = self._missing.setdefault(uid, now) + _QUARANTINE - now
        if rest > 0:
            return rest
        if await self._informer.refresh(Key("nodes", "", pod["spec"]["nodeName"])) is None:
            await self._remove(pod)
        return None

    async def _remove(self, pod: Object) -> None:
        if not is_over(pod):
            wall, message = format_instant(self._clock.wall()), "PodGC: node no longer exists"
            status = pod_statuses.disrupted(pod, "DeletionByPodGC", message, wall)
            failed = {**pod, "status": {**status, "phase": "Failed"}}
            pod = await self._informer.update("pods", failed, subresource="status")
        await self._informer.delete("pods", pod, grace_seconds=0)

    def _is_orphan(self, pod: Object) -> bool:
        node = pod["spec"].get("nodeName")
        return bool(node) and self._informer.get("nodes", "", node) is None
