"""Pods that abuse notice, over HTTP against an operator: none gains time, none changes another's.

Time is virtual, sockets are real. The gang of `test_notice_over_http` is notified; what its pods
and others do then is stated by each test.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubelocal.cluster import Stage, Write
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from tests.scheduling.site import pod
from tests.scheduling.test_notice_over_http import _LOWS, phase, training, until_told
from tests.virtual_time import LoopClock

_SECOND = 1_000_000_000


def seconds_until(instant: str) -> float:
    """Return how far an instant is away, by the clock of the operator."""
    return (parse_instant(instant) - LoopClock().wall()) / _SECOND


def after(instant: str, seconds: int) -> str:
    return format_instant(Nanos(parse_instant(instant) + seconds * _SECOND))


async def test_an_extension_that_is_requested_in_the_last_moment_holds(tmp_path: Path) -> None:
    async with training(tmp_path, "30s") as (cluster, trainer):
        await cluster.gang()
        notice = await until_told(cluster, trainer)
        token, wish = await trainer.token("low-0"), after(notice["deadline"], 40)
        await asyncio.sleep(seconds_until(notice["deadline"]) - 0.001)

        async def slow(write: Write, stage: Stage) -> None:
            if stage is Stage.BEFORE and "/preemptions/" in write.path:
                await asyncio.sleep(1)

        cluster.hook = slow
        word = {"state": "saving", "expected": wish}
        status, said = await trainer.said("low-0", notice["id"], word, token=token)

        assert (status, said["state"], said["deadline"]) == (200, "Saving", wish)
        await asyncio.sleep(seconds_until(wish) - 1)
        assert not await cluster.victims()
        assert await cluster.until_victims(4) == set(_LOWS)


async def test_who_asks_for_ever_more_time_gets_what_is_allowed_once(tmp_path: Path) -> None:
    async with training(tmp_path, "30s") as (cluster, trainer):
        await cluster.gang()
        notice = await until_told(cluster, trainer)
        token, last = await trainer.token("low-0"), notice["deadline"]
        deadlines = []
        while not await cluster.victims():
            word = {"state": "saving", "expected": after(last, 3_600)}
            status, said = await trainer.said("low-0", notice["id"], word, token=token)
            deadlines += [said["deadline"]] if status == 200 else []
            await asyncio.sleep(2)

        assert deadlines == sorted(deadlines), "no deadline comes earlier than one that was told"
        assert deadlines[-1] == after(notice["deadline"], 120)
        assert seconds_until(deadlines[-1]) > -5


async def test_nobody_answers_for_a_pod_that_had_the_name_before(tmp_path: Path) -> None:
    async with training(tmp_path, "1m") as (cluster, trainer):
        await cluster.gang()
        notice = await until_told(cluster, trainer)
        for name in _LOWS[:3]:
            await trainer.said(name, notice["id"], {"state": "saved"})
        former = await trainer.token("low-3")
        await cluster.end("low-2")
        again = pod("low-2", 2, group="low", priority="low")
        again["metadata"]["annotations"] = {"reprieve.dev/notice": "10m"}
        await cluster.create(again)

        # The pod with the old name is another one; it does not make the unit wait any longer, and
        # what it states is not heard before it belongs to the unit.
        found = [await trainer.asked("low-2"), await trainer.asked("low-3", token=former)]
        assert [status for status, _ in found] == [204, 200]
        assert (await trainer.said("low-2", notice["id"], {"state": "saved"})) == (404, "")
        await asyncio.sleep(5)
        assert not (await cluster.victims() - {"low-2"})
        await trainer.said("low-3", notice["id"], {"state": "saved"}, token=former)
        assert await cluster.until_victims(3) >= {"low-0", "low-1", "low-3"}


async def test_a_pod_that_polls_without_end_holds_sixteen_polls(tmp_path: Path) -> None:
    async with training(tmp_path) as (_, trainer):
        tokens = {name: await trainer.token(name) for name in _LOWS[:2]}
        polls = [
            asyncio.create_task(trainer.asked("low-0", wait=55, token=tokens["low-0"]))
            for _ in range(20)
        ]
        other = asyncio.create_task(trainer.asked("low-1", wait=55, token=tokens["low-1"]))

        answers = sorted(status for status, _ in await asyncio.gather(*polls))

        assert answers == [204] * 16 + [429] * 4
        assert (await other)[0] == 204


async def test_a_connection_that_requests_nothing_is_closed_soon(tmp_path: Path) -> None:
    async with training(tmp_path) as (_, trainer):
        port = int(trainer.address.rpartition(":")[2])
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        await asyncio.sleep(11)
        for reader, writer in silent:
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()


@pytest.mark.parametrize("later_s", [-2.0, -0.5, 0.0, 0.001, 0.01, 0.1, 0.5, 2.0])
async def test_a_preemptor_that_leaves_as_its_victims_have_saved_leaves_no_half_gang(
    later_s: float, tmp_path: Path
) -> None:
    async with training(tmp_path, "1m") as (cluster, trainer):
        high = await cluster.gang()
        notice = await until_told(cluster, trainer)
        tokens = {name: await trainer.token(name) for name in _LOWS}

        async def leaves() -> None:
            await asyncio.sleep(max(0.0, later_s))
            await cluster.end(*high)

        async def saves() -> None:
            await asyncio.sleep(max(0.0, -later_s))
            for name in _LOWS:
                await trainer.said(name, notice["id"], {"state": "saved"}, token=tokens[name])

        await asyncio.gather(leaves(), saves())
        await asyncio.sleep(20)

        left = await cluster.victims()
        assert left in (set(), set(_LOWS)), "all or nobody"
        assert await phase(cluster) == ("Abandoned" if not left else await phase(cluster))
        if later_s <= -2:
            assert not left, "nobody is evicted for a preemptor that is gone"
        if not left:
            shown: list[Any] = [await trainer.asked(name, token=tokens[name]) for name in _LOWS]
            assert shown == [(204, "")] * 4, "they are told that they stay"
