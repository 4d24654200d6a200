"""Workers look at each key alone, go on past faults, and never wait for a slow one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.execution.fence import Deposed
from reprieve.kube.errors import ServerError
from reprieve.planes.common.dirty import DirtyKeys
from reprieve.planes.common.workers import look_at_each, spawn


class Site:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.due: DirtyKeys[str] = DirtyKeys(self.clock)
        self.looked: list[str] = []

    def start(self, look: Callable[[str], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(look_at_each(self.due, look, self.clock, at_once=2))


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("fault", [ServerError("no"), RuntimeError("a fault of ours")])
async def test_a_look_that_fails_is_repeated_later_and_stops_nobody(fault: Exception) -> None:
    site = Site()

    async def look(key: str) -> None:
        site.looked.append(key)
        if key == "bad" and site.looked.count("bad") == 1:
            raise fault

    task = site.start(look)
    site.due.add("bad")
    site.due.add("good")
    await turns()
    assert site.looked == ["bad", "good"]
    await site.clock.advance(6 * SECOND)
    assert site.looked == ["bad", "good", "bad"]
    await end(task)


async def test_the_loss_of_the_lease_ends_all_looks_and_is_no_fault_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()

    async def look(key: str) -> None:
        raise Deposed("the test holds no lease")

    task = site.start(look)
    site.due.add("any")
    with pytest.raises(ExceptionGroup) as ended:
        await task
    assert [type(each) for each in ended.value.exceptions] == [Deposed]
    assert not caplog.records


async def test_a_slow_look_delays_only_its_own_key() -> None:
    site = Site()
    release = asyncio.Event()
    at_once: list[str] = []

    async def look(key: str) -> None:
        assert key not in at_once, "a key is looked at by one worker at a time"
        at_once.append(key)
        if key == "slow":
            await release.wait()
        at_once.remove(key)
        site.looked.append(key)

    task = site.start(look)
    site.due.add("slow")
    await turns()
    site.due.add("slow")
    site.due.add("a")
    site.due.add("b")
    await turns()
    assert site.looked == ["a", "b"]
    release.set()
    await turns()
    assert site.looked == ["a", "b", "slow", "slow"]
    await end(task)


async def test_a_key_that_fails_again_and_again_is_looked_at_less_and_less_often() -> None:
    site = Site()
    tries: list[int] = []

    async def look(key: str) -> None:
        site.looked.append(key)
        if key == "poisoned":
            tries.append(site.clock.monotonic() // SECOND)
            raise ZeroDivisionError("the test says so")

    task = site.start(look)
    begun = site.clock.monotonic() // SECOND
    site.due.add("poisoned")
    await turns()
    for _ in range(100):
        await site.clock.advance(SECOND, settle=20)
    site.due.add("other")
    await turns()
    assert [each - begun for each in tries] == [0, 5, 15, 35, 75]
    assert site.looked[-1] == "other"
    await end(task)


async def test_work_that_is_stopped_before_it_begins_is_closed() -> None:
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    never_begun = work()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.TaskGroup() as tasks:
            spawn(tasks, never_begun, logging.getLogger("test"))
            raise asyncio.CancelledError
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        never_begun.send(None)
    assert begun == []
