"""Memory that was freed returns to the machine, so that what a process holds is what it uses.

The C library keeps what was freed between pieces that are in use, and a heap of its own for each of
several threads: with lists, records and answers that are made and freed, and decisions in threads,
a third of the heap came to be free and resident. There are two such heaps at most. Pieces of 256
KiB and more are no part of them, so that they are returned when they are free: each connection has
one, and small pieces settled in the places of those that were given up. By default the C library
maps large pieces from the machine only until the first of them is free. A process that holds more
than 160 MiB has them in its heaps again: its decisions need large arrays all the time (with each of
them from the machine one among 20,000 nodes needs 84 ms instead of 44), and those places are little
to it.

Once a minute the free pages of the heaps are given back, in a thread. A thread that wants memory of
a heap waits for that, so that it comes as seldom as makes a thousandth of the time of it. That is
the processor's time: by the clock it would last longest, and come most seldom, where other work of
the machine makes it wait, and there the most is free. All of this is of a process, so that the
command does it and not the operator, which other programs run in their own. Where the C library is
another one than glibc nothing of it is done.

Decisions leave objects that refer to each other, which only the collector finds. What a young
collection meets in use counts as older from then on, and with the thresholds of `collector` older
ones come once in hours: each keeps the decision that was being made. All is collected every ten
minutes therefore, or as seldom as makes a thousandth of the time of it.
Source: mallopt(3), malloc_trim(3); figures in docs/reliability/soak.md.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final, TypeVar

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE

__all__ = ["ReturnedMemory", "few_heaps", "returning_memory"]

Result = TypeVar("Result")

_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h
_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1
_HEAPS: Final = 2
_LARGE: Final = 256 * 1024  # what is read from a connection over TLS
_LARGEST: Final = 32 * 2**20  # as the C library would come to by itself
_SMALL_PROCESS: Final = 160 * 2**20
_COLLECTED_EVERY: Final = 10 * MINUTE
_PART_OF_TIME: Final = 1_000


def few_heaps() -> None:
    """Have threads share heaps, without large pieces; for the start of the process."""
    _set_options((_ARENA_MAX, _HEAPS), *_in_heaps_below(_LARGE))


def _in_heaps_below(size: int) -> tuple[tuple[int, int], ...]:
    # What is free at the end of a heap stays up to twice as much, as by itself; once the first is
    # set the other is no longer.
    return (_MMAP_THRESHOLD, size), (_TRIM_THRESHOLD, 2 * size)


def _set_options(*options: tuple[int, int]) -> None:
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        for option, value in options:
            set_option(option, value)


class ReturnedMemory:
    """Gives back what is free; `run` does so once a minute. `collect`: finds more of that.

    `spent`: the processor's time of the calling thread, in nanoseconds.
    """

    def __init__(
        self,
        clock: Clock,
        give_back: Callable[[], object] | None = None,
        collect: Callable[[], object] = gc.collect,
        spent: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._clock = clock
        self._give_back = give_back or _give_back
        self._collect = collect
        self._spent = spent

    async def run(self) -> None:
        """Give back until cancelled."""
        clock = self._clock
        collected_next: int = clock.monotonic() + _COLLECTED_EVERY
        given_next: int = clock.monotonic()
        while True:
            await clock.sleep(MINUTE)
            if clock.monotonic() >= collected_next:
                took = self._took(self._collect)
                collected_next = clock.monotonic() + max(_COLLECTED_EVERY, _PART_OF_TIME * took)
            if clock.monotonic() >= given_next:
                took = await asyncio.to_thread(self._took, self._give_back)
                given_next = clock.monotonic() + _PART_OF_TIME * took

    def _took(self, work: Callable[[], object]) -> int:
        began = self._spent()
        work()
        return self._spent() - began


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
        if _resident() > _SMALL_PROCESS:
            _set_options(*_in_heaps_below(_LARGEST))
        trim(ctypes.c_size_t(0))


def _resident() -> int:
    """Return how many bytes are resident, 0 where the system does not state it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
