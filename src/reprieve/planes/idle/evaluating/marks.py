"""The marks of a victim of the idle plane, in the status of its GpuWorkload.

Marked is phase Preempting with `preemptedFor` and `preemptionReason`, as Kaiwo writes it; evicted
is Preempted; spared is Idle again, with the idle time it had. A GpuWorkload without a mark that is
spared is touched, so that a mark that a deposed process still has on its way fails. With each mark
its reports are written: events, conditions, and what work the victim loses.

Where a user deletes the GpuWorkload of a victim, the one that is created after it has the mark, and
until then the memory of this process. Source: specification of the idle plane, sections 11, 12
and 14.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from kubeworld.units.instants import Nanos
from reprieve.api.kaiwo import Condition, GpuWorkload
from reprieve.api.reprieve import (
    Action,
    ObjectRef,
    Preemption,
    Victim,
)
from reprieve.engine.idle.lifecycle import marked, step
from reprieve.engine.idle.lifecycle_facts import DeleteOutcome, Facts, Missing
from reprieve.engine.idle.model import Phase, Status, Workload
from reprieve.engine.idle.transitions import LIVING
from reprieve.engine.plan import Plan
from reprieve.execution.writes.contest import Contest
from reprieve.execution.writes.evict import Eviction, Result
from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.intake.gpuworkloads import ref_of, status_from_api, status_to_api, workload_row
from reprieve.kube.client import Client
from reprieve.kube.errors import Conflict, NotFound
from reprieve.kube.resource import GPU_WORKLOADS
from reprieve.kube.retry import retried
from reprieve.kube.writes import Priority
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.workloads import TrackedWorkloads, key_of
from reprieve.settings.idle import overrides_of, resolve
from reprieve.units.ids import GpuWorkloadKey, PlanId
from reprieve.units.references import Reference
from reprieve.wording.events import EventText
from reprieve.wording.kaiwo import (
    PHASE_UPDATED,
    conditions_after,
    event_text,
    marked_conditions,
    preemption_started,
)

__all__ = ["Marks", "Shown", "root_of"]

_SPARED: Final = "reprieve.dev/spared"
_OUTCOMES: Final = {
    Result.EVICTED: DeleteOutcome.ACCEPTED,
    Result.GONE: DeleteOutcome.NOT_FOUND,
    Result.REPLACED: DeleteOutcome.UID_CONFLICT,
    Result.FORBIDDEN: DeleteOutcome.FORBIDDEN,
    Result.REFUSED: DeleteOutcome.FORBIDDEN,
    Result.FAILED: DeleteOutcome.FAILED,
}
_DONE: Final = {
    Action.DELETE: "deleted",
    Action.SCALE_TO_ZERO: "scaled to zero",
    Action.SUSPEND: "suspended",
}
_DO: Final = {
    Action.DELETE: "delete",
    Action.SCALE_TO_ZERO: "scale to zero",
    Action.SUSPEND: "suspend",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What the subject of a victim or guard states now, read from the API server.

    `found` None: it is deleted. `marked`: it carries the mark of this plan. `evicted`: its system
    holds it for evicted.
    """

    found: GpuWorkload | None = None
    phase: str = ""
    marked: bool = False
    evicted: bool = False


