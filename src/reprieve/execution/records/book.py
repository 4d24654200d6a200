"""The book of one plane: its plans, from the first write of a record to its removal.

1. A plan is written before anything happens: planned, then as begun under this process's epoch. The
   number in its name counts the plans for one preemptor; a name that stands for another plan is
   left alone, and the next number is used. Written twice it is still one plan, so that what may
   pass is tried again here, a few times at short pauses.
2. From the moment in which its name is chosen until it is closed a plan stands in `open`, so that
   its victims are known before the API server has answered.
3. What could not be begun and is stored all the same, as an answer was lost, is abandoned.
4. A plan that evicted no workload and is made again replaces its former record: many tries of one
   plan are one record, whose attempt states how many they were.
5. A dry run is written once for each plan, and never closed.
6. A closed record is deleted after its time to live, or above a cap, the oldest first
   (`Retention`).

Source: the design's "Intent log and executor", steps 2, 3 and 6, and "Recovery".
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR, MINUTE
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import (
    Action,
    IntentPhase,
    Preemption,
    PreemptionSpec,
    VictimState,
    VictimStatus,
)
from reprieve.engine.demands import Beside
from reprieve.engine.notice.granting import Grant
from reprieve.engine.plan import Plan, Plane
from reprieve.execution.fence import Fence
from reprieve.execution.records.demands import Demands
from reprieve.execution.records.intents import IntentExists, IntentLog
from reprieve.execution.recovery import Unbegun, claim_open, remove_old
from reprieve.kube.client import Client
from reprieve.kube.errors import (
    ApiError,
    Conflict,
    NotFound,
)
from reprieve.kube.retry import UNSETTLED, retried
from reprieve.records.plans.at_stake import AtStake
from reprieve.records.plans.intent_specs import intent_name, intent_spec
from reprieve.records.plans.parts import SIZES, Sizes
from reprieve.telemetry.metrics import Metrics

__all__ = ["Book", "Recovered", "Retention"]

log: Final = logging.getLogger("reprieve.execution")

_NUMBERS: Final = 20  # names that are tried for one plan
_QUICK: Final = 3  # tries at writing a plan; a caller whose tries all failed pauses for longer
_NOBODY: Final = "always"
_MOST_FOR_NOTHING: Final = 1_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the records of a plane stay, and how often the old ones are removed.

    Of those not older than `fresh` as many as `fresh_cap` stay, be the cap lower.
    """

    time_to_live: int = 168 * HOUR
    cap: int = 5_000
    fresh: int = 0
    fresh_cap: int = 0
    every: int = 5 * MINUTE


@dataclass(frozen=True, slots=True)
class Recovered:
    """What former processes left: all records, and those of them that were open, adopted."""

    records: tuple[Preemption, ...]
    claimed: tuple[Preemption, ...]


