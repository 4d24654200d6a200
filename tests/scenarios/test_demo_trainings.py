"""Trainings of the demo answer notices as a container would, as long as their pods run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import web

from kubeworld.units.durations import SECOND
from reprieve.scenarios.demo.cast import Pace
from reprieve.scenarios.demo.trainings import Trainings
from reprieve.scenarios.observer import Observer
from tests.virtual_time import LoopClock

_TOLD = {"id": "n1", "state": "Noticed"}


class Operator:
    """Answers every pod with the same notice, and notes what they say."""

    def __init__(self) -> None:
        self.told: dict[str, str] | None = None
        self.words: list[tuple[str, str, int]] = []
        self.polls: list[str] = []

    async def ask(self, request: web.Request) -> web.Response:
        self.polls.append(request.headers["Authorization"])
        if self.told is None:
            await asyncio.sleep(int(request.query["wait"]) / 10)
        if self.told is None:
            return web.Response(status=204)
        return web.json_response(self.told)

    async def hear(self, request: web.Request) -> web.Response:
        word = await request.json()
        token = request.headers["Authorization"].removeprefix("Bearer ")
        self.words.append((token, word["state"], word.get("step", -1)))
        return web.json_response(_TOLD)


@asynccontextmanager
async def trainings(operator: Operator) -> AsyncIterator[tuple[Observer, list[str]]]:
    """Trainings with an observer that the test fills, and what they say."""
    application = web.Application()
    application.router.add_get("/v1/notice", operator.ask)
    application.router.add_post("/v1/notice/n1", operator.hear)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = cast("Any", site)._server.sockets[0].getsockname()[1]
    clock, said = LoopClock(), list[str]()
    observer = Observer(clock)
    stage = cast("Any", SimpleNamespace(observer=observer, clock=clock))
    found = Trainings(
        stage, Pace(), lambda: f"http://127.0.0.1:{port}", lambda _, uid: uid, said.append
    )
    playing = asyncio.create_task(found.run())
    try:
        yield observer, said
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        await runner.cleanup()


def pod(name: str, job: str, *, asks: bool = True) -> dict[str, Any]:
    notes = {"reprieve.dev/notice": "10s"} if asks else {}
    return {
        "metadata": {
            "namespace": "vision",
            "name": name,
            "uid": name,
            "annotations": notes,
            "ownerReferences": [{"name": job}],
        },
        "spec": {},
        "status": {"phase": "Running"},
    }


async def until(holds: Callable[[], object]) -> None:
    clock = LoopClock()
    async with asyncio.timeout(600):
        while not holds():
            await clock.sleep(SECOND // 10)


async def test_each_pod_saves_once_and_its_job_is_named_once() -> None:
    operator = Operator()
    async with trainings(operator) as (observer, said):
        for each in (pod("a-0", "a"), pod("a-1", "a"), pod("b-0", "b", asks=False)):
            observer.apply("pods", each)
        await until(lambda: len(operator.polls) >= 2)
        operator.told = _TOLD
        await until(lambda: len(operator.words) >= 4)
        await asyncio.sleep(30)

        assert sorted({word[:2] for word in operator.words}) == [
            ("a-0", "saved"), ("a-0", "saving"), ("a-1", "saved"), ("a-1", "saving"),
        ]  # fmt: skip
        assert len(operator.words) == 4
        assert all(step > 0 for _, state, step in operator.words if state == "saved")
        assert [each.rpartition(" ")[0] for each in said] == [
            "vision/a was notified of its eviction and saved step"
        ]


async def test_a_pod_that_is_gone_asks_no_more() -> None:
    operator = Operator()
    async with trainings(operator) as (observer, _):
        gone = pod("a-0", "a")
        observer.apply("pods", gone)
        await until(lambda: operator.polls)
        observer.drop("pods", gone)
        await asyncio.sleep(60)
        polls = len(operator.polls)
        await asyncio.sleep(600)
        assert len(operator.polls) == polls
