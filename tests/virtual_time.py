"""Virtual time for the planes: it stands still while a solver decides. And the clock of a loop.

Threads are waited for: time stands still while a solver decides, and passes as on a wall while an
executor works. A test of a decision that does not end, for which time would stand still for ever,
is marked `real_time`, as is one that starts other processes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final
from weakref import WeakKeyDictionary

import pytest

import kubeworld.time
from kubelocal.tests import virtual_time
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.planes.common import solve

__all__ = ["LoopClock", "VirtualTimeLoop", "loop_factories"]


class VirtualTimeLoop(virtual_time.VirtualTimeLoop):
    """A loop whose time also waits for the solver's thread."""

    @staticmethod
    def is_awaited() -> bool:
        """Whether a solver's thread has something to do."""
        return any(
            isinstance(each, solve._Thread) and (each.job is not None or not each.jobs.empty())
            for each in threading.enumerate()
        )


# By how much the wall time of the next clock of a loop is ahead of the loop's. It is one for all
# clocks of a story, or an operator that is started again would come before it went; but for the
# microsecond by which processes that do something at one instant differ, as on any machine.
_AHEAD: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, int]] = WeakKeyDictionary()
_APART: Final = 1_000


class LoopClock(kubeworld.time.LoopClock):
    """The clock of the loop in which it is made, virtual or not; the first tells the true time."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        ahead = _AHEAD.get(loop, time.time_ns() - round(loop.time() * SECOND))
        _AHEAD[loop] = ahead + _APART
        super().__init__(loop, Nanos(ahead))

    def step(self, nanoseconds: int) -> None:
        """Move this clock's wall time alone."""
        self._start = Nanos(self._start + nanoseconds)


def loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return what makes the loop of a test, for `pytest_asyncio_loop_factories` of a folder."""
    return virtual_time.loop_factories(item, VirtualTimeLoop)
