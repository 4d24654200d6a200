"""The decision loop of every plane: wait, check what holds it back, decide, pause after a fault.

| step | who |
| --- | --- |
| something is requested, or its instant has come | the caller of `ask`, `ask_at` |
| what comes together is decided together | the loop, for the time of its `Pace` |
| what was decided before is carried on | the plane, in `before` |
| is anything in the way of deciding? | the plane, in `held_back`; stated once for each reason |
| snapshot, decision in the solver thread, effects, carrying out | the plane, in `decide` |
| a fault of ours: all is decided again after a pause, longer each time in a row | the loop |

A request is level-triggered: at most one turn is pending, however often it was requested. The unit
that a fault concerns is set aside by the plane, which knows its units; the loop sees only faults
that belong to no unit. Each plane has a loop and a solver thread of its own: a decision that has to
be stopped, or left to itself, holds up no other plane's. Source: the design's "How data flows" and
"Processes and time".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.plan import Plane
from reprieve.execution.fence import Deposed
from reprieve.kube.errors import ApiError
from reprieve.planes.common.persistent import Pauses
from reprieve.planes.common.solve import DecisionLimit, Solver

__all__ = ["DecisionLoop", "HeldBack", "Pace"]

_AFTER_REFUSAL: Final = SECOND  # of the API server


class HeldBack(Exception):
    """Raised by a decision that finds itself held back; its text states by what."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a loop runs, in nanoseconds.

    `held_back`: how long until the next check of what holds it back, logged at `logged_at`.
    `gather`: for how long further requests are collected. After long turns that is `rest` times as
    long as the last one lasted, at most `longest`.
    """

    held_back: int
    logged_at: int = logging.DEBUG
    gather: int = 0
    rest: int = 0
    longest: int = 0

    def after(self, took: int) -> int:
        """Return for how long to wait for more after a turn of this duration."""
        return max(self.gather, min(self.rest * took, self.longest))


class _Alarm:
    """Rings when it is triggered, now or at the earliest of the instants that it was given."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = asyncio.Event()
        self._at: int | None = None  # monotonic
        self._task: asyncio.Task[None] | None = None

    def ring(self) -> None:
        self._rung.set()

    def ring_at(self, instant: int) -> None:
        if self._at is not None and self._at <= instant:
            return
        self.stop()
        self._at = instant
        self._task = asyncio.create_task(self._sleep(instant))

    async def rung(self) -> None:
        await self._rung.wait()

    def clear(self) -> None:
        """Count all that was requested by now as answered."""
        self._rung.clear()

    def stop(self) -> None:
        """Forget the instant."""
        self._at = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _sleep(self, instant: int) -> None:
        await self._clock.sleep(max(0, instant - self._clock.monotonic()))
        self._at = self._task = None
        self._rung.set()


class DecisionLoop:
    """One plane's loop.

    Args:
        plane: whose it is.
        clock: for pauses.
        limit: how long one decision may last.
        log: of the plane.
        decide: makes a snapshot, decides on it with `solver`, and carries out what follows.
        held_back: returns why nothing may be decided now, empty when it may.
        before: carries on what was decided earlier, whether or not anything may be decided now.
        interrupts: decisions work on snapshots only, and can be stopped anywhere.
    """

    def __init__(
        self,
        plane: Plane,
        clock: Clock,
        limit: DecisionLimit,
        log: logging.Logger,
        pace: Pace,
        *,
        decide: Callable[[], Awaitable[None]],
        held_back: Callable[[], str],
        before: Callable[[], Awaitable[None]] | None = None,
        interrupts: bool = True,
    ) -> None:
        self.solver = Solver(plane, limit, interrupts=interrupts)
        self._clock = clock
        self._log = log
        self._pace = pace
        self._decide = decide
        self._held_back = held_back
        self._before = before
        self._alarm = _Alarm(clock)
        self._said = ""  # why nothing is decided, as last reported

    def ask(self) -> None:
        """Request a decision now."""
        self._alarm.ring()

    def ask_at(self, wall: Nanos) -> None:
        """Request a decision at a wall instant; a clock that is set back later delays nothing."""
        self.ask_after(wall - self._clock.wall())

    def ask_after(self, pause: int) -> None:
        """Request a decision after so many nanoseconds."""
        self._alarm.ring_at(self._clock.monotonic() + max(0, pause))

    async def run(self) -> None:
        """Decide until cancelled.

        Raises:
            Deposed: the process lease is lost.
        """
        clock, pauses, gather = self._clock, Pauses(), self._pace.gather
        try:
            while True:
                await self._alarm.rung()
                if gather:
                    await clock.sleep(gather)
                try:
                    if self._before is not None:
                        await self._before()
                    self._alarm.clear()
                    started = clock.monotonic()
                    why = await self._decide_unless_held_back()
                except Deposed:
                    raise
                except ApiError as failure:
                    self._log.warning("decisions are retried later: %s", failure)
                    await self._again_after(_AFTER_REFUSAL)
                except Exception:
                    self._log.exception("decisions are retried later after a fault of the operator")
                    await self._again_after(pauses.after_fault())
                else:
                    self._report(why)
                    if why:
                        await self._again_after(self._pace.held_back)
                    else:
                        pauses.well()
                        gather = self._pace.after(clock.monotonic() - started)
        finally:
            self._alarm.stop()
            self.solver.close()

    async def _decide_unless_held_back(self) -> str:
        """Return what holds decisions back, empty when one was made."""
        why = self._held_back()
        if not why:
            try:
                await self._decide()
            except HeldBack as found:
                return str(found)
        return why

    async def _again_after(self, pause: int) -> None:
        """Pause whatever is requested meanwhile, then request."""
        await self._clock.sleep(pause)
        self._alarm.ring()

    def _report(self, why: str) -> None:
        """Report once for each reason why nothing is decided, and once that decisions continue."""
        if why == self._said:
            return
        self._said = why
        if why:
            self._log.log(self._pace.logged_at, "nothing is decided: %s", why)
        else:
            self._log.log(min(self._pace.logged_at, logging.INFO), "decisions continue")
