"""Writes to others' pods that are queued: released, end, stamp, and release from the finalizer.

Each reads the pod first and judges it again after a conflict, so that one that was created again
under the same name is left alone. A pod that is ended gets the condition `TerminationTarget` and is
then deleted, by uid and resourceVersion, and in a contest by uid, with its own grace period.
Every write is fenced. Source: specification of the quota plane, sections 10.4 and 10.5; the
design's "Intent log and executor".
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Final

from kubeworld.objects.paths import Json, first
from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_instant
from reprieve.execution.fence import Fence
from reprieve.execution.writes.contest import Contest
from reprieve.jobs.pods import FINALIZER, has_finalizer, is_gated
from reprieve.jobs.writing import Injection, ungated
from reprieve.kube.client import Client
from reprieve.kube.errors import Conflict, NotFound
from reprieve.kube.resource import PODS
from reprieve.kube.retry import retried
from reprieve.kube.writes import Priority

__all__ = ["PodWriter"]

_MANAGER: Final = "kueue"
_OWN_MANAGER: Final = "reprieve"
_CONDITION: Final = "TerminationTarget"


class PodWriter:
    """Changes queued pods. Each write returns whether anything was written.

    All raise `Deposed` where the fence is closed, and `ApiError` where the API server refused.
    """

    def __init__(self, client: Client, fence: Fence, clock: Clock) -> None:
        self._client = client
        self._fence = fence
        self._clock = clock

    async def let_go(self, pod: Json, gate: str, injection: Injection) -> bool:
        """Remove the gate, and set where the pod may run.

        Raises:
            Conflicting: an injected value contradicts one that is there.
        """
        return await self._modify(
            pod,
            lambda current: ungated(current, gate, injection) if is_gated(current, gate) else None,
        )

    async def place(self, pod: Json, gate: str, selector: Mapping[str, str]) -> bool:
        """Remove a gate, and bind the pod to nodes with these labels, in one write."""

        def change(current: Json) -> Json | None:
            gates = current["spec"].get("schedulingGates") or ()
            if all(each.get("name") != gate for each in gates):
                return None
            changed = copy.deepcopy(current)
            spec = changed["spec"]
            spec["schedulingGates"] = [each for each in gates if each.get("name") != gate]
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **selector}
            return changed

        return await self._modify(pod, change)

    async def stamp(
        self, pod: Json, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> bool:
        """Write labels and annotations that state which workload the pod is of."""

        def change(current: Json) -> Json | None:
            changed = copy.deepcopy(current)
            metadata = changed["metadata"]
            metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
            return None if changed == current else changed

        return await self._modify(pod, change)

    async def finalize(self, pod: Json) -> bool:
        """Release the pod for good once it has ended."""

        def change(current: Json) -> Json | None:
            if not has_finalizer(current):
                return None
            changed = copy.deepcopy(current)
            kept = [each for each in changed["metadata"]["finalizers"] if each != FINALIZER]
            changed["metadata"]["finalizers"] = kept
            return changed

        return has_finalizer(pod) and await self._modify(pod, change)

    async def terminate(self, pod: Json, reason: str, message: str) -> bool:
        """Mark the pod as one that is ended, and delete it."""
        metadata = pod["metadata"]
        fence = self._fence
        marker = self._client.at(
            Priority.EVICT, fence.check, timeout=fence.request_timeout, field_manager=_MANAGER
        )

        contest = Contest()

        async def once() -> bool:
            current: Json = await self._client.get(
                PODS, metadata["namespace"], metadata["name"], dict
            )
            if current["metadata"]["uid"] != metadata["uid"]:
                return False
            if first(current, "metadata.deletionTimestamp"):
                return False
            marked: Json = await marker.apply(
                PODS,
                self._marked(current, _CONDITION, True, reason, message),
                dict,
                force=True,
                subresource="status",
            )
            await marker.delete(
                PODS,
                metadata["namespace"],
                metadata["name"],
                uid=metadata["uid"],
                resource_version="" if contest.lost else marked["metadata"]["resourceVersion"],
            )
            return True

        try:
            return await retried(contest.of(once), self._client.transport.pause, (Conflict,))
        except NotFound:
            return False

    async def write_condition(
        self, pod: Json, kind: str, status: bool, reason: str, message: str
    ) -> bool:
        """Write a condition of the type `kind`, which nothing acts on."""
        teller = self._client.at(
            Priority.STATUS,
            self._fence.check,
            timeout=self._fence.request_timeout,
            field_manager=_OWN_MANAGER,
        )
        marked = self._marked(pod, kind, status, reason, message)
        try:
            await teller.apply(PODS, marked, dict, force=True, subresource="status")
        except (NotFound, Conflict):
            return False  # deleted, or another pod has its name
        return True

    async def delete(self, pod: Json) -> bool:
        """Delete a pod that is one too many."""
        metadata = pod["metadata"]
        try:
            await self._fenced(Priority.EVICT).delete(
                PODS, metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )
        except NotFound:
            return False
        return True

    def _marked(self, pod: Json, kind: str, status: bool, reason: str, message: str) -> Json:
        metadata = pod["metadata"]
        condition = {
            "type": kind,
            "status": str(status),
            "reason": reason,
            "message": message,
            "lastTransitionTime": format_instant(self._clock.wall()),
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {name: metadata[name] for name in ("name", "namespace", "uid")},
            "status": {"conditions": [condition]},
        }

    async def _modify(self, pod: Json, change: Callable[[Json], Json | None]) -> bool:
        metadata = pod["metadata"]

        def same(current: Json) -> Json | None:
            return change(current) if current["metadata"]["uid"] == metadata["uid"] else None

        try:
            written = await self._fenced(Priority.STATUS).modify(
                PODS, metadata["namespace"], metadata["name"], same
            )
        except NotFound:
            return False
        return written is not None

    def _fenced(self, priority: Priority) -> Client:
        return self._client.at(priority, self._fence.check, timeout=self._fence.request_timeout)
