"""What a Workload needs beside its job and the cycles: checks, evictions, backoff, its end.

1. deleted: the finalizer goes once the job is gone or has no pods
2. deactivated, stopped queue, failed check, pods not ready in time: evicted
3. quota reserved: admitted once its checks are ready
4. evicted without a job that could be stopped: its quota is free at once
5. its backoff is over: queued again

Source: specification of the quota plane, sections 1.6, 9 and 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from reprieve.api.kueue import RESOURCE_IN_USE, Condition, RequeueState, Workload
from reprieve.controllers.quota.context import QuotaContext, log, reference_of
from reprieve.controllers.quota.decisions import class_of
from reprieve.controllers.quota.job_lookup import JobLookup
from reprieve.controllers.quota.preemptions import ready_for
from reprieve.controllers.quota.state import QuotaState
from reprieve.controllers.quota.transitions import (
    admitted_by_checks,
    backoff_finished,
    checks_kept,
    evicted,
    released,
)
from reprieve.controllers.quota.watches import WORKLOADS
from reprieve.controllers.quota.writing import StatusWriter
from reprieve.engine.quota.requeuing import backoff_end, eviction_reason
from reprieve.intake.quota_workloads import condition_of, is_true
from reprieve.kube.client import Json
from reprieve.kube.errors import NotFound
from reprieve.kube.writes import Priority
from reprieve.units.durations import SECOND
from reprieve.units.instants import Nanos, format_instant, parse_instant
from reprieve.wording import kueue

__all__ = ["WorkloadReconciler"]

_MESSAGES: Final = {
    "Deactivated": "The workload is deactivated",
    "ClusterQueueStopped": "The ClusterQueue is stopped",
    "LocalQueueStopped": "The LocalQueue is stopped",
}
#: Reasons of evictions after which a workload is queued again at once.
_AT_ONCE: Final = ("Preempted", "NodeFailures")


class WorkloadReconciler:
    """Looks at one Workload at a time; `again` asks for another look at a wall instant."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        writer: StatusWriter,
        jobs: JobLookup,
        again: Callable[[str, Nanos], None],
    ) -> None:
        self._context = context
        self._state = state
        self._writer = writer
        self._jobs = jobs
        self._again = again

    async def look(self, key: str) -> None:
        """Do what the Workload needs.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        workload = self._state.workload(key)
        if workload is None:
            return
        if workload.metadata.deletion_timestamp:
            await self._let_go(key, workload)
            return
        if _true(workload, "Finished"):
            return
        if not _true(workload, "Evicted") and workload.status.admission is not None:
            reason, message = self._reason_to_evict(key, workload)
            if reason:
                await self._evict(key, workload, reason, message)
                return
        await self._follow_checks(key, workload)
        owned = self._jobs.owner_of(workload) is not None
        if _true(workload, "Evicted") and workload.status.admission is not None and not owned:
            await self.release(key, workload)
        await self._end_backoff(key, workload)

    async def release(self, key: str, workload: Workload) -> None:
        """Free the quota of an evicted Workload whose pods are gone."""
        now = self._context.clock.wall()
        eviction = condition_of(workload.status.conditions, "Evicted")
        admission = workload.status.admission

        def change(current: Workload) -> Workload | None:
            found = condition_of(current.status.conditions, "Evicted")
            if current.status.admission is None or not is_true(found):
                return None
            return self._put_off(
                released(current, requeued=found.reason in _AT_ONCE, now=now), found, now
            )

        stored = await self._writer.change(key, workload.metadata.uid, change, Priority.EVICT)
        if stored is not None and admission is not None and is_true(eviction):
            seconds = (now - parse_instant(eviction.last_transition_time)) / SECOND
            self._context.quota_metrics.released(admission.cluster_queue, eviction.reason, seconds)
            log.info("%s gave its quota back: %s", key, eviction.reason)

    async def _let_go(self, key: str, workload: Workload) -> None:
        if self._jobs.has_pods(workload):
            return  # looked at again when its job changes

        def change(current: Json) -> Json | None:
            finalizers = current["metadata"].get("finalizers") or []
            if current["metadata"]["uid"] != workload.metadata.uid:
                return None
            if RESOURCE_IN_USE not in finalizers:
                return None
            current["metadata"]["finalizers"] = [f for f in finalizers if f != RESOURCE_IN_USE]
            return current

        namespace, _, name = key.partition("/")
        fence = self._context.fence
        client = self._context.client.at(Priority.STATUS, fence.check)
        try:
            await client.modify(WORKLOADS, namespace, name, change)
        except NotFound:
            self._state.gone(key)

    def _reason_to_evict(self, key: str, workload: Workload) -> tuple[str, str]:
        found = eviction_reason(self._state.configuration, self._state.row(workload))
        if found is not None:
            return str(found), _MESSAGES[str(found)]
        for check in workload.status.admission_checks or ():
            if check.state in ("Retry", "Rejected"):
                return "AdmissionCheck", f"At least one admission check is false: {check.name}"
        limit = self._context.options.pods_ready_s
        admitted = condition_of(workload.status.conditions, "Admitted")
        ready = condition_of(workload.status.conditions, "PodsReady")
        if limit is None or not is_true(admitted) or is_true(ready):
            return "", ""
        since = admitted
        if ready is not None and ready.reason == "WaitForRecovery":
            since = ready
        end = Nanos(parse_instant(since.last_transition_time) + limit * SECOND)
        if end > self._context.clock.wall():
            self._again(key, end)
            return "", ""
        return "PodsReadyTimeout", f"Exceeded the PodsReady timeout {key}"

    async def _evict(self, key: str, workload: Workload, reason: str, message: str) -> None:
        now = self._context.clock.wall()
        rejected = any(c.state == "Rejected" for c in workload.status.admission_checks or ())

        def change(current: Workload) -> Workload | None:
            if current.status.admission is None or _true(current, "Evicted"):
                return None
            return evicted(current, reason, message, now)

        stored = await self._writer.change(key, workload.metadata.uid, change, Priority.EVICT)
        if stored is None or stored.status.admission is None:
            return
        event = kueue.Event(key, "Normal", f"EvictedDueTo{reason}", message)
        self._context.announce(reference_of(stored), event)
        stats = stored.status.scheduling_stats
        self._context.quota_metrics.evicted(
            stored.status.admission.cluster_queue,
            (stored.metadata.namespace, stored.spec.queue_name),
            reason,
            class_of(stored),
            first=sum(e.count for e in (stats.evictions if stats else None) or ()) == 1,
            ready_for=ready_for(stored, now),
        )
        if rejected:
            await self._deactivate(key)

    async def _deactivate(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        fence = self._context.fence
        patch = {"spec": {"active": False}}
        client = self._context.client.at(Priority.STATUS, fence.check)
        self._state.wrote(await client.patch(WORKLOADS, namespace, name, patch, Workload))

    def _put_off(self, workload: Workload, eviction: Condition, now: Nanos) -> Workload:
        """Set the backoff of evictions that have one."""
        if eviction.reason not in ("PodsReadyTimeout", "AdmissionCheck"):
            return workload
        state = workload.status.requeue_state
        count = ((state.count if state is not None else 0) or 0) + 1
        end = backoff_end(self._context.options.backoff, count, now)
        after = RequeueState(count, None if end is None else format_instant(end))
        return replace(workload, status=replace(workload.status, requeue_state=after))

    async def _follow_checks(self, key: str, workload: Workload) -> None:
        admission = workload.status.admission
        if admission is None or _true(workload, "Evicted") or _true(workload, "Admitted"):
            return
        queue = self._state.configuration.cluster_queues.get(admission.cluster_queue)
        if queue is None:
            return
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if current.status.admission is None or _true(current, "Evicted"):
                return None
            return admitted_by_checks(checks_kept(current, queue.checks, now), queue.checks, now)

        stored = await self._writer.change(key, workload.metadata.uid, change)
        if stored is not None and _true(stored, "Admitted"):
            row = self._state.row(stored)
            waited = (now - (row.reserved_at or now)) // SECOND
            event = kueue.admitted_event(row, queue.name, waited)
            self._context.announce(reference_of(stored), event)
            total = (now - row.created) / SECOND
            self._context.quota_metrics.admitted(queue.name, class_of(stored), total)

    async def _end_backoff(self, key: str, workload: Workload) -> None:
        requeued = condition_of(workload.status.conditions, "Requeued")
        state, now = workload.status.requeue_state, self._context.clock.wall()
        if requeued is None or is_true(requeued) or not workload.spec.active:
            return
        if requeued.reason in ("PodsReadyTimeout", "AdmissionCheck"):
            if state is None or state.requeue_at is None:
                await self._deactivate(key)
                return
            end = parse_instant(state.requeue_at)
            if end > now:
                self._again(key, end)
                return
        elif eviction_reason(self._state.configuration, self._state.row(workload)) is not None:
            return
        await self._writer.change(
            key, workload.metadata.uid, lambda current: backoff_finished(current, now)
        )


def _true(workload: Workload, kind: str) -> bool:
    return is_true(condition_of(workload.status.conditions, kind))
