"""The wall clock is set to another time: no deadline of a Workload passes by that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from reprieve.planes.quota.context import QuotaOptions
from reprieve.settings.quota_configuration_parts import PodsReady
from tests.quota_plane.site import NAMESPACE, WORKLOADS, Site, job, node, site
from tests.quota_plane.test_jobs import LOWER, base, end
from tests.quota_plane.test_notice import (
    OPTIONS,
    asked_for_quota,
    asking,
    deadline_of,
    is_evicted,
    notices,
    told,
)
from tests.quota_plane.test_time import pods, until_suspended
from tests.tiers import first_of
from tests.virtual_time import LoopClock

_DAY = 24 * HOUR
_STEPS = {"a day ahead": _DAY, "an hour back": -HOUR}
_MOMENTS = ("half a minute later", "as it is notified", "after it was extended")


@pytest.mark.parametrize("step", [_DAY, -HOUR], ids=["a day ahead", "an hour back"])
async def test_work_runs_as_long_as_it_may_whatever_the_clock_is_set_to(
    tmp_path: Path, step: int
) -> None:
    brief: Any = job("brief")
    brief["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "60"
    clock = LoopClock()
    async with site(tmp_path, *base(4), clock=clock) as cluster:
        await cluster.create(brief)
        await cluster.until_admitted("brief")
        clock.step(step)
        await _look_at(cluster, "brief")
        await cluster.until_admitted("brief", "later")

        async def ended() -> bool:
            return "brief" not in await cluster.admitted()

        began = clock.monotonic()
        await cluster.until("its time is over", ended, 120.0)
        assert 50 * SECOND < clock.monotonic() - began <= MINUTE + 2 * SECOND


async def test_pods_have_their_time_to_become_ready_whatever_the_clock_is_set_to(
    tmp_path: Path,
) -> None:
    clock = LoopClock()
    options = QuotaOptions(
        pods_ready=PodsReady(timeout_s=600, recovery_s=None, block_admission=False)
    )
    async with site(tmp_path, *base(4), options=options, without=("jobs",), clock=clock) as cluster:
        await cluster.create(job("slow"))
        await until_suspended(cluster, "slow", suspended=False)
        clock.step(_DAY)
        await _look_at(cluster, "slow")
        await pods(cluster, "slow", 2, 2)

        async def ready() -> bool:
            return (await cluster.conditions("slow")).get("PodsReady", ("",))[0] == "True"

        await cluster.until("its pods are ready", ready)
        said = await cluster.conditions("slow")
        assert "Evicted" not in said


async def test_what_is_finished_is_kept_for_its_time_whatever_the_clock_is_set_to(
    tmp_path: Path,
) -> None:
    clock, options = LoopClock(), QuotaOptions(after_finished_s=60)
    async with site(tmp_path, *base(4), options=options, clock=clock) as cluster:
        await cluster.create(job("brief"))
        await cluster.until_admitted("brief")
        await end(cluster, "brief")

        async def finished() -> bool:
            return (await cluster.conditions("brief")).get("Finished", ("",))[0] == "True"

        await cluster.until("it is finished", finished)
        clock.step(_DAY)
        began = clock.monotonic()
        await _look_at(cluster, "brief")
        assert "brief" in await cluster.workloads()

        async def deleted() -> bool:
            return "brief" not in await cluster.workloads()

        await cluster.until("it is deleted", deleted, 120.0)
        assert clock.monotonic() - began > 50 * SECOND


@pytest.mark.parametrize(
    "story", first_of(f"{name}: {when}" for when in _MOMENTS for name in _STEPS)
)
async def test_who_saves_has_the_time_that_it_was_told_whatever_the_clock_is_set_to(
    tmp_path: Path, story: str
) -> None:
    name, _, when = story.partition(": ")
    clock = LoopClock()
    nodes = [node("node-0")]
    async with site(
        tmp_path, *base(2, preemption=LOWER), options=OPTIONS, nodes=nodes, clock=clock
    ) as cluster:
        await cluster.create(asking("old", "5m"))
        await cluster.until_admitted("old")
        deadline = deadline_of(await asked_for_quota(cluster))
        notified, length = clock.monotonic(), deadline - clock.wall()
        assert 290 * SECOND < length <= 302 * SECOND
        expected = 0
        if when == "after it was extended":
            expected, length = deadline + 30 * SECOND, length + 30 * SECOND
        if when != "as it is notified":
            await clock.sleep(30 * SECOND)
        await _heard(cluster, expected)
        await clock.sleep(2 * SECOND)
        clock.step(_STEPS[name])
        while (left := notified + length - 3 * SECOND - clock.monotonic()) > 0:
            await _heard(cluster, expected)
            await clock.sleep(min(left, 10 * SECOND))
        assert not await is_evicted(cluster, "old"), "it was told that it has longer"
        await clock.sleep(10 * SECOND)
        assert await is_evicted(cluster, "old")


async def _heard(cluster: Site, expected: int) -> None:
    """The pods of the victim report until when they save, where they do."""
    for notice, uid in await told(cluster, "old") if expected else ():
        notices(cluster).saving(notice, uid, expected)


async def _look_at(cluster: Site, name: str) -> None:
    """Have the plane look at a Workload once more, by a change that decides nothing."""
    found = (await cluster.workloads())[name]["metadata"]
    change = {"metadata": {"annotations": {"about": "something else"}}}
    await cluster.client.patch(WORKLOADS, NAMESPACE, found["name"], change, dict)
    # Whoever comes later is served later.
    await cluster.create(job("later", pods=1))
    await until_suspended(cluster, "later", suspended=False)
