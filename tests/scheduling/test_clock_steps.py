"""The wall clock is set to another time while pods wait, run protected, or end for another pod."""

from __future__ import annotations

import pytest

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.units.steady_clock import SteadyClock
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import group, pod
from tests.scheduling.test_notice import ALLOWED, asking, notices, told
from tests.tiers import first_of

_DAY = 24 * HOUR
_STEPS = {
    "a day ahead": (_DAY,),
    "an hour back": (-HOUR,),
    "ahead and back": (_DAY, -_DAY),
    "back and ahead": (-HOUR, HOUR),
    "twice ahead": (_DAY, _DAY),
}


def step(cluster: Memory, by: int) -> None:
    cluster.clock.set_wall(Nanos(cluster.clock.wall() + by))


@pytest.mark.parametrize("when", ["before its victims are chosen", "while its victims end"])
@pytest.mark.parametrize("name", _STEPS)
async def test_a_gang_is_served_by_its_first_victims_whatever_the_clock_is_set_to(
    name: str, when: str
) -> None:
    async with memory() as cluster:
        cluster.nodes([4] * 4)
        for number in range(4):
            cluster.running(pod(f"low-{number}", 4, priority="low"), f"node-{number}")
        cluster.start(clock=SteadyClock(cluster.clock))
        await cluster.settle()
        first, *rest = _STEPS[name]
        if when == "before its victims are chosen":
            step(cluster, first)
        members = [pod(f"gang-{n}", 4, group="gang", priority="high") for n in range(2)]
        cluster.create(group("gang", min_count=2, priority="high"), *members)
        await cluster.pass_time(5 * SECOND)
        if when == "while its victims end":
            step(cluster, first)
        victims = cluster.victims()
        assert len(victims) == 2
        await cluster.pass_time(20 * SECOND)
        for by in rest:
            step(cluster, by)
        await cluster.pass_time(20 * SECOND)
        cluster.end_all()
        await cluster.pass_time(20 * SECOND)
        assert {cluster.placed().get(f"gang-{n}") for n in range(2)} == {
            f"node-{victim[-1]}" for victim in victims
        }
        assert cluster.victims() == set()
        assert set(cluster.api.deleted) == victims


@pytest.mark.parametrize("name", _STEPS)
async def test_who_waits_for_its_backoff_is_tried_again_in_time_whatever_the_clock_is_set_to(
    name: str,
) -> None:
    async with memory() as cluster:
        cluster.nodes([2])
        cluster.running(pod("runs", 2, priority="high"), "node-0")
        cluster.start(clock=SteadyClock(cluster.clock))
        cluster.create(pod("waits", 2, priority="low"))
        await cluster.pass_time(60 * SECOND)
        for by in _STEPS[name]:
            step(cluster, by)
            await cluster.pass_time(SECOND)
        cluster.end("runs")
        await cluster.pass_time(15 * SECOND)
        assert cluster.placed().get("waits") == "node-0"


@pytest.mark.parametrize("name", ["a day ahead", "twice ahead"])
async def test_who_is_protected_for_an_hour_is_so_whatever_the_clock_is_set_to(name: str) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        low = pod("low", 4, priority="low")
        low["metadata"]["annotations"] = {"reprieve.dev/preempt-min-runtime": "1h"}
        cluster.running(low, "node-0")
        cluster.start(section={"maxMinRuntime": "1h"}, clock=SteadyClock(cluster.clock))
        await cluster.settle()
        cluster.create(pod("high", 4, priority="high"))
        await cluster.pass_time(30 * SECOND)
        assert cluster.victims() == set()
        for by in _STEPS[name]:
            step(cluster, by)
            await cluster.pass_time(60 * SECOND)
        assert cluster.victims() == set()


_MOMENTS = ("as it is notified", "half a minute later", "after it was extended")


@pytest.mark.parametrize(
    "story", first_of((f"{name}: {when}" for when in _MOMENTS for name in _STEPS), count=3)
)
async def test_who_saves_has_the_time_that_it_was_told_whatever_the_clock_is_set_to(
    story: str,
) -> None:
    name, _, when = story.partition(": ")
    async with memory() as cluster:
        cluster.nodes([4])
        # For longer than a step of the clock is not followed.
        cluster.running(asking("old", notice="5m"), "node-0")
        cluster.start(section=ALLOWED, clock=SteadyClock(cluster.clock))
        await cluster.settle()
        cluster.create(pod("new", 4, priority="high"))
        await cluster.until(cluster.intents)
        notified = cluster.clock.monotonic()
        (record,) = cluster.intents()
        deadline = parse_instant(record["spec"]["victims"][0]["notice"]["deadline"])
        length = deadline - cluster.clock.wall()
        assert 290 * SECOND < length <= 302 * SECOND
        if when != "as it is notified":
            await cluster.pass_time(30 * SECOND)
        expected = 0
        if when == "after it was extended":
            expected, length = deadline + 30 * SECOND, length + 30 * SECOND
        for by in _STEPS[name]:
            _heard(cluster, expected)
            await cluster.pass_time(SECOND)
            step(cluster, by)
            await cluster.pass_time(SECOND)
        while (left := notified + length - 3 * SECOND - cluster.clock.monotonic()) > 0:
            _heard(cluster, expected)
            await cluster.pass_time(min(left, 10 * SECOND))
        assert not cluster.victims(), "it was told that it has longer"
        await cluster.pass_time(8 * SECOND)
        assert cluster.victims() == {"old"}


def _heard(cluster: Memory, expected: int) -> None:
    """The victim reports until when it saves, where it does."""
    notice = told(cluster, "old")
    if expected and notice is not None:
        notices(cluster).saving(notice, cluster.pod("old")["metadata"]["uid"], expected)
