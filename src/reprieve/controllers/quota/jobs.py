"""One job at a time: its Workload made and kept, itself started, stopped and declared finished.

What is done follows from the job and its Workload alone, so that every step that was interrupted is
taken again:

1. finished: the Workload is declared finished
2. no Workload: the job is suspended, and once it has no pods its Workload is made
3. changed: the Workload follows while it holds no quota, a running job is stopped otherwise
4. evicted or not admitted, and running: suspended; its own controller deletes the pods
5. evicted, and no pods left: the quota is free, and the templates are put back
6. admitted, and suspended: started with what the flavors ask for

Source: specification of the quota plane, sections 10.1 to 10.5.
"""

from __future__ import annotations

from typing import Any, Final

from reprieve.api.kueue import Workload
from reprieve.controllers.quota.composing import Composer
from reprieve.controllers.quota.context import QuotaContext, log
from reprieve.controllers.quota.injections import injections
from reprieve.controllers.quota.job_lookup import JobLookup, queue_name, workload_key
from reprieve.controllers.quota.job_workloads import JobWorkloads
from reprieve.controllers.quota.state import QuotaState
from reprieve.controllers.quota.watches import Watches
from reprieve.controllers.quota.workloads import WorkloadReconciler
from reprieve.controllers.quota.writing import StatusWriter
from reprieve.execution.jobs import JobWriter
from reprieve.intake.quota_workloads import condition_of, is_true
from reprieve.jobs.model import JobKind
from reprieve.jobs.paths import Json, first
from reprieve.jobs.reading import end, is_active, is_suspended
from reprieve.jobs.writing import Conflicting, is_injected, is_restored
from reprieve.wording.kueue import Event

__all__ = ["JobReconciler"]

_UNMANAGED: Final = ("kube-system",)
_MISSING: Final = "Missing Workload; unable to restore pod templates"
_UNMATCHED: Final = "No matching Workload; restoring pod templates according to existent Workload"


class JobReconciler:
    """Looks at one job at a time. `namespace`: the operator's own, whose jobs are left alone."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        watches: Watches,
        writer: StatusWriter,
        jobs: JobLookup,
        workloads: WorkloadReconciler,
        namespace: str,
    ) -> None:
        self._context = context
        self._state = state
        self._watches = watches
        self._jobs = jobs
        self._releasing = workloads
        self._composer = Composer(context, watches)
        self._workloads = JobWorkloads(context, state, writer, self._composer)
        self._writer = JobWriter(context.client, context.fence)
        self._unmanaged = (*_UNMANAGED, namespace)

    async def look(self, key: str) -> None:
        """Do what the job needs.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        kind, held = self._jobs.split(key)
        if held is None or first(held.object, "metadata.deletionTimestamp") or not kind.suspend:
            return
        job = held.object
        if not self._manages(job["metadata"]["namespace"]):
            return
        above = self._jobs.ancestor(job)
        if above is not None:
            await self._follow_ancestor(kind, job, *above)
            return
        if not queue_name(job) and not self._context.options.without_queue_name:
            return
        at = workload_key(kind, job)
        workload = self._state.workload(at)
        over = end(kind, job)
        if workload is None:
            if over is None:
                await self._make(kind, job)
            return
        if workload.metadata.deletion_timestamp or _true(workload, "Finished"):
            return
        if over is not None:
            reason = "Succeeded" if over.succeeded else "Failed"
            await self._workloads.finish(kind, job, at, workload, reason, over.message)
            return
        await self._keep(kind, job, at, workload)

    def forget(self, at: str) -> None:
        """Forget a Workload that is gone."""
        self._workloads.forget(at)

    def _manages(self, namespace: str) -> bool:
        """Tell whether jobs of a namespace are queued."""
        selector = self._context.options.selector
        if selector is None:
            return namespace not in self._unmanaged
        held = self._watches.namespaces.cache.named("", namespace)
        labels = {} if held is None else held.object.metadata.labels or {}
        return selector.matches(labels)

    async def _make(self, kind: JobKind, job: Json) -> None:
        if not is_suspended(kind, job):
            await self._stop(kind, job, _MISSING)
        elif not is_active(kind, job):
            await self._workloads.make(kind, job)

    async def _keep(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        suspended, active = is_suspended(kind, job), is_active(kind, job)
        eviction = condition_of(workload.status.conditions, "Evicted")
        admitted = _true(workload, "Admitted")
        if is_true(eviction) and workload.status.admission is not None:
            if not suspended:
                await self._stop(kind, job, eviction.message)
            elif not active:
                await self._restore(kind, job, at)
                await self._releasing.release(at, workload)
            return
        if not suspended and not admitted:
            await self._stop(kind, job, "Not admitted by cluster queue")
            return
        if not await self._workloads.matches(kind, job, at, workload):
            await self._mend(kind, job, at, workload)
            return
        if suspended and admitted:
            await self._start(kind, job, at, workload)
        elif suspended and not active and workload.status.admission is None:
            await self._workloads.follow_labels(kind, job, at, workload)
            await self._restore(kind, job, at)
        await self._workloads.observe(kind, job, at, workload)

    async def _mend(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        """Make up for a job that was changed."""
        if workload.status.admission is None and is_suspended(kind, job):
            await self._workloads.update(kind, job, at, workload)
            return
        if not is_suspended(kind, job):
            await self._stop(kind, job, _UNMATCHED)
        await self._workloads.delete(kind, job, at, workload)

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
            self._composer.tell(kind, job, Event("", "Normal", "Started", text))

    async def _stop(self, kind: JobKind, job: Json, why: str) -> None:
        if await self._writer.stop(kind, job):
            log.info("%s/%s suspended: %s", kind.kind, job["metadata"]["name"], why)
            self._composer.tell(kind, job, Event("", "Normal", "Stopped", why))

    async def _restore(self, kind: JobKind, job: Json, at: str) -> None:
        """Put back what a start changed in the templates."""
        if not is_injected(kind, job):
            return
        pod_sets = (await self._workloads.stored(at))["spec"]["podSets"]
        if not is_restored(kind, job, pod_sets):
            await self._writer.restore(kind, job, pod_sets)

    async def _follow_ancestor(self, kind: JobKind, job: Json, above: JobKind, owner: Any) -> None:
        workload = self._state.workload(workload_key(above, owner.object))
        if workload is not None and _true(workload, "Admitted"):
            return
        if not is_suspended(kind, job) and end(kind, job) is None:
            await self._stop(kind, job, "Kueue managed child job suspended")


def _true(workload: Workload, kind: str) -> bool:
    return is_true(condition_of(workload.status.conditions, kind))
