"""Writes plans down before they are carried out, each with the input of its decision.

The number in an intent's name counts the plans for one preemptor; a name that stands for another
plan is left alone and the next number taken. What may pass is tried again here, a few times at
short pauses: written twice, an intent is still one. Whoever cannot have a plan recorded pauses for
longer (`set_aside`). Source: the design's "Intent log and executor", steps 2 and 3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from reprieve.api.reprieve import Preemption, PreemptionSpec
from reprieve.controllers.scheduling.context import SchedulingContext, log
from reprieve.engine.plan import Plan
from reprieve.execution.intents import IntentLog, IntentTaken, intent_name, intent_spec
from reprieve.execution.preempt import PodPreemption
from reprieve.execution.recovery import Unbegun
from reprieve.kube.errors import (
    ApiError,
    Conflict,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from reprieve.units.ids import Uid

__all__ = ["Record", "Recording"]

Record: TypeAlias = Callable[[], dict[str, Any]]

_NUMBERS: Final = 20  # names that are tried for one intent
_TRIES: Final = 3


class Recording:
    """The records of one plane, as they are written."""

    def __init__(self, context: SchedulingContext, intents: IntentLog, pods: PodPreemption) -> None:
        self._context = context
        self._intents = intents
        self._pods = pods
        self._attempts: dict[Uid, int] = {}
        self._unbegun = Unbegun()

    def restore(self, intents: Iterable[Preemption]) -> None:
        """Go on counting where former processes ended."""
        for intent in intents:
            preemptor = intent.spec.preemptor
            if preemptor is not None:
                uid = Uid(preemptor.uid)
                self._attempts[uid] = max(self._attempts.get(uid, 0), intent.spec.attempt)

    def forget_all_but(self, records: Iterable[Preemption]) -> None:
        """Whose name no record bears any more begins to count anew."""
        named = {Uid(each.spec.preemptor.uid) for each in records if each.spec.preemptor}
        self._attempts = {u: n for u, n in self._attempts.items() if u in named}

    async def write(self, plan: Plan, record: Record | None) -> Preemption:
        """Write the intent of a plan, as planned and then as begun.

        `record` makes the input of the decision.

        Raises:
            Deposed: the fence is closed.
            IntentTaken: all names that were tried stand for other plans.
            ApiError: it cannot be written.
        """
        assert plan.preemptor is not None, "scheduling never evicts without a preemptor"
        uid, recorded = plan.preemptor.uid, await self._recorded(plan, record)
        taken: IntentTaken | None = None
        for _ in range(_NUMBERS):
            number = self._attempts[uid] = self._attempts.get(uid, 0) + 1
            spec = intent_spec(plan, number, self._context.clock.wall(), decision_input=recorded)
            name = intent_name(plan, number)
            try:
                return await self._begin(name, spec)
            except IntentTaken as again:
                taken = again
            except ApiError:
                self._unbegun.add(name, self._context.clock.monotonic())
                raise
        assert taken is not None
        raise taken

    async def settle(self, now: int) -> None:
        """Close what could not be begun and is there all the same; `now` is monotonic.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        await self._unbegun.settle(self._intents, now)

    async def note(self, plan: Plan, record: Record | None) -> None:
        """Write down what a dry run would have done."""
        name = intent_name(plan, 0, dry_run=True)
        recorded = await self._recorded(plan, record)
        now = self._context.clock.wall()
        spec = intent_spec(plan, 0, now, dry_run=True, decision_input=recorded)
        try:
            await self._intents.create(name, spec)
        except (ApiError, IntentTaken) as failure:
            log.warning("record of plan %s: %s", plan.id, failure)

    async def _begin(self, name: str, spec: PreemptionSpec) -> Preemption:
        for attempt in range(_TRIES):
            try:
                return await self._pods.begin(name, spec)
            except (Conflict, ServerError, TooManyRequests, Unreachable):
                if attempt == _TRIES - 1:
                    raise
                await self._context.client.transport.pause(attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _recorded(self, plan: Plan, record: Record | None) -> dict[str, Any] | None:
        if record is None:
            return None
        try:
            return await asyncio.to_thread(record)
        except Exception:
            # What cannot be explained later must be carried out all the same.
            log.exception("the input of plan %s is not recorded", plan.id)
            return None
