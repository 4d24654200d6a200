"""Victim selection for the idle plane: decide, check, commit.

1. What is open already is carried on first (`open_intents`).
2. A snapshot is decided in the solver thread. Only when that gives a plan is the Lease
   `gpu-preemption-eval` acquired, the newest snapshot decided again, and each plan checked against
   its proof and committed; a plan that fails its check is never executed.
3. Marks are written while the Lease is held, roots are evicted after it is released.

Nothing is decided while the fence is closed, a required watch fails or the event loop lags. Source:
specification of the idle plane, section 14; the design's "How data flows".
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import (
    Preemption,
)
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import IdleSnapshot
from reprieve.engine.idle.outcome import Evaluation
from reprieve.engine.mixed import BY_PRIORITY
from reprieve.engine.plan import Plan, Plane
from reprieve.execution.records.book import Book
from reprieve.planes.common.loop import DecisionLoop, HeldBack, Pace
from reprieve.planes.common.solve import NotedPace, Solver, TookTooLong
from reprieve.planes.common.suspects import Ended
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.evaluating.carry_out import CarryOut
from reprieve.planes.idle.evaluating.displacements import IdleDisplacements
from reprieve.planes.idle.evaluating.effects import Begin, Refuse, answers_of, plans_of
from reprieve.planes.idle.evaluating.evaluation_lease import evaluation_lease
from reprieve.planes.idle.evaluating.open_intents import OpenIntents
from reprieve.planes.idle.evaluating.root_answers import RootAnswers
from reprieve.planes.idle.evaluating.set_aside import SetAside
from reprieve.planes.idle.joint.joint_side import JointSide
from reprieve.planes.idle.workloads import TrackedWorkloads
from reprieve.records.idle.record import encode
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.wording.kaiwo import (
    decision_failed,
    decision_stopped,
    took_too_long,
)

__all__ = ["Evaluator"]

_RETRY: Final = SECOND
_REMEMBERED: Final = 1_000
_ROUNDS: Final = 10  # how often it is decided again without plans that are refused
_PACE: Final = Pace(held_back=SECOND, logged_at=logging.WARNING, gather=SECOND // 10)


class Evaluator:
    """Runs evaluations one at a time, on request and when time alone may change the answer.

    `snapshot` gives the engine's view with the claims handed in; `intents` all Preemptions of the
    plane; `roots` what is known of roots; `held_back` why nothing may be decided now; `noted` is
    called with each evaluation, `displacements` with each plan; `holds_quota`: whether a root, by
    uid, has reserved quota.
    """

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        book: Book,
        *,
        snapshot: Callable[[Mapping[Uid, GpuWorkloadKey | None]], IdleSnapshot],
        intents: Callable[[], Sequence[Preemption]],
        roots: RootAnswers,
        changed: Callable[[GpuWorkloadKey], None],
        held_back: Callable[[], str],
        noted: Callable[[IdleSnapshot, Evaluation, Nanos], None],
        displacements: IdleDisplacements,
        side: Callable[[], JointSide],
        holds_quota: Callable[[str], bool],
    ) -> None:
        self._side = side
        #: How many nanoseconds the last evaluation lasted.
        self.took = 0
        # Ids of plans that were not confirmed, oldest first, and of those whose victims others get.
        self._refused: dict[str, None] = {}
        self._let_go: set[str] = set()
        self._noted = noted
        self._context = context
        self._book = book
        self._snapshot = snapshot
        self._loop = DecisionLoop(
            Plane.IDLE,
            context.clock,
            context.decision_limit,
            log,
            _PACE,
            decide=self._once,
            held_back=held_back,
            before=self._carry_on,
        )
        self.open_intents = OpenIntents(
            context,
            workloads,
            book,
            intents=intents,
            roots=roots,
            changed=changed,
            again=self.ask_at,
            displacements=displacements,
            keep=lambda spec: side().keep(spec),
            evicted=lambda spec: side().evicted(spec),
        )
        self._carry_out = CarryOut(
            context,
            book,
            self.open_intents,
            displacements,
            action_of=roots.action_of,
            again=self.ask_at,
            placed=lambda plan: side().places(plan),
            returning=lambda plan: side().returning(plan, context.governor),
            holds_quota=holds_quota,
        )
        self._aside = SetAside()

    @property
    def solver(self) -> Solver:
        """The thread in which is decided."""
        return self._loop.solver

    def ask(self) -> None:
        """Request an evaluation now."""
        self._loop.ask()

    def ask_at(self, wall: Nanos) -> None:
        """Request an evaluation at a wall instant."""
        self._loop.ask_at(wall)

    async def run(self) -> None:
        """Evaluate until cancelled.

        Raises:
            Deposed: the process lease is lost.
        """
        try:
            await self._loop.run()
        finally:
            self.open_intents.stop()

    async def _carry_on(self) -> None:
        """Carry on what is open, also while nothing new may be decided."""
        context = self._context
        if not context.read_only and not context.dry_run and context.fence.open:
            await self.open_intents.reconcile()
        elif context.read_only:
            self.open_intents.notices.inherited(Plane.IDLE)  # this plane notifies no unit

    async def _once(self) -> None:
        context = self._context
        now = context.clock.wall()
        snapshot, evaluation = await self._decide(now)
        policy = context.start.policy
        self._carry_out.answers(tuple(answers_of(evaluation, policy)))
        self._noted(snapshot, evaluation, now)
        if not evaluation.plans or context.dry_run:
            self._side().evaluated(snapshot, evaluation)
        if not evaluation.plans:
            return
        if context.dry_run:
            await self._carry_out.record_only(
                tuple(plans_of(evaluation, snapshot, policy, now)),
                lambda plans: self._recorded(snapshot, now, plans),
            )
            return
        namespace, holder = self._book.namespace, context.fence.identity
        async with evaluation_lease(context.client, namespace, holder, context.clock) as held:
            if not held:
                self._side().evaluated(snapshot, evaluation)
                self.ask_at(Nanos(context.clock.wall() + _RETRY))
                return
            # Waiting for the Lease may have changed the world: decide on the newest snapshot.
            snapshot, now, effects = await self._confirmed()
            decided_on = await self._recorded(snapshot, now, len(effects))
            begun = await self._carry_out.begin(effects, decided_on)
        self._carry_out.go_on(begun)
        for effect in effects:
            if isinstance(effect, Begin):
                self._side().begun(effect.plan, snapshot)
                gap = effect.plan.proof.gap
                if gap is not None:
                    context.metrics.preemption_gap.labels(Plane.IDLE.value).observe(gap / 100)

    async def _confirmed(self) -> tuple[IdleSnapshot, Nanos, list[Refuse | Begin]]:
        """Decide, and leave out the plans that the scheduling plane does not confirm, for a while.

        Their victims may help later demands, so it is decided again without them.
        """
        answers: dict[str, str] = {}
        now = self._context.clock.wall()
        for left in reversed(range(_ROUNDS)):
            snapshot = self._newest()
            now = self._context.clock.wall()
            snapshot, evaluation = await self._evaluate(snapshot, now)
            policy = self._context.start.policy
            effects = tuple(plans_of(evaluation, snapshot, policy, now))
            rows = {row.key: row for row in snapshot.workloads}
            again = False
            for plan in (each.plan for each in effects if isinstance(each, Begin)):
                if plan.id not in answers:
                    answers[plan.id] = await self._side().refusal(plan, rows)
                    again |= self._note_answer(plan, answers[plan.id])
            if not (again and left):
                break
        self._side().evaluated(snapshot, evaluation)
        refused = [each for each in effects if answers.get(each.plan.id)]
        for each in refused:
            self._side().refused(each.plan, snapshot)
        return snapshot, now, [each for each in effects if each not in refused]

    def _note_answer(self, plan: Plan, why: str) -> bool:
        """Hold a plan that is refused; whether others may have its victims."""
        if not why:
            return False
        level = logging.DEBUG if plan.id in self._refused else logging.INFO
        log.log(level, "plan %s is not carried out: %s", plan.id, why)
        self._refused[plan.id] = None
        while len(self._refused) > _REMEMBERED:
            del self._refused[next(iter(self._refused))]
        self._carry_out.hold(plan)
        if why in BY_PRIORITY:
            return False
        self._let_go.add(plan.id)
        return True

    def _newest(self) -> IdleSnapshot:
        """Return the world as it is now; plans that were refused a moment ago are not made."""
        snapshot = self._snapshot(self.open_intents.claims())
        if self._let_go:
            self._let_go = set(self._carry_out.still_held(self._let_go))
        return replace(snapshot, refused=frozenset(self._let_go)) if self._let_go else snapshot

    async def _decide(self, now: Nanos) -> tuple[IdleSnapshot, Evaluation]:
        context = self._context
        began = context.clock.monotonic()
        try:
            snapshot = self._newest()
            with context.metrics.evaluation_seconds.labels(Plane.IDLE.value).time():
                return await self._evaluate(snapshot, now)
        finally:
            self.took = context.clock.monotonic() - began

    async def _evaluate(
        self, snapshot: IdleSnapshot, now: Nanos
    ) -> tuple[IdleSnapshot, Evaluation]:
        """Return the evaluation with what other planes name, and what it was decided on."""
        found = await self._evaluate_once(snapshot, now)
        named = await self._side().with_named(*found, now)
        return found if named is None else await self._evaluate_once(named, now)

    async def _evaluate_once(
        self, snapshot: IdleSnapshot, now: Nanos
    ) -> tuple[IdleSnapshot, Evaluation]:
        """Return the evaluation, and the snapshot without those that it breaks on.

        Raises:
            HeldBack: an open intent is about one whose evaluation ended an earlier process.
        """
        policy = self._context.start.policy

        def evaluated(part: IdleSnapshot) -> Awaitable[Evaluation]:
            return self._loop.solver.run(evaluate, part, policy, now, NotedPace())

        self._leave_ended(snapshot, now)
        try:
            found = await self._aside.evaluate(evaluated, snapshot, now)
        except Ended as waits:
            about = f"an open preemption is about {waits.what}: {waits}"
            raise HeldBack(about) from None
        for each in found.odd:
            if isinstance(found.fault, TookTooLong):
                log.error("%s is excluded from the evaluation: %s", each.key, found.fault)
                stopped = self._context.metrics.decisions_stopped
                stopped.labels(Plane.IDLE.value, "left" if found.fault.left else "stopped").inc()
                text = took_too_long(found.fault.seconds)
            else:
                log.error("%s is excluded from the evaluation", each.key, exc_info=found.fault)
                text = decision_failed()
            self._context.announce(each.ref, text)
        later = self._aside.next_try(now)
        if later is not None:
            self.ask_at(later)
        return found.snapshot, found.evaluation

    def _leave_ended(self, snapshot: IdleSnapshot, now: Nanos) -> None:
        """Set aside whose evaluation ended an earlier process."""
        suspects = self._context.decision_limit.suspects
        for each in snapshot.workloads:
            until = suspects.pop_delay(Plane.IDLE, each.key)
            if until is not None:
                ended = Ended(each.key, (until - self._context.clock.monotonic()) // SECOND + 1)
                log.error("%s; it is retried when it changes, too", ended)
                self._aside.hold(each, Nanos(now + ended.pause * SECOND), ended)
                self._context.announce(each.ref, decision_stopped(str(ended)))

    async def _recorded(self, snapshot: IdleSnapshot, now: Nanos, plans: int) -> dict[str, Any]:
        """Return what the records of a run hold of the snapshot that it was decided on."""
        return await self._loop.solver.run(encode, snapshot, self._context.start.policy, now, plans)