class Marks:
    """Reads and writes marks.

    `plans` gives a plan of this process by its id; `lost_with` the device-seconds of work that are
    lost with a root as it stands.
    """

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        plans: Callable[[str], Plan | None],
        changed: Callable[[GpuWorkloadKey], None],
        lost_with: Callable[[Reference], int],
    ) -> None:
        self._context = context
        self._workloads = workloads
        self._plans = plans
        self._changed = changed
        self._lost_with = lost_with
        # What victims lose that this process marked; their pods may end before it is counted.
        self._at_stake: dict[str, int] = {}
        # Idle times of victims that this process marked, to be given back if they are spared.
        self._idle_since: dict[str, Nanos | None] = {}

    def forget(self, intent: Preemption) -> None:
        """A plan is over."""
        for victim in intent.spec.victims:
            self._at_stake.pop(victim.subject.uid, None)
            self._idle_since.pop(victim.subject.uid, None)

    def spared(self, victim: Victim) -> None:
        """It loses nothing."""
        self._at_stake.pop(victim.subject.uid, None)

    async def read(self, subject: ObjectRef, intent: Preemption) -> Shown:
        """Return the phase of a GpuWorkload and whether it carries the mark of this intent."""
        found = await self._get(subject, root_of(subject, intent))
        if found is None:
            return Shown()
        status = self._status_of(found)
        preemptor = intent.spec.preemptor
        return Shown(
            found,
            phase=status.phase,
            marked=status.phase == Phase.PREEMPTING
            and status.preempted_for == (preemptor.name if preemptor else ""),
            evicted=status.phase == Phase.PREEMPTED,
        )

    async def mark(
        self, intent: Preemption, victim: Victim, found: GpuWorkload, *, by_uid: bool = False
    ) -> None:
        """Write Preempting over the version that was read, with `by_uid` over any version."""
        now = self._context.clock.wall()
        row = self._row(found)
        preemptor = intent.spec.preemptor
        status = marked(row.status, preemptor.name if preemptor else "", victim.reason)
        plan = self._plans(intent.spec.plan_id)
        conditions = list(found.status.conditions or ())
        started: EventText | None = None
        if plan is not None:
            chosen = next(v for v in plan.victims if v.subject.uid == victim.subject.uid)
            started = preemption_started(plan, chosen, row, now)
            conditions = marked_conditions(conditions, started, now)
        await self._show(found, status, conditions, by_uid=by_uid)
        self._idle_since[victim.subject.uid] = row.status.idle_since
        self._at_stake[victim.subject.uid] = self._lost_with(victim.root.reference)
        log.info("%s: Idle -> Preempting, plan %s: %s", row.key, intent.spec.plan_id, victim.reason)
        if started is not None:
            self._context.announce(row.ref, started, intent.spec.plan_id)

    def stays_idle(self, victim: Victim) -> bool:
        """Whether it is idle, by what this process knows, though a user replaces it each time."""
        held = self._workloads.standing_for(victim.subject, victim.root.uid)
        return held is not None and bool(held.former) and held.status.phase is Phase.IDLE

    async def touch(self, intent: Preemption, found: GpuWorkload) -> None:
        """Write a GpuWorkload without a mark, so that one that is on its way fails."""
        metadata = {
            "resourceVersion": found.metadata.resource_version,
            "annotations": {_SPARED: intent.spec.plan_id},
        }
        with contextlib.suppress(NotFound):
            await self._fenced().patch(
                GPU_WORKLOADS,
                found.metadata.namespace,
                found.metadata.name,
                {"metadata": metadata},
                GpuWorkload,
            )

    async def remove(
        self,
        intent: Preemption,
        victim: Victim,
        found: GpuWorkload,
        why: str,
        *,
        by_uid: bool = False,
    ) -> None:
        """Remove the mark."""
        row = self._row(found)
        status = replace(
            row.status,
            phase=Phase.IDLE,
            idle_since=self._idle_since.get(victim.subject.uid),
            preempted_for="",
            preemption_reason="",
        )
        await self._show(found, status, found.status.conditions or (), by_uid=by_uid)
        log.info("%s: spared, plan %s: %s", row.key, intent.spec.plan_id, why)
        self._changed(row.key)

    async def settle(
        self, intent: Preemption, victim: Victim, eviction: Eviction, *, evicted: bool = False
    ) -> None:
        """Write Preempted, or Idle with a whole new grace period where the root must stay.

        Raises:
            ApiError: it could not be written; the plan stays open, and it is tried again.
        """
        contest = Contest()

        async def once() -> None:
            found = await self._get(victim.subject, victim.root.uid)
            if found is None:
                return
            if self._status_of(found).phase not in (Phase.PREEMPTING, *LIVING):
                return
            by_uid = contest.lost
            await self._write(found, intent, victim, eviction, evicted=evicted, by_uid=by_uid)
            self._changed(key_of(victim.subject.namespace, victim.subject.name))

        with contextlib.suppress(NotFound):
            await retried(contest.of(once), self._context.client.transport.pause, (Conflict,))

    async def _write(
        self,
        found: GpuWorkload,
        intent: Preemption,
        victim: Victim,
        eviction: Eviction,
        *,
        evicted: bool,
        by_uid: bool,
    ) -> None:
        now = self._context.clock.wall()
        row = self._row(found)
        if row.status.phase is not Phase.PREEMPTING:
            # Never marked: an obstacle was found first. Its grace period starts anew.
            row = replace(row, status=replace(row.status, phase=Phase.PREEMPTING))
        outcome = step(
            row,
            Facts(Missing(), delete=_OUTCOMES[eviction.result]),
            self._context.start.policy,
            now,
        )
        texts = _worded([event_text(event, row) for event in outcome.events], victim, eviction)
        conditions = [
            msgspec.structs.replace(condition, message=texts[0].message)
            if condition.type == PHASE_UPDATED and texts
            else condition
            for condition in conditions_after(found.status.conditions or (), outcome, row, now)
        ]
        await self._show(found, outcome.status, conditions, by_uid=by_uid)
        for text in texts:
            log.info("%s: %s, plan %s: %s", row.key, text.reason, intent.spec.plan_id, text.message)
            self._context.announce(row.ref, text, intent.spec.plan_id)
        if eviction.rule:
            self._report_rule(row, victim, eviction)
        result = "evicted" if eviction.over else "failed"
        self._context.metrics.count_preemption(
            PlanId(intent.spec.plan_id), intent.spec.plane, victim.rule, result
        )
        lost = self._at_stake.pop(victim.subject.uid, None)
        if evicted:
            lost = self._lost_with(victim.root.reference) if lost is None else lost
            self._context.metrics.lost_device_seconds.labels(intent.spec.plane, victim.rule).inc(
                lost
            )

    def _report_rule(self, row: Workload, victim: Victim, eviction: Eviction) -> None:
        """Name the right to add; the event on the failure itself has the reference's words."""
        root = f"{victim.root.kind}/{victim.root.name}"
        message = f"To {_DO[victim.action]} {root} the operator needs the rule {eviction.rule}"

        def emit() -> None:
            log.warning("%s: %s", row.key, message)
            self._context.announce(row.ref, EventText("Warning", "RightMissing", message))

        self._context.log_once(f"{row.ref.uid}/{message}", emit)

    def _row(self, found: GpuWorkload) -> Workload:
        settings = resolve(overrides_of(found.spec), self._context.tiers)
        return workload_row(found, settings, status=self._status_of(found))

    def _status_of(self, found: GpuWorkload) -> Status:
        """Return what a GpuWorkload states, or the deleted one that it continues."""
        held = self._workloads.get(key_of(found.metadata.namespace, found.metadata.name))
        if held is None or held.ref.uid != found.metadata.uid:
            return status_from_api(found.status)
        continued = held.carried is not None and not found.status.phase
        if held.absent or continued:
            return held.status
        return held.as_decided(status_from_api(found.status))

    async def _show(
        self,
        found: GpuWorkload,
        status: Status,
        conditions: Iterable[Condition],
        *,
        by_uid: bool,
    ) -> None:
        """Write a status over the version that was judged, or after a conflict by uid alone.

        Otherwise a user who may write a GpuWorkload could keep it for as long as he writes it.
        """
        held = self._workloads.standing_for(ref_of(found))
        if held is not None and held.absent:
            self._workloads.remember(held, status)
            return
        if held is not None:
            held.decided = None
        wanted = msgspec.structs.replace(
            status_to_api(status, conditions), policy=found.status.policy, gpus=found.status.gpus
        )
        change = StatusChange.over(GPU_WORKLOADS, found.metadata, found.status, wanted)
        if change is None:
            return
        change = replace(change, version="") if by_uid else change
        try:
            self._workloads.observe(await write_status(self._fenced(), change, GpuWorkload))
        except NotFound:
            held = self._workloads.standing_for(ref_of(found))
            if held is None or (
                held.ref.uid == found.metadata.uid and self._workloads.deleted(held) is None
            ):
                raise
            self._workloads.remember(held, status)

    def _fenced(self) -> Client:
        fence = self._context.fence
        return self._context.full_client.at(
            Priority.EVICT, fence.check, timeout=fence.request_timeout
        )

    async def _get(self, subject: ObjectRef, root: str) -> GpuWorkload | None:
        try:
            found = await self._context.client.get(
                GPU_WORKLOADS, subject.namespace, subject.name, GpuWorkload
            )
        except NotFound:
            held = self._workloads.standing_for(subject, root)
            if held is None or held.ref.uid != subject.uid:
                return None if held is None else held.object
            return None if self._workloads.deleted(held) is None else held.object
        # The answer to a write may be lost, and the watch late: what is held here may be older.
        self._workloads.observe(found)
        if found.metadata.uid == subject.uid:
            return found
        held = self._workloads.standing_for(subject, root)
        return None if held is None else held.object


def root_of(subject: ObjectRef, intent: Preemption) -> str:
    """Return the uid of the root of a victim, empty for a demand."""
    roots = (v.root.uid for v in intent.spec.victims if v.subject.uid == subject.uid)
    return next(roots, "")


def _worded(texts: Sequence[EventText], victim: Victim, eviction: Eviction) -> list[EventText]:
    """Return the events with the words of the action that was done."""
    root = f"{victim.root.kind}/{victim.root.name}"
    if eviction.result is Result.REFUSED:
        message = (
            f"Cannot {_DO[victim.action]} {root}: {eviction.detail}; nothing was deleted instead"
        )
        return [EventText("Warning", "PreemptionFailed", message)]
    if victim.action is Action.DELETE:
        return list(texts)
    worded = []
    for text in texts:
        message = text.message.replace(" was deleted ", f" was {_DONE[victim.action]} ", 1)
        if eviction.result is Result.FORBIDDEN:
            message = f"Cannot {_DO[victim.action]} {root}: {eviction.detail}"
        worded.append(EventText(text.type, text.reason, message))
    return worded
