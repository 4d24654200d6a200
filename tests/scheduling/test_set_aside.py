"""A gang whose decision takes too long is set aside: told, tried again later; others go on."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.planes.common.solve import DecisionLimit, Solver
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import group, pod

pytestmark = pytest.mark.real_time  # decisions that do not end, in threads

LIMIT = SECOND // 2


class Plugin:
    """Spins for ever when it is asked about the gang `slow`; counts how often it is."""

    def __init__(self, how: str) -> None:
        self.asked = 0
        self.how = how
        self.released = threading.Event()

    def __call__(self, simulation: Any, row: Any, *facts: Any) -> Any:
        if row.name == "slow" and not self.released.is_set():
            self.asked += 1
            while not self.released.is_set():
                try:
                    self._spin()
                except BaseException:
                    if self.how == "spins":
                        raise
        return GROUP_POST_FILTERS["DefaultPreemption"](simulation, row, *facts)

    def _spin(self) -> None:
        while not self.released.is_set():
            try:
                if self.how == "sleeps":
                    self.released.wait()
                while not self.released.is_set():
                    pass
            except BaseException:
                if self.how == "spins":
                    raise


async def _until(cluster: Memory, holds: Callable[[], bool]) -> None:
    """Let virtual and real time pass until it holds."""
    for _ in range(3_000):
        if holds():
            return
        await asyncio.sleep(0.01)
        await cluster.pass_time(SECOND // 10)
    raise AssertionError(cluster.told())


@pytest.mark.parametrize("how", ["spins", "keeps what is raised", "sleeps"])
async def test_a_plugin_that_never_answers_costs_one_gang(how: str) -> None:
    plugin = Plugin(how)
    async with memory() as cluster:
        cluster.nodes([4, 4])
        for index in range(2):
            cluster.running(pod(f"low-{index}", 4, priority="low"), f"node-{index}")
        plane = cluster.start(
            plugins=MappingProxyType({**GROUP_POST_FILTERS, "DefaultPreemption": plugin}),
            solver=Solver(Plane.SCHEDULING, DecisionLimit(LIMIT)),
        )
        stopped = plane.context.metrics.decisions_stopped
        outcome = "stopped" if how == "spins" else "left"
        try:
            for name, priority in (("slow", "high"), ("quick", "middle")):
                cluster.create(
                    group(name, min_count=1, priority=priority),
                    pod(f"{name}-0", 4, group=name, priority=priority),
                )
            await _until(cluster, lambda: len(cluster.victims()) == 1)
            cluster.end_all()
            await _until(cluster, lambda: "quick-0" in cluster.placed())
            assert stopped.labels("scheduling", outcome)._value.get() == plugin.asked == 1
            (told,) = cluster.events("DecisionStopped")
            assert told["regarding"]["kind"] == "PodGroup" and told["regarding"]["name"] == "slow"
            pause = 10 if how == "spins" else 600
            assert f"tried again after {pause} s, or when it changes" in told["note"]
            (condition,) = cluster.pod("slow-0")["status"]["conditions"]
            assert condition["reason"] == "SchedulerError"
            assert "exceeded 0.5 s" in condition["message"]
            await cluster.pass_time((pause - 5) * SECOND)
            assert plugin.asked == 1, "what is written about it is no change of it"
            plugin.released.set()
            await _until(cluster, lambda: len(cluster.victims()) == 1)
            cluster.end_all()
            await _until(cluster, lambda: "slow-0" in cluster.placed())
        finally:
            plugin.released.set()


async def test_the_pause_grows_and_a_change_ends_it() -> None:
    plugin = Plugin("spins")
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(pod("low", 4, priority="low"), "node-0")
        cluster.start(
            plugins=MappingProxyType({**GROUP_POST_FILTERS, "DefaultPreemption": plugin}),
            solver=Solver(Plane.SCHEDULING, DecisionLimit(SECOND // 4)),
        )
        cluster.create(
            group("slow", min_count=1, priority="high"),
            pod("slow-0", 4, group="slow", priority="high"),
        )
        asked_at = []
        for number in range(1, 4):
            await _until(cluster, lambda: plugin.asked == number)  # noqa: B023
            asked_at.append(cluster.clock.monotonic() // SECOND)
        pauses = [later - earlier for earlier, later in itertools.pairwise(asked_at)]
        assert pauses[0] >= 10 and pauses[1] >= 20, pauses
        asked = plugin.asked
        cluster.create(pod("slow-1", 4, group="slow", priority="high"))
        before = cluster.clock.monotonic()
        await _until(cluster, lambda: plugin.asked > asked)
        assert cluster.clock.monotonic() - before < 30 * SECOND, "a change is looked at soon"
        plugin.released.set()
