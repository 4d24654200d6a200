"""Writes down when pods saved: the annotation `reprieve.dev/last-checkpoint`, at their own word.

A pod reports its ordinary saves to the operator, which needs no right of the pod's account. The
instant is written to the pod, and to its Workload where it is queued, so that all planes count what
it would lose from there, and so does the next leader. At most once in half a minute for each pod;
nothing waits for it, and what is refused is tried again with the next save. Source: the contract of
notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, instant_or_none
from reprieve.api import kueue
from reprieve.api.core import ObjectMeta
from reprieve.api.reprieve import LAST_CHECKPOINT
from reprieve.execution.fence import Deposed, Fence
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from reprieve.kube.resource import PODS, Resource
from reprieve.kube.writes import Priority

__all__ = ["ReportedCheckpoints", "SavedPod"]

log: Final = logging.getLogger("reprieve.execution")

_EVERY: Final = 30 * SECOND  # writes of one pod
_LOOK: Final = 5 * SECOND
_MOST: Final = 20_000  # pods whose report is not written yet, or was lately
_WORKLOAD: Final = "kueue.x-k8s.io/workload"
_WORKLOADS: Final = Resource(kueue.GROUP, "v1beta2", "workloads", "Workload")


class SavedPod(NamedTuple):
    """The pod that reports."""

    uid: str
    namespace: str
    name: str


class _Head(msgspec.Struct, frozen=True):
    """An object without its content."""

    metadata: ObjectMeta


class ReportedCheckpoints:
    """Writes them. `run` works beside the planes."""

    def __init__(self, client: Client, fence: Fence, clock: Clock) -> None:
        self._client = client
        self._writer = client.at(Priority.STATUS, fence.check, timeout=fence.request_timeout)
        self._fence = fence
        self._clock = clock
        self._due: dict[SavedPod, Nanos] = {}
        self._written: dict[SavedPod, int] = {}  # monotonic
        self._changed = asyncio.Event()

    def saved(self, pod: SavedPod, at: Nanos) -> bool:
        """Record that a pod saved then; return whether there is space to remember it."""
        if len(self._due) >= _MOST and pod not in self._due:
            return False
        self._due[pod] = max(at, self._due.get(pod, at))
        self._changed.set()
        return True

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            await self._changed.wait()
            if self._fence.open:
                await self._write_due()
            if not self._due:
                self._changed.clear()
            await self._clock.sleep(_LOOK)

    async def _write_due(self) -> None:
        now = self._clock.monotonic()
        self._written = {pod: at for pod, at in self._written.items() if now - at < _EVERY}
        for pod in [each for each in self._due if each not in self._written]:
            at = self._due.pop(pod)
            self._written[pod] = now
            try:
                await self._write(pod, at)
            except (NotFound, Invalid):
                continue  # deleted, or another pod has its name: a uid is immutable
            except Conflict:
                # Another client wrote in between, maybe a newer instant.
                del self._written[pod]
                self.saved(pod, at)
            except Forbidden as refusal:
                log.warning(
                    "pod %s/%s reported a checkpoint, but the operator may not patch pods "
                    "(chart value notice.files): %s",
                    pod.namespace,
                    pod.name,
                    refusal,
                )
            except (Deposed, ApiError) as failure:
                log.info(
                    "the checkpoint of pod %s/%s is not written: %s",
                    pod.namespace,
                    pod.name,
                    failure,
                )
            except Exception:
                log.exception("the checkpoint of pod %s/%s is not written", pod.namespace, pod.name)

    async def _write(self, pod: SavedPod, at: Nanos) -> None:
        head = await self._annotate(PODS, pod.namespace, pod.name, at, pod.uid)
        workload = (head.metadata.annotations or {}).get(_WORKLOAD)
        if workload and head.metadata.uid == pod.uid:
            await self._annotate(_WORKLOADS, pod.namespace, workload, at)

    async def _annotate(
        self, resource: Resource, namespace: str, name: str, at: Nanos, uid: str = ""
    ) -> _Head:
        """Return the object as it is; `uid`: of another under the name nothing is written."""
        head = await self._client.get(resource, namespace, name, _Head)
        metadata = head.metadata
        known = instant_or_none((metadata.annotations or {}).get(LAST_CHECKPOINT))
        if (known is not None and known >= at) or uid not in ("", metadata.uid):
            return head
        said = {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "annotations": {LAST_CHECKPOINT: format_instant(at)},
        }
        return await self._writer.patch(resource, namespace, name, {"metadata": said}, _Head)
