"""Pods that run beyond what their Workload was admitted for, and that no reconciler looks at.

What is admitted bounds what runs, whichever client changed it. Admission marks the pods of all
kinds, so once a minute those with its label are listed, by their metadata alone; where there are so
many that this costs the API server more than 50 pods a second, less often:

1. One whose spec was changed since its creation, as its generation shows, is read. Resized in
   place, it may request no more than its pod set was admitted for (`pod_bounds`). What its creator,
   or a webhook of the cluster, requested at its creation is left alone.
2. One with claims whose devices count is read once they are made: they may be of no more devices
   than its pod set was admitted for (`pod_claims`). Else its Workload is deleted, as that of a job
   that was changed: each pod that came in its place would have as many.
3. One that no controller has any more runs without quota: its job was deleted and its pods
   orphaned, or it lost the labels by which its job selects. Pods that are queued by themselves
   have reconcilers of their own.

The others are reported and, like pods that were never gated, ended after a grace. The webhook of
resizes refuses what would be found here, so that no pod grows for the time between two looks.

Source: specification of the quota plane, section 10.4; the rule is Reprieve's own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from kubeworld.objects.paths import Json
from kubeworld.units.durations import SECOND
from reprieve.api.core import ObjectMeta
from reprieve.api.kueue import Workload
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.jobs.pod_rows import POD
from reprieve.jobs.pods import MANAGED, ROLE, controller_of
from reprieve.jobs.writing import WORKLOAD
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.objects import PartialObject
from reprieve.kube.resource import PODS
from reprieve.kube.writes import Priority
from reprieve.planes.quota.context import QuotaContext, reference_of
from reprieve.planes.quota.job_reconciler.injections import POD_SET
from reprieve.planes.quota.job_reconciler.job_lookup import is_of_pods
from reprieve.planes.quota.pod_reconcilers.missed_pods import GRACE
from reprieve.planes.quota.pod_reconcilers.pod_bounds import outgrown
from reprieve.planes.quota.pod_reconcilers.pod_claims import claims_beyond, is_of_claims
from reprieve.planes.quota.pod_reconcilers.pod_lookup import PodLookup
from reprieve.planes.quota.pod_reconcilers.pod_steps import Overrun, PodSteps, Why
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import WORKLOADS
from reprieve.wording.events import EventText
from reprieve.wording.kueue_jobs import claims_text, released_text, resized_text

__all__ = ["MarkedPods", "pause_after"]

log: Final = logging.getLogger("reprieve.quota")

_READ_AT_ONCE: Final = 500
_LISTED_A_SECOND: Final = 50  # pods, on average


def pause_after(listed: int, *, found: bool) -> int:
    """Return the nanoseconds from one look to the next.

    Args:
        listed: how many pods were listed.
        found: whether any runs beyond its admission, and is ended by the next look.
    """
    return GRACE if found else max(GRACE, listed * SECOND // _LISTED_A_SECOND)


class MarkedPods:
    """Looks for pods that outgrew, or outlived, their admission."""

    def __init__(
        self, context: QuotaContext, state: QuotaState, pods: PodLookup, steps: PodSteps
    ) -> None:
        self._context = context
        self._state = state
        self._pods = pods
        self._steps = steps
        # By uid, the generation that was found to be within what was admitted.
        self._within: dict[str, int] = {}

    async def run(self) -> None:
        """Look once in a while, until cancelled.

        Raises:
            Deposed: the fence is closed.
        """
        pause = GRACE  # not at the start, when all that is watched is listed already
        while True:
            await self._context.clock.sleep(pause)
            try:
                pause = await self.reclaim()
            except ApiError as failure:
                log.warning("pods of admitted workloads are not listed: %s", failure)

    async def reclaim(self) -> int:
        """Report and end what runs beyond its admission; return when to look again, in nanoseconds.

        Raises:
            ApiError: the pods cannot be listed, or one not ended.
            Deposed: the fence is closed.
        """
        listed: dict[str, ObjectMeta] = {}
        pages = self._context.client.list_pages(
            PODS, PartialObject, label_selector=POD_SET, metadata_only=True
        )
        async for page in pages:
            for each in page.items:
                if not each.metadata.deletion_timestamp:
                    listed[each.metadata.uid] = each.metadata
        self._within = {uid: seen for uid, seen in self._within.items() if uid in listed}
        beyond = [await self._is_beyond(metadata) for metadata in self._to_read(listed)]
        return pause_after(len(listed), found=any(beyond))

    def _to_read(self, listed: dict[str, ObjectMeta]) -> Iterator[ObjectMeta]:
        """Yield who may run beyond its admission; what was changed again comes first."""
        left = _READ_AT_ONCE
        for uid, each in sorted(listed.items(), key=lambda item: item[0] not in self._within):
            is_changed = each.generation > 1 or self._has_claims(each)
            is_changed = is_changed and self._within.get(uid) != each.generation
            if self._is_released(each):
                yield each
            elif is_changed and left > 0:
                left -= 1
                yield each

    def _has_claims(self, metadata: ObjectMeta) -> bool:
        return is_of_claims(self._workload(metadata), self._context.options.rules.device_classes)

    def _is_released(self, metadata: ObjectMeta) -> bool:
        if any(each.controller for each in metadata.owner_references or ()):
            return False
        if self._pods.kind is not None and (metadata.labels or {}).get(MANAGED) == "true":
            return False
        if self._pods.kind is None and ROLE in (metadata.annotations or {}):
            return False
        workload = self._workload(metadata)
        return workload is None or not is_of_pods(workload)

    def _workload(self, metadata: ObjectMeta) -> Workload | None:
        name = (metadata.annotations or {}).get(WORKLOAD, "")
        return self._state.workload(f"{metadata.namespace}/{name}")

    async def _is_beyond(self, metadata: ObjectMeta) -> bool:
        """Report and end a pod that runs beyond its admission; return whether it does."""
        try:
            pod: Json = await self._context.client.get(
                PODS, metadata.namespace, metadata.name, dict[str, Any]
            )
        except NotFound:
            return False
        if pod["metadata"]["uid"] != metadata.uid:
            return False
        name = (metadata.annotations or {}).get(WORKLOAD, "")
        if self._is_released(metadata) and not controller_of(pod):
            released = Overrun(Why.RELEASED, released_text(name))
            await self._steps.reclaim(POD, pod, "", released)
            return True
        workload = self._workload(metadata)
        if workload is None or not is_condition_true(workload, "Admitted"):
            return False
        more = outgrown(self._state, pod, workload)
        if more:
            resized = Overrun(Why.RESIZED, resized_text(name, more))
            await self._steps.reclaim(POD, pod, "", resized)
            return True
        claimed: tuple[str, ...] | None = ()
        if self._has_claims(metadata):
            rows = self._state.pod_rows(metadata.namespace)
            claimed = await claims_beyond(self._context.client, pod, workload, rows)
        if claimed:
            await self._delete(workload, claims_text(metadata.name, claimed))
        elif claimed is not None:
            self._within[metadata.uid] = metadata.generation
        return bool(claimed)

    async def _delete(self, workload: Workload, why: str) -> None:
        """Delete a Workload, so that its work is queued for what it requests now."""
        metadata, context = workload.metadata, self._context
        context.metrics.beyond_admission.labels(Why.RESIZED).inc()
        context.announce(reference_of(workload), EventText("Warning", Why.RESIZED, why))
        log.info("Workload %s/%s is deleted: %s", metadata.namespace, metadata.name, why)
        client = context.client.at(Priority.EVICT, context.fence.check)
        try:
            await client.delete(WORKLOADS, metadata.namespace, metadata.name, uid=metadata.uid)
        except NotFound:
            self._state.gone(f"{metadata.namespace}/{metadata.name}")
