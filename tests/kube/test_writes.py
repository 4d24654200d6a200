"""The order in which writes are let through."""

from __future__ import annotations

import asyncio

import pytest

from reprieve.kube.writes import Priority, WriteGate


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_waiting_writes_go_by_priority_then_arrival() -> None:
    gate = WriteGate(1)
    order: list[str] = []
    first_done = asyncio.Event()

    async def write(name: str, priority: Priority) -> None:
        async with gate.turn(priority):
            order.append(name)
            if name == "first":
                await first_done.wait()

    asked = [
        ("first", Priority.EVENT),
        ("event", Priority.EVENT),
        ("status 1", Priority.STATUS),
        ("evict", Priority.EVICT),
        ("status 2", Priority.STATUS),
        ("intent", Priority.INTENT),
    ]
    tasks = [asyncio.ensure_future(write(*each)) for each in asked]
    await _settle()
    assert order == ["first"]
    assert gate.waiting == 5
    first_done.set()
    await asyncio.gather(*tasks)
    assert order == ["first", "intent", "evict", "status 1", "status 2", "event"]
    assert gate.waiting == 0


async def test_a_bounded_number_of_writes_is_in_flight() -> None:
    gate = WriteGate(3)
    running = 0
    most = 0

    async def write() -> None:
        nonlocal running, most
        async with gate.turn(Priority.STATUS):
            running += 1
            most = max(most, running)
            await _settle()
            running -= 1

    await asyncio.gather(*(write() for _ in range(20)))
    assert (most, running) == (3, 0)


async def test_a_lease_write_passes_even_when_all_places_are_taken() -> None:
    gate = WriteGate(1)
    async with gate.turn(Priority.EVICT), gate.turn(Priority.LEASE):
        assert gate.waiting == 0


async def test_a_writer_that_gives_up_or_fails_leaves_no_place_taken() -> None:
    gate = WriteGate(1)

    async def write() -> None:
        async with gate.turn(Priority.STATUS):
            raise RuntimeError

    async with gate.turn(Priority.STATUS):
        waiting = asyncio.ensure_future(write())
        await _settle()
        waiting.cancel()
        await _settle()
        assert gate.waiting == 0
    with pytest.raises(RuntimeError):
        await write()
    # Released to a waiter that is cancelled in the same turn of the loop.
    holder = gate.turn(Priority.STATUS)
    await holder.__aenter__()
    waiting = asyncio.ensure_future(write())
    await _settle()
    await holder.__aexit__(None, None, None)
    waiting.cancel()
    await _settle()
    async with asyncio.timeout(60), gate.turn(Priority.EVENT):
        pass


async def test_events_go_one_at_a_time_while_anything_else_is_on_its_way() -> None:
    gate, most = WriteGate(places=4), 0
    on_their_way, end = 0, asyncio.Event()

    async def event() -> None:
        nonlocal on_their_way, most
        async with gate.turn(Priority.EVENT):
            on_their_way += 1
            most = max(most, on_their_way)
            await asyncio.sleep(0)
            on_their_way -= 1

    async def eviction() -> None:
        async with gate.turn(Priority.EVICT):
            await end.wait()

    evicting = asyncio.create_task(eviction())
    await asyncio.sleep(0)
    await asyncio.gather(*(event() for _ in range(20)))
    assert most == 1
    end.set()
    await evicting
    await asyncio.gather(*(event() for _ in range(20)))
    assert most == 4
    assert gate.waiting == 0


async def test_an_event_does_not_take_the_place_of_a_write_that_waits() -> None:
    gate, order = WriteGate(places=1), []

    async def write(priority: Priority) -> None:
        async with gate.turn(priority):
            order.append(priority)
            await asyncio.sleep(0)

    wanted = (Priority.STATUS, Priority.EVENT, Priority.EVENT, Priority.EVICT, Priority.INTENT)
    await asyncio.gather(*map(write, wanted))
    assert order[1:] == [Priority.INTENT, Priority.EVICT, Priority.EVENT, Priority.EVENT]
