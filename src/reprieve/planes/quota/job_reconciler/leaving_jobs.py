"""A job that is being deleted, and that a finalizer of another keeps.

Its controller makes no pods for it, and ends none: what runs continues. So

1. a Workload that waits is declared finished: it would get quota, and preempt others, for no pod
2. one with quota holds it while pods run, and is declared finished after the last of them
3. an evicted one, one without quota, and one that is deleted itself, has its pods ended here, since
   no other work does it
4. where its Workload no longer exists, the pods of a queued job are ended as well

Source: specification of the quota plane, section 10.1; the rule is Reprieve's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubeworld.objects.paths import Json, first
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Workload
from reprieve.execution.writes.jobs import JobWriter
from reprieve.execution.writes.pods import PodWriter
from reprieve.intake.quota_workloads import condition_of, is_condition_true, is_true
from reprieve.jobs.model import JobKind
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.job_reconciler.job_lookup import (
    job_key,
    set_workload_keys,
    workload_key,
)
from reprieve.planes.quota.job_reconciler.job_workloads import JobWorkloads
from reprieve.planes.quota.job_reconciler.remaining_pods import remaining_pods
from reprieve.planes.quota.pod_reconcilers.pod_lookup import PodLookup
from reprieve.planes.quota.pod_reconcilers.pod_steps import Why
from reprieve.planes.quota.state import QuotaState
from reprieve.wording.kueue_jobs import DELETED, MISSING, NOT_ADMITTED

__all__ = ["LeavingJobs"]

# Its status may not follow any more, so that its pods are looked for.
_SOON: Final = SECOND
_LATER: Final = 30 * SECOND
_NOT_ADMITTED: Final = "NotAdmitted"
_EVICTED: Final = "WorkloadEvictedDueTo"


class LeavingJobs:
    """Looks at one job at a time; `again` requests another look at a key at a wall instant."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        workloads: JobWorkloads,
        pods: PodLookup,
        job_writer: JobWriter,
        pod_writer: PodWriter,
        again: Callable[[str, Nanos], None],
    ) -> None:
        self._context = context
        self._state = state
        self._workloads = workloads
        self._pods = pods
        self._again = again
        self._job_writer = job_writer
        self._pod_writer = pod_writer

    async def reconcile(self, kind: JobKind, job: Json) -> None:
        """Do what a job needs that is being deleted.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        if kind.passes_on is not None:
            await self._leave_set(kind, job)
            return
        at = workload_key(kind, job)
        workload = self._own(at, job)
        if workload is None:
            return
        eviction, pause = condition_of(workload.status.conditions, "Evicted"), _SOON
        if workload.metadata.deletion_timestamp:
            await self._end(kind, job, workload, Why.DELETED, DELETED)
        elif is_true(eviction):
            await self._end(kind, job, workload, f"{_EVICTED}{eviction.reason}", eviction.message)
        elif not is_condition_true(workload, "Admitted"):
            await self._end(kind, job, workload, _NOT_ADMITTED, NOT_ADMITTED)
        else:
            pause = _LATER
        if not await remaining_pods(self._context.client, kind, job, workload):
            await self._workloads.finish_orphan(at, workload)
            return
        self._look_again(kind, job, pause)

    async def end_without_workload(self, kind: JobKind, job: Json) -> None:
        """End the pods of a queued job whose Workload no longer exists.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        if kind.passes_on is not None:
            return  # groups end their own
        await self._end(kind, job, None, Why.NO_WORKLOAD, MISSING)
        if await remaining_pods(self._context.client, kind, job, None):
            self._look_again(kind, job, _SOON)

    def _look_again(self, kind: JobKind, job: Json, pause: int) -> None:
        metadata = job["metadata"]
        due = Nanos(self._context.clock.wall() + pause)
        self._again(job_key(kind, metadata["namespace"], metadata["name"]), due)

    async def _leave_set(self, kind: JobKind, obj: Json) -> None:
        """Finish the Workloads of groups without pods; those with pods end as groups do."""
        if kind.passes_on is None or not kind.passes_on.total:
            return
        wanted, surplus = set_workload_keys(kind, obj, self._state.workload)
        for at in (*wanted, *surplus):
            workload = self._own(at, obj)
            if (
                workload is not None
                and not workload.metadata.deletion_timestamp
                and not self._pods.members(at)
            ):
                await self._workloads.finish_orphan(at, workload)

    def _own(self, at: str, job: Json) -> Workload | None:
        """Return the Workload of a job that is not over; one of another is left alone."""
        found = self._state.workload(at)
        if found is None:
            return None
        owners = {each.uid for each in found.metadata.owner_references or ()}
        if job["metadata"]["uid"] not in owners or is_condition_true(found, "Finished"):
            return None
        return found

    async def _end(
        self, kind: JobKind, job: Json, workload: Workload | None, reason: str, message: str
    ) -> None:
        await self._job_writer.stop(kind, job)
        for pod in await remaining_pods(self._context.client, kind, job, workload):
            if first(pod, "metadata.deletionTimestamp"):
                continue
            if await self._pod_writer.terminate(pod, reason, message):
                log.info(
                    "pod %s of %s/%s, which is being deleted, is terminated: %s",
                    pod["metadata"]["name"],
                    kind.kind,
                    job["metadata"]["name"],
                    message,
                )
