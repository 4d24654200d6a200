"""One step about some victims of a plan: they are marked, spared or evicted, and what became of it.

What a call about one victim fails at is that victim's: a fault of ours costs the others nothing. A
pending victim is tried again after a pause that doubles from `FIRST_PAUSE` to a minute; so is the
rest of a unit that is partly evicted, since victims of one unit are evicted together or not at all.
Source: the design's "Intent log and executor".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence, Sized
from typing import Final, Generic, TypeVar

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import format_instant
from reprieve.api.reprieve import Preemption, Victim, VictimState, VictimStatus
from reprieve.execution.carried import FIRST_PAUSE, Carried
from reprieve.execution.fence import Deposed
from reprieve.execution.victims import Marked, VictimResult, Victims
from reprieve.kube.errors import ApiError
from reprieve.kube.retry import is_silent

__all__ = ["Steps", "each_of"]

log: Final = logging.getLogger("reprieve.execution")

T = TypeVar("T")
R = TypeVar("R")
M = TypeVar("M")
_PENDING: Final = VictimState.PENDING
_LONGEST_PAUSE: Final = MINUTE
_LONGEST_AWAY: Final = 5 * SECOND  # while the API server has no answer


class Steps(Generic[M]):
    """The steps about the victims of one plane; what became of each stands in its plan."""

    def __init__(self, victims: Victims[M], clock: Clock) -> None:
        self._victims = victims
        self._clock = clock

    async def mark(
        self, each: Carried[M], victims: Sequence[Victim], *, insist: bool = False
    ) -> str:
        """Mark these; return why the first that could not be was not, empty if all were.

        Raises:
            Deposed: the fence is closed.
            ApiError: with `insist`, the API server had no answer about one of them.
        """
        manner, refusals = self._victims.manner, list[str]()

        async def mark(victim: Victim) -> None:
            if refusals and manner.all_or_nobody:
                return
            found = await self._marked(each.intent, victim, insist=insist)
            if isinstance(found, Marked):
                each.marks[victim.root.uid] = found.mark
                return
            self.record(each, victim, found)
            if found.state.over:
                each.left.add(victim.root.uid)
            else:
                refusals.append(found.message)

        await each_of(victims, mark, manner.marked_at_once)
        return next(iter(refusals), "")

    async def _marked(
        self, intent: Preemption, victim: Victim, *, insist: bool
    ) -> Marked[M] | VictimResult:
        try:
            return await self._victims.mark(intent, victim)
        except Deposed:
            raise
        except ApiError as failure:
            if insist and is_silent(failure):
                raise
            return VictimResult(VictimState.FAILED, str(failure))
        except Exception as fault:
            log.exception("victim %s/%s is not marked", victim.root.namespace, victim.root.name)
            return VictimResult(VictimState.FAILED, f"a fault of the operator: {fault!r}")

    async def spare(self, each: Carried[M], victim: Victim, why: str) -> None:
        """Remove the mark of one that stays.

        Raises:
            ApiError: it could not be removed.
        """
        mark = each.marks.pop(victim.root.uid, None)
        await self._victims.spare(each.intent, victim, mark, why)
        self.record(each, victim, VictimResult(VictimState.SPARED, why))

    async def evict(self, each: Carried[M], victims: Sequence[Victim]) -> None:
        """Evict these; who cannot be evicted now is pending, and tried again.

        Raises:
            Deposed: the fence is closed.
        """

        async def evict(victim: Victim) -> None:
            uid = victim.root.uid
            mark = each.marks.pop(uid, None)
            found = await self._evicted(each, victim, mark)
            if found is not None:
                self.record(each, victim, found)
            if found is None or found.state.over:
                each.left.add(uid)

        await each_of(victims, evict, self._victims.manner.evicted_at_once)
        self.hold_up(each)

    async def _evicted(
        self, each: Carried[M], victim: Victim, mark: M | None
    ) -> VictimResult | None:
        try:
            return await self._victims.evict(each.intent, victim, mark, again=each.again)
        except Deposed:
            raise
        except ApiError as failure:
            return VictimResult(_PENDING, str(failure), away=is_silent(failure))
        except Exception as fault:
            log.exception("victim %s/%s is not evicted", victim.root.namespace, victim.root.name)
            return VictimResult(_PENDING, f"a fault of the operator: {fault!r}")

    def tear(self, each: Carried[M]) -> None:
        """What is left of a unit of which a part was evicted is tried again."""
        victims = each.intent.spec.victims
        gone = {victim.unit for victim in victims if each.is_over(victim)} - {""}
        for victim in victims:
            if victim.unit in gone and each.state(victim) is VictimState.FAILED:
                message = each.states[victim.root.uid].message
                self.record(each, victim, VictimResult(_PENDING, message))
        self.hold_up(each)

    def hold_up(self, each: Carried[M]) -> None:
        """Set when those who are pending are tried next, and notify the plane of them."""
        pending, now = each.pending, self._clock.monotonic()
        if not pending:
            return
        longest = _LONGEST_AWAY if each.away else _LONGEST_PAUSE
        if each.pending_since is None:
            each.pending_since, each.pause = now, FIRST_PAUSE
        if each.next_try <= now:
            each.next_try = now + each.pause
            each.pause = min(2 * each.pause, longest)
        why = [
            (victim, each.states[victim.root.uid].message)
            for victim in pending
            if victim.root.uid not in each.passing
        ]
        self._victims.held_up(each.intent, why, now - each.pending_since)

    def record(self, each: Carried[M], victim: Victim, found: VictimResult) -> None:
        """Record in the plan what became of a victim."""
        uid, at = victim.root.uid, format_instant(self._clock.wall())
        each.states[uid] = VictimStatus(uid, found.state, at, found.message)
        if found.away:
            each.passing.add(uid)
            each.interrupted = True
        else:
            each.passing.discard(uid)


async def each_of(items: Iterable[T], work: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
    """Do the work for each item, in this order, so many at a time; return the results in order."""
    found: dict[int, R] = {}
    left = enumerate(items)

    async def worker() -> None:
        for number, item in left:
            found[number] = await work(item)

    workers = min(at_once, len(items)) if isinstance(items, Sized) else at_once
    await asyncio.gather(*(worker() for _ in range(workers)))
    return [found[number] for number in range(len(found))]