class Book:
    """The records of one plane. `retention` states anew each time how long they stay.

    `demands`: what the books of all planes of the process know of each demand.

    `open`: all and only plans that this process carries out, by name, as it planned or read them.
    """

    def __init__(
        self,
        plane: Plane,
        client: Client,
        namespace: str,
        fence: Fence,
        clock: Clock,
        metrics: Metrics,
        *,
        sizes: Sizes = SIZES,
        retention: Callable[[], Retention] = Retention,
        demands: Demands | None = None,
    ) -> None:
        self.plane = plane
        self._demands = Demands() if demands is None else demands
        self.namespace = namespace
        self.log = IntentLog(client, namespace, fence, clock, sizes)
        self.open: dict[str, PreemptionSpec] = {}
        self._client = client
        self._fence = fence
        self._clock = clock
        self._retention = retention
        self._numbers: dict[str, int] = {}  # the last that was used, by uid of the preemptor
        self._unbegun = Unbegun()
        self._noted: set[str] = set()  # plans of a dry run that have a record
        # The last records of plans that evicted no workload, by preemptor and plan.
        self._for_nothing: dict[tuple[str, str], Preemption] = {}
        metrics.intents_open.labels(plane.value).set_function(lambda: len(self.open))
        self._closed = metrics.intents_closed

    async def recover(self) -> Recovered:
        """Adopt what former processes left open, and continue counting where they ended.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        listed = await self.log.list()
        self._demands.recovered(listed)
        records = [each for each in listed if each.spec.plane == self.plane]
        for each in records:
            whom = _preemptor(each.spec)
            self._numbers[whom] = max(self._numbers.get(whom, 0), each.spec.attempt)
            self._remember(each)
        claimed = await claim_open(self.log, self._fence, self._clock, records)
        return Recovered(tuple(records), tuple(claimed))

    async def write(
        self,
        plan: Plan,
        *,
        actions: Sequence[Action] = (),
        decision_input: dict[str, Any] | None = None,
        at_stake: AtStake | None = None,
        beside: Beside | None = None,
        notices: Sequence[Grant] = (),
    ) -> Preemption:
        """Write a plan, as planned and then as begun; it is open from before the first await.

        `beside`: what was known of other planes; a former record of its demand is added to it.
        `notices`: as in `intent_spec`.

        Raises:
            Deposed: the fence is closed.
            IntentExists: all names that were tried stand for other plans.
            ApiError: it cannot be written, and is not open.
        """
        whom = plan.preemptor.uid if plan.preemptor is not None else _NOBODY
        chosen: IntentExists | None = None
        for _ in range(_NUMBERS):
            number = self._numbers[whom] = self._numbers.get(whom, 0) + 1
            now = self._clock.wall()
            spec = intent_spec(
                plan,
                number,
                now,
                actions=actions,
                decision_input=decision_input,
                at_stake=at_stake,
                beside=beside and self._demands.gone_on_from(beside, plan, at_stake, now),
                notices=notices,
            )
            name = intent_name(plan, number)
            self._stand(name, spec)
            try:
                begun = await self._begin(name, spec)
                await self._remove_former(whom, plan.id)
                return begun
            except IntentExists as again:
                self._fall(name)
                chosen = again
            except ApiError:
                self._fall(name)
                self._unbegun.add(name, self._clock.monotonic())
                raise
            except BaseException:
                self._fall(name)
                raise
        assert chosen is not None
        raise chosen

    def _stand(self, name: str, spec: PreemptionSpec) -> None:
        """A plan is open from now on."""
        self.open[name] = spec
        self._demands.written(name, spec)

    def _fall(self, name: str) -> None:
        """A plan was not written."""
        del self.open[name]
        self._demands.closed(name, evicted=False, at=self._clock.wall())

    async def go_on(
        self, intent: Preemption, lost: Callable[[], Mapping[str, int]] = dict
    ) -> Preemption:
        """Write that the victims of a plan are evicted from now on, which had notice before.

        `lost` returns the device seconds that those lose who have saved, by the uid of their root.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        return await self._with_losses(intent, lost, IntentPhase.EVICTING)

    async def note_losses(
        self, intent: Preemption, lost: Callable[[], Mapping[str, int]]
    ) -> Preemption:
        """Write what some victims of a plan lose, while others still save; as `go_on` does.

        Nothing is written where nothing is known anew.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        if lost().keys() <= intent.status.lost_after_save.keys():
            return intent
        return await self._with_losses(intent, lost, IntentPhase.NOTICED)

    async def note_answers(
        self, intent: Preemption, until: Callable[[], Mapping[str, str]], saved: Iterable[str]
    ) -> Preemption:
        """Write what pods reported, while the plan waits; return its record.

        `until` returns to when deadlines are extended; `saved`: uids of pods that have saved.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        return await self._while_noticed(
            intent, lambda each: self.log.note_answers(each, until(), saved)
        )

    async def _with_losses(
        self, intent: Preemption, lost: Callable[[], Mapping[str, int]], phase: IntentPhase
    ) -> Preemption:
        return await self._while_noticed(intent, lambda each: self.log.go_on(each, lost(), phase))

    async def _while_noticed(
        self, intent: Preemption, write: Callable[[Preemption], Awaitable[Preemption]]
    ) -> Preemption:
        known: Preemption | None = intent

        async def once() -> Preemption:
            nonlocal known
            current, known = known or await self.log.current(intent.metadata.name) or intent, None
            whole = replace(current, spec=intent.spec)
            # An answer may have been lost.
            waits = whole.status.phase is IntentPhase.NOTICED
            return await write(whole) if waits else whole

        return await retried(once, self._client.transport.pause, (*UNSETTLED, Conflict), soon=True)

    def adopt(self, intent: Preemption) -> None:
        """This process carries out a plan that it did not write."""
        self.open[intent.metadata.name] = intent.spec

    def let_go(self, name: str) -> None:
        """This process carries out a plan no longer, though it may be open."""
        self.open.pop(name, None)

    async def close(
        self,
        intent: Preemption,
        phase: IntentPhase,
        reason: str,
        victims: Iterable[VictimStatus],
        *,
        disruptions_pending: bool = False,
    ) -> Preemption | None:
        """Write how a plan ended; None where its record is deleted, or was closed by another.

        `disruptions_pending`: not all of its Disruptions are written.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again; the plan stays open.
        """
        name, states = intent.metadata.name, list(victims)
        known: Preemption | None = intent

        async def once() -> Preemption | None:
            nonlocal known
            current, known = known or await self.log.current(name), None
            if current is None or not current.status.phase.open:
                return None
            whole = replace(current, spec=intent.spec)
            return await self.log.finish(
                whole, phase, reason, states, disruptions_pending=disruptions_pending
            )

        try:
            closed = await retried(once, self._client.transport.pause, (Conflict,), soon=True)
        except NotFound:
            closed = None
        self.open.pop(name, None)
        evicted = any(each.state is VictimState.EVICTED for each in states)
        self._demands.closed(name, evicted=evicted, at=self._clock.wall())
        self._closed.labels(self.plane.value, phase.value).inc()
        if closed is not None:
            self._remember(closed)
        return closed

    def _remember(self, record: Preemption) -> None:
        """Know the record of a plan that evicted nothing, should the plan be made again."""
        evicted = (each.state is VictimState.EVICTED for each in record.status.victims)
        some = record.status.victims_by_state.get(VictimState.EVICTED.value, 0)
        if record.status.phase is not IntentPhase.ABANDONED or record.spec.dry_run:
            return
        if record.status.victims and not some and not any(evicted):
            spec = replace(record.spec, victims=[], placement=[], guards=[], input=None)
            self._for_nothing[_preemptor(spec), spec.plan_id] = replace(record, spec=spec)
            while len(self._for_nothing) > _MOST_FOR_NOTHING:
                del self._for_nothing[next(iter(self._for_nothing))]

    async def _remove_former(self, whom: str, plan: str) -> None:
        former = self._for_nothing.pop((whom, plan), None)
        if former is not None:
            try:
                await self.log.remove(former)
            except ApiError as failure:
                log.warning(
                    "the record of preemption %s is not deleted, it is retried: %s",
                    former.metadata.name,
                    failure,
                )

    async def settle(self) -> None:
        """Abandon what could not be begun and is stored all the same.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        await self._unbegun.settle(self.log, self._clock.monotonic())

    def noted(self, plan: Plan) -> bool:
        """Whether a dry run has this plan already."""
        return plan.id in self._noted

    async def record_dry_run(
        self,
        plan: Plan,
        *,
        actions: Sequence[Action] = (),
        decision_input: dict[str, Any] | None = None,
        beside: Beside | None = None,
    ) -> None:
        """Write down what a dry run would have done, once for each plan."""
        if plan.id in self._noted:
            return
        self._noted.add(plan.id)
        now = self._clock.wall()
        spec = intent_spec(
            plan,
            0,
            now,
            actions=actions,
            dry_run=True,
            decision_input=decision_input,
            beside=beside,
        )
        try:
            await self.log.create(intent_name(plan, 0, dry_run=True), spec)
        except IntentExists as chosen:
            log.debug("record of plan %s: %s", plan.id, chosen)
        except ApiError as failure:
            self._noted.discard(plan.id)
            log.warning("record of plan %s: %s", plan.id, failure)

    async def keep_few(
        self,
        removed: Callable[[], None] = lambda: None,
        unless: Callable[[], bool] = lambda: False,
    ) -> None:
        """Remove old records once in a while, until cancelled; what is on its way does not wait.

        `removed` is called each time; `unless`: whether nothing may be written for now.
        """
        while True:
            if not unless():
                try:
                    await self.remove_old()
                except ApiError as failure:
                    log.warning("expired records are not deleted, they are retried: %s", failure)
                removed()
            await self._clock.sleep(self._retention().every)

    async def remove_old(self) -> None:
        """Remove records that are too old or too many, and parts without a head.

        Numbers restart for a preemptor that no record names any more, and what a dry run would do
        is written again if its record was deleted.

        Raises:
            ApiError: one could not be removed; all others were tried.
        """
        records = await self._records(bare=True)
        named = {_preemptor(spec) for spec in (*(r.spec for r in records), *self.open.values())}
        self._numbers = {whom: n for whom, n in self._numbers.items() if whom in named}
        self._noted &= {record.spec.plan_id for record in records if record.spec.dry_run}
        retention, wall = self._retention(), self._clock.wall()
        since = format_instant(Nanos(wall - retention.fresh))
        fresh = sum(record.metadata.creation_timestamp > since for record in records)
        cap = max(retention.cap, min(fresh, retention.fresh_cap))
        await remove_old(self.log, self.plane, records, wall, retention.time_to_live, cap)

    async def _records(self, *, bare: bool = False) -> list[Preemption]:
        listed = await self.log.list(bare=bare)
        return [each for each in listed if each.spec.plane == self.plane]

    async def _begin(self, name: str, spec: PreemptionSpec) -> Preemption:
        async def once() -> Preemption:
            return await self.log.start(await self.log.create(name, spec))

        return await retried(once, self._client.transport.pause, attempts=_QUICK)


def _preemptor(spec: PreemptionSpec) -> str:
    return spec.preemptor.uid if spec.preemptor is not None else _NOBODY
