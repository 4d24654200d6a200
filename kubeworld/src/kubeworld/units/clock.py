"""Time as a dependency: the real clock and one that tests turn by hand.

Code that needs the time is given a `Clock`; nothing else in the project reads one. Wall time is for
what is written into objects, monotonic time for every decision about an age.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Protocol

from kubeworld.units.instants import Nanos

__all__ = ["Clock", "SystemClock", "VirtualClock"]


class Clock(Protocol):
    """Wall time, monotonic time and sleep."""

    def wall(self) -> Nanos:
        """Return nanoseconds since the Unix epoch."""
        ...

    def monotonic(self) -> Nanos:
        """Return nanoseconds since an arbitrary start; never decreases."""
        ...

    async def sleep(self, nanoseconds: int) -> None:
        """Return after that much time; zero or less yields to other tasks once."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall(self) -> Nanos:
        return Nanos(time.time_ns())

    def monotonic(self) -> Nanos:
        return Nanos(time.monotonic_ns())

    async def sleep(self, nanoseconds: int) -> None:
        await asyncio.sleep(max(0, nanoseconds) / 1e9)


class VirtualClock:
    """A clock that stands still until `advance` is called; sleepers wake in order of deadline."""

    def __init__(self, wall: int = 1_772_618_400_000_000_000) -> None:
        self._wall = Nanos(wall)
        self._monotonic = Nanos(0)
        # All and only sleepers that have not been woken: (deadline, order of arrival, future).
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def wall(self) -> Nanos:
        return self._wall

    def monotonic(self) -> Nanos:
        return self._monotonic

    async def sleep(self, nanoseconds: int) -> None:
        if nanoseconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + nanoseconds, next(self._order), woken))
        await woken

    def set_wall(self, wall: Nanos) -> None:
        """Move the wall clock alone, as an administrator or a bad time server would."""
        self._wall = wall

    async def advance(self, nanoseconds: int, settle: int = 20) -> None:
        """Move both clocks on and wake everybody due on the way, each at its own deadline.

        `settle`: turns of the event loop given to the woken tasks before time continues.
        """
        end = self._monotonic + nanoseconds
        while True:
            for _ in range(settle):
                await asyncio.sleep(0)
            if not self._sleepers or self._sleepers[0][0] > end:
                break
            deadline, _, woken = heapq.heappop(self._sleepers)
            self._wall = Nanos(self._wall + deadline - self._monotonic)
            self._monotonic = Nanos(deadline)
            if not woken.done():
                woken.set_result(None)
        self._wall = Nanos(self._wall + end - self._monotonic)
        self._monotonic = Nanos(end)
