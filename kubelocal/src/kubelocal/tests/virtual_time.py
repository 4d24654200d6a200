"""An event loop whose time passes only while nothing has anything to do.

A test in virtual time polls and sleeps as any other, and its sockets are real ones. But nobody
waits: once nothing is ready, the loop's time moves to the next timer. A story of minutes takes as
long as it computes, and a machine that stands still for seconds makes nobody late. Other processes
are not waited for: a test that starts some is marked `real_time`. Where something is always ready,
time stands still: that ends the test.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any

import looptime
import pytest

__all__ = ["VirtualTimeLoop", "loop_factories"]

#: Seconds between two looks at whether a thread is done.
_LOOK_S = 0.0005
#: Turns without anything to do before time moves: what was written to a socket is read by then.
_TURNS = 8
#: Turns at one instant, some minutes, after which nothing else is expected at it.
_STANDSTILL = 10_000_000


class VirtualTimeLoop(looptime.LoopTimeEventLoop, asyncio.SelectorEventLoop):
    """A loop whose time moves to the next timer as soon as nothing else is to be done."""

    def __init__(self) -> None:
        selector = selectors.DefaultSelector()
        wait = selector.select
        super().__init__(selector, noop_cycles=_TURNS)
        jump = self._selector.select
        turns, instant = 0, -1.0

        def select(timeout: float | None = None) -> list[Any]:
            nonlocal turns, instant
            now = self.time()
            turns, instant = (turns + 1 if now == instant else 0), now
            if turns > _STANDSTILL:
                turns = 0
                raise RuntimeError(f"virtual time stands still at {now} s: who spins?")
            if timeout != 0 and self.is_awaited():
                return wait(_LOOK_S)
            return jump(timeout)

        self._selector.select = select  # type: ignore[method-assign]

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the executor's threads, however much time would pass: `timeout` is of a wall."""
        await super().shutdown_default_executor()

    @staticmethod
    def is_awaited() -> bool:
        """Whether a thread works for which time stands still; none here."""
        return False


def loop_factories(
    item: pytest.Item, virtual: Callable[[], asyncio.AbstractEventLoop] = VirtualTimeLoop
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return what makes the loop of a test, for `pytest_asyncio_loop_factories` of a folder."""
    if item.get_closest_marker("real_time") is not None:
        return {"real": asyncio.new_event_loop}
    return {"virtual": virtual}
