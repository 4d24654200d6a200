"""The executor: carries plans from their records to the last victim, or leaves nothing behind.

Every plane has the same five steps; a plane's `Victims` and `Manner` state what differs. How a step
processes the victims is in `steps`.

1. **Record.** The plan stands in the book under this process's epoch (`execution.records.book`).
2. **Mark.** The plan still holds; victims that must be marked before the first eviction are marked,
   by uid and resourceVersion. If the plan evicts all victims or none, one that cannot be marked
   spares all others.
3. **Evict.** Each victim, fenced and with preconditions. Victims of one unit are evicted together
   or not at all: the rest of a unit whose eviction has begun is tried again, with a growing pause,
   as is what failed for a passing reason.
4. **Observe.** The plan waits until its victims have ended, as the plane sees it.
5. **Close.** When the preemptor has what it needs or needs it no more, or ten minutes later. Before
   that the tenants of evicted victims are notified (`execution.accounts.disruptions`), but only
   when the preemptor is served, or ten seconds after all victims have ended: its own writes come
   first. How a plan ends is in `execution.closing`.

A crash, a hand-over or a fault may come between any two writes: `resume` continues from what the
victims show (`execution.takeover`). Source: the design's "Intent log and executor".
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import format_instant
from reprieve.api.reprieve import (
    IntentPhase,
    Preemption,
    Victim,
    VictimState,
)
from reprieve.execution.accounts.disruptions import Disruptions
from reprieve.execution.carried import Carried, Inherited
from reprieve.execution.closing import Closing
from reprieve.execution.fence import Deposed
from reprieve.execution.letting_save import LettingSave
from reprieve.execution.notices import is_notified
from reprieve.execution.records.book import Book
from reprieve.execution.steps import Steps, each_of
from reprieve.execution.takeover import LET_GO, sorted_out
from reprieve.execution.victims import Reading, Standing, VictimResult, Victims
from reprieve.kube.errors import ApiError
from reprieve.records.victim_states import victim_states

__all__ = ["SERVED_WITHIN", "Executor"]

log: Final = logging.getLogger("reprieve.execution")

M = TypeVar("M")
#: How long after its victims' end a plan waits for a preemptor that still claims the capacity.
SERVED_WITHIN: Final = 10 * MINUTE
_REPORTED_AFTER: Final = 10 * SECOND  # after the end of the last victim
_NOBODY_MARKED: Final = "no victim was marked before its execution was interrupted"


class Executor(Generic[M]):
    """Carries out the plans of one plane; several may run side by side.

    `spawn` runs a task; `ended` is called with each closed plan, whichever component closed it.
    `disruptions` notifies tenants.
    """

    def __init__(
        self,
        book: Book,
        victims: Victims[M],
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        ended: Callable[[Carried[M], Preemption | None], None] = lambda each, record: None,
        disruptions: Disruptions | None = None,
        saving: LettingSave | None = None,
    ) -> None:
        self.book = book
        self.open: dict[str, Carried[M]] = {}
        self._victims = victims
        self._steps = Steps(victims, clock)
        self._clock = clock
        self._spawn = spawn
        self._disruptions = disruptions
        self._closing = Closing(book, victims.manner, self._steps, self.open, ended, disruptions)
        self._saving = saving
        # Uids of victims that other records state as evicted, while plans are adopted.
        self._elsewhere: set[str] = set()

    # Steps 2 and 3.

    async def mark(self, intent: Preemption) -> Carried[M]:
        """Mark the victims of a recorded plan; it may end with that (`abandoned`).

        Raises:
            Deposed: the fence is closed.
        """
        return await self._mark(self._begin(intent))

    async def _mark(self, each: Carried[M]) -> Carried[M]:
        with _stalling(each):
            if not await self._let_save(each):
                return each
            intent = each.intent
            victims, manner = intent.spec.victims, self._victims.manner
            victims = [victim for victim in victims if not self._begun(each, victim)]
            if not victims:
                return each
            notified = [victim for victim in victims if self._victims.gets_notice(victim)]
            stale = await self._victims.stale(intent, victims)
            if stale:
                await self._closing.abandon(each, stale)
                return each
            refusal = await self._steps.mark(each, notified)
            nobody = len(notified) == len(victims) and not each.marks and not each.any_over
            if refusal and (manner.all_or_nobody or nobody):
                await self._closing.spare_all(each, refusal)
        return each

    async def _let_save(self, each: Carried[M]) -> bool:
        """Wait until all with notice may be evicted; return whether they have to be."""
        if each.intent.status.phase is not IntentPhase.NOTICED:
            return True
        assert self._saving is not None, "only planes that wait have such records"
        each_for_itself = self._victims.manner.each_for_itself
        why = await self._saving.wait(
            each.intent,
            partial(self._note_answers, each),
            partial(self._release, each) if each_for_itself else None,
        )
        if why and not each.any_over and not each.left:
            await self._closing.abandon(each, why)
            return False
        for victim in each.intent.spec.victims if why else ():
            if victim.root.uid not in each.states and victim.root.uid not in each.left:
                self._steps.record(each, victim, VictimResult(VictimState.SPARED, why))
        each.intent = await self.book.go_on(each.intent, partial(self._saving.losses, each.intent))
        self._saving.release(each.intent)
        return True

    async def _note_answers(
        self,
        each: Carried[M],
        intent: Preemption,
        until: Callable[[], Mapping[str, str]],
        saved: Sequence[str],
    ) -> Preemption | None:
        """Record what pods reported; return the record, None where that fails."""
        try:
            each.intent = await self.book.note_answers(intent, until, saved)
        except ApiError as failure:
            log.warning("preemption %s: reports are not recorded yet: %s", each.name, failure)
            return None
        return each.intent

    async def _release(self, each: Carried[M], victims: Sequence[Victim]) -> Preemption | None:
        """Evict these, while others of the plan still save; return the record, None if they stay.

        What they had saved is written before their eviction, since this process may end after that.
        """
        assert self._saving is not None, "no work is notified without it"
        try:
            lost = partial(self._saving.losses, each.intent)
            each.intent = await self.book.note_losses(each.intent, lost)
        except ApiError as failure:
            log.warning(
                "preemption %s: units that have saved are not evicted yet, the record cannot "
                "be written: %s",
                each.name,
                failure,
            )
            return None
        # What fails here stalls the whole plan: it ends the wait, so that there is only one.
        going = [victim for victim in victims if not self._begun(each, victim)]
        notified = [victim for victim in going if self._victims.gets_notice(victim)]
        await self._steps.mark(each, notified)
        await self._steps.evict(each, [v for v in going if v.root.uid not in each.states])
        return each.intent

    def _begun(self, each: Carried[M], victim: Victim) -> bool:
        return victim.root.uid in each.states or victim.root.uid in each.left

    def marked(self, intent: Preemption) -> Carried[M]:
        """Return a plan whose victims carried their marks before it was recorded."""
        return self._begin(intent, again=True)

    async def evict(self, each: Carried[M]) -> None:
        """Evict the victims of a plan whose marks are written.

        Raises:
            Deposed: the fence is closed.
        """
        with _stalling(each):
            going = [v for v in each.intent.spec.victims if not self._begun(each, v)]
            await self._evict_last_alone(each, going)
            self._steps.tear(each)

    async def _evict_last_alone(self, each: Carried[M], going: Sequence[Victim]) -> None:
        """Evict these; where the last is evicted alone it waits for the others, or is spared."""
        if not going or not self._victims.manner.last_alone:
            await self._steps.evict(each, going)
            return
        *others, last = going
        await self._steps.evict(each, others)
        failed = [v for v in others if each.state(v) in _FAILED]
        unit = [v for v in each.intent.spec.victims if v.unit and v.unit == last.unit]
        if not failed or any(each.is_over(victim) for victim in unit):
            await self._steps.evict(each, [last])
            return
        refused = next((v for v in failed if v.root.uid not in each.passing), None)
        why = f"not touched: {each.states[(refused or failed[0]).root.uid].message}"
        if refused is None:
            # Only the API server is away: the others are evicted as soon as it is back, then the
            # last.
            self._steps.record(each, last, VictimResult(VictimState.PENDING, why, away=True))
            self._steps.hold_up(each)
        else:
            await self._steps.spare(each, last, why)

    async def try_again(self, each: Carried[M]) -> None:
        """Try once more to evict those who are pending.

        Raises:
            Deposed: the fence is closed.
        """
        each.again = True
        with _stalling(each):
            await self._evict_last_alone(each, each.pending)
            self._steps.tear(each)
            since, limit = each.pending_since, self._victims.manner.given_up_after
            now = self._clock.monotonic()
            if since is None or limit is None or now - since < limit:
                return
            for victim in each.pending:
                log.warning("preemption %s: %s is not evicted", each.name, victim.root.name)
                state = each.states[victim.root.uid]
                self._steps.record(each, victim, VictimResult(VictimState.FAILED, state.message))
            each.pending_since = None

    def watch(self, each: Carried[M]) -> None:
        """From now on `reconcile` sees to a plan whose calls are over."""
        each.busy = False

    async def give_up(self, each: Carried[M], reason: str) -> None:
        """Abandon a plan of which not every victim could be evicted.

        Raises:
            Deposed: the fence is closed.
        """
        await self._closing.abandon(each, reason)

    async def carry(self, intent: Preemption) -> Carried[M]:
        """Mark, evict, and see to the rest from then on.

        Raises:
            Deposed: the fence is closed.
        """
        each = await self.mark(intent)
        if not each.abandoned and not each.stalled:
            await self.evict(each)
        self.watch(each)
        return each

    # Steps 4 and 5.

    async def reconcile(self) -> None:
        """Continue with what is stalled or pending, close what is over.

        Raises:
            Deposed: the fence is closed.
            ApiError: what could not be begun could not be looked for, to be tried again.
        """
        await each_of(list(self.open.values()), self._look_at, self._victims.manner.evicted_at_once)
        await self.book.settle()

    async def _look_at(self, each: Carried[M]) -> None:
        if each.busy:
            return
        try:
            await self._go_on(each)
        except Deposed:
            raise
        except ApiError as failure:
            each.warn(str(failure), self._clock.monotonic())
        except Exception:
            log.exception(
                "preemption %s is skipped in this pass after an internal error", each.name
            )

    async def _go_on(self, each: Carried[M]) -> None:
        now = self._clock.monotonic()
        if each.ending is not None:
            await self._closing.close(each)
            return
        if each.stalled or each.pending:
            if each.next_try <= now:
                each.busy = True
                self._spawn(self._at_it(each))
            return
        for victim in each.intent.spec.victims:
            uid = victim.root.uid
            if uid in each.left:
                seen = self._victims.observe(each.intent, victim, each.states.get(uid))
                if seen is not None:
                    if seen.state is not each.state(victim):
                        self._steps.record(each, victim, seen)
                    each.left.discard(uid)
                    each.remains = each.remains or seen.remains
                    each.ended[uid] = format_instant(self._clock.wall())
        if each.left:
            return
        if each.gone_since is None:
            each.gone_since = now
        # There is no end to wait for if no victim was evicted.
        served = not each.any_over or self._victims.served(each.intent)
        if not served and now - each.gone_since >= _REPORTED_AFTER:
            await self._closing.notify(each)
        if served or each.remains or now - each.gone_since >= SERVED_WITHIN:
            why = "a victim has not ended in time" if each.remains else "the preemptor did not come"
            await self._closing.complete(each, "" if served else why)

    async def _at_it(self, each: Carried[M]) -> None:
        with _stalling(each):
            if each.stalled:
                await self.resume(each.intent)
            else:
                await self.try_again(each)
        self.watch(each)

    # Adopting plans of former processes.

    async def recover(self) -> Inherited[M]:
        """Finish or abandon what former processes left open.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        left, plans = await self.book.recover(), list[Carried[M]]()
        if self._disruptions is not None:
            await self._disruptions.recover(self.book.log, left.records)
        closed = [] if not left.claimed else [r for r in left.records if not r.status.phase.open]
        self._elsewhere = {
            uid
            for record in await self.book.log.all_whole(closed)
            for uid, state in victim_states(record).items()
            if state.state is VictimState.EVICTED
        }
        for intent in sorted(left.claimed, key=lambda claimed: claimed.spec.decided_at):
            self.book.adopt(intent)
            each = await self.resume(intent)
            plans.append(each)
            states = each.states.values()
            self._elsewhere |= {s.uid for s in states if s.state is VictimState.EVICTED}
        self._elsewhere = set()
        return Inherited(left.records, tuple(plans))

    async def resume(self, intent: Preemption) -> Carried[M]:
        """Continue with a plan of this process's epoch from what its victims show.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again, by `reconcile` if no other task does so.
        """
        if intent.status.phase is IntentPhase.NOTICED:
            return self._report_again(intent, await self._released(intent))
        each = self._begin(intent, again=True)
        each.stalled = each.interrupted = True
        victims = intent.spec.victims

        async def read(victim: Victim) -> Reading[M]:
            elsewhere = victim.root.uid in self._elsewhere
            return await self._victims.read(intent, victim, elsewhere=elsewhere)

        try:
            readings = await each_of(victims, read, self._victims.manner.evicted_at_once)
            if is_notified(intent) and all(each.standing in _UNMARKED for each in readings):
                # No victim is evicted yet: their reports are accepted again.
                unheard = replace(intent.status, lost_after_save={})
                return self._report_again(replace(intent, status=unheard))
            await self._go_on_from(each, list(zip(victims, readings, strict=True)))
            self._steps.tear(each)
            each.stalled = False
        finally:
            self.watch(each)
        return each

    async def _released(self, intent: Preemption) -> list[tuple[Victim, Reading[M]]]:
        """Return those who were released while others of the plan still saved."""
        if not self._victims.manner.each_for_itself:
            return []
        victims = intent.spec.victims

        async def read(victim: Victim) -> Reading[M]:
            elsewhere = victim.root.uid in self._elsewhere
            return await self._victims.read(intent, victim, elsewhere=elsewhere)

        found = await each_of(victims, read, self._victims.manner.evicted_at_once)
        pairs = zip(victims, found, strict=True)
        return [pair for pair in pairs if pair[1].standing not in _UNMARKED]

    def _report_again(
        self, intent: Preemption, released: Sequence[tuple[Victim, Reading[M]]] = ()
    ) -> Carried[M]:
        """Continue a plan whose last deadline may be far away; `released`: already released."""
        status = replace(intent.status, phase=IntentPhase.NOTICED)
        each = self._begin(replace(intent, status=status))
        each.interrupted = True
        for victim, reading in released:
            if reading.standing is Standing.EVICTED:
                evicted = VictimResult(VictimState.EVICTED, reading.message)
                self._steps.record(each, victim, evicted)
            each.left.add(victim.root.uid)
        self._spawn(self._continue_reports(each))
        return each

    async def _continue_reports(self, each: Carried[M]) -> None:
        await self._mark(each)
        if not each.abandoned and not each.stalled:
            await self.evict(each)
        self.watch(each)

    async def _go_on_from(
        self, each: Carried[M], pairs: Sequence[tuple[Victim, Reading[M]]]
    ) -> None:
        found = sorted_out(pairs, needed=self._victims.needed(each.intent))
        for victim, result in found.over:
            self._steps.record(each, victim, result)
            each.left.add(victim.root.uid)
        going = [victim for victim, _ in found.going]
        each.marks.update({victim.root.uid: mark for victim, mark in found.going})
        for victim, mark in found.let_go:
            each.marks[victim.root.uid] = mark
            await self._steps.spare(each, victim, LET_GO)
        if not pairs:
            # A record that lost its parts names no victims.
            return
        if not going and not each.any_over:
            for victim, why in found.rest:
                await self._steps.spare(each, victim, why)
            await self._closing.abandon(each, LET_GO if found.let_go else _NOBODY_MARKED)
            return
        # A notified victim is not notified anew by another plan.
        marks_rest = self._victims.manner.rest_is_marked or is_notified(each.intent)
        if found.rest and marks_rest:
            stale = await self._victims.stale(each.intent, [victim for victim, _ in found.rest])
            refusals = list[str]()

            async def marked(victim: Victim) -> None:
                refusal = stale or await self._steps.mark(each, [victim], insist=True)
                if refusal:
                    refusals.append(refusal)
                    await self._steps.spare(each, victim, refusal)
                elif not each.is_over(victim):
                    going.append(victim)

            rest = [victim for victim, _ in found.rest]
            await each_of(rest, marked, self._victims.manner.marked_at_once)
            if refusals and self._victims.manner.all_or_nobody and not each.any_over:
                await self._closing.spare_all(each, refusals[0])
                return
        else:
            for victim, why in found.rest:
                self._steps.record(each, victim, VictimResult(VictimState.SPARED, why))
        await self._steps.evict(each, going)

    def _begin(self, intent: Preemption, *, again: bool = False) -> Carried[M]:
        each = self.open[intent.metadata.name] = Carried(intent, again=again)
        return each


@contextlib.contextmanager
def _stalling(each: Carried[Any]) -> Iterator[None]:
    """Stall the plan of a failed step, which is resumed later.

    The fence may open again without another tenure: the plan stalls then, too.

    Raises:
        Deposed: the fence is closed.
    """
    try:
        yield
    except Deposed:
        each.stalled, each.busy = True, False
        raise
    except ApiError as failure:
        each.stalled, each.busy = True, False
        log.warning("preemption %s is stalled and resumed later: %s", each.name, failure)
    except Exception:
        each.stalled, each.busy = True, False
        log.exception("preemption %s is stalled by an internal error and resumed later", each.name)


_UNMARKED: Final = (Standing.UNTOUCHED, Standing.GONE)
_FAILED: Final = (VictimState.FAILED, VictimState.PENDING)
