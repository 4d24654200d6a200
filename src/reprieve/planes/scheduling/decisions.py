"""The scheduling cycle: pop, decide in the solver thread, commit on the event loop.

A slice takes a snapshot and decides as many units as fit into its time; each decision assumes those
before it. On the loop a decision is compared with what has happened meanwhile: one that no longer
holds is dropped and decided again. Source: the design's "How data flows" and "Processes and time".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.gangs.cycle import GangGroup
from reprieve.engine.gangs.job import NO_JOBS, JobOptions
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.plan import Plane
from reprieve.engine.plan_faults import PlanFault, PlanRefused
from reprieve.engine.scheduling.commit import still_holds
from reprieve.engine.scheduling.leaving import NOBODY_PUT_OFF, PutOff
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.pod import PodPostFilter
from reprieve.engine.scheduling.pod_preemption import preempt_for_pod
from reprieve.engine.scheduling.proof import faults_of
from reprieve.engine.scheduling.queue import Outcome
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS, Session
from reprieve.planes.common.joint import Joint
from reprieve.planes.common.loop import DecisionLoop, Pace
from reprieve.planes.common.solve import TookTooLong, at_work_on
from reprieve.planes.scheduling.carry_out import CarryOut
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.effects import Facts, Record, effects_of, reminders
from reprieve.planes.scheduling.gangs.carry_out import GangCarryOut
from reprieve.planes.scheduling.gangs.plane import GangPlane
from reprieve.planes.scheduling.joint_side import Deferrals
from reprieve.planes.scheduling.plugin_times import measured, measured_preemption
from reprieve.planes.scheduling.set_aside import SetAside
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.waiting import Waiting
from reprieve.records.scheduling.record import encode_scheduling
from reprieve.units.clock import Clock
from reprieve.units.durations import MILLISECOND, SECOND
from reprieve.units.ids import Uid

__all__ = ["Decided", "Decisions", "decide"]

_SLICE: Final = 20 * MILLISECOND
_PACE: Final = Pace(held_back=SECOND // 10)
_BATCH: Final = 64
_MOST_TRIED_ALONE: Final = 1_000
_NO_GANGS: Final[Mapping[str, GangGroup]] = MappingProxyType({})
_NOBODY_HELD: Final[Mapping[Unit, Mapping[Uid, Hold]]] = MappingProxyType({})
_NO_SCORERS: Final[Mapping[str, PlacementScorer]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Decided:
    """One attempt, and nanoseconds that it took. `failure`: a fault of ours or a plugin's.

    `record` makes the input of an attempt with a plan, as it is stored; it takes a while. `sample`
    is the input of one without, where that is wanted.
    """

    unit: Unit
    attempt: Attempt | None
    took: int
    failure: Exception | None = None
    record: Record | None = None
    sample: dict[str, Any] | None = None


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
    sampled: Callable[[], bool] = lambda: False,
    put_off: PutOff = NOBODY_PUT_OFF,
) -> tuple[list[Decided], list[Unit]]:
    """Decide units in order for the time of a slice; return the decisions and who is left.

    A plan without a proof is a failure of its unit. `sampled`: whether a refusal's input is wanted.
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
        waits=put_off,
    )
    decided: list[Decided] = []
    before = start = clock.monotonic()
    for number, unit in enumerate(units):
        if number and before - start >= _SLICE:
            return decided, units[number:]
        at_work_on(unit.name)
        held = holds.get(unit, {})
        try:
            attempt = session.attempt(unit)
            faults: tuple[PlanFault, ...] = ()
            if attempt is not None and attempt.plan is not None:
                known, whole = session.nominations, jobs.policy.victim_gangs
                faults = faults_of(snapshot, policy, attempt, wall, known, whole, held, overdue)
        except Exception as failure:
            # Nothing is known of the session's state any more: the others get a new one.
            decided.append(Decided(unit, None, clock.monotonic() - before, failure))
            return decided, units[number + 1 :]
        if attempt is None:
            return decided, units[number:]
        took = clock.monotonic() - before
        if faults:
            decided.append(Decided(unit, None, took, PlanRefused(faults)))
            return decided, units[number + 1 :]
        made = partial(_input, snapshot, policy, unit, tuple(decided), overdue, wall, held, put_off)
        decided.append(_decided(unit, attempt, took, made, sampled))
        before = clock.monotonic()
    return decided, []


