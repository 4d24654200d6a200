"""Time as it passes for a process that has one core to itself.

`CoreLoop.time` is the CPU time of this process plus the time for which its event loop had nothing
to do. On an idle machine that is wall time; while others keep the machine busy, the waits for a
core do not count, and a measured lag says what the program is responsible for.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Any

from kubeworld.units.instants import Nanos

__all__ = ["CoreClock", "CoreLoop"]


class _IdleSelector(selectors.DefaultSelector):
    """Adds up for how long it was asked to wait and did."""

    idle = 0.0

    def select(self, timeout: float | None = None) -> Any:
        before = time.perf_counter()
        events = super().select(timeout)
        waited = time.perf_counter() - before
        self.idle += waited if timeout is None else min(waited, max(0.0, timeout))
        return events


class CoreLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers follow the core's time."""

    def __init__(self) -> None:
        self._idle = _IdleSelector()
        super().__init__(self._idle)

    def time(self) -> float:
        return time.process_time() + self._idle.idle


class CoreClock:
    """A `Clock` on the running `CoreLoop`; the wall clock starts at the machine's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = time.time_ns() - self.monotonic()

    def wall(self) -> Nanos:
        return Nanos(self._start + self.monotonic())

    def monotonic(self) -> Nanos:
        return Nanos(int(self._loop.time() * 1e9))

    async def sleep(self, nanoseconds: int) -> None:
        await asyncio.sleep(nanoseconds / 1e9)
