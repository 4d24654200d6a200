"""One group of queued pods at a time.

What is done follows from the members and their Workload alone:

1. the Workload is deleted: so are all members
2. no member left: the Workload is declared finished, unless a set stands above that makes more
3. no Workload: made once all members are there; what cannot be a member is deleted or reported
4. over: the Workload is declared finished, and the members lose their finalizers
5. of each role too many: held back if a controller would make them again, else deleted; made up
   for: released; missing ones are waited for
6. evicted or not admitted, and running: ended; once none runs within its grace period the quota is
   free, and the Workload waits again, for members that come in the place of those
7. admitted, and gated: released with what the flavors request; but for one that requests more than
   its role was admitted for, which states it

Source: specification of the quota plane, sections 10.4 and 10.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kubeworld.objects.paths import Json, first
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Workload
from reprieve.intake.quota_workloads import condition_of, is_condition_true, is_true
from reprieve.jobs.groups import Roster, group_over, roster, surplus
from reprieve.jobs.model import JobKind
from reprieve.jobs.pods import (
    IS_GROUP,
    PARENT,
    annotations_of,
    gone_at,
    is_gated,
    is_missed,
    is_runnable,
    prebuilt_of,
    role_of,
    still_runs,
    total_of,
)
from reprieve.jobs.reading import is_suspended
from reprieve.jobs.writing import Conflicting
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.job_reconciler.composing import Composer, owner
from reprieve.planes.quota.job_reconciler.exposure import ExposureEvents
from reprieve.planes.quota.job_reconciler.job_workloads import JobWorkloads
from reprieve.planes.quota.pod_reconcilers.group_workloads import (
    admitted_counts,
    observed,
    workload_of,
)
from reprieve.planes.quota.pod_reconcilers.pod_bounds import BEYOND, pod_beyond_admission
from reprieve.planes.quota.pod_reconcilers.pod_lookup import PodLookup
from reprieve.planes.quota.pod_reconcilers.pod_steps import PodSteps, Why
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.workload_status.refusals import Refusals
from reprieve.planes.quota.workload_status.workloads import WorkloadReconciler
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.wording.events import EventText
from reprieve.wording.kueue_jobs import (
    DELETED,
    MISSING,
    NOT_ADMITTED,
    UNMATCHED,
    beyond_admission_text,
    conflicting_workload,
)

__all__ = ["GroupReconciler"]

_COMPOSE: Final = "ErrWorkloadCompose"


class GroupReconciler:
    """Looks at one group at a time; `again` requests another look at a wall instant."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        writer: WorkloadStatuses,
        pods: PodLookup,
        composer: Composer,
        steps: PodSteps,
        workloads: JobWorkloads,
        releasing: WorkloadReconciler,
        exposure: ExposureEvents,
        again: Callable[[str, Nanos], None],
    ) -> None:
        self._context = context
        self._state = state
        self._writer = writer
        self._pods = pods
        self._composer = composer
        self._steps = steps
        self._workloads = workloads
        self._releasing = releasing
        self._exposure = exposure
        self._again = again

    async def reconcile(self, at: str) -> None:
        """Do what the group `namespace/name` needs.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        kind, members, refusals = self._pods.kind, self._pods.members(at), Refusals()
        workload = self._state.workload(at)
        if kind is None:
            return
        if workload is not None and workload.metadata.deletion_timestamp:
            for pod in members:
                # A set would only make the gated ones again.
                alone = PARENT not in annotations_of(pod)
                stop = self._steps.stop(kind, pod, Why.DELETED, DELETED, all_pods=alone)
                await refusals.step(stop)
                await refusals.step(self._steps.writer.finalize(pod))
            await self._releasing.reconcile(at)
            refusals.raise_first()
            return
        if not members:
            await self._without_members(at, workload)
            return
        below = PARENT in annotations_of(members[0])
        if kind.children_only and not below:
            return
        prebuilt = at.partition("/")[2] == prebuilt_of(members[0])
        if workload is None:
            if not prebuilt:
                await self._make(kind, at, members)
            for pod in _started(kind, members) if prebuilt else ():
                await self._steps.stop(kind, pod, Why.NO_WORKLOAD, MISSING)
        elif not prebuilt and (workload.metadata.annotations or {}).get(IS_GROUP) != "true":
            text = conflicting_workload(at.partition("/")[2])
            self._announce(kind, members[0], "Warning", "WorkloadNameConflict", text)
        elif is_condition_true(workload, "Finished"):
            await self._finalize(members)
        else:
            message = group_over(members)
            if message is not None:
                await self._workloads.finish(kind, members[0], at, workload, "Succeeded", message)
                await self._finalize(members)
            else:
                await self._keep(kind, at, workload, members, below=below)

    async def _without_members(self, at: str, workload: Workload | None) -> None:
        if workload is None or is_condition_true(workload, "Finished"):
            return
        owners = {each.kind for each in workload.metadata.owner_references or ()}
        if (workload.metadata.annotations or {}).get(IS_GROUP) != "true":
            return
        if owners == {"Pod"}:
            await self._workloads.finish_orphan(at, workload)
        elif is_condition_true(workload, "Evicted"):
            await self._releasing.release(at, workload)

    # Before there is a Workload

    async def _make(self, kind: JobKind, at: str, members: Sequence[Json]) -> None:
        for pod in members:
            if not is_runnable(pod):
                await self._steps.writer.finalize(pod)
        active = [pod for pod in members if is_runnable(pod)]
        if not active:
            return
        spare = surplus(active, total_of(active[0])) if total_of(active[0]) else []
        found = workload_of(self._composer, kind, at, [p for p in active if p not in spare])
        if isinstance(found, str):
            self._announce(kind, active[0], "Warning", _COMPOSE, found)
            return
        for pod in spare:
            count = total_of(active[0])
            await self._steps.turn_away(kind, pod, at.partition("/")[2], count)
        if found is not None:
            self._exposure.announce(kind, active[0])
            await self._workloads.create(kind, active[0], found)

    # With a Workload

    async def _keep(
        self,
        kind: JobKind,
        at: str,
        workload: Workload,
        members: Sequence[Json],
        *,
        below: bool,
    ) -> None:
        refusals = Refusals()
        counts = admitted_counts(workload)
        here = roster(counts, members, kind.gate)
        if not here.fits:
            for pod in members:
                await refusals.step(self._steps.stop(kind, pod, Why.NO_WORKLOAD, UNMATCHED))
            if not below:
                await self._workloads.delete(kind, members[0], at, workload)
            refusals.raise_first()
            return
        for pod in here.excess:
            group = at.partition("/")[2]
            await refusals.step(self._steps.turn_away(kind, pod, group, sum(counts.values())))
        for pod in here.kept:
            await refusals.step(self._hold_or_release(kind, at, pod, workload))
        if not below:
            await self._workloads.own(
                at, workload, [owner(kind, pod, controller=False) for pod in here.kept]
            )
        # Only then: a Workload whose owners are all deleted is collected, and the group with it.
        for pod in here.replaced:
            await self._steps.writer.finalize(pod)
        eviction = condition_of(workload.status.conditions, "Evicted")
        admitted = is_condition_true(workload, "Admitted")
        if is_true(eviction):
            why = f"{Why.EVICTED}{eviction.reason}"
            for pod in here.kept:
                await refusals.step(self._steps.stop(kind, pod, why, eviction.message))
            # Before its quota is free: then the group may be admitted, for pods that have ended.
            await refusals.step(self._observe(at, workload, here))
            if workload.status.admission is not None and not self._runs(at, here.kept):
                await self._releasing.release(at, workload)
        elif admitted:
            if not await refusals.of(self._start(kind, at, workload, here.kept), True):
                return
        elif started := _started(kind, here.kept):
            for pod in started:
                await refusals.step(self._steps.stop(kind, pod, Why.NOT_ADMITTED, NOT_ADMITTED))
        elif not below:
            await refusals.step(self._workloads.follow_labels(kind, here.kept[0], at, workload))
        await self._observe(at, workload, here)
        refusals.raise_first()

    async def _start(
        self, kind: JobKind, at: str, workload: Workload, members: Sequence[Json]
    ) -> bool:
        """Release gated members; return whether no contradiction was reported to any."""
        try:
            for pod in members:
                if not is_gated(pod, kind.gate) or first(pod, "metadata.deletionTimestamp"):
                    continue
                if self._beyond(kind, pod, workload) is None:
                    await self._steps.start(kind, pod, workload, role_of(pod))
        except Conflicting as conflict:
            text = str(conflict)
            await self._workloads.finish(kind, members[0], at, workload, "FailedToStart", text)
            return False
        return True

    async def _hold_or_release(self, kind: JobKind, at: str, pod: Json, workload: Workload) -> None:
        """Report a gated member that requests more than is admitted; clear what is outdated."""
        resources = self._beyond(kind, pod, workload) if is_gated(pod, kind.gate) else None
        if resources is None:
            await self._steps.clear_surplus(pod)
            return
        group = at.partition("/")[2]
        again = "the group is queued again with pods of one role that request the same"
        text = beyond_admission_text(f"pod group '{group}'", resources, again)
        await self._steps.hold(kind, pod, text, BEYOND)

    def _beyond(self, kind: JobKind, pod: Json, workload: Workload) -> tuple[str, ...] | None:
        rows = self._state.pod_rows(workload.metadata.namespace)
        of_set = self._pods.is_of_its_set(pod)
        return pod_beyond_admission(kind, pod, workload, rows, of_set=of_set)

    def _runs(self, at: str, members: Sequence[Json]) -> bool:
        """Return whether a member runs, and is not past its grace period."""
        now, runs = self._context.clock.wall(), False
        for pod in members:
            if still_runs(pod, now):
                runs = True
                if (until := gone_at(pod)) is not None:
                    self._again(at, until)
        return runs

    async def _observe(self, at: str, workload: Workload, here: Roster) -> None:
        now, waited = self._context.clock.wall(), self._context.options.pods_ready is not None

        def change(current: Workload) -> Workload | None:
            if is_condition_true(current, "Finished"):
                return None
            return observed(current, here, now, waited=waited)

        if change(workload) is not workload:
            await self._writer.change(at, workload.metadata.uid, change)

    async def _finalize(self, members: Sequence[Json]) -> None:
        for pod in members:
            await self._steps.writer.finalize(pod)

    def _announce(self, kind: JobKind, pod: Json, level: str, reason: str, text: str) -> None:
        self._composer.announce(kind, pod, EventText(level, reason, text))


def _started(kind: JobKind, members: Sequence[Json]) -> list[Json]:
    """Return who runs or may begin to; none that was never gated while others are held back."""
    started = [pod for pod in members if not is_suspended(kind, pod)]
    if len(started) == len(members):
        return started
    return [pod for pod in started if not is_missed(pod, kind.gate)]
