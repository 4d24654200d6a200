"""A step of the operator's wall clock ends no idle work before its grace period is over."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.planes.idle.idle_time import IdleTime
from reprieve.units.ids import GpuWorkloadKey
from reprieve.units.steady_clock import SteadyClock
from tests.idle.site import Operator, Site, container, job
from tests.idle.test_notice import CONFIG, FLAGS, deadline_of
from tests.operator_in_process import OperatorInProcess
from tests.tiers import first_of
from tests.virtual_time import LoopClock

_GRACE = {"GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "10m", "GPU_PREEMPTION_POLLING_INTERVAL": "5s"}
_SHORT = {"GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "5s", "GPU_PREEMPTION_POLLING_INTERVAL": "5s"}
_DELAYED = "gpuPreemption: {preemptionDelay: 10m}\n"
DAY = 24 * HOUR
_STEPS = {"a day ahead": DAY, "an hour back": -HOUR}
_MOMENTS = ("half a minute later", "as it is notified")
_KEY = GpuWorkloadKey("team/job-idle")


def clock_of(operator: Operator) -> LoopClock:
    assert isinstance(operator.processes, OperatorInProcess)
    clock = operator.processes.clock
    assert isinstance(clock, LoopClock)
    return clock


async def started(site: Site) -> tuple[Operator, float]:
    """Have idle work on all GPUs of the node and a demand; return since when it is idle."""
    await site.create(job("idle", container(gpu=8), enabled="true"))
    operator = await site.run(_GRACE)
    await site.until_phase("Job/idle", "Idle")
    idle_since = asyncio.get_running_loop().time()
    await site.create(job("wants", container(gpu=8), enabled="true"))
    await site.until_phase("Job/wants", "PendingGpu")
    return operator, idle_since


async def until_preempted(site: Site) -> float:
    await site.until(site.records, seconds=1_500)
    return asyncio.get_running_loop().time()


async def test_a_day_ahead_ends_no_work_that_is_idle_for_seconds(site: Site) -> None:
    operator, idle_since = await started(site)
    clock_of(operator).step(DAY)
    preempted = await until_preempted(site)
    # The step lasts, and is followed in the end: the time that was seen counts all the same.
    assert 600 <= preempted - idle_since <= 900
    assert operator.said("the wall clock was stepped by +24h")
    assert operator.said("the wall clock was stepped within the last 10m")
    await operator.stop()


async def test_a_step_back_for_a_moment_has_no_effect_on_when_work_is_idle_since(
    site: Site,
) -> None:
    site.busy("Job/idle", 90)
    await site.create(job("idle", container(gpu=8), enabled="true"))
    operator = await site.run(_GRACE)
    await site.until_phase("Job/idle", "Active")
    clock = clock_of(operator)
    clock.step(-HOUR)
    site.busy("Job/idle", 0)
    await site.until_phase("Job/idle", "Idle")
    idle_since = asyncio.get_running_loop().time()
    clock.step(HOUR)
    await site.create(job("wants", container(gpu=8), enabled="true"))
    preempted = await until_preempted(site)
    assert 580 <= preempted - idle_since <= 900
    await operator.stop()


@pytest.mark.parametrize(
    "story", first_of(f"{name}: {when}" for when in _MOMENTS for name in _STEPS)
)
async def test_idle_work_has_the_time_to_save_that_it_was_told_whatever_the_clock_is_set_to(
    site: Site, story: str
) -> None:
    name, _, when = story.partition(": ")
    asks = {"enabled": "true", "reprieve.dev/notice": "5m"}
    await site.create(job("idle", container(gpu=8), **asks))
    operator = await site.run(_SHORT, *FLAGS, config=CONFIG)
    await site.until_phase("Job/idle", "Idle")
    await site.create(job("wants", container(gpu=8), enabled="true"))
    (record,) = await site.until(site.records, seconds=60)
    clock = clock_of(operator)
    deadline = deadline_of(record)
    notified, length = clock.monotonic(), deadline - clock.wall()
    assert 290 * SECOND < length <= 302 * SECOND
    if when != "as it is notified":
        await clock.sleep(30 * SECOND)
    clock.step(_STEPS[name])
    await clock.sleep(notified + length - 3 * SECOND - clock.monotonic())
    assert not site.evictions(), "it was told that it has longer"
    await site.until(site.evictions, seconds=120)
    await operator.stop()


@pytest.mark.parametrize("ahead", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_a_leader_on_a_machine_whose_clock_is_wrong_ends_no_work_too_early_or_late(
    site: Site, ahead: int
) -> None:
    operator, idle_since = await started(site)
    await asyncio.sleep(60)
    await operator.stop()
    following = site.operator(_GRACE)
    clock_of(following).step(ahead)
    await following.start()
    preempted = await until_preempted(site)
    assert 595 <= preempted - idle_since <= 700
    assert following.said("the wall clock of this machine is")
    await following.stop()


async def test_a_step_that_lasts_shortens_no_delay_before_idle_work_is_evicted(
    site: Site,
) -> None:
    await site.create(job("idle", container(gpu=8), enabled="true"))
    operator = await site.run(_SHORT, "--controllers", "idle", config=_DELAYED)
    await site.until_phase("Job/idle", "Idle")
    await site.create(job("wants", container(gpu=8), enabled="true"))
    began = asyncio.get_running_loop().time()
    await site.until_phase("Job/wants", "PendingGpu")
    clock_of(operator).step(DAY)
    preempted = await until_preempted(site)
    assert 595 <= preempted - began <= 630
    await operator.stop()


async def test_idle_time_counts_while_polls_come_in_and_by_the_monotonic_clock() -> None:
    clock = VirtualClock()
    idle_time = IdleTime(clock, 10 * SECOND)
    idle_time.polled()
    since = Nanos(clock.wall() - MINUTE)  # a former process wrote it
    assert idle_time.since(_KEY, since) == since
    for _ in range(6):
        await clock.advance(10 * SECOND)
        idle_time.polled()
    assert idle_time.since(_KEY, since) == since
    clock.set_wall(Nanos(clock.wall() + DAY))
    moved = idle_time.since(_KEY, since)
    assert moved == since + DAY
    # The machine was stopped for an hour: of that, no more counts than some polls would have.
    await clock.advance(HOUR)
    idle_time.polled()
    assert idle_time.since(_KEY, moved) == clock.wall() - 2 * MINUTE - 30 * SECOND


async def test_ages_do_not_follow_a_clock_that_the_api_server_contradicts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = VirtualClock()
    clock, ahead = SteadyClock(inner), int(inner.wall())

    async def hours(number: int) -> int:
        """Let time pass, with an answer of the API server each minute; return how far it is off."""
        for _ in range(60 * number):
            clock.server_at(Nanos(ahead + inner.monotonic()))
            await inner.advance(MINUTE)
            clock.wall()
        return clock.wall() - ahead - inner.monotonic()

    assert await hours(1) == 0
    for step in (DAY, -HOUR, HOUR):
        inner.set_wall(Nanos(inner.wall() + step))
        assert await hours(2) == 0
    # Both leave it: the API server's clock was corrected, and that of the machine is still wrong.
    ahead += DAY // 2
    clock.server_at(Nanos(ahead + inner.monotonic()))
    assert clock.wall() - inner.monotonic() == ahead - DAY // 2
    assert await hours(1) == 0
    # The machine's follows, a second off; then it is the one that counts.
    inner.set_wall(Nanos(ahead + inner.monotonic() + SECOND))
    assert await hours(1) == SECOND
    assert clock.wall() == inner.wall()
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(said) <= 8, said


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_a_process_begins_on_the_course_of_the_api_server(step: int) -> None:
    inner = VirtualClock()
    true = inner.wall()
    inner.set_wall(Nanos(true + step))
    clock = SteadyClock(inner)
    clock.server_at(Nanos(true))
    assert clock.wall() == true
    await inner.advance(HOUR)
    assert clock.wall() == true + HOUR
    # Without any word of it since then, a clock that is put right is followed at once.
    inner.set_wall(Nanos(true + HOUR + SECOND))
    assert clock.wall() == inner.wall()
    assert clock.steps == 0


async def test_ages_do_not_follow_a_step_at_once(caplog: pytest.LogCaptureFixture) -> None:
    inner = VirtualClock()
    clock = SteadyClock(inner)
    began = clock.wall()
    for step in (DAY, -HOUR):
        inner.set_wall(Nanos(inner.wall() + step))
        await inner.advance(18 * SECOND)
        assert clock.wall() - began < MINUTE
        assert clock.stepped is not None
        inner.set_wall(Nanos(inner.wall() - step))
        assert clock.wall() == inner.wall()
    # A clock that was wrong and is put right is followed after some time; a slow one always.
    inner.set_wall(Nanos(inner.wall() + HOUR))
    assert clock.wall() < inner.wall()
    await inner.advance(3 * MINUTE)
    assert clock.wall() == inner.wall()
    inner.set_wall(Nanos(inner.wall() + SECOND))
    assert clock.wall() == inner.wall()
    texts = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert next(text for text in texts if "stepped by" in text).startswith(
        "the wall clock was stepped by +24h"
    )
    assert any(
        text.startswith("the operator measures ages by the wall clock again, +1h") for text in texts
    )
