"""An event loop whose time passes only while nobody has anything to do, and the clock of a loop.

A test in virtual time polls, sleeps and lets leases run out as any other, and its sockets are real
ones. But nobody waits: once nothing is ready, the loop's time moves to the next timer. A story of
minutes takes as long as it computes, and a machine that stands still for seconds makes nobody late.
Threads are waited for: time stands still while a solver decides, and passes as on a wall while an
executor works. Other processes are not: a test that starts some is marked `real_time`, as is one of
a decision that does not end, for which time would stand still for ever.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import looptime
import pytest

from reprieve.controllers import solve
from reprieve.units.durations import SECOND
from reprieve.units.instants import Nanos

__all__ = ["LoopClock", "VirtualTimeLoop", "loop_factories"]

#: Seconds between two looks at whether a solver's thread is done.
_LOOK_S = 0.0005


class VirtualTimeLoop(looptime.LoopTimeEventLoop, asyncio.SelectorEventLoop):
    """A loop whose time moves to the next timer as soon as nothing else is to be done."""

    def __init__(self) -> None:
        selector = selectors.DefaultSelector()
        wait = selector.select
        super().__init__(selector)
        jump = self._selector.select

        def select(timeout: float | None = None) -> list[Any]:
            if timeout != 0 and _decides():
                return wait(_LOOK_S)
            return jump(timeout)

        self._selector.select = select  # type: ignore[method-assign]


class LoopClock:
    """The clock of the loop in which it is made, virtual or not; its wall time begins as it is."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ahead = time.time_ns() - self.monotonic()

    def wall(self) -> Nanos:
        return Nanos(self.monotonic() + self._ahead)

    def monotonic(self) -> Nanos:
        return Nanos(round(self._loop.time() * SECOND))

    async def sleep(self, nanoseconds: int) -> None:
        await asyncio.sleep(max(0, nanoseconds) / SECOND)


def loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return what makes the loop of a test, for `pytest_asyncio_loop_factories` of a folder."""
    if item.get_closest_marker("real_time") is not None:
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualTimeLoop}


def _decides() -> bool:
    """Whether a solver's thread has something to do."""
    return any(
        isinstance(each, solve._Thread) and (each.job is not None or not each.jobs.empty())
        for each in threading.enumerate()
    )
