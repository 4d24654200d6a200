"""The decision loop: what is asked together is decided once; faults and pauses lose nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MILLISECOND, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.plan import Plane
from reprieve.execution.fence import Deposed
from reprieve.kube.errors import ServerError
from reprieve.planes.common.loop import DecisionLoop, HeldBack, Pace
from reprieve.planes.common.solve import DecisionLimit

log = logging.getLogger("reprieve.test")
PACE = Pace(held_back=SECOND, logged_at=logging.WARNING, gather=10 * MILLISECOND)


async def nothing() -> None:
    return None


@dataclass
class Site:
    """A loop whose decisions are noted by their instant, in milliseconds."""

    pace: Pace = PACE
    work: Callable[[], Awaitable[None]] = nothing
    why: str = ""
    clock: VirtualClock = field(default_factory=VirtualClock)
    decided: list[int] = field(default_factory=list)
    carried_on: int = 0

    def __post_init__(self) -> None:
        self._start = self.clock.monotonic()
        self.loop = DecisionLoop(
            Plane.IDLE,
            self.clock,
            DecisionLimit(inline=True),
            log,
            self.pace,
            decide=self._decide,
            held_back=lambda: self.why,
            before=self._before,
        )

    async def _before(self) -> None:
        self.carried_on += 1

    async def _decide(self) -> None:
        self.decided.append((self.clock.monotonic() - self._start) // MILLISECOND)
        await self.work()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.loop.run())
        yield task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_is_asked_together_is_decided_once() -> None:
    site = Site()
    async with site.running():
        site.loop.ask()
        await site.clock.advance(5 * MILLISECOND)
        site.loop.ask()
        await site.clock.advance(SECOND)
        assert site.decided == [10]
        site.loop.ask()
        await site.clock.advance(SECOND)
    assert site.decided == [10, 1015]


async def test_what_is_asked_during_a_decision_is_decided_after_it() -> None:
    site = Site()

    async def ask_once() -> None:
        if len(site.decided) == 1:
            site.loop.ask()

    site.work = ask_once
    async with site.running():
        site.loop.ask()
        await site.clock.advance(SECOND)
    assert site.decided == [10, 20]


async def test_of_several_instants_the_earliest_counts_also_when_the_wall_clock_is_set_back() -> (
    None
):
    site = Site(Pace(held_back=SECOND))
    async with site.running():
        site.loop.ask_at(Nanos(site.clock.wall() + 5 * SECOND))
        site.loop.ask_after(2 * SECOND)
        site.loop.ask_after(3 * SECOND)
        await site.clock.advance(10 * SECOND)
    assert site.decided == [2000]


async def test_while_held_back_nothing_is_decided_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    site = Site(why="the loop lags")
    async with site.running():
        site.loop.ask()
        await site.clock.advance(5 * SECOND)
        assert site.decided == []
        assert site.carried_on >= 4, "what is open goes on"
        site.why = ""
        await site.clock.advance(2 * SECOND)
    assert len(site.decided) == 1
    assert caplog.messages == ["nothing is decided: the loop lags", "decisions continue"]


async def test_a_decision_that_finds_itself_held_back_is_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    site = Site()

    async def refuse() -> None:
        if len(site.decided) < 3:
            raise HeldBack("somebody waits")

    site.work = refuse
    async with site.running():
        site.loop.ask()
        await site.clock.advance(10 * SECOND)
    assert site.decided == [10, 1020, 2030]
    assert caplog.messages == ["nothing is decided: somebody waits", "decisions continue"]


@pytest.mark.parametrize(
    ("fault", "instants"),
    [
        pytest.param(RuntimeError("odd"), [10, 1020, 3030, 7040], id="ours: longer each time"),
        pytest.param(ServerError("no"), [10, 1020, 2030, 3040], id="the API server's: a second"),
    ],
)
async def test_after_a_fault_it_is_decided_again_without_being_asked(
    fault: Exception, instants: list[int]
) -> None:
    site = Site()

    async def fail() -> None:
        if len(site.decided) < 4:
            raise fault

    site.work = fail
    async with site.running():
        site.loop.ask()
        await site.clock.advance(20 * SECOND)
    assert site.decided == instants


async def test_the_loss_of_the_lease_ends_the_loop() -> None:
    site = Site()

    async def lose() -> None:
        raise Deposed("lost")

    site.work = lose
    async with site.running() as task:
        site.loop.ask()
        await site.clock.advance(SECOND)
        with pytest.raises(Deposed):
            await task


async def test_the_longer_decisions_take_the_longer_more_is_waited_for() -> None:
    site = Site(Pace(held_back=SECOND, gather=5 * MILLISECOND, rest=4, longest=100 * MILLISECOND))

    async def long() -> None:
        if len(site.decided) < 5:
            site.loop.ask()
        await site.clock.sleep([0, 10, 20, 50, 0][len(site.decided) - 1] * MILLISECOND)

    site.work = long
    async with site.running():
        site.loop.ask()
        await site.clock.advance(5 * SECOND)
    assert site.decided == [5, 10, 60, 160, 310]
