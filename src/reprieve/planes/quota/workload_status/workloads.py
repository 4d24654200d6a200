"""What a Workload needs beside its job and the cycles: checks, evictions, backoff, its end.

1. deleted: the finalizer is removed once the job is deleted or has no pods; finished where it stays
2. finished: deleted once it was kept long enough
3. to be deactivated: made inactive; inactive: evicted, and its job deleted after a while where the
   deactivation was ours
4. its queue, its checks, its gates, its backoff: followed in one write
5. reserved or admitted: evicted by a check, a drained queue, pods not ready in time; deactivated by
   a rejected check, too many retries, too long a run
6. evicted without a job that could be stopped: its quota is free at once

Source: specification of the quota plane, sections 1.6, 9 and 10.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from msgspec.structs import replace

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.kueue import Workload
from reprieve.engine.quota.holdings.inactive import inactive_queues
from reprieve.engine.quota.model import Configuration
from reprieve.engine.quota.waiting.requeuing import EvictionReason, backoff_end, eviction_reason
from reprieve.intake.quota_workloads import condition_of, is_condition_true, is_true
from reprieve.kube.errors import NotFound
from reprieve.kube.writes import Priority
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.job_reconciler.job_lookup import JobLookup, is_of_one_pod, is_of_pods
from reprieve.planes.quota.job_reconciler.remaining_pods import remaining_pods
from reprieve.planes.quota.queue_status.meters import ready_for
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import WORKLOADS
from reprieve.planes.quota.workload_status.deadlines import pods_ready_until, runs_until
from reprieve.planes.quota.workload_status.following import followed
from reprieve.planes.quota.workload_status.refusals import Refusals
from reprieve.planes.quota.workload_status.retention import Retention
from reprieve.planes.quota.workload_status.steady_deadlines import SteadyDeadlines
from reprieve.planes.quota.workload_status.transitions import (
    DEACTIVATED,
    DEACTIVATED_MESSAGE,
    TOO_LONG,
    backed_off,
    deactivated,
    deactivation_asked,
    evicted,
    evictions_of,
    finished,
    released,
    unreserved,
)
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.wording import kueue
from reprieve.wording.events import EventText
from reprieve.wording.kueue_checks import checks_message, retry_until
from reprieve.wording.kueue_queues import reservation_blocker

__all__ = ["WorkloadReconciler"]

#: Reasons of evictions after which a workload is queued again at once.
_AT_ONCE: Final = ("Preempted", "NodeFailures")
_STOPPED: Final = {
    EvictionReason.CLUSTER_QUEUE_STOPPED: "The ClusterQueue is stopped",
    EvictionReason.LOCAL_QUEUE_STOPPED: "The LocalQueue is stopped",
    EvictionReason.DEACTIVATED: DEACTIVATED_MESSAGE,
}
_DELETED: Final = ("Deleted", "The workload is deleted; finalizers of others keep the object")
_LOOK_AGAIN: Final = SECOND
_TOO_OFTEN: Final = ("RequeuingLimitExceeded", "exceeding the maximum number of re-queuing retries")
_TOO_LONG: Final = (TOO_LONG, "exceeding the maximum execution time")


class WorkloadReconciler:
    """Looks at one Workload at a time; `again` requests another look at a wall instant."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        writer: WorkloadStatuses,
        jobs: JobLookup,
        again: Callable[[str, Nanos], None],
    ) -> None:
        self._context = context
        self._state = state
        self._writer = writer
        self._jobs = jobs
        self._again = again
        self._deadlines = SteadyDeadlines(context.clock)
        self._retention = Retention(context, state, jobs, again, self._deadlines)
        # The ClusterQueues that cannot admit, of the configuration that they were found in.
        self._inactive: tuple[Configuration | None, Collection[str]] = (None, ())

    async def reconcile(self, key: str) -> None:
        """Do what the Workload needs.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        workload = self._state.workload(key)
        if workload is None:
            return
        if workload.metadata.deletion_timestamp:
            if not await self._has_pods(key, workload):
                await self._end_deleted(key, workload)
            return
        if is_condition_true(workload, "Finished"):
            await self._retention.keep_finished(key, workload)
            return
        if workload.spec.active and is_condition_true(workload, "DeactivationTarget"):
            await self._deactivate(key, workload)
            return
        if not workload.spec.active:
            workload = await self._evict_inactive(key, workload)
        await self._state.configured()
        refusals = Refusals()
        if workload is not None:
            # What is due of it does not wait for what it shows.
            workload = await refusals.of(self._follow(key, workload), workload)
        if workload is not None:
            await self._give_back(key, workload)
        refusals.raise_first()

    async def _has_pods(self, key: str, workload: Workload) -> bool:
        """Return whether the job of a deleted Workload has pods; it is looked at again then."""
        now = self._context.clock.wall()
        if self._jobs.has_pods(workload, now):
            if (until := self._jobs.next_gone_at(workload, now)) is not None:
                self._again(key, until)
            return True  # else looked at again when its job changes
        found = None if is_of_pods(workload) else self._jobs.owner_of(workload)
        if found is None or workload.status.admission is None:
            return False
        kind, held = found
        job = self._jobs.resolved(kind, held.object)
        if not await remaining_pods(self._context.client, kind, job, workload):
            return False
        self._again(key, Nanos(now + _LOOK_AGAIN))
        return True

    async def _end_deleted(self, key: str, workload: Workload) -> None:
        """Free the quota of a Workload that is deleted and has no pods.

        With a finalizer of its owner it stays, and would hold its quota without any use of it.
        """
        if not await self._retention.let_go(key, workload):
            return
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if is_condition_true(current, "Finished"):
                return None
            return finished(current, *_DELETED, now)

        await self._writer.change(key, workload.metadata.uid, change)

    async def _give_back(self, key: str, workload: Workload) -> None:
        """Do what is due of a Workload that is not over."""
        if workload.status.admission is not None and not is_condition_true(workload, "Evicted"):
            await self._hold(key, workload)
            return
        owned = self._jobs.owner_of(workload) is not None
        if (
            is_condition_true(workload, "Evicted")
            and workload.status.admission is not None
            and not owned
        ):
            await self.release(key, workload)
        await self._retention.keep_deactivated(key, workload)

    async def release(self, key: str, workload: Workload) -> None:
        """Free the quota of an evicted Workload whose pods are deleted.

        One that is owned by a single pod is not queued again, whether the pod ran or is still
        gated: it ends with its pod, and a pod that comes in its place is another Workload.
        """
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            found = condition_of(current.status.conditions, "Evicted")
            if current.status.admission is None or not is_true(found):
                return None
            again = found.reason in _AT_ONCE and not is_of_one_pod(current)
            return released(current, requeued=again, now=now)

        stored = await self._writer.change(key, workload.metadata.uid, change, Priority.EVICT)
        if stored is not None:
            log.info("%s released its quota", key)

    # What it has to give back

    async def _hold(self, key: str, workload: Workload) -> None:
        """Look after a Workload that has its quota."""
        checks = workload.status.admission_checks or ()
        if any(each.state == "Rejected" for each in checks):
            message = checks_message(checks, "Rejected")
            await self._ask(key, workload, "AdmissionCheck", message)
            text = f"Deactivated due to {message}"
            self._announce(workload, "Warning", "AdmissionCheckRejected", text)
            return
        if any(each.state == "Retry" for each in checks):
            await self._retry(key, workload)
            return
        if await self._follow_stop(key, workload):
            return
        uid, passed = workload.metadata.uid, self._deadlines.passed
        waits = pods_ready_until(workload, self._context.options.pods_ready)
        if waits is not None and passed(uid, *waits):
            await self._give_up(key, workload, waits[0])
            return
        until = runs_until(workload)
        if until is not None and passed(uid, _TOO_LONG[0], until):
            await self._ask(key, workload, *_TOO_LONG)
            most = workload.spec.maximum_execution_time_seconds
            self._announce(
                workload, "Warning", _TOO_LONG[0], f"The maximum execution time ({most}s) exceeded"
            )
            return
        for kind, instant in (waits or ("", None), (_TOO_LONG[0], until)):
            if instant is not None:
                self._again(key, self._deadlines.wall(uid, kind, instant))

    async def _follow_stop(self, key: str, workload: Workload) -> bool:
        """Release the quota where the queues are stopped; return whether it was."""
        configuration, row = self._state.configuration, self._state.row(workload)
        if is_condition_true(workload, "Admitted"):
            found = eviction_reason(configuration, row)
            if found is not None:
                await self._evict(key, workload, str(found), _STOPPED[found])
            return found is not None
        reason, message = reservation_blocker(row, configuration)
        if not reason:
            return False
        now, word = self._context.clock.wall(), self._word(reason)

        def change(current: Workload) -> Workload | None:
            if current.status.admission is None or is_condition_true(current, "Admitted"):
                return None
            return unreserved(current, word, message, now)

        await self._writer.change(key, workload.metadata.uid, change, Priority.EVICT)
        return True

    async def _retry(self, key: str, workload: Workload) -> None:
        """Evict a Workload that a check sends back, until the check, or else the backoff, ends."""
        checks, now = workload.status.admission_checks or (), self._context.clock.wall()
        until, count = retry_until(checks), False
        if until is None:
            state = workload.status.requeue_state
            tried = ((state.count if state is not None else 0) or 0) + 1
            until, count = backoff_end(self._context.options.backoff, tried, now), True
            if until is None:
                await self._ask(key, workload, *_TOO_OFTEN)
                return
        end = until
        message = f"Evicted due to {checks_message(checks, 'Retry')}"
        await self._evict(
            key,
            workload,
            "AdmissionCheck",
            message,
            prepare=lambda current: backed_off(current, end, count=count),
        )

    async def _give_up(self, key: str, workload: Workload, cause: str) -> None:
        """Evict a Workload whose pods are not ready in time, or deactivate it."""
        state, now = workload.status.requeue_state, self._context.clock.wall()
        tried = ((state.count if state is not None else 0) or 0) + 1
        end = backoff_end(self._context.options.backoff, tried, now)
        if end is None:
            await self._ask(key, workload, *_TOO_OFTEN)
            return
        await self._evict(
            key,
            workload,
            "PodsReadyTimeout",
            f"Exceeded the PodsReady timeout {key}",
            cause,
            lambda current: backed_off(current, end, count=True),
        )

    async def _ask(self, key: str, workload: Workload, reason: str, message: str) -> None:
        """Note that a Workload is to be deactivated; the next look does it."""
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if current.status.admission is None or is_condition_true(current, "Evicted"):
                return None
            asked = deactivation_asked(current, reason, message, now)
            if reason != _TOO_LONG[0]:
                return asked
            status = replace(asked.status, accumulated_past_execution_time_seconds=None)
            return replace(asked, status=status)

        await self._writer.change(key, workload.metadata.uid, change, Priority.EVICT)

    async def _evict(
        self,
        key: str,
        workload: Workload,
        reason: str,
        message: str,
        cause: str = "",
        prepare: Callable[[Workload], Workload] = lambda current: current,
    ) -> None:
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if current.status.admission is None or is_condition_true(current, "Evicted"):
                return None
            return evicted(prepare(current), reason, message, now, cause)

        stored = await self._writer.change(key, workload.metadata.uid, change, Priority.EVICT)
        if stored is not None:
            self._count_eviction(stored, reason, message, cause)

    async def _evict_inactive(self, key: str, workload: Workload) -> Workload | None:
        now, before = self._context.clock.wall(), is_condition_true(workload, "Evicted")
        asked = condition_of(workload.status.conditions, "DeactivationTarget")

        def change(current: Workload) -> Workload | None:
            return None if current.spec.active else deactivated(current, now)

        stored = await self._writer.change(key, workload.metadata.uid, change, Priority.EVICT)
        if stored is not None and not before and stored.status.admission is not None:
            eviction = condition_of(stored.status.conditions, "Evicted")
            assert eviction is not None
            cause = asked.reason if is_true(asked) else ""
            self._count_eviction(stored, DEACTIVATED, eviction.message, cause)
        return stored

    def _count_eviction(self, stored: Workload, reason: str, message: str, cause: str) -> None:
        now = self._context.clock.wall()
        reported = f"EvictedDueTo{reason}"
        if reason == DEACTIVATED and cause:
            reported = f"{reported}DueTo{cause}"
        self._announce(stored, "Normal", reported, message)
        self._context.quota_metrics.evicted(
            self._state.place(stored),
            reason,
            first=evictions_of(stored, reason, cause) == 1,
            cause=cause,
            ready_for=ready_for(stored, now),
        )

    async def _deactivate(self, key: str, workload: Workload) -> None:
        namespace, _, name = key.partition("/")
        fence = self._context.fence
        patch = {"metadata": {"uid": workload.metadata.uid}, "spec": {"active": False}}
        client = self._context.client.at(Priority.EVICT, fence.check)
        try:
            self._state.wrote(await client.patch(WORKLOADS, namespace, name, patch, Workload))
        except NotFound:
            self._state.gone(key)

    # What it follows

    async def _follow(self, key: str, workload: Workload) -> Workload | None:
        """Have the Workload follow its queue, its checks and its backoff; None if it is deleted."""
        configuration, now = self._state.configuration, self._context.clock.wall()
        was = is_condition_true(workload, "Admitted")

        if self._inactive[0] is not configuration:
            self._inactive = (configuration, inactive_queues(configuration))
        inactive = self._inactive[1]

        def change(current: Workload) -> Workload:
            return followed(current, self._state.row(current), configuration, inactive, now)

        if change(workload) != workload:
            changed = await self._writer.change(key, workload.metadata.uid, change)
            if changed is None:
                return None
            self._announce_gates(workload, changed)
            if (
                is_condition_true(changed, "Admitted")
                and not was
                and changed.status.admission is not None
            ):
                row, queue = self._state.row(changed), changed.status.admission.cluster_queue
                waited = (now - (row.reserved_at or now)) // SECOND
                event = kueue.admitted_event(row, queue, waited)
                self._context.announce(reference_of(changed), event)
            workload = changed
        state = workload.status.requeue_state
        if state is not None and state.requeue_at and workload.status.admission is None:
            until = parse_instant(state.requeue_at)
            if until > now:
                self._again(key, until)
        return workload

    def _announce_gates(self, before: Workload, after: Workload) -> None:
        """Report an admission gate that was found, or is deleted."""
        old = condition_of(before.status.conditions, "QuotaReserved")
        new = condition_of(after.status.conditions, "QuotaReserved")
        gated = [each is not None and each.reason == "AdmissionGated" for each in (old, new)]
        if gated == [False, True] and new is not None:
            self._announce(after, "Normal", "AdmissionGated", f"Workload a{new.message[1:]}")
        elif gated == [True, False]:
            text = "Admission gate cleared, workload is now admissible"
            self._announce(after, "Normal", "AdmissionGateCleared", text)

    def _announce(self, workload: Workload, kind: str, reason: str, message: str) -> None:
        event = EventText(kind, reason, message)
        self._context.announce(reference_of(workload), event)

    def _word(self, reason: str) -> str:
        gates = self._state.configuration.settings.gates
        return reason if gates.unadmitted_workloads_observability else "Inadmissible"
