"""What a process has freed goes back to the machine, once a minute, from every heap."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
from typing import Final

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.operator.returned_memory import ReturnedMemory, returning_memory

LIBRARY: Final = ctypes.CDLL(None)

glibc = pytest.mark.skipif(
    not hasattr(LIBRARY, "malloc_trim"), reason="another C library than glibc"
)

# What the scripts below take, free and see of the C library.
HEAP: Final = """
import ctypes, os, sys
from pathlib import Path

library = ctypes.CDLL(None)
library.malloc.restype = library.memset.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def resident():
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
"""

# A process of its own: what other tests of a process use and free meanwhile would be counted, too.
# Pieces are below what the C library takes from the machine by itself; each has one in use behind
# it. Printed is what is resident once they are free, 59 s later, and after the minute.
FREED: Final = (
    HEAP
    + """
import asyncio
from reprieve.operator.returned_memory import ReturnedMemory
from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE, SECOND

async def main():
    clock, size = VirtualClock(), 100 * 1024
    returned = asyncio.create_task(ReturnedMemory(clock).run())
    pairs = [(library.malloc(size), library.malloc(2_000)) for _ in range(1_000)]
    for piece, _ in pairs:
        library.memset(piece, 1, size)
        library.free(piece)
    free = resident()
    await clock.advance(MINUTE - SECOND)
    early = resident()
    await clock.advance(SECOND)
    for _ in range(600):
        if resident() < free - size * len(pairs) // 2:
            break
        await asyncio.sleep(0.1)
    print(free, early, resident())
    returned.cancel()

asyncio.run(main())
"""
)


@glibc
def test_what_is_free_between_pieces_in_use_is_given_back_within_a_minute() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], check=True, capture_output=True, text=True)
    free, early, after = map(int, done.stdout.split())
    half = 50 * 1024 * 1000
    assert early > free - half
    assert after < free - half


async def test_it_ends_with_the_work_that_it_stands_beside() -> None:
    async def work() -> str:
        assert len(asyncio.all_tasks()) == before + 1
        return "done"

    before = len(asyncio.all_tasks())
    assert await returning_memory(work(), VirtualClock()) == "done"
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before


async def test_it_is_given_back_every_minute() -> None:
    clock, times = VirtualClock(), []
    returned = asyncio.create_task(
        ReturnedMemory(clock, lambda: times.append(clock.monotonic())).run()
    )
    start = clock.monotonic()
    for number in range(1, 4):
        await clock.advance(MINUTE)
        for _ in range(600):
            if len(times) == number:
                break
            await asyncio.sleep(0.1)
    returned.cancel()
    assert times == [start + number * MINUTE for number in range(1, 4)]


@pytest.mark.parametrize(("takes", "minutes"), [(0, [10, 20, 30]), (SECOND, [10, 27])])
async def test_all_is_collected_every_ten_minutes_unless_that_takes_long(
    takes: int, minutes: list[int]
) -> None:
    clock, processor, when, given_back = VirtualClock(), _Processor(), list[int](), list[int]()

    def collect() -> None:
        when.append(clock.monotonic() // MINUTE)
        processor.spent += takes

    returned = asyncio.create_task(
        ReturnedMemory(clock, lambda: given_back.append(1), collect, processor).run()
    )
    for number in range(1, 31):
        await clock.advance(MINUTE)
        for _ in range(600):
            if len(given_back) == number:
                break
            await asyncio.sleep(0.1)
    returned.cancel()
    assert when == minutes


async def test_it_is_given_back_less_often_where_that_takes_long() -> None:
    clock, processor, when = VirtualClock(), _Processor(), list[int]()

    def give_back() -> None:
        when.append(clock.monotonic() // MINUTE)
        processor.spent += SECOND // 5

    returned = asyncio.create_task(ReturnedMemory(clock, give_back, lambda: None, processor).run())
    for number in range(1, 12):
        await clock.advance(MINUTE)
        # A fifth of a second each 200 s: every fourth minute.
        for _ in range(600):
            if len(when) == (number + 3) // 4:
                break
            await asyncio.sleep(0.1)
    returned.cancel()
    assert when == [1, 5, 9]


async def test_it_is_given_back_as_often_where_the_machine_has_it_wait() -> None:
    clock, when = _Late(), list[int]()

    def give_back() -> None:
        # Other work has the processor for a second each time.
        clock.late += SECOND
        when.append(clock.there.monotonic() // MINUTE)

    returned = asyncio.create_task(
        ReturnedMemory(clock, give_back, lambda: None, _Processor()).run()
    )
    for number in range(1, 6):
        await clock.there.advance(MINUTE)
        for _ in range(600):
            if len(when) == number:
                break
            await asyncio.sleep(0.1)
    returned.cancel()
    assert when == [1, 2, 3, 4, 5]


class _Processor:
    """The processor's time, which goes by as the test says."""

    def __init__(self) -> None:
        self.spent = 0

    def __call__(self) -> int:
        return self.spent


class _Late:
    """A clock turned by hand that is late by what something took."""

    def __init__(self) -> None:
        self.there = VirtualClock()
        self.late = 0

    def wall(self) -> Nanos:
        return self.there.wall()

    def monotonic(self) -> Nanos:
        return Nanos(self.there.monotonic() + self.late)

    async def sleep(self, nanoseconds: int) -> None:
        await self.there.sleep(nanoseconds)


# A large piece is freed first, after which the C library has others in its heap by itself. Each has
# one of its own size in use behind it, never touched: a smaller one could lie in a gap of the heap,
# and the end of a heap goes back too. Printed is by how much less is resident once they are free.
LARGE: Final = (
    HEAP
    + """
from reprieve.operator import returned_memory

if sys.argv[1] != "together":
    returned_memory.few_heaps()
if sys.argv[1] == "grown":
    more = b"x" * (200 * 2**20)
    returned_memory._give_back()
library.free(library.malloc(8 * 2**20))
pairs = [(library.malloc(256 * 1024), library.malloc(256 * 1024)) for _ in range(100)]
for piece, _ in pairs:
    library.memset(piece, 1, 256 * 1024)
held = resident()
for piece, _ in pairs:
    library.free(piece)
print(held - resident())
"""
)


@glibc
@pytest.mark.parametrize(
    ("word", "apart"), [("apart", True), ("together", False), ("grown", False)]
)
def test_large_pieces_go_back_at_once_while_the_process_is_small(word: str, apart: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LARGE, word], check=True, capture_output=True, text=True
    )
    assert (int(done.stdout) > 20 * 2**20) is apart


HEAPS: Final = """
import ctypes, sys, threading
from reprieve.operator.returned_memory import few_heaps
if sys.argv[1] == "few":
    few_heaps()
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
library.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
library.fclose.argtypes = [ctypes.c_void_p]
all_there = threading.Barrier(6)
def use():
    library.malloc(1000)
    all_there.wait()
threads = [threading.Thread(target=use) for _ in range(6)]
for each in threads: each.start()
for each in threads: each.join()
file = library.fopen(b"/dev/stdout", b"w")
library.malloc_info(0, file)
library.fclose(file)
"""


@glibc
@pytest.mark.parametrize(("word", "few"), [("few", True), ("many", False)])
def test_threads_share_two_heaps(word: str, few: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAPS, word], check=True, capture_output=True, text=True
    )
    heaps = done.stdout.count("<heap nr=")
    assert (0 < heaps <= 2) is few, done.stdout
