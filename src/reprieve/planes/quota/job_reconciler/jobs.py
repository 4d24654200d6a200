"""One job at a time: its Workload made and kept, itself started, stopped and declared finished.

What is done follows from the job and its Workload alone, so that every step that was interrupted is
repeated:

1. deleted: the Workload it leaves behind is declared finished
2. below a queued job: suspended unless that one is admitted; never queued itself
3. over: the Workload is declared finished
4. no Workload: the job is suspended, and once it has no pods its Workload is made, unless the job
   names one that another client makes
5. the Workload is deleted: the job is suspended
6. evicted or not admitted, and running: suspended; its own controller deletes the pods
7. evicted, and no pods left: the templates are restored, and the quota is free
8. changed: the Workload follows while it holds no quota, a running job is stopped otherwise
9. on hold: it holds no quota
10. admitted, and suspended: started with what the flavors request

Pods, groups of pods and what stands on them have reconcilers of their own.

Source: specification of the quota plane, sections 10.1 to 10.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kubeworld.objects.paths import Json, first
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Workload
from reprieve.execution.writes.jobs import JobWriter
from reprieve.intake.quota_workloads import condition_of, is_condition_true, is_true
from reprieve.jobs.model import JobKind
from reprieve.jobs.pod_sets import pod_sets_of
from reprieve.jobs.pods import prebuilt_of
from reprieve.jobs.reading import end, is_active, is_managed, is_on_hold, is_suspended
from reprieve.jobs.writing import Conflicting, is_injected, is_restored
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.job_reconciler.ancestry import Ancestor, Ancestry
from reprieve.planes.quota.job_reconciler.composing import Composer, owner
from reprieve.planes.quota.job_reconciler.deletion_pace import DeletionPace
from reprieve.planes.quota.job_reconciler.exposure import ExposureEvents
from reprieve.planes.quota.job_reconciler.injections import injections
from reprieve.planes.quota.job_reconciler.job_lookup import JobLookup, job_key, workload_key
from reprieve.planes.quota.job_reconciler.job_workloads import JobWorkloads
from reprieve.planes.quota.job_reconciler.leaving_jobs import LeavingJobs
from reprieve.planes.quota.job_reconciler.remaining_pods import has_remaining_pods
from reprieve.planes.quota.job_reconciler.resumed_jobs import ResumedJobs
from reprieve.planes.quota.pod_reconcilers.gated_sets import SetReconciler
from reprieve.planes.quota.pod_reconcilers.lone_pods import LonePods
from reprieve.planes.quota.pod_reconcilers.marked_pods import MarkedPods
from reprieve.planes.quota.pod_reconcilers.pod_groups import GroupReconciler
from reprieve.planes.quota.pod_reconcilers.pod_lookup import GROUP_PREFIX
from reprieve.planes.quota.pod_reconcilers.pod_steps import PodSteps
from reprieve.planes.quota.pod_reconcilers.pods import PodReconciler
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import Watches
from reprieve.planes.quota.workload_status.refusals import Refusals
from reprieve.planes.quota.workload_status.workloads import WorkloadReconciler
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.wording.events import EventText
from reprieve.wording.kueue_jobs import (
    CHILD,
    DELETED,
    MISSING,
    NOT_ADMITTED,
    OUT_OF_SYNC,
    UNMATCHED,
)

__all__ = ["JobReconciler"]

_ON_HOLD: Final = "Job is on hold"
_LOOK_AGAIN: Final = SECOND


class JobReconciler:
    """Looks at one job at a time.

    Args:
        context: of the plane.
        state: of the plane.
        watches: of the plane.
        writer: of statuses.
        jobs: of the plane.
        workloads: frees quota, and releases Workloads.
        namespace: the operator's own, whose jobs are left alone.
        again: requests another look at a key at a wall instant.
    """

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        watches: Watches,
        writer: WorkloadStatuses,
        jobs: JobLookup,
        workloads: WorkloadReconciler,
        namespace: str,
        again: Callable[[str, Nanos], None],
    ) -> None:
        self._context = context
        self._again = again
        self._state = state
        self._watches = watches
        self._jobs = jobs
        self._releasing = workloads
        self._composer = composer = Composer(context, watches)
        pace = DeletionPace(context.clock)
        self._workloads = JobWorkloads(context, state, writer, composer, pace, again)
        self._ancestry = Ancestry(context, watches, jobs, composer, namespace)
        self._writer = JobWriter(context.full_client, context.fence)
        self._resumed = ResumedJobs()
        steps = PodSteps(context, watches, jobs.pods, composer, pace, again)
        writers = self._writer, steps.writer
        self._leaving = LeavingJobs(context, state, self._workloads, jobs.pods, *writers, again)
        self.lone_pods = LonePods(context, jobs.pods, steps)
        self.marked_pods = MarkedPods(context, state, jobs.pods, steps)
        exposure = ExposureEvents(watches, state, composer)
        self._pods = PodReconciler(
            context, state, steps, self._workloads, workloads, exposure, again
        )
        self._groups = GroupReconciler(
            context,
            state,
            writer,
            jobs.pods,
            composer,
            steps,
            self._workloads,
            workloads,
            exposure,
            lambda at, instant: again(f"{GROUP_PREFIX}{at}", instant),
        )
        self._sets = SetReconciler(
            context, state, jobs.pods, composer, steps, self._workloads, exposure
        )

    async def reconcile(self, key: str) -> None:
        """Do what the job needs.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        if key.startswith(GROUP_PREFIX):
            await self._groups.reconcile(key.removeprefix(GROUP_PREFIX))
            return
        kind, held = self._jobs.split(key)
        if held is None:
            await self._gone(kind, key)
            return
        job = held.object
        if kind.gate:
            await self._pods.reconcile(kind, job)
            return
        if first(job, "metadata.deletionTimestamp"):
            await self._leave(kind, held.namespace, self._jobs.resolved(kind, job))
            return
        if not self._ancestry.manages(held.namespace):
            return
        above = await self._ancestry.of(kind, job)
        if above is not None:
            await self._follow_ancestor(kind, job, above)
        elif self._ancestry.queues(job) and is_managed(kind, job):
            if kind.passes_on is not None:
                await self._sets.reconcile(kind, job)
            else:
                await self._reconcile_job(kind, self._jobs.resolved(kind, job))

    async def _leave(self, kind: JobKind, namespace: str, job: Json) -> None:
        await self._leaving.reconcile(kind, job)
        if (
            self._state.workload(workload_key(kind, job)) is None
            and self._ancestry.manages(namespace)
            and self._ancestry.queues(job)
            and is_managed(kind, job)
            and await self._ancestry.of(kind, job) is None
        ):
            await self._leaving.end_without_workload(kind, job)

    def forget(self, at: str, owners: Iterable[str]) -> None:
        """Forget a deleted Workload; `owners`: what is looked at since then."""
        self._workloads.forget(at, lost=any(self._jobs.is_there(key) for key in owners))

    async def _gone(self, kind: JobKind, key: str) -> None:
        at = self._jobs.left_behind(key)
        workload = self._state.workload(at) if at else None
        if workload is not None:
            if kind.gate:
                await self._pods.gone(at, workload)
            else:
                await self._workloads.finish_orphan(at, workload)
        self._jobs.forget_left(key)
        if workload is not None:
            await self._releasing.reconcile(at)

    async def _reconcile_job(self, kind: JobKind, job: Json) -> None:
        at = workload_key(kind, job)
        workload = self._state.workload(at)
        over = end(kind, job)
        if workload is None:
            if over is None:
                await self._make(kind, job)
        elif workload.metadata.deletion_timestamp:
            if over is None:
                await self._stop(kind, job, DELETED)
            await self._releasing.reconcile(at)
        elif is_condition_true(workload, "Finished"):
            return
        elif over is not None:
            reason = "Succeeded" if over.succeeded else "Failed"
            await self._workloads.finish(kind, job, at, workload, reason, over.message)
        else:
            await self._keep(kind, job, at, workload)

    async def _make(self, kind: JobKind, job: Json) -> None:
        if not is_suspended(kind, job):
            await self._stop(kind, job, MISSING)
        elif is_active(kind, job) or prebuilt_of(job):
            return
        elif pod_sets_of(kind, job):
            await self._workloads.make(kind, job)
        else:
            text = "the job describes no pods"
            if kind.runtime is not None:
                text = f"runtime '{first(job, kind.runtime.name)}' not found"
            self._composer.announce(kind, job, EventText("Warning", "ErrWorkloadCompose", text))

    async def _keep(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        if prebuilt_of(job):
            await self._workloads.own(at, workload, [owner(kind, job)])
        suspended, active = is_suspended(kind, job), is_active(kind, job)
        eviction = condition_of(workload.status.conditions, "Evicted")
        admission, admitted = workload.status.admission, is_condition_true(workload, "Admitted")
        if is_true(eviction) and admission is not None:
            if not suspended:
                await self._stop(kind, job, eviction.message)
                self._resumed.stopped(workload)
            if await self._has_ended(kind, job, workload, ended=suspended and not active):
                await self._restore(kind, job, at)
                await self._releasing.release(at, workload)
            return
        if not suspended and not admitted:
            await self._stop(kind, job, NOT_ADMITTED)
            return
        if suspended and not active and admission is None and is_injected(kind, job):
            await self._restore(kind, job, at)
            return
        if not await self._workloads.matches(kind, job, at, workload):
            await self._mend(kind, job, at, workload)
            return
        refusals = Refusals()
        await refusals.step(self._workloads.follow_labels(kind, job, at, workload, queue=suspended))
        on_hold = is_on_hold(kind, job)
        if kind.on_hold:
            await refusals.step(self._workloads.hold(at, workload, _ON_HOLD if on_hold else ""))
        if suspended and admitted and not on_hold:
            await refusals.step(self._start(kind, job, at, workload))
        await refusals.step(self._workloads.observe(kind, job, at, workload))
        refusals.raise_first()

    async def _mend(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        """Make up for a job that was changed."""
        if not is_suspended(kind, job):
            await self._stop(kind, job, UNMATCHED)
        elif prebuilt_of(job):
            await self._workloads.finish(kind, job, at, workload, "OutOfSync", OUT_OF_SYNC)
        elif workload.status.admission is None:
            await self._workloads.update(kind, job, at, workload)
        elif not is_active(kind, job) and not await self._has_pods(kind, job, workload):
            await self._restore(kind, job, at)
            await self._workloads.delete(kind, job, at, workload)

    async def _has_ended(
        self, kind: JobKind, job: Json, workload: Workload, *, ended: bool
    ) -> bool:
        """Return whether all evicted pods have ended; `ended`: the status of the job shows none."""
        evicted = self._resumed.evicted(workload)
        if evicted is None:
            return ended and not await self._has_pods(kind, job, workload)
        return not await has_remaining_pods(self._context.client, kind, job, workload, evicted)

    async def _has_pods(self, kind: JobKind, job: Json, workload: Workload) -> bool:
        """Return whether pods of a stopped job remain; it is looked at again soon then."""
        if not await has_remaining_pods(self._context.client, kind, job, workload):
            return False
        metadata = job["metadata"]
        soon = Nanos(self._context.clock.wall() + _LOOK_AGAIN)
        self._again(job_key(kind, metadata["namespace"], metadata["name"]), soon)
        return True

    async def _start(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        admission = workload.status.admission
        assert admission is not None
        try:
            written = await self._writer.start(kind, job, injections(self._watches, workload))
        except Conflicting as conflict:
            await self._workloads.finish(kind, job, at, workload, "FailedToStart", str(conflict))
            return
        if written:
            log.info("%s/%s started", kind.kind, job["metadata"]["name"])
            text = f"Admitted by clusterQueue {admission.cluster_queue}"
            self._composer.announce(kind, job, EventText("Normal", "Started", text))

    async def _stop(self, kind: JobKind, job: Json, why: str, reason: str = "Stopped") -> None:
        if await self._writer.stop(kind, job):
            log.info("%s/%s suspended: %s", kind.kind, job["metadata"]["name"], why)
            self._composer.announce(kind, job, EventText("Normal", reason, why))

    async def _restore(self, kind: JobKind, job: Json, at: str) -> None:
        """Restore what a start changed in the templates."""
        if not is_injected(kind, job):
            return
        pod_sets = (await self._workloads.stored(at))["spec"]["podSets"]
        if not is_restored(kind, job, pod_sets):
            await self._writer.restore(kind, job, pod_sets)

    async def _follow_ancestor(self, kind: JobKind, job: Json, above: Ancestor) -> None:
        workload = self._state.workload(above.workload)
        if not kind.suspend or (workload is not None and is_condition_true(workload, "Admitted")):
            return
        if not is_suspended(kind, job) and end(kind, job) is None:
            await self._stop(kind, job, CHILD, "Suspended")
