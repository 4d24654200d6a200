"""Who makes way for whom: decide, check, commit.

1. What is open already is carried on first (`open_intents`).
2. A snapshot is decided in the solver thread. Only when that gives a plan is the Lease
   `gpu-preemption-eval` taken, the newest snapshot decided again, and each plan checked against its
   proof and committed; a plan that fails its check is never executed.
3. Marks are written while the Lease is held, roots are evicted after it is released.

Nothing is decided while the fence is closed, a required watch fails or the event loop lags. Source:
specification of the idle plane, section 14; the design's "How data flows".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from reprieve.api.reprieve import (
    Action,
    Preemption,
)
from reprieve.engine.check import check
from reprieve.engine.idle.claims import before_each
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import Fit, IdleSnapshot
from reprieve.engine.idle.outcome import Evaluation
from reprieve.engine.plan import Plan, Plane, Ref
from reprieve.engine.quota.faults import Faults
from reprieve.execution.book import Book
from reprieve.execution.carried import Carried
from reprieve.execution.fence import Deposed
from reprieve.execution.intents import IntentTaken
from reprieve.kube.errors import ApiError, Conflict
from reprieve.planes.common.dirty import DirtyKeys
from reprieve.planes.common.solve import NotedPace, Solver, TookTooLong
from reprieve.planes.common.suspects import Ended
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.displacements import IdleDisplacements
from reprieve.planes.idle.evaluation_lease import evaluation_lease
from reprieve.planes.idle.open_intents import OpenIntents
from reprieve.planes.idle.set_aside import SetAside
from reprieve.planes.idle.workloads import TrackedWorkloads
from reprieve.telemetry.displacements import stored
from reprieve.telemetry.record import encode
from reprieve.units.durations import SECOND
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.instants import Nanos
from reprieve.wording.events import EventText
from reprieve.wording.kaiwo import (
    decision_failed,
    decision_stopped,
    declined_text,
    not_served,
    preemption_not_recorded,
    took_too_long,
    with_reasons,
)

__all__ = ["Evaluator"]

_EVALUATION: Final = "evaluation"
_RETRY: Final = SECOND
_COALESCE: Final = SECOND // 10
_FAULT_PAUSE: Final = 30 * SECOND
_LONGEST_PAUSE: Final = 30 * SECOND


class Evaluator:
    """Runs evaluations one at a time, whenever asked and when time alone may change the answer.

    `snapshot` gives the engine's view with the claims handed in; `intents` all Preemptions of the
    plane; `pods_left` whether pods of a root still exist; `lost_with` what work is lost with it;
    `action_of` what a root's owner wants to happen to it; `held_back` why nothing may be decided
    now; `noted` is told of each evaluation, `displacements` of each plan.
    """

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        book: Book,
        solver: Solver,
        *,
        snapshot: Callable[[Mapping[Uid, GpuWorkloadKey | None]], IdleSnapshot],
        intents: Callable[[], Sequence[Preemption]],
        pods_left: Callable[[Ref], bool],
        lost_with: Callable[[Ref], int],
        action_of: Callable[[Ref], Action],
        changed: Callable[[GpuWorkloadKey], None],
        held_back: Callable[[], str],
        noted: Callable[[IdleSnapshot, Evaluation, Nanos], None],
        displacements: IdleDisplacements,
    ) -> None:
        self._displacements = displacements
        self._held_back = held_back
        self._noted = noted
        self._context = context
        self._book = book
        self._solver = solver
        self._snapshot = snapshot
        self._action_of = action_of
        self._due: DirtyKeys[str] = DirtyKeys(context.clock)
        self.open_intents = OpenIntents(
            context,
            workloads,
            book,
            intents=intents,
            pods_left=pods_left,
            lost_with=lost_with,
            action_of=action_of,
            changed=changed,
            again=self.ask_at,
            displacements=displacements,
        )
        # By plan id: until when (monotonic) a plan that was abandoned is held, and the pause.
        self._held: dict[str, tuple[int, int]] = {}
        self._unrecorded = Faults()  # plans by id, in wall time
        self._aside = SetAside()
        self._said_back = ""  # why nothing is decided, as last logged

    def ask(self) -> None:
        """Ask for an evaluation now."""
        self._due.add(_EVALUATION)

    def ask_at(self, wall: Nanos) -> None:
        """Ask for an evaluation at a wall instant."""
        self._due.add_at(_EVALUATION, wall)

    async def run(self) -> None:
        """Evaluate until cancelled.

        Raises:
            Deposed: the process lease is lost.
        """
        try:
            while True:
                await self._due.next()
                # What comes in the next moment is decided on together.
                await self._context.clock.sleep(_COALESCE)
                try:
                    await self._once()
                except Deposed:
                    raise
                except Ended as waits:
                    self._hold_back(f"an open preemption is about {waits.what}: {waits}", _RETRY)
                except ApiError as failure:
                    log.warning("evaluation put off: %s", failure)
                    self.ask_at(Nanos(self._context.clock.wall() + _RETRY))
                except Exception:
                    log.exception("evaluation put off after a fault of ours")
                    self.ask_at(Nanos(self._context.clock.wall() + _FAULT_PAUSE))
        finally:
            self.open_intents.stop()

    async def _once(self) -> None:
        context = self._context
        if context.read_only:
            return
        if not context.dry_run:
            if not context.fence.open:
                self.ask_at(Nanos(context.clock.wall() + _RETRY))
                return
            await self.open_intents.look()
        held_back = self._held_back()
        if held_back:
            self._hold_back(held_back, _RETRY)
            return
        now = context.clock.wall()
        snapshot, evaluation = await self._decide(now)
        if self._said_back:
            self._said_back = ""
            log.info("decisions go on")
        self._note(evaluation)
        self._noted(snapshot, evaluation, now)
        if not evaluation.plans:
            return
        if context.dry_run:
            await self._record_dry_run(evaluation.plans, snapshot, now)
            return
        namespace, holder = self._book.namespace, context.fence.identity
        async with evaluation_lease(context.client, namespace, holder, context.clock) as held:
            if not held:
                self.ask_at(Nanos(context.clock.wall() + _RETRY))
                return
            # Waiting for the Lease may have changed the world: decide on the newest snapshot.
            snapshot = self._snapshot(self.open_intents.claims())
            now = context.clock.wall()
            snapshot, evaluation = await self._evaluate(snapshot, now)
            decided_on = await self._recorded(snapshot, now, len(evaluation.plans))
            begun = await asyncio.gather(
                *(
                    self._begin(plan, seen, now, decided_on)
                    for plan, seen in before_each(
                        evaluation.plans, snapshot, evaluation.reservations
                    )
                    if not self._holds(plan)
                ),
                return_exceptions=True,
            )
        for ready in begun:
            if isinstance(ready, Carried):
                self.open_intents.carry(ready)
        for failure in begun:
            # Only now: what the others have begun has to be carried through.
            if isinstance(failure, BaseException):
                raise failure

    def _hold_back(self, why: str, pause: int) -> None:
        """Say once why nothing is decided, and look again after a pause."""
        if why != self._said_back:
            self._said_back = why
            log.warning("nothing is decided: %s", why)
        self.ask_at(Nanos(self._context.clock.wall() + pause))

    async def _decide(self, now: Nanos) -> tuple[IdleSnapshot, Evaluation]:
        context = self._context
        snapshot = self._snapshot(self.open_intents.claims())
        with context.metrics.evaluation_seconds.labels(Plane.IDLE.value).time():
            return await self._evaluate(snapshot, now)

    async def _evaluate(
        self, snapshot: IdleSnapshot, now: Nanos
    ) -> tuple[IdleSnapshot, Evaluation]:
        """Return the evaluation, and the snapshot without those that it breaks on."""
        policy = self._context.start.policy

        def evaluated(part: IdleSnapshot) -> Awaitable[Evaluation]:
            return self._solver.run(evaluate, part, policy, now, NotedPace())

        self._leave_ended(snapshot, now)
        found = await self._aside.evaluate(evaluated, snapshot, now)
        for each in found.odd:
            if isinstance(found.fault, TookTooLong):
                log.error("%s is left out of the evaluation: %s", each.key, found.fault)
                stopped = self._context.metrics.decisions_stopped
                stopped.labels(Plane.IDLE.value, "left" if found.fault.left else "stopped").inc()
                text = took_too_long(found.fault.seconds)
            else:
                log.error("%s is left out of the evaluation", each.key, exc_info=found.fault)
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
            until = suspects.taken(Plane.IDLE, each.key)
            if until is not None:
                ended = Ended(each.key, (until - self._context.clock.monotonic()) // SECOND + 1)
                log.error("%s; it is tried again when it changes, too", ended)
                self._aside.put(each, Nanos(now + ended.pause * SECOND), ended)
                self._context.announce(each.ref, decision_stopped(str(ended)))

    async def _recorded(self, snapshot: IdleSnapshot, now: Nanos, plans: int) -> dict[str, Any]:
        """Return what the records of a run hold of the snapshot that it was decided on."""
        return await self._solver.run(encode, snapshot, self._context.start.policy, now, plans)

    def _note(self, evaluation: Evaluation) -> None:
        for declined in evaluation.declined:
            self._context.metrics.declined.labels(Plane.IDLE.value, declined.reason.value).inc()
            log.debug("%s: %s", declined.subject.name, declined_text(declined))
            by_sum = self._context.start.policy.fit is Fit.SUM
            told = not_served(declined, by_sum=by_sum)
            if told is not None:
                self._tell(declined.subject, told)
        if evaluation.next_due is not None:
            self.ask_at(evaluation.next_due)

    def _tell(self, subject: Ref, text: EventText) -> None:
        self._context.say_once(
            f"{subject.uid}/{text.message}", lambda: self._context.announce(subject, text)
        )

    async def _begin(
        self, plan: Plan, snapshot: IdleSnapshot, now: Nanos, decided_on: dict[str, Any]
    ) -> Carried[None] | None:
        context = self._context
        violations = check(plan, snapshot, context.start.policy, now)
        if violations:
            log.error("plan %s is not executed: %s", plan.id, "; ".join(map(str, violations)))
            context.metrics.count_plan(plan.id, plan.plane, "refused")
            return None
        plan = with_reasons(plan, snapshot.workloads, now)
        log.info("plan %s: %s", plan.id, _summary(plan))
        issued = self._displacements.issue(plan)
        try:
            intent = await self._book.write(
                plan,
                actions=self._actions(plan),
                decision_input={**decided_on, **stored(issued.displacements)},
                at_stake=self.open_intents.at_stake(plan),
            )
        except (IntentTaken, Conflict) as stale:
            self._displacements.told.take_back(issued)
            log.info("plan %s is stale: %s", plan.id, stale)
            self.ask_at(Nanos(context.clock.wall() + _RETRY))
            return None
        except ApiError as failure:
            self._displacements.told.take_back(issued)
            self._tell_unrecorded(plan, failure)
            return None
        self._displacements.told.recorded(intent.metadata.name, issued)
        self._unrecorded.forget(plan.id)
        begun = await self.open_intents.begin(plan, intent)
        if begun.abandoned or begun.stalled:
            context.metrics.count_plan(plan.id, plan.plane, "abandoned")
            self._hold(plan)
            return None
        self._held.pop(plan.id, None)
        context.metrics.count_plan(plan.id, plan.plane, "committed")
        return begun

    def _tell_unrecorded(self, plan: Plan, failure: ApiError) -> None:
        """Hold a plan that could not be written down, and tell whom it was for."""
        log.error("plan %s cannot be recorded: %s", plan.id, failure)
        self._context.metrics.unrecorded.labels(plan.plane).inc()
        clock = self._context.clock
        until = self._unrecorded.add(plan.id, clock.wall())
        self.ask_at(until)
        if plan.preemptor is not None:
            pause = (until - clock.wall()) // SECOND
            text = preemption_not_recorded(str(failure), pause)
            self._context.announce(plan.preemptor, text, plan.id)

    def _hold(self, plan: Plan) -> None:
        """Keep a plan that came to nothing from being tried again at once."""
        clock = self._context.clock
        _, pause = self._held.get(plan.id, (0, _RETRY // 2))
        pause = min(2 * pause, _LONGEST_PAUSE)
        self._held[plan.id] = (clock.monotonic() + pause, pause)
        self.ask_at(Nanos(clock.wall() + pause))

    def _holds(self, plan: Plan) -> bool:
        until, _ = self._held.get(plan.id, (0, 0))
        clock = self._context.clock
        return clock.monotonic() < until or self._unrecorded.waits(plan.id, clock.wall())

    def _actions(self, plan: Plan) -> list[Action]:
        return [self._action_of(victim.root) for victim in plan.victims]

    async def _record_dry_run(
        self, plans: Sequence[Plan], snapshot: IdleSnapshot, now: Nanos
    ) -> None:
        new = [plan for plan in plans if not self._book.noted(plan)]
        if not new:
            return
        decided_on = await self._recorded(snapshot, now, len(new))
        for plan in new:
            worded = with_reasons(plan, snapshot.workloads, now)
            log.info("dry run, plan %s: %s", plan.id, _summary(plan))
            await self._book.note(worded, actions=self._actions(plan), decision_input=decided_on)


def _summary(plan: Plan) -> str:
    victims = ", ".join(f"{v.subject.namespace}/{v.subject.name}" for v in plan.victims)
    whom = f"{plan.preemptor.namespace}/{plan.preemptor.name}" if plan.preemptor else "nobody"
    return f"{victims} for {whom} (proof {plan.proof.level})"
