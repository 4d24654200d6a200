"""The scheduling cycle: pop, decide in the solver thread, commit on the event loop.

A slice takes a snapshot and decides as many units as fit into its time; each decision assumes those
before it. On the loop a decision is compared with what has happened meanwhile: one that no longer
holds is dropped and decided again. Source: the design's "How data flows" and "Processes and time".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.cluster.snapshot import Flag, Snapshot
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.gangs.cycle import GangGroup
from reprieve.engine.gangs.job import NO_JOBS, JobOptions
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.plan import Plane
from reprieve.engine.plan_faults import PlanFault, PlanRefused
from reprieve.engine.scheduling.commit import still_holds
from reprieve.engine.scheduling.outcome import Attempt, Member, Nominate, Unit
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.pod import PodPostFilter
from reprieve.engine.scheduling.pod_preemption import preempt_for_pod
from reprieve.engine.scheduling.proof import faults_of
from reprieve.engine.scheduling.queue import Outcome
from reprieve.engine.scheduling.rejecting import rejecting_plugins
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS, Session
from reprieve.planes.common.persistent import Pauses
from reprieve.planes.common.solve import Solver, TookTooLong, at_work_on
from reprieve.planes.scheduling.bindings import Bindings
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.gangs.outcomes import GangOutcomes
from reprieve.planes.scheduling.gangs.plane import GangPlane
from reprieve.planes.scheduling.group_conditions import group_conditions
from reprieve.planes.scheduling.observation import log_refused, observe
from reprieve.planes.scheduling.plugin_times import measured, measured_preemption
from reprieve.planes.scheduling.preemptions import Preemptions, Record
from reprieve.planes.scheduling.preemptor import Preemptor
from reprieve.planes.scheduling.references import group_reference, pod_reference
from reprieve.planes.scheduling.set_aside import SetAside, name_of
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.statuses import Statuses
from reprieve.planes.scheduling.waiting import Waiting
from reprieve.telemetry.log import DETAIL
from reprieve.telemetry.scheduling_record import encode_scheduling
from reprieve.units.clock import Clock
from reprieve.units.durations import MILLISECOND, MINUTE, SECOND
from reprieve.units.ids import Uid
from reprieve.units.instants import Nanos, format_instant
from reprieve.wording import kube_scheduler as wording
from reprieve.wording.disruptions import held_text

__all__ = ["Decided", "Decisions", "decide"]

_SLICE: Final = 20 * MILLISECOND
_BATCH: Final = 64
_MOST_TRIED_ALONE: Final = 1_000
_NOMINATED_FOR: Final = MINUTE
_NO_GANGS: Final[Mapping[str, GangGroup]] = MappingProxyType({})
_NOBODY_HELD: Final[Mapping[Unit, Mapping[Uid, Hold]]] = MappingProxyType({})
_NO_SCORERS: Final[Mapping[str, PlacementScorer]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Decided:
    """One attempt, and nanoseconds that it took. `failure`: a fault of ours or a plugin's.

    `record` makes the input of an attempt with a plan, as it is stored; it takes a while.
    """

    unit: Unit
    attempt: Attempt | None
    took: int
    failure: Exception | None = None
    record: Record | None = None


def decide(
    snapshot: Snapshot,
    policy: Policy,
    units: list[Unit],
    clock: Clock,
    overdue: frozenset[Uid] = frozenset(),
    plugins: Mapping[str, PostFilter] = GROUP_POST_FILTERS,
    gangs: Mapping[str, GangGroup] = _NO_GANGS,
    jobs: JobOptions = NO_JOBS,
    scorers: Mapping[str, PlacementScorer] = _NO_SCORERS,
    preempt_pod: PodPostFilter = preempt_for_pod,
    holds: Mapping[Unit, Mapping[Uid, Hold]] = _NOBODY_HELD,
) -> tuple[list[Decided], list[Unit]]:
    """Decide units in order for the time of a slice; return the decisions and who is left.

    A plan whose proof fails is a failure of its unit, and goes no further.
    """
    wall = clock.wall() // SECOND if policy.timed else 0
    session = Session(
        snapshot,
        policy,
        plugins=plugins,
        overdue=overdue,
        gangs=gangs,
        jobs=jobs,
        now=wall,
        scorers=scorers,
        preempt_pod=preempt_pod,
        holds=holds,
    )
    decided: list[Decided] = []
    start = clock.monotonic()
    before = start
    for number, unit in enumerate(units):
        if number and before - start >= _SLICE:
            return decided, units[number:]
        at_work_on(name_of(unit))
        try:
            attempt = session.attempt(unit)
            faults: tuple[PlanFault, ...] = ()
            if attempt is not None and attempt.plan is not None:
                known, whole = session.nominations, jobs.policy.victim_gangs
                held = holds.get(unit, {})
                faults = faults_of(snapshot, policy, attempt, wall, known, whole, held)
        except Exception as failure:
            # Nothing is known of the session's state any more: the others get a new one.
            decided.append(Decided(unit, None, clock.monotonic() - before, failure))
            return decided, units[number + 1 :]
        if attempt is None:
            return decided, units[number:]
        now = clock.monotonic()
        if faults:
            decided.append(Decided(unit, None, now - before, PlanRefused(faults)))
            return decided, units[number + 1 :]
        record = None
        if attempt.plan is not None and attempt.gang is None:
            earlier = [each.attempt for each in decided if each.attempt is not None]
            held = holds.get(unit, {})
            record = partial(
                encode_scheduling, snapshot, policy, unit, earlier, overdue, wall, held
            )
        decided.append(Decided(unit, attempt, now - before, record=record))
        before = now
    return decided, []


class Decisions:
    """Decides for all that the queue has ready.

    `held_back` says why nothing may be decided now, `holds` who is held from whom.
    """

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        statuses: Statuses,
        bindings: Bindings,
        preemptions: Preemptions,
        *,
        condition_type: Callable[[], str],
        held_back: Callable[[], str],
        stopped: SetAside,
        unrecorded: SetAside,
        waiting: Waiting,
        gangs: GangPlane,
        gang_outcomes: GangOutcomes,
        holds: Callable[[Iterable[Unit]], Mapping[Unit, Mapping[Uid, Hold]]] = lambda units: {},
    ) -> None:
        self._holds = holds
        self._gangs = gangs
        self._gang_outcomes = gang_outcomes
        self._context = context
        self._state = state
        self._statuses = statuses
        self._bindings = bindings
        self._preemptions = preemptions
        self._condition_type = condition_type
        self._held_back = held_back
        self._solver = Solver(Plane.SCHEDULING, context.decision_limit)
        self._aside = stopped
        self._waiting = waiting
        self._unrecorded = unrecorded
        seconds = context.scheduler_metrics.plugin_seconds
        self._plugins = measured(context.plugins, seconds, context.clock)
        self._preempt_pod = measured_preemption(preempt_for_pod, seconds, context.clock)
        self._wake = asyncio.Event()
        self._left: list[Unit] = []  # popped and not decided yet
        self._tried_alone: set[str] = set()  # names of units of which one was in a fault

    def wake(self) -> None:
        """Something may be ready."""
        self._wake.set()

    async def run(self) -> None:
        """Decide until cancelled."""
        clock, pauses = self._context.clock, Pauses()
        try:
            while True:
                self._wake.clear()
                why = self._held_back()
                if why:
                    log.debug("nothing is decided: %s", why)
                    await clock.sleep(SECOND // 10)
                    self._wake.set()
                    continue
                units: list[Unit] = []
                try:
                    self._state.queue.flush(clock.monotonic())
                    units = self._take()
                    await self._slice(units)
                except Exception as failure:
                    if self._set_aside(units, failure):
                        continue
                    self._after_fault(units)
                    await clock.sleep(pauses.after_fault())
                    continue
                pauses.well()
                if not units:
                    await self._sleep()
        finally:
            self._solver.close()

    async def _sleep(self) -> None:
        clock = self._context.clock
        due = self._state.queue.next_flush(clock.monotonic())
        waiting = asyncio.create_task(self._wake.wait())
        tasks: set[asyncio.Task[object]] = {waiting}
        if due is not None:
            pause = max(MILLISECOND, due - clock.monotonic())
            tasks.add(asyncio.create_task(clock.sleep(pause)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _take(self) -> list[Unit]:
        """Return the units to decide about next; one that was in a fault is decided about alone."""
        queue, clock = self._state.queue, self._context.clock
        units: list[Unit] = []
        while len(units) < _BATCH:
            unit = self._left.pop(0) if self._left else queue.pop(clock.monotonic())
            if unit is None:
                break
            suspects = self._context.decision_limit.suspects
            ended = suspects.taken(Plane.SCHEDULING, name_of(unit))
            if ended is not None:
                self._aside.put_ended(unit, ended)
            if self._aside.waits(unit) or self._unrecorded.waits(unit):
                queue.give_up(unit, clock.monotonic())
                continue
            if name_of(unit) in self._tried_alone:
                if units:
                    self._left.insert(0, unit)
                    break
                return [unit]
            units.append(unit)
        return units

    def _after_fault(self, units: list[Unit]) -> None:
        """Give up a unit that was alone in the fault; of several try each alone."""
        if len(units) == 1:
            log.exception("deciding about %s failed", name_of(units[0]))
            self._state.queue.give_up(units[0], self._context.clock.monotonic())
            return
        log.exception("nothing was decided about %d units, each is tried alone", len(units))
        if len(self._tried_alone) > _MOST_TRIED_ALONE:
            self._tried_alone.clear()
        self._tried_alone.update(map(name_of, units))
        self._left = [*units, *self._left]

    def _set_aside(self, units: list[Unit], failure: Exception) -> bool:
        """Put aside the unit that took too long; return whether it was that, and one of these.

        The others are decided about again, since their answers are lost.
        """
        if not isinstance(failure, TookTooLong):
            return False
        slow = next((unit for unit in units if name_of(unit) == failure.what), None)
        if slow is None:
            return False
        self._left = [*(unit for unit in units if unit is not slow), *self._left]
        self._aside.put(slow, failure)
        self._state.queue.give_up(slow, self._context.clock.monotonic())
        return True

    async def _slice(self, units: list[Unit]) -> None:
        """Decide about these units for the time of a slice; the others are left."""
        clock = self._context.clock
        if not units:
            return
        snapshot = self._state.cluster.snapshot()
        disturbed = self._state.disturbed
        decided, left = await self._solver.run(
            decide,
            snapshot,
            self._context.policy,
            units,
            clock,
            frozenset(self._state.overdue),
            self._plugins,
            self._gangs.groups(units),
            self._gangs.options_now(),
            self._context.scorers,
            self._preempt_pod,
            self._holds(units),
        )
        self._left = [*left, *self._left]
        doubtful = self._state.disturbed != disturbed
        for each in decided:
            self._tried_alone.discard(name_of(each.unit))
            self._aside.forget(each.unit)
            try:
                held = self._commit(each, snapshot, doubtful)
            except Exception:
                # A fault of ours in one unit is an error of that unit, and of nobody else's.
                log.exception("what was decided about %s was not done", name_of(each.unit))
                self._state.queue.give_up(each.unit, self._context.clock.monotonic())
                held = False
            # Those after it were decided with it in place.
            doubtful = doubtful or not held

    def _commit(self, decided: Decided, snapshot: Snapshot, doubtful: bool) -> bool:
        attempt, unit = decided.attempt, decided.unit
        now = self._context.clock.monotonic()
        if attempt is None:
            self._waiting.failed(unit)
            log.error("deciding about %s failed", name_of(unit), exc_info=decided.failure)
            self._state.queue.done(unit, Outcome.ERROR, now)
            return True
        acts = attempt.plan is not None or any(member.bind for member in attempt.members)
        if acts and doubtful:
            current = self._state.cluster.snapshot()
            seconds = self._context.clock.wall() // SECOND
            if not still_holds(current, self._context.policy, attempt, seconds):
                self._context.scheduler_metrics.stale_plans.inc()
                self._state.queue.done(unit, Outcome.AGAIN, now)
                return False
        self._waiting.decided(attempt)
        rows = {uid: row for uid in unit.pods if (row := self._state.pod(uid)) is not None}
        if attempt.gang is not None:
            self._gang_outcomes.commit(attempt, attempt.gang, rows, snapshot, decided.took)
            self._remind(attempt)
            return True
        profile = next((row.pod_class.scheduler_name for row in rows.values()), "")
        observe(self._context.scheduler_metrics, attempt, profile, decided.took)
        log_refused(attempt, snapshot, self._context.policy)
        if attempt.code is Code.SUCCESS and any(member.bind for member in attempt.members):
            self._place(attempt, rows, now)
        else:
            self._refuse(attempt, rows, snapshot, now, decided.record)
            self._remind(attempt)
        return True

    def _remind(self, attempt: Attempt) -> None:
        """Try again when the first protection ends that kept others from making way."""
        spared, held, name = attempt.spared, attempt.held, name_of(attempt.unit)
        ends = []
        if spared is not None:
            ends.append(Nanos(spared.until * SECOND))
            log.log(
                DETAIL,
                "%s: %d pod(s) of lower priority within their minimum runtime, the first until %s",
                name,
                spared.pods,
                format_instant(ends[0]),
            )
        if held is not None:
            ends.append(held.until)
            log.info("%s: %s", name, held_text(held.pods, held.rule, held.until))
        if ends:
            clock = self._context.clock
            left = max(0, min(ends) - clock.wall())
            self._state.queue.remind(attempt.unit, clock.monotonic() + left)

    # What follows from an attempt.

    def _place(self, attempt: Attempt, rows: Mapping[Uid, PodRow], now: int) -> None:
        unit = attempt.unit
        placed = [
            (rows[member.uid], member)
            for member in attempt.members
            if member.bind and member.uid in rows
        ]
        rest = [member for member in attempt.members if not member.bind]
        if unit.group:
            uids = {row.uid for row, _ in placed}
            self._state.queue.done(
                unit, Outcome.PLACED, now, placed=uids, rejected_by=rejecting_plugins(attempt)
            )
        elif not placed:
            self._state.queue.done(unit, Outcome.REJECTED, now)
            return
        self._bindings.assume(unit, placed)
        self._nominate(attempt, rows, self._state.group(unit.group) if unit.group else None)
        for member in rest:
            self._tell(attempt, member, rows)
        self._tell_groups(attempt)

    def _refuse(
        self,
        attempt: Attempt,
        rows: Mapping[Uid, PodRow],
        snapshot: Snapshot,
        now: int,
        record: Record | None,
    ) -> None:
        unit, queue = attempt.unit, self._state.queue
        group = self._state.group(unit.group) if unit.group else None
        outcome = Outcome.ERROR if attempt.code is Code.ERROR else Outcome.REJECTED
        rejected_by = rejecting_plugins(attempt)
        preemptor = self._preemptor(unit, group, rows, attempt)
        begins = preemptor is not None and attempt.plan is not None and _alive(snapshot, attempt)

        def tell() -> None:
            for member in attempt.members:
                self._tell(attempt, member, rows)
            self._tell_groups(attempt)

        self._nominate(attempt, rows, group)
        self._bindings.give_back(attempt.deallocations)
        if not begins or self._context.dry_run:
            if begins and attempt.plan is not None and preemptor is not None:
                self._preemptions.note(attempt.plan, preemptor, record)
            tell()
            queue.done(unit, outcome, now, rejected_by=rejected_by)
            return
        assert attempt.plan is not None and preemptor is not None
        priority = group.priority if group is not None else rows[unit.pods[0]].priority
        lower = [
            each
            for each in snapshot.nominations
            if snapshot.nodes[each.node].name == preemptor.target and each.priority < priority
        ]
        for each in lower:
            deadline = now + _NOMINATED_FOR
            self._state.cluster.nominate(each.uid, "", each.priority, deadline)
        if self._context.policy.gates.async_preemption:
            tell()
            queue.hold(preemptor.key)
            queue.done(unit, outcome, now, rejected_by=rejected_by)
            self._preemptions.begin(attempt.plan, preemptor, lower, record=record)
            return

        def after() -> None:
            tell()
            later = self._context.clock.monotonic()
            queue.done(unit, outcome, later, rejected_by=rejected_by)

        self._preemptions.begin(attempt.plan, preemptor, lower, after, record=record)

    def _preemptor(
        self,
        unit: Unit,
        group: GroupRow | None,
        rows: Mapping[Uid, PodRow],
        attempt: Attempt,
    ) -> Preemptor | None:
        first = next((rows[uid] for uid in unit.pods if uid in rows), None)
        if first is None:
            return None
        name = first.pod_class.scheduler_name
        if group is not None:
            reference = group_reference(group, self._context.group_version)
            kind = wording.PreemptorKind.GROUP
            if group.composite:
                kind = wording.PreemptorKind.COMPOSITE
            return Preemptor(unit, unit.group, kind, group.uid, name, wording.CLUSTER, reference)
        nominated = next((m.nominate for m in attempt.members if isinstance(m.nominate, str)), "")
        kind = wording.PreemptorKind.POD
        return Preemptor(unit, first.uid, kind, first.uid, name, nominated, pod_reference(first))

    def _nominate(
        self, attempt: Attempt, rows: Mapping[Uid, PodRow], group: GroupRow | None
    ) -> None:
        """Keep the nodes for the members from now on, before the API server knows of it."""
        deadline = self._context.clock.monotonic() + _NOMINATED_FOR
        for member in attempt.members:
            row = rows.get(member.uid)
            node = _nominated(member)
            if row is not None and node is not None and not member.bind:
                priority = row.priority if group is None else group.priority
                self._state.cluster.nominate(row.uid, node, priority, deadline)

    def _tell_groups(self, attempt: Attempt) -> None:
        """Write the conditions of the groups that were not placed."""
        kep = self._context.policy.kep_messages
        for row, condition in group_conditions(
            self._state, attempt, self._condition_type(), kep_messages=kep
        ):
            self._statuses.group(row, condition)

    def _tell(self, attempt: Attempt, member: Member, rows: Mapping[Uid, PodRow]) -> None:
        """Write the condition and nomination of a pod that was not placed, and its event."""
        row = rows.get(member.uid)
        if row is None:
            return
        kep = self._context.policy.kep_messages
        condition = wording.pod_condition(attempt, member, kep_messages=kep)
        if not condition.message:
            return
        held = attempt.held
        if held is not None:
            said = f"{condition.message} {held_text(held.pods, held.rule, held.until)}."
            condition = replace(condition, message=said)
        self._statuses.pod(row, condition, _nominated(member))
        text = wording.failed_scheduling(condition.message)
        self._context.announce(pod_reference(row), text, row.pod_class.scheduler_name)


def _nominated(member: Member) -> str | None:
    """Return the node to nominate, empty to clear, None to leave it."""
    if member.nominate is Nominate.KEEP:
        return None
    return "" if member.nominate is Nominate.CLEAR else str(member.nominate)


def _alive(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether a victim is left that is not terminating already."""
    found = attempt.preemption
    return found is not None and any(
        not snapshot.pod_flags[slot] & Flag.DELETING
        for victim in found.victims
        for slot in victim.pods
    )
