"""A process that stands by, and leads: its records are out of the collector's sight."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.operator.collector import await_records
from reprieve.operator.leading import End, lead
from reprieve.operator.lease_keeper import LeaseKeeper
from reprieve.operator.lease_link import WantedLease
from reprieve.planes.common.suspects import Suspects


class FakePlane:
    """Has read everything once it is told so."""

    name = "fake"
    ready = True

    def __init__(self) -> None:
        self.read = asyncio.Event()

    def troubles(self) -> Sequence[str]:
        return ()

    def notice(self) -> str:
        return ""

    async def synced(self) -> None:
        await self.read.wait()

    async def run(self) -> None:
        await asyncio.Event().wait()


class FakeKeeper:
    """Leads once it is told so."""

    epoch = 1
    suspects = ()

    def __init__(self) -> None:
        self.led = asyncio.Event()

    async def run(self, lease: WantedLease) -> None:
        await asyncio.Event().wait()

    async def wait_leading(self) -> None:
        await self.led.wait()

    async def wait_lost(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        pass


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The collector as it is at a start, and afterwards as it was."""
    before = gc.get_threshold()
    gc.unfreeze()
    await_records()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@asynccontextmanager
async def process(*planes: FakePlane) -> AsyncIterator[FakeKeeper]:
    keeper, stop = FakeKeeper(), asyncio.Event()
    turn = asyncio.create_task(
        lead(
            planes,
            cast("LeaseKeeper", keeper),
            WantedLease("system", "lease", "me", 15 * SECOND, 30 * SECOND),
            Suspects(VirtualClock()),
            stop,
            None,
            asyncio.get_running_loop().create_future(),
        )
    )
    await turns()
    yield keeper
    stop.set()
    assert await turn is End.STOPPED


async def turns() -> None:
    """Let everything go on that can."""
    for _ in range(20):
        await asyncio.sleep(0)


def awaits_records() -> bool:
    """Whether the collector is set for first lists."""
    return gc.get_threshold()[0] == 200_000


async def test_what_a_plane_reads_while_it_stands_by_is_frozen_then() -> None:
    follows, waits = FakePlane(), FakePlane()
    async with process(follows, waits):
        assert (gc.get_freeze_count(), awaits_records()) == (0, True)
        follows.read.set()
        await turns()
        assert gc.get_freeze_count() > 0
        assert not awaits_records()


async def test_who_begins_to_lead_awaits_the_records_of_all_planes_and_freezes_them() -> None:
    follows, waits = FakePlane(), FakePlane()
    async with process(follows, waits) as keeper:
        follows.read.set()
        await turns()
        stood_by = gc.get_freeze_count()
        keeper.led.set()
        await turns()
        assert awaits_records()
        kept: list[list[int]] = [[] for _ in range(50_000)]
        waits.read.set()
        await turns()
        # Some of what was frozen first has gone since.
        assert gc.get_freeze_count() > stood_by + len(kept) // 2
        assert not awaits_records()
