"""One queued pod at a time, of those that are no members of a group.

What is done follows from the pod and its Workload alone:

1. the Workload is deleted: so is the pod
2. being deleted: it loses its finalizer; once it is deleted, or can run no more, the Workload is
   declared finished
3. over: the Workload is declared finished, and the pod loses its finalizer
4. no Workload: made for a gated pod; a pod that was gated and runs without is ended
5. evicted or not admitted, and running: ended; once it does not run within its grace period the
   quota of an evicted one is free, and it is not queued again, not even where it is still gated
6. changed: the Workload follows while the pod is gated, else both end
7. admitted, and gated: released with what the flavors request

Source: specification of the quota plane, sections 10.4 and 10.5.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeworld.objects.paths import Json, first
from kubeworld.objects.pods import is_over
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Condition, Workload
from reprieve.intake.quota_workloads import condition_of, is_condition_true, is_true
from reprieve.jobs.model import JobKind
from reprieve.jobs.pods import (
    PARENT,
    annotations_of,
    gone_at,
    group_of,
    is_gated,
    is_managed,
    is_runnable,
    still_runs,
)
from reprieve.jobs.reading import end
from reprieve.jobs.writing import Conflicting
from reprieve.planes.quota.context import QuotaContext, reference_of
from reprieve.planes.quota.job_reconciler.exposure import ExposureEvents
from reprieve.planes.quota.job_reconciler.job_lookup import job_key, workload_key
from reprieve.planes.quota.job_reconciler.job_workloads import JobWorkloads
from reprieve.planes.quota.pod_reconcilers.pod_steps import PodSteps, Why
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.workload_status.workloads import WorkloadReconciler
from reprieve.wording.events import EventText
from reprieve.wording.kueue_jobs import DELETED, MISSING, NOT_ADMITTED, UNMATCHED, orphaned

__all__ = ["PodReconciler"]


class PodReconciler:
    """Looks at one pod at a time; `again` requests another look at a key at a wall instant."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        steps: PodSteps,
        workloads: JobWorkloads,
        releasing: WorkloadReconciler,
        exposure: ExposureEvents,
        again: Callable[[str, Nanos], None],
    ) -> None:
        self._context = context
        self._state = state
        self._steps = steps
        self._workloads = workloads
        self._releasing = releasing
        self._exposure = exposure
        self._again = again

    async def reconcile(self, kind: JobKind, pod: Json) -> None:
        """Do what the pod needs.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        if not is_managed(pod) or group_of(pod):
            return
        if kind.children_only and PARENT not in annotations_of(pod):
            return
        at = workload_key(kind, pod)
        workload = self._state.workload(at)
        if workload is not None and workload.metadata.deletion_timestamp:
            await self._steps.stop(kind, pod, Why.DELETED, DELETED, all_pods=True)
            await self._steps.writer.finalize(pod)
            await self._releasing.reconcile(at)
            return
        finished = workload is None or is_condition_true(workload, "Finished")
        over = end(kind, pod)
        if first(pod, "metadata.deletionTimestamp"):
            # What becomes of it on its way out is no end of its own.
            if workload is not None and is_true(_eviction(workload)):
                if not self._runs(kind, pod):
                    await self._releasing.release(at, workload)
            elif workload is not None and not finished and (is_over(pod) or not is_runnable(pod)):
                # Another's finalizer may keep it for good, and it never runs again.
                await self.gone(at, workload)
            await self._steps.writer.finalize(pod)
        elif over is not None:
            if workload is not None and not finished:
                reason = "Succeeded" if over.succeeded else "Failed"
                await self._workloads.finish(kind, pod, at, workload, reason, over.message)
            await self._steps.writer.finalize(pod)
        elif workload is None:
            await self._make(kind, pod)
        elif finished:
            await self._steps.writer.finalize(pod)
        else:
            await self._keep(kind, pod, at, workload)

    async def gone(self, at: str, workload: Workload) -> None:
        """Declare the Workload of a deleted pod finished, or of one that can run no more."""
        if await self._workloads.finish_orphan(at, workload):
            event = EventText("Normal", "FinishedWorkload", orphaned(at))
            self._context.announce(reference_of(workload), event)

    async def _make(self, kind: JobKind, pod: Json) -> None:
        if is_gated(pod, kind.gate):
            self._exposure.announce(kind, pod)
            await self._workloads.make(kind, pod)
        elif not await self._steps.reclaim_missed(kind, pod):
            await self._steps.stop(kind, pod, Why.NO_WORKLOAD, MISSING)

    async def _keep(self, kind: JobKind, pod: Json, at: str, workload: Workload) -> None:
        gated, eviction = is_gated(pod, kind.gate), _eviction(workload)
        if is_true(eviction):
            why = f"{Why.EVICTED}{eviction.reason}"
            await self._steps.stop(kind, pod, why, eviction.message)
            if self._runs(kind, pod):
                return
            if workload.status.admission is not None:
                await self._releasing.release(at, workload)
                return
        admitted = is_condition_true(workload, "Admitted")
        if not gated and not admitted:
            await self._steps.stop(kind, pod, Why.NOT_ADMITTED, NOT_ADMITTED)
            return
        if not await self._workloads.matches(kind, pod, at, workload):
            if gated and workload.status.admission is None:
                await self._workloads.update(kind, pod, at, workload)
            else:
                await self._steps.stop(kind, pod, Why.NO_WORKLOAD, UNMATCHED)
                await self._workloads.delete(kind, pod, at, workload)
            return
        if gated and admitted:
            try:
                await self._steps.start(kind, pod, workload, workload.spec.pod_sets[0].name)
            except Conflicting as conflict:
                text = str(conflict)
                await self._workloads.finish(kind, pod, at, workload, "FailedToStart", text)
                return
        elif gated:
            await self._workloads.follow_labels(kind, pod, at, workload)
        await self._workloads.observe(kind, pod, at, workload)

    def _runs(self, kind: JobKind, pod: Json) -> bool:
        """Return whether it runs within its grace period; it is looked at again after that."""
        if not still_runs(pod, self._context.clock.wall()):
            return False
        if (until := gone_at(pod)) is not None:
            metadata = pod["metadata"]
            self._again(job_key(kind, metadata["namespace"], metadata["name"]), until)
        return True


def _eviction(workload: Workload) -> Condition | None:
    return condition_of(workload.status.conditions, "Evicted")
