"""Memory that was freed goes back to the machine, so that what a process holds is what it uses.

The C library keeps what was freed between pieces that are in use, and a heap of its own for each of
several threads: with lists, records and answers that come and go, and decisions in threads, a third
of the heap came to be free and resident. There are two such heaps at most, and once a minute the
free pages of all are given back, in a thread. Both are of a process, so that the command does them
and not the operator, which other programs run in their own. Where the C library is another one than
glibc nothing is done. Source: mallopt(3), malloc_trim(3); figures in docs/reliability.md.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Coroutine
from typing import Final, TypeVar

from reprieve.units.clock import Clock
from reprieve.units.durations import MINUTE

__all__ = ["ReturnedMemory", "few_heaps", "returning_memory"]

Result = TypeVar("Result")

_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h
_HEAPS: Final = 2


def few_heaps() -> None:
    """Have threads share heaps; for the start of the process, before there are any."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_ARENA_MAX, _HEAPS)


class ReturnedMemory:
    """Gives back what is free; `run` does so once a minute."""

    def __init__(self, clock: Clock, give_back: Callable[[], object] | None = None) -> None:
        self._clock = clock
        self._give_back = give_back or _give_back

    async def run(self) -> None:
        """Give back until cancelled."""
        while True:
            await self._clock.sleep(MINUTE)
            await asyncio.to_thread(self._give_back)


async def returning_memory(work: Coroutine[None, None, Result], clock: Clock) -> Result:
    """Return what the work returns; until it has ended, memory is given back once a minute."""
    beside = asyncio.create_task(ReturnedMemory(clock).run())
    try:
        return await work
    finally:
        beside.cancel()


def _give_back() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
