"""What follows from a gang's cycle: bindings, parking, nominations, preemption, and what is told.

| the cycle ended with | then |
| --- | --- |
| every gang has its minimum | all with a node are bound, those that waited too |
| a member that does not fit | it gets its own message, its siblings that of the cycle |
| victims | nominations are kept and written, the victims deleted; those in Permit only rejected |
| no way, even with victims | all nominations of the group are cleared |
| members short of the minimum | those with a node wait in Permit |

Source: specification of gang jobs, sections 5, 8 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Flag, Nomination, Snapshot
from reprieve.engine.gangs.job import JobReason
from reprieve.engine.placement.reasons import Code
from reprieve.engine.plan import Plan
from reprieve.engine.scheduling.outcome import Attempt, GangCycle, Member, Nominate
from reprieve.engine.scheduling.queue import Outcome
from reprieve.engine.scheduling.rejecting import rejecting_plugins
from reprieve.planes.scheduling.bindings import Bindings
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.gangs.audit import Happened
from reprieve.planes.scheduling.gangs.book import Parked
from reprieve.planes.scheduling.gangs.plane import GangPlane
from reprieve.planes.scheduling.preemptions import Preemptions
from reprieve.planes.scheduling.preemptor import Preemptor
from reprieve.planes.scheduling.references import pod_reference, reference_of
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.statuses import Statuses
from reprieve.telemetry.gangs import GangMetrics, job_size
from reprieve.units.durations import MINUTE, SECOND
from reprieve.units.ids import Uid
from reprieve.wording import koordinator as wording
from reprieve.wording.kube_scheduler import (
    POD_SCHEDULED,
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    ConditionText,
    PreemptorKind,
    failed_scheduling,
    fit_text,
)

__all__ = ["GangOutcomes"]

_NOMINATED_FOR: Final = MINUTE
_SATISFIED: Final = "gang is already succeed"
_ATTEMPTED: Final = "all pending pods is already been attempted"


class GangOutcomes:
    """Commits attempts of gangs, and of pods that preempt as jobs of one."""

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        statuses: Statuses,
        bindings: Bindings,
        preemptions: Preemptions,
        gangs: GangPlane,
    ) -> None:
        self._context = context
        self._state = state
        self._statuses = statuses
        self._bindings = bindings
        self._preemptions = preemptions
        self._gangs = gangs
        self._metrics = GangMetrics(context.metrics.registry)
        self._victims: dict[str, set[Uid]] = {}  # of the last preemption, while any is there

    def show(self) -> None:
        """Show how many gang groups wait, and note whose victims are all gone."""
        for key, uids in list(self._victims.items()):
            if all(self._state.pod(uid) is None for uid in uids):
                del self._victims[key]
                self._gangs.audit.note(key, Happened.VICTIMS_GONE, self._context.clock.wall())
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
        """Do what the attempt says. `took`: nanoseconds."""
        now = self._context.clock.monotonic()
        self._observe(attempt, cycle, took)
        self._record(attempt, cycle, rows, snapshot)
        if any(member.bind for member in attempt.members):
            self._bind(attempt, cycle, rows, now)
        else:
            self._refuse(attempt, cycle, rows, snapshot, now)

    def _bind(
        self, attempt: Attempt, cycle: GangCycle, rows: Mapping[Uid, PodRow], now: int
    ) -> None:
        unit = attempt.unit
        placed = [(rows[m.uid], m) for m in attempt.members if m.bind and m.uid in rows]
        parked = self._gangs.book.unpark(uid for uid, _ in cycle.bound_before)
        uids = {row.uid for row, _ in placed}
        self._state.queue.done(unit, Outcome.PLACED, now, placed=uids)
        before = [(each.row, Member(each.row.uid, bind=each.node)) for each in parked]
        together = [*placed, *before]
        said = wording.released(cycle.key, len(together))
        self._bindings.assume(unit, together, said)
        self._gangs.book.satisfy(unit.group)
        log.info("gang %s: %d pods are bound together", cycle.key, len(placed) + len(before))

    def _refuse(
        self,
        attempt: Attempt,
        cycle: GangCycle,
        rows: Mapping[Uid, PodRow],
        snapshot: Snapshot,
        now: int,
    ) -> None:
        unit, queue = attempt.unit, self._state.queue
        if not self._context.dry_run:
            self._gangs.park(cycle, now)
        self._nominate(attempt, rows, now)
        self._bindings.give_back(attempt.deallocations)
        for member in attempt.members:
            self._tell(attempt, cycle, member, rows)
        preemptor = self._preemptor(attempt, cycle, rows)
        plan = self._deleting(attempt.plan, preemptor, snapshot)
        begins = plan is not None and preemptor is not None and not self._context.dry_run
        if begins and preemptor is not None:
            queue.hold(preemptor.key)
        outcome = Outcome.ERROR if attempt.code is Code.ERROR else Outcome.REJECTED
        left = {uid for uid, _ in cycle.parked if self._gangs.waits(uid)}
        if left and cycle.trigger is None:
            outcome = Outcome.PLACED
        queue.done(unit, outcome, now, placed=left, rejected_by=rejecting_plugins(attempt))
        if cycle.trigger is not None and attempt.plan is None and not left and unit.group:
            kept = cycle.job is not None and cycle.job.reason is JobReason.TERMINATING
            if not kept:
                self._gangs.book.hold_back(unit.group, now)
        waited = {each.row.uid: each for each in self._gangs.release(cycle.rejected)}
        self._tell_rejected(cycle, rows, waited)
        if begins and plan is not None and preemptor is not None:
            self._nominate_waiting(cycle, waited, now)
            lower = self._lower(cycle, snapshot, now)
            self._preemptions.begin(plan, preemptor, lower)

    def _nominate_waiting(self, cycle: GangCycle, waited: Mapping[Uid, Parked], now: int) -> None:
        """Members that waited before this cycle keep their node as a nomination."""
        for uid, parked in waited.items():
            row = self._state.pod(uid)
            if row is not None:
                self._state.cluster.nominate(uid, parked.node, row.priority, now + _NOMINATED_FOR)
                self._statuses.pod(row, nominated=parked.node)

    def _tell_rejected(
        self, cycle: GangCycle, rows: Mapping[Uid, PodRow], waited: Mapping[Uid, Parked]
    ) -> None:
        """Tell those who waited in Permit why they no longer do."""
        trigger = rows.get(cycle.trigger) if cycle.trigger is not None else None
        gang = self._gangs.book.gangs.of(trigger.uid) if trigger is not None else None
        if gang is None:
            return
        if cycle.job is not None and not cycle.gave_back:
            text = wording.job_message(cycle.job, cycle.waiting, cycle.pods)
        elif self._gangs.book.is_plain(gang):
            text = wording.OPTIMISTIC_REJECTION
        else:
            text = wording.rejected_gang(gang.id)
        for uid in waited:
            row = self._state.pod(uid)
            if row is not None and self._state.ours(row):
                self._say(row, text)

    def _say(self, row: PodRow, message: str) -> None:
        """Tell a pod that it is not scheduled."""
        condition = ConditionText(POD_SCHEDULED, "False", UNSCHEDULABLE, message)
        self._statuses.pod(row, condition)
        text = failed_scheduling(message)
        self._context.announce(pod_reference(row), text, row.pod_class.scheduler_name)

    def _deleting(
        self, plan: Plan | None, preemptor: Preemptor | None, snapshot: Snapshot
    ) -> Plan | None:
        """Reject victims that wait in Permit; return the plan for the others, None for none."""
        if plan is None or preemptor is None:
            return None
        parked = {v.root.uid for v in plan.victims if self._gangs.waits(v.root.uid)}
        if parked and not self._context.dry_run:
            for each in self._gangs.release(parked):
                assert preemptor.preempted is not None, "jobs have words of their own"
                text = preemptor.preempted(each.node)
                about = pod_reference(each.row)
                name, by = preemptor.scheduler_name, reference_of(preemptor.about, "")
                self._context.announce(about, text, name, by)
                self._say(each.row, wording.PREEMPTED)
        victims = tuple(v for v in plan.victims if v.root.uid not in parked)
        slots = {uid: slot for slot, uid in enumerate(snapshot.pod_uids)}
        alive = any(not snapshot.pod_flags[slots[v.root.uid]] & Flag.DELETING for v in victims)
        return replace(plan, victims=victims) if alive else None

    def _preemptor(
        self, attempt: Attempt, cycle: GangCycle, rows: Mapping[Uid, PodRow]
    ) -> Preemptor | None:
        trigger = rows.get(cycle.trigger) if cycle.trigger is not None else None
        if trigger is None:
            return None
        name = trigger.pod_class.scheduler_name
        key = f"{trigger.namespace}/{trigger.name}"
        spelling = self._gangs.settings.spelling
        return Preemptor(
            attempt.unit,
            attempt.unit.group or trigger.uid,
            PreemptorKind.POD,
            trigger.uid,
            name,
            "",
            trigger,
            message=wording.disruption_message(name, cycle.key, key, spelling),
            preempted=lambda node: wording.preempted(trigger.uid, node),
        )

    def _lower(self, cycle: GangCycle, snapshot: Snapshot, now: int) -> list[Nomination]:
        wanted = set(cycle.job.lower) if cycle.job is not None else set()
        found = [each for each in snapshot.nominations if each.uid in wanted]
        for each in found:
            self._state.cluster.nominate(each.uid, "", each.priority, now + _NOMINATED_FOR)
        return found

    def _nominate(self, attempt: Attempt, rows: Mapping[Uid, PodRow], now: int) -> None:
        for member in attempt.members:
            row = rows.get(member.uid)
            if row is None or member.nominate is Nominate.KEEP:
                continue
            node = "" if member.nominate is Nominate.CLEAR else str(member.nominate)
            self._state.cluster.nominate(row.uid, node, row.priority, now + _NOMINATED_FOR)

    def _tell(
        self, attempt: Attempt, cycle: GangCycle, member: Member, rows: Mapping[Uid, PodRow]
    ) -> None:
        row = rows.get(member.uid)
        if row is None:
            return
        message = self._message(attempt, cycle, member, rows)
        nominated: str | None = None
        if member.nominate is not Nominate.KEEP:
            nominated = "" if member.nominate is Nominate.CLEAR else str(member.nominate)
        error = attempt.code is Code.ERROR
        reason = SCHEDULER_ERROR if error else UNSCHEDULABLE
        condition = ConditionText(POD_SCHEDULED, "False", reason, message)
        self._statuses.pod(row, condition, nominated)
        text = failed_scheduling(message)
        self._context.announce(pod_reference(row), text, row.pod_class.scheduler_name)

    def _message(
        self, attempt: Attempt, cycle: GangCycle, member: Member, rows: Mapping[Uid, PodRow]
    ) -> str:
        if member.diagnosis is not None:
            text = fit_text(member.diagnosis)
            if cycle.job is None:
                row, gang = rows.get(member.uid), self._gangs.book.gangs.of(member.uid)
                if not cycle.gave_back or row is None or gang is None:
                    return text
                if self._gangs.book.is_plain(gang):
                    return f"{text} {wording.rejected_pod_group(gang.id, row.name)}"
                return f"{text} {wording.rejected_gang(gang.id)}"
            said = wording.job_message(cycle.job, cycle.waiting, cycle.pods)
            return f"{text} {wording.post_filter_message(said)}"
        trigger = rows.get(cycle.trigger) if cycle.trigger is not None else None
        if trigger is None:
            gang = self._gangs.book.gangs.of(member.uid)
            minimum = gang.minimum if gang is not None else 0
            return wording.waiting_message(cycle.key, cycle.waiting, minimum)
        diagnosis = next(m.diagnosis for m in attempt.members if m.uid == cycle.trigger)
        fit = fit_text(diagnosis) if diagnosis is not None else ""
        key = f"{trigger.namespace}/{trigger.name}"
        return wording.cycle_failure(cycle.key, key, fit, cycle.waiting)

    def _record(
        self,
        attempt: Attempt,
        cycle: GangCycle,
        rows: Mapping[Uid, PodRow],
        snapshot: Snapshot,
    ) -> None:
        audit, wall, key = self._gangs.audit, self._context.clock.wall(), cycle.key
        if any(member.bind for member in attempt.members):
            audit.note(key, Happened.SATISFIED, wall)
            audit.note(key, Happened.SCHEDULED, wall)
            return
        if attempt.unit.group:
            audit.note(key, Happened.ALL_ATTEMPTED, wall)
        job = cycle.job
        if job is None:
            audit.note(key, Happened.NOT_SCHEDULED, wall)
            return
        message = wording.job_message(job, cycle.waiting, cycle.pods)
        trigger = rows.get(cycle.trigger) if cycle.trigger is not None else None
        victims = [
            {"nodeName": node, "possibleVictims": [_victim(snapshot, slot) for slot in slots]}
            for node, slots in job.victims
        ]
        names = {uid: f"{row.namespace}/{row.name}" for uid, row in rows.items()}
        audit.diagnose(
            key,
            {
                "TriggerPodKey": f"{trigger.namespace}/{trigger.name}" if trigger else "",
                "preemptorKey": key,
                "reason": wording.job_reason(job.reason),
                "message": message,
                "terminatingPodOnNominatedNode": dict(job.terminating),
                "podToNominatedNode": {names.get(u, str(u)): n for u, n in job.nominated},
                "unschedulablePodsNumber": len(job.unplaced),
                "victims": victims,
                "SchedulingMode": str(self._gangs.settings.policy.placement),
            },
        )
        if job.reason is JobReason.SUCCESS:
            audit.note(key, Happened.DELETING, wall, f"{len(job.slots)} victims")
            audit.note(key, Happened.NOMINATED, wall, message)
            self._victims[key] = {snapshot.pod_uids[slot] for slot in job.slots}
        else:
            audit.note(key, Happened.FAILED, wall, message)

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
        self._metrics.preemption_seconds.labels(cycle.key, result).observe(seconds)
        if job.reason is JobReason.SUCCESS:
            metrics.preemption_victims.observe(len(job.slots))
            log.info("%s preempts %d pods", cycle.key, len(job.slots))
        else:
            message = wording.job_message(job, cycle.waiting, cycle.pods)
            log.debug("%s: preemption: %s", cycle.key, message)


def _victim(snapshot: Snapshot, slot: int) -> dict[str, str]:
    namespace, _, name = snapshot.pod_keys[slot].partition("/")
    return {"namespace": namespace, "name": name, "uid": str(snapshot.pod_uids[slot])}
