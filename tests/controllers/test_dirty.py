"""Dirty keys are handed out once, in time, and whatever the wall clock does."""

from __future__ import annotations

import asyncio

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.planes.common.dirty import DirtyKeys


async def test_a_key_added_often_is_handed_out_once_in_order_of_arrival() -> None:
    due: DirtyKeys[str] = DirtyKeys(VirtualClock())
    for key in ("b", "a", "b", "c", "a"):
        due.add(key)
    assert await due.next() == ["b", "a", "c"]


async def test_the_earliest_deadline_of_a_key_counts() -> None:
    clock = VirtualClock()
    due: DirtyKeys[str] = DirtyKeys(clock)
    due.add_at("a", Nanos(clock.wall() + 5 * SECOND))
    due.add_at("a", Nanos(clock.wall() + 9 * SECOND))
    due.add_at("a", Nanos(clock.wall() + 2 * SECOND))
    waiting = asyncio.create_task(due.next())
    await clock.advance(2 * SECOND - 1)
    assert not waiting.done()
    await clock.advance(1)
    assert await waiting == ["a"]
    later = asyncio.create_task(due.next())
    await clock.advance(HOUR)
    assert not later.done(), "the later deadlines are forgotten"
    later.cancel()


async def test_a_wall_clock_that_is_set_back_delays_nothing() -> None:
    clock = VirtualClock()
    due: DirtyKeys[str] = DirtyKeys(clock)
    due.add_at("a", Nanos(clock.wall() + 5 * SECOND))
    waiting = asyncio.create_task(due.next())
    await clock.advance(SECOND)
    clock.set_wall(Nanos(clock.wall() - HOUR))
    await clock.advance(4 * SECOND)
    assert await waiting == ["a"]


async def test_a_discarded_key_is_not_handed_out() -> None:
    clock = VirtualClock()
    due: DirtyKeys[str] = DirtyKeys(clock)
    due.add("a")
    due.add_at("b", Nanos(clock.wall() + SECOND))
    due.discard("a")
    due.discard("b")
    waiting = asyncio.create_task(due.next())
    await clock.advance(2 * SECOND)
    assert not waiting.done()
    waiting.cancel()


async def test_a_key_whose_deadline_is_always_over_leaves_time_to_others() -> None:
    clock, looks = VirtualClock(), list[int]()
    due: DirtyKeys[str] = DirtyKeys(clock)

    async def look() -> None:
        while len(looks) < 1_000:
            await due.next()
            looks.append(clock.monotonic())
            due.add_at("a", Nanos(clock.wall() - SECOND))

    due.add("a")
    looking = asyncio.create_task(look())
    await clock.advance(SECOND)
    assert 50 < len(looks) <= 101
    looking.cancel()
