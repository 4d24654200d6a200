"""The scheduling cycle: pop, decide in the solver thread, commit on the event loop.

A slice makes a snapshot and decides as many units as fit into its time; each decision assumes those
before it. On the loop a decision is compared with what has happened meanwhile: one that no longer
holds is dropped and decided again. Source: the design's "How data flows" and "Processes and time".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.placement.reasons import Code
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.scheduling.nodes.leaving import Delayed, left_out
from reprieve.engine.scheduling.nodes.nominations import Saving
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.pod_preemption import preempt_for_pod
from reprieve.engine.scheduling.proofs.commit import still_holds
from reprieve.engine.scheduling.queueing.queue import Outcome
from reprieve.planes.common.joint import Joint
from reprieve.planes.common.loop import DecisionLoop, Pace
from reprieve.planes.common.solve import TookTooLong
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.cycle.carry_out import CarryOut
from reprieve.planes.scheduling.cycle.delays import Delays
from reprieve.planes.scheduling.cycle.effects import Facts, effects_of
from reprieve.planes.scheduling.cycle.futile import Futile, Stand, fits_without_victims, lacks
from reprieve.planes.scheduling.cycle.joint_side import Deferrals
from reprieve.planes.scheduling.cycle.plugin_times import measured, measured_preemption
from reprieve.planes.scheduling.cycle.slices import Decided, decide
from reprieve.planes.scheduling.gangs.carry_out import GangCarryOut
from reprieve.planes.scheduling.gangs.plane import GangPlane
from reprieve.planes.scheduling.set_aside import SetAside
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.waiting import Waiting
from reprieve.units.ids import Uid

__all__ = ["Decisions"]

_PACE: Final = Pace(held_back=SECOND // 10)
_BATCH: Final = 64
_MOST_GLANCED: Final = 10_000
_PASSED_OVER: Final = 256  # in one turn of the loop
_MOST_TRIED_ALONE: Final = 1_000


class Decisions:
    """Decides for all that the queue has ready.

    `held_back` states why nothing may be decided now, `holds` who is held from whom,
    `loop_of` in which loop of displacements a unit is, in words, `refuses` whether harm budgets do
    not allow a plan, `saving` the plans whose victims save.
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
        refuses: Callable[[Unit, Plan | None], bool] = lambda unit, plan: False,
        deferrals: Deferrals | None = None,
        delays: Delays | None = None,
        saving: Callable[[], Sequence[Saving]] = tuple,
    ) -> None:
        self._saving = saving
        self._deferrals = deferrals or Deferrals(Joint(), context.clock)
        self._delays = delays or Delays(context, state)
        self._holds = holds
        self._loop_of = loop_of
        self._refuses = refuses
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
        self._futile = Futile(context, state)
        self._glanced: set[str] = set()  # names of units that were glanced at, or gave way to it
        self._tried_alone: set[str] = set()  # names of units of which one was in a fault
        self._at_once: set[str] = set()  # names of units that fit, whose backoff was ended for it

    async def _decide(self) -> None:
        """Decide about what is ready, and request the next turn."""
        clock, queue = self._context.clock, self._state.queue
        queue.flush(clock.monotonic())
        units, more = self._next_units()
        if not units and not more:
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

    def _next_units(self) -> tuple[list[Unit], bool]:
        """Return the units to decide about next, and whether to request more at once.

        One that was in a fault is decided about alone.
        """
        queue, clock = self._state.queue, self._context.clock
        units: list[Unit] = []
        passed = 0
        while len(units) < _BATCH:
            if passed >= _PASSED_OVER:
                return units, True
            unit = queue.pop(clock.monotonic())
            if unit is None:
                break
            suspects = self._context.decision_limit.suspects
            ended = suspects.pop_delay(Plane.SCHEDULING, unit.name)
            if ended is not None:
                self._aside.add_ended(unit, ended)
            if self._aside.waits(unit) or self._unrecorded.waits(unit):
                queue.give_up(unit, clock.monotonic())
                continue
            rejected_on = queue.rejected_on(unit)
            if rejected_on is not None and rejected_on == self._futile.stand(unit):
                queue.pass_over(unit, clock.monotonic())
                passed += 1
                continue
            if unit.name in self._tried_alone:
                if units:
                    queue.restore(unit, clock.monotonic())
                    break
                return [unit], False
            units.append(unit)
        return units, False

    def _restore(self, units: Iterable[Unit]) -> None:
        for unit in units:
            self._state.queue.restore(unit, self._context.clock.monotonic())

    def _glances(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the first unit of each other namespace among the equals of the first one.

        No unit yields to others twice, and none is glanced at twice before its own turn.
        """
        priority, space = self._state.queue.among(units[0])
        if units[0].name in self._glanced:
            return []
        found: dict[str, Unit] = {}
        for unit in units[1:]:
            theirs, other = self._state.queue.among(unit)
            if theirs == priority and other != space and other not in found:
                found[other] = unit
        wanted = [unit for unit in found.values() if unit.name not in self._glanced]
        if wanted:
            if len(self._glanced) > _MOST_GLANCED:
                self._glanced.clear()
            self._glanced.update(unit.name for unit in (units[0], *wanted))
        return wanted

    def _after_fault(self, units: list[Unit]) -> None:
        """Give up a unit that was alone in the fault; of several try each alone."""
        if len(units) == 1:
            log.error("deciding about %s failed", self._state.called(units[0]))
            self._state.queue.give_up(units[0], self._context.clock.monotonic())
            return
        log.error("the decision about %d units failed, each is retried alone", len(units))
        if len(self._tried_alone) > _MOST_TRIED_ALONE:
            self._tried_alone.clear()
        self._tried_alone.update(unit.name for unit in units)
        self._restore(units)

    def _set_aside(self, units: list[Unit], failure: Exception) -> bool:
        """Set aside the unit that exceeded its time; return whether it was that, and one of these.

        The others are decided about again, since their answers are lost.
        """
        if not isinstance(failure, TookTooLong):
            return False
        slow = next((unit for unit in units if unit.name == failure.what), None)
        if slow is None:
            return False
        self._restore(unit for unit in units if unit is not slow)
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
        helped = self._state.cluster.progress.helped
        deferred = self._delays.added(self._deferrals.of(units), units)
        deferred = replace(deferred, saving=self._saving())
        stands = {unit: stand for unit in units if (stand := self._futile.stand(unit)) is not None}
        units = self._answered(units, stands, snapshot, deferred)
        if not units:
            return
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
            deferred,
            self._glances(units),
        )
        self._restore(left)
        doubtful = self._state.disturbed != disturbed
        for each in decided:
            self._tried_alone.discard(each.unit.name)
            self._glanced.discard(each.unit.name)
            self._aside.forget(each.unit)
            try:
                held = self._commit(each, snapshot, doubtful, deferred)
            except Exception:
                # A fault of ours in one unit is an error of that unit, and of no other work's.
                called = self._state.called(each.unit)
                log.exception("the decision about %s was not carried out", called)
                self._state.queue.give_up(each.unit, self._context.clock.monotonic())
                held = False
            # Those after it were decided with it in place.
            doubtful = doubtful or not held
            self._after(each, deferred)
            self._state.queue.tried_on(each.unit, helped if lacks(each.attempt) else None)
            if held:
                self._keep(each, stands.get(each.unit), deferred)

    def _answered(
        self,
        units: list[Unit],
        stands: Mapping[Unit, Stand],
        snapshot: Snapshot,
        deferred: Delayed,
    ) -> list[Unit]:
        """Reject those at the front whose shape was rejected on this stand; return the others."""
        for number, unit in enumerate(units):
            stand = stands.get(unit)
            known = None if stand is None else self._futile.answer(unit, stand)
            if known is None or deferred.concerns(unit):
                return units[number:]
            each = Decided(unit, known, 0)
            self._commit(each, snapshot, False, deferred)
            self._after(each, deferred)
            self._state.queue.tried_on(unit, self._state.cluster.progress.helped)
            self._keep(each, stand, deferred)
        return []

    def _keep(self, decided: Decided, stand: Stand | None, deferred: Delayed) -> None:
        """Keep what a unit was rejected on, if it is no use to try it again on that."""
        attempt = decided.attempt
        if stand is None or attempt is None:
            return
        if self._futile.rejected(stand, attempt, deferred):
            self._state.queue.note(decided.unit, stand)

    def _after(self, decided: Decided, deferred: Delayed) -> None:
        """Try a unit that was delayed again when that ends; forget others."""
        unit, attempt, clock = decided.unit, decided.attempt, self._context.clock.monotonic()
        if attempt is None:
            return
        self._try_at_once(attempt)
        found = attempt.preemption
        waits = found is None or not found.evaluated
        for_room = found is not None and waits and found.code is Code.SUCCESS
        self._deferrals.waits(unit, for_room=for_room)
        due = deferred.until.get(unit)
        if attempt.code is not Code.SUCCESS and waits and due is not None:
            self._state.queue.remind(unit, due)
        elif attempt.code is Code.SUCCESS or attempt.plan is not None:
            self._deferrals.forget(unit)
        elif unit in deferred.among:
            # They do not help any more: the next attempt is as always.
            self._deferrals.forget(unit)
            self._state.queue.activate((unit.group or unit.pods[0],), clock)

    def _try_at_once(self, attempt: Attempt) -> None:
        """End the backoff of a unit whose preemption found nodes for it and evicts nothing.

        It is bound on the nodes that it is nominated to. Once for each backoff: an attempt that was
        made at once waits for the next one, however it ends.
        """
        unit = attempt.unit
        if not fits_without_victims(attempt) or unit.name in self._at_once:
            self._at_once.discard(unit.name)
            return
        self._at_once.add(unit.name)
        now = self._context.clock.monotonic()
        self._state.queue.activate((unit.group or unit.pods[0],), now)

    def _commit(
        self, decided: Decided, snapshot: Snapshot, doubtful: bool, deferred: Delayed
    ) -> bool:
        attempt, unit = decided.attempt, decided.unit
        now = self._context.clock.monotonic()
        if attempt is None:
            self._waiting.failed(unit)
            called = self._state.called(unit)
            log.error("deciding about %s failed", called, exc_info=decided.failure)
            self._state.queue.done(unit, Outcome.ERROR, now)
            return True
        acts = attempt.plan is not None or any(member.bind for member in attempt.members)
        if acts and doubtful:
            gone = deferred.without.get(unit, ()) if attempt.plan is not None else ()
            current = left_out(self._state.cluster.snapshot(), gone)
            seconds = self._context.clock.wall() // SECOND
            overdue = self._state.overdue
            if not still_holds(current, self._context.policy, attempt, seconds, overdue):
                self._context.scheduler_metrics.stale_plans.inc()
                self._state.queue.done(unit, Outcome.AGAIN, now)
                return False
        if self._refuses(unit, attempt.plan):
            self._state.queue.done(unit, Outcome.AGAIN, now)
            return False
        self._waiting.decided(attempt)
        if decided.sample is not None:
            self._waiting.sampled(unit, decided.sample)
        rows = {uid: row for uid in unit.pods if (row := self._state.pod(uid)) is not None}
        if attempt.gang is not None:
            self._gang_carry_out.commit(attempt, attempt.gang, rows, snapshot, decided.took)
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
