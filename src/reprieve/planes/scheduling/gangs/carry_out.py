"""Carries out the effects of gangs' cycles; those of all attempts are the plane's to carry out.

No pod waits in Permit in a dry run. Source: specification of gang jobs, sections 5, 8 and 9; the
design's "How data flows".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubeworld.units.durations import SECOND
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.scheduling.gangs.job import JobReason
from reprieve.engine.scheduling.outcome import Attempt, GangCycle
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.cycle.carry_out import CarryOut
from reprieve.planes.scheduling.gangs.audit import Happened
from reprieve.planes.scheduling.gangs.audited import Diagnose, Note, NoteVictims
from reprieve.planes.scheduling.gangs.effects import (
    GangEffect,
    GangFacts,
    HoldBack,
    InPermit,
    ObserveCycle,
    Park,
    Release,
    Satisfy,
    Unpark,
    gang_effects,
)
from reprieve.planes.scheduling.gangs.plane import GangPlane
from reprieve.planes.scheduling.state import ClusterState
from reprieve.telemetry.gangs import GangMetrics, job_size
from reprieve.units.ids import Uid
from reprieve.wording import koordinator as wording
from reprieve.wording.attempts import GangOf

__all__ = ["GangCarryOut"]

_SATISFIED: Final = "gang is already succeed"
_ATTEMPTED: Final = "all pending pods is already been attempted"


class GangCarryOut:
    """Commits attempts of gangs, and of pods that preempt as jobs of one."""

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        gangs: GangPlane,
        carry_out: CarryOut,
    ) -> None:
        self._context = context
        self._state = state
        self._gangs = gangs
        self._carry_out = carry_out
        self._metrics = GangMetrics(context.metrics.registry)
        self._victims: dict[str, set[Uid]] = {}  # of the last preemption, while any is there

    def show(self) -> None:
        """Show how many gang groups wait, and record whose victims are all deleted."""
        for key, uids in list(self._victims.items()):
            if all(self._state.pod(uid) is None for uid in uids):
                del self._victims[key]
                self._gangs.audit.record(key, Happened.VICTIMS_GONE, self._context.clock.wall())
        groups = {gang.group_id for gang in self._gangs.book.gangs if gang.pending or gang.waiting}
        self._metrics.waiting_groups.set(len(groups))

    def commit(
        self,
        attempt: Attempt,
        cycle: GangCycle,
        rows: Mapping[Uid, PodRow],
        snapshot: Snapshot,
        took: int,
    ) -> None:
        """Do what follows from the attempt. `took`: nanoseconds."""
        book = self._gangs.book
        gangs = {
            uid: GangOf(gang.id, gang.minimum, book.is_plain(gang))
            for uid in attempt.unit.pods
            if (gang := book.gangs.of(uid)) is not None
        }
        settings = self._gangs.settings
        permit = self._permit(uid for uid, _ in cycle.bound_before)
        facts = GangFacts(rows, gangs, permit, snapshot, settings, took)
        self._all(gang_effects(attempt, cycle, facts), snapshot)

    def _permit(self, uids: Iterable[Uid]) -> dict[Uid, InPermit]:
        """Return who of these waits in Permit now."""
        parked, found = self._gangs.book.parked, {}
        for uid in uids:
            each = parked.get(uid)
            if each is not None:
                now = self._state.pod(uid)
                ours = now is not None and self._state.ours(now)
                found[uid] = InPermit(each.row, each.node, now, ours)
        return found

    def _all(self, effects: Iterable[GangEffect], snapshot: Snapshot) -> None:
        for effect in tuple(effects):
            self._one(effect, snapshot)

    def _one(self, effect: GangEffect, snapshot: Snapshot) -> None:
        gangs, clock = self._gangs, self._context.clock
        match effect:
            case ObserveCycle(attempt, cycle, took):
                self._observe(attempt, cycle, took)
            case Note(key, what, message):
                gangs.audit.record(key, what, clock.wall(), message)
            case Diagnose(key, diagnosis):
                gangs.audit.diagnose(key, diagnosis)
            case NoteVictims(key, uids):
                self._victims[key] = set(uids)
            case Park(cycle, about, then):
                if not self._context.dry_run:
                    gangs.park(cycle, clock.monotonic())
                self._all(then(self._permit(about)), snapshot)
            case Unpark(uids):
                gangs.book.unpark(uids)
            case Release(uids):
                gangs.release(uids)
            case Satisfy(key):
                gangs.book.satisfy(key)
            case HoldBack(key):
                gangs.book.hold_back(key, clock.monotonic())
            case _:
                self._carry_out.all((effect,), snapshot)

    def _observe(self, attempt: Attempt, cycle: GangCycle, took: int) -> None:
        seconds = took / SECOND
        if attempt.unit.group:
            bound = any(member.bind for member in attempt.members)
            reason = _SATISFIED if bound else _ATTEMPTED
            self._metrics.cycle_seconds.labels(reason, job_size(cycle.pods)).observe(seconds)
        job = cycle.job
        if job is None:
            return
        metrics = self._context.scheduler_metrics
        metrics.preemption_attempts.inc()
        result = wording.job_reason(job.reason)
        name = self._context.metrics.names.of(cycle.key)
        self._metrics.preemption_seconds.labels(name, result).observe(seconds)
        if job.reason is JobReason.SUCCESS:
            metrics.preemption_victims.observe(len(job.slots))
