"""The one place that carries out effects of evaluations, in their order.

A plan that came to nothing is held for a while, longer each time; so is one that could not be
recorded, which is reported to its demand. Source: specification of the idle plane, section 14.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, assert_never

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import Action
from reprieve.engine.demands import Beside
from reprieve.engine.disruptions.lineage import Participant
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.quota.waiting.faults import Faults
from reprieve.execution.carried import Carried
from reprieve.execution.notices import is_notified
from reprieve.execution.records.book import Book
from reprieve.execution.records.intents import IntentExists
from reprieve.kube.errors import ApiError, Conflict
from reprieve.planes.common.disruptions.displacements import Issued
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.evaluating.displacements import IdleDisplacements
from reprieve.planes.idle.evaluating.effects import (
    Begin,
    CountDeclined,
    Effect,
    EvaluateAt,
    Log,
    Refuse,
    TellOnce,
)
from reprieve.planes.idle.evaluating.open_intents import OpenIntents
from reprieve.planes.idle.joint.mixtures import is_mixed
from reprieve.records.displacements import stored
from reprieve.records.harm import stored_harm
from reprieve.units.references import Reference
from reprieve.wording.kaiwo import preemption_not_recorded
from reprieve.wording.plans import plan_text

__all__ = ["CarryOut"]

_RETRY: Final = SECOND
_LONGEST_PAUSE: Final = 30 * SECOND

#: What became of one plan: it continues, it came to nothing, or a fault that is not the plan's own.
Begun = Carried[None] | BaseException | None


class CarryOut:
    """Carries out effects. `action_of` states what happens to a root; `again` evaluates then.

    `placed`: whether our scheduling plane places the demand of a plan; `returning`: as whom that
    was displaced before; `holds_quota`: whether a root, by uid, has reserved quota.
    """

    def __init__(
        self,
        context: IdleContext,
        book: Book,
        open_intents: OpenIntents,
        displacements: IdleDisplacements,
        *,
        action_of: Callable[[Reference], Action],
        again: Callable[[Nanos], None],
        placed: Callable[[Plan], bool],
        returning: Callable[[Plan], Participant | None],
        holds_quota: Callable[[str], bool],
    ) -> None:
        self._placed = placed
        self._returning = returning
        self._holds_quota = holds_quota
        self._context = context
        self._book = book
        self._open_intents = open_intents
        self._displacements = displacements
        self._action_of = action_of
        self._again = again
        # By plan id: until when (monotonic) a plan that was abandoned is held, and the pause.
        self._held: dict[str, tuple[int, int]] = {}
        self._unrecorded = Faults()  # plans by id, in wall time

    def answers(self, effects: Iterable[Effect]) -> None:
        """Carry out the effects."""
        for effect in effects:
            match effect:
                case CountDeclined(declined):
                    counter = self._context.metrics.declined
                    counter.labels(Plane.IDLE.value, declined.reason.value).inc()
                case Log(level, text):
                    log.log(level, "%s", text)
                case TellOnce():
                    self._report_once(effect)
                case EvaluateAt(at):
                    self._again(at)
                case Refuse(plan, why):
                    log.error("plan %s is not carried out: %s", plan.id, why)
                    self._context.metrics.count_plan(plan.id, plan.plane, "refused")
                case Begin():
                    raise TypeError("plans are begun together")
                case _:
                    assert_never(effect)

    def _report_once(self, reported: TellOnce) -> None:
        self._context.log_once(
            f"{reported.subject.uid}/{reported.text.message}",
            lambda: self._context.announce(reported.subject, reported.text),
        )

    async def begin(
        self, effects: Sequence[Refuse | Begin], decided_on: dict[str, Any]
    ) -> list[Begun]:
        """Record plans and mark their victims, all of them at the same time.

        For those that are held it is evaluated again when that ends: the loop knows the earliest
        instant alone, and this may be an evaluation that something else has requested.
        """
        held = [self._held_for(each.plan) for each in effects]
        if any(held):
            self._again(Nanos(self._context.clock.wall() + min(filter(None, held))))
        wanted = [each for each, left in zip(effects, held, strict=True) if not left]
        self.answers(each for each in wanted if isinstance(each, Refuse))
        return await asyncio.gather(
            *(self._begin(each.plan, decided_on) for each in wanted if isinstance(each, Begin)),
            return_exceptions=True,
        )

    def go_on(self, begun: Sequence[Begun]) -> None:
        """Evict what was marked.

        Raises:
            BaseException: what was no plan's own, once all others continue.
        """
        for ready in begun:
            if isinstance(ready, Carried):
                self._open_intents.carry(ready)
        for failure in begun:
            # Only now: what the others have begun has to be carried through.
            if isinstance(failure, BaseException):
                raise failure

    async def record_only(
        self,
        effects: Sequence[Refuse | Begin],
        decided_on: Callable[[int], Awaitable[dict[str, Any]]],
    ) -> None:
        """Write down what a dry run would have done, each plan once."""
        begins = (each.plan for each in effects if isinstance(each, Begin))
        new = [plan for plan in begins if not self._book.noted(plan)]
        if not new:
            return
        given = await decided_on(len(new))
        for plan in new:
            log.info("dry run: plan %s %s", plan.id, plan_text(plan))
            await self._book.record_dry_run(
                plan,
                actions=self._actions(plan),
                decision_input=given,
                beside=self._beside(plan),
            )

    async def _begin(self, plan: Plan, decided_on: dict[str, Any]) -> Carried[None] | None:
        context = self._context
        log.info("plan %s %s", plan.id, plan_text(plan))
        if self._displacements.refuses(plan):
            # At once: what others still allow may be enough.
            self._again(context.clock.wall())
            return None
        issued = self._displacements.issue(plan)
        try:
            intent = await self._book.write(
                plan,
                actions=self._actions(plan),
                decision_input={**decided_on, **self._kept(issued)},
                at_stake=self._open_intents.at_stake(plan),
                beside=self._beside(plan),
                notices=self._open_intents.grants(plan),
            )
        except (IntentExists, Conflict) as stale:
            self._displacements.reported.withdraw(issued)
            log.info("plan %s is stale: %s", plan.id, stale)
            self._again(Nanos(context.clock.wall() + _RETRY))
            return None
        except ApiError as failure:
            self._displacements.reported.withdraw(issued)
            self._report_unrecorded(plan, failure)
            return None
        self._displacements.reported.recorded(intent.metadata.name, issued)
        self._unrecorded.forget(plan.id)
        if is_notified(intent):
            self._open_intents.begin_noticed(plan, intent, self.hold)
            context.metrics.count_plan(plan.id, plan.plane, "committed")
            return None
        begun = await self._open_intents.begin(plan, intent)
        if begun.abandoned or begun.stalled:
            context.metrics.count_plan(plan.id, plan.plane, "abandoned")
            self.hold(plan)
            return None
        self._held.pop(plan.id, None)
        context.metrics.count_plan(plan.id, plan.plane, "committed")
        return begun

    def _kept(self, issued: Issued) -> dict[str, Any]:
        """Return what restarts need of a plan's displacements."""
        rows = issued.displacements
        found = stored(rows)
        if self._context.governor.harm:
            found |= stored_harm(issued.harms, [row.uid for row in rows])
        return found

    def _beside(self, plan: Plan) -> Beside | None:
        """Return what the record of a plan states of other planes."""
        return self._context.joint.beside(
            self._context.governor,
            self._returning(plan) or self._displacements.demand_of(plan),
            self._context.clock.wall(),
            placed=self._placed(plan),
            mixed=is_mixed(plan),
            queued=[each.root.uid for each in plan.victims if self._holds_quota(each.root.uid)],
        )

    def _report_unrecorded(self, plan: Plan, failure: ApiError) -> None:
        """Hold a plan that could not be recorded, and notify its preemptor."""
        log.error("plan %s cannot be recorded: %s", plan.id, failure)
        self._context.metrics.unrecorded.labels(plan.plane).inc()
        clock = self._context.clock
        until = self._unrecorded.add(plan.id, clock.wall())
        self._again(until)
        if plan.preemptor is not None:
            pause = (until - clock.wall()) // SECOND
            text = preemption_not_recorded(str(failure), pause)
            self._context.announce(plan.preemptor, text, plan.id)

    def hold(self, plan: Plan) -> None:
        """Keep a plan that came to nothing from being tried again at once."""
        clock = self._context.clock
        now = clock.monotonic()
        for each in [e for e, (end, _) in self._held.items() if end + _LONGEST_PAUSE < now]:
            del self._held[each]
        _, pause = self._held.get(plan.id, (0, _RETRY // 2))
        pause = min(2 * pause, _LONGEST_PAUSE)
        self._held[plan.id] = (now + pause, pause)
        self._again(Nanos(clock.wall() + pause))

    def still_held(self, plans: Iterable[str]) -> frozenset[str]:
        """Return which of these plans, by id, are not to be tried yet; then it is evaluated."""
        clock = self._context.clock
        now = clock.monotonic()
        left = {each: self._held.get(each, (0, 0))[0] - now for each in plans}
        held = {each: pause for each, pause in left.items() if pause > 0}
        if held:
            self._again(Nanos(clock.wall() + min(held.values())))
        return frozenset(held)

    def _held_for(self, plan: Plan) -> int:
        """Return for how many nanoseconds a plan is not to be tried, 0 where it may be."""
        until, _ = self._held.get(plan.id, (0, 0))
        clock = self._context.clock
        wall = clock.wall()
        unrecorded = self._unrecorded.until(plan.id, wall)
        return max(0, until - clock.monotonic(), 0 if unrecorded is None else unrecorded - wall)

    def _actions(self, plan: Plan) -> list[Action]:
        return [self._action_of(victim.root) for victim in plan.victims]