def _decided(
    unit: Unit, attempt: Attempt, took: int, made: Record, sampled: Callable[[], bool]
) -> Decided:
    """Return the decision with its input, which cycles of gangs have none of."""
    if attempt.gang is not None:
        return Decided(unit, attempt, took)
    if attempt.plan is not None:
        return Decided(unit, attempt, took, record=made)
    wanted = attempt.code is not Code.SUCCESS and sampled()
    return Decided(unit, attempt, took, sample=made() if wanted else None)


def _input(
    snapshot: Snapshot,
    policy: Policy,
    unit: Unit,
    decided: Sequence[Decided],
    overdue: frozenset[Uid],
    wall: int,
    held: Mapping[Uid, Hold],
    put_off: PutOff,
) -> dict[str, Any]:
    among = put_off.among.get(unit, ())
    earlier = [each.attempt for each in decided if each.attempt is not None]
    return encode_scheduling(snapshot, policy, unit, earlier, overdue, wall, held, among)


class Decisions:
    """Decides for all that the queue has ready.

    `held_back` says why nothing may be decided now, `holds` who is held from whom,
    `loop_of` in which loop of displacements a unit is, in words.
    """

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        carry_out: CarryOut,
        *,
        condition_type: Callable[[], str],
        held_back: Callable[[], str],
        stopped: SetAside,
        unrecorded: SetAside,
        waiting: Waiting,
        gangs: GangPlane,
        gang_carry_out: GangCarryOut,
        holds: Callable[[Iterable[Unit]], Mapping[Unit, Mapping[Uid, Hold]]] = lambda units: {},
        loop_of: Callable[[Unit], str] = lambda unit: "",
        deferrals: Deferrals | None = None,
    ) -> None:
        self._deferrals = deferrals or Deferrals(Joint(), context.clock)
        self._holds = holds
        self._loop_of = loop_of
        self._gangs = gangs
        self._gang_carry_out = gang_carry_out
        self._context = context
        self._state = state
        self._carry_out = carry_out
        self._condition_type = condition_type
        self.loop = DecisionLoop(
            Plane.SCHEDULING,
            context.clock,
            context.decision_limit,
            log,
            _PACE,
            decide=self._decide,
            held_back=held_back,
        )
        self._aside = stopped
        self._waiting = waiting
        self._unrecorded = unrecorded
        seconds = context.scheduler_metrics.plugin_seconds
        self._plugins = measured(context.plugins, seconds, context.clock)
        self._preempt_pod = measured_preemption(preempt_for_pod, seconds, context.clock)
        self._left: list[Unit] = []  # popped and not decided yet
        self._tried_alone: set[str] = set()  # names of units of which one was in a fault

    async def _decide(self) -> None:
        """Decide about what is ready, and ask for the next turn."""
        clock, queue = self._context.clock, self._state.queue
        queue.flush(clock.monotonic())
        units = self._take()
        if not units:
            due = queue.next_flush(clock.monotonic())
            if due is not None:
                self.loop.ask_after(max(MILLISECOND, due - clock.monotonic()))
            return
        self.loop.ask()
        try:
            await self._slice(units)
        except Exception as failure:
            if not self._set_aside(units, failure):
                self._after_fault(units)
                raise

    def _take(self) -> list[Unit]:
        """Return the units to decide about next; one that was in a fault is decided about alone."""
        queue, clock = self._state.queue, self._context.clock
        units: list[Unit] = []
        while len(units) < _BATCH:
            unit = self._left.pop(0) if self._left else queue.pop(clock.monotonic())
            if unit is None:
                break
            suspects = self._context.decision_limit.suspects
            ended = suspects.taken(Plane.SCHEDULING, unit.name)
            if ended is not None:
                self._aside.put_ended(unit, ended)
            if self._aside.waits(unit) or self._unrecorded.waits(unit):
                queue.give_up(unit, clock.monotonic())
                continue
            if unit.name in self._tried_alone:
                if units:
                    self._left.insert(0, unit)
                    break
                return [unit]
            units.append(unit)
        return units

    def _after_fault(self, units: list[Unit]) -> None:
        """Give up a unit that was alone in the fault; of several try each alone."""
        if len(units) == 1:
            log.error("deciding about %s failed", units[0].name)
            self._state.queue.give_up(units[0], self._context.clock.monotonic())
            return
        log.error("nothing was decided about %d units, each is tried alone", len(units))
        if len(self._tried_alone) > _MOST_TRIED_ALONE:
            self._tried_alone.clear()
        self._tried_alone.update(unit.name for unit in units)
        self._left = [*units, *self._left]

    def _set_aside(self, units: list[Unit], failure: Exception) -> bool:
        """Put aside the unit that took too long; return whether it was that, and one of these.

        The others are decided about again, since their answers are lost.
        """
        if not isinstance(failure, TookTooLong):
            return False
        slow = next((unit for unit in units if unit.name == failure.what), None)
        if slow is None:
            return False
        self._left = [*(unit for unit in units if unit is not slow), *self._left]
        self._aside.hold(slow, failure)
        self._state.queue.give_up(slow, self._context.clock.monotonic())
        return True

    async def _slice(self, units: list[Unit]) -> None:
        """Decide about these units for the time of a slice; the others are left."""
        clock = self._context.clock
        if not units:
            return
        snapshot = self._state.cluster.snapshot()
        disturbed = self._state.disturbed
        put_off = self._deferrals.of(units)
        decided, left = await self.loop.solver.run(
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
            self._waiting.is_sampled,
            put_off,
        )
        self._left = [*left, *self._left]
        doubtful = self._state.disturbed != disturbed
        for each in decided:
            self._tried_alone.discard(each.unit.name)
            self._aside.forget(each.unit)
            try:
                held = self._commit(each, snapshot, doubtful)
            except Exception:
                # A fault of ours in one unit is an error of that unit, and of nobody else's.
                log.exception("what was decided about %s was not done", each.unit.name)
                self._state.queue.give_up(each.unit, self._context.clock.monotonic())
                held = False
            # Those after it were decided with it in place.
            doubtful = doubtful or not held
            self._after(each, put_off)

    def _after(self, decided: Decided, put_off: PutOff) -> None:
        """Try a unit that was put off again when that ends; forget others."""
        unit, attempt, clock = decided.unit, decided.attempt, self._context.clock.monotonic()
        if attempt is None:
            return
        found = attempt.preemption
        waits = found is None or not found.evaluated
        for_room = found is not None and waits and found.code is Code.SUCCESS
        self._deferrals.waits(unit, for_room=for_room)
        due = put_off.until.get(unit)
        if attempt.code is not Code.SUCCESS and waits and due is not None:
            self._state.queue.remind(unit, due)
        elif attempt.code is Code.SUCCESS or attempt.plan is not None:
            self._deferrals.forget(unit)
        elif unit in put_off.among:
            # They do not help any more: the next attempt is as always.
            self._deferrals.forget(unit)
            self._state.queue.activate((unit.group or unit.pods[0],), clock)

    def _commit(self, decided: Decided, snapshot: Snapshot, doubtful: bool) -> bool:
        attempt, unit = decided.attempt, decided.unit
        now = self._context.clock.monotonic()
        if attempt is None:
            self._waiting.failed(unit)
            log.error("deciding about %s failed", unit.name, exc_info=decided.failure)
            self._state.queue.done(unit, Outcome.ERROR, now)
            return True
        acts = attempt.plan is not None or any(member.bind for member in attempt.members)
        if acts and doubtful:
            current = self._state.cluster.snapshot()
            seconds = self._context.clock.wall() // SECOND
            overdue = self._state.overdue
            if not still_holds(current, self._context.policy, attempt, seconds, overdue):
                self._context.scheduler_metrics.stale_plans.inc()
                self._state.queue.done(unit, Outcome.AGAIN, now)
                return False
        self._waiting.decided(attempt)
        if decided.sample is not None:
            self._waiting.sampled(unit, decided.sample)
        rows = {uid: row for uid in unit.pods if (row := self._state.pod(uid)) is not None}
        if attempt.gang is not None:
            self._gang_carry_out.commit(attempt, attempt.gang, rows, snapshot, decided.took)
            self._carry_out.all(reminders(attempt), snapshot)
            return True
        effects = effects_of(attempt, self._facts(decided, rows, snapshot))
        self._carry_out.all(effects, snapshot)
        return True

    def _facts(self, decided: Decided, rows: Mapping[Uid, PodRow], snapshot: Snapshot) -> Facts:
        attempt, policy = decided.attempt, self._context.policy
        assert attempt is not None
        keys = {attempt.unit.group, *(part.key for part in attempt.parts)}
        return Facts(
            rows=rows,
            groups={key: row for key in keys if (row := self._state.group(key)) is not None},
            snapshot=snapshot,
            condition_type=self._condition_type(),
            took=decided.took,
            record=decided.record,
            kep_messages=policy.kep_messages,
            async_preemption=policy.gates.async_preemption,
            loop=self._loop_of(attempt.unit),
        )
