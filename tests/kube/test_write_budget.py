"""Writes of little weight: plenty while it is quiet, few while others have much, never none."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.kube.recording.write_budget import Allowance, WriteBudget
from reprieve.kube.writes import Priority, WriteGate
from tests.background import in_background

ALLOWANCE = Allowance(burst=5, quiet=50, busy=2, many=10)


class Stage:
    """A budget with somebody who always wants more of it."""

    def __init__(self, allowance: Allowance = ALLOWANCE) -> None:
        self.clock = VirtualClock()
        self.passed = 0
        self.written = 0
        self.budget = WriteBudget(self.clock, lambda: self.passed, allowance)

    async def write_all_the_time(self) -> None:
        while True:
            await self.budget.turn()
            self.written += 1

    async def advance(self, seconds: float, others_per_s: int = 0) -> int:
        """Let time pass; return how many were written in it."""
        before, steps = self.written, round(seconds * 10)
        for step in range(steps):
            self.passed += others_per_s * (step + 1) // 10 - others_per_s * step // 10
            await self.clock.advance(100 * MILLISECOND, settle=15)
        return self.written - before


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_a_burst_goes_at_once_and_then_so_many_per_second(stage: Stage) -> None:
    async with in_background(stage.write_all_the_time()):
        await stage.clock.advance(0, settle=80)
        assert stage.written == 5
        assert await stage.advance(2) == pytest.approx(100, abs=2)


async def test_few_go_while_others_have_much_and_plenty_a_second_after_that(stage: Stage) -> None:
    async with in_background(stage.write_all_the_time()):
        await stage.advance(1, others_per_s=40)
        assert stage.budget.busy
        assert await stage.advance(10, others_per_s=40) == pytest.approx(20, abs=2)
        # The last second that was busy is still seen in the first one that is not.
        await stage.advance(2)
        assert not stage.budget.busy
        assert await stage.advance(2) == pytest.approx(100, abs=2)


async def test_it_is_busy_as_soon_as_so_many_have_gone_first(stage: Stage) -> None:
    await stage.clock.advance(MILLISECOND)
    stage.passed += ALLOWANCE.many
    assert not stage.budget.busy
    stage.passed += 1
    assert stage.budget.busy


async def test_no_more_goes_than_the_budget_has_and_never_nothing() -> None:
    random_numbers, seen = random.Random(5), Counter[str]()
    for _ in range(12):
        allowance = Allowance(
            burst=random_numbers.randint(2, 20),
            quiet=random_numbers.randint(20, 60),
            busy=random_numbers.randint(1, 5),
            many=random_numbers.randint(5, 20),
        )
        stage = Stage(allowance)
        async with in_background(stage.write_all_the_time()):
            for _ in range(4):
                others = random_numbers.choice([0, 2 * allowance.many])
                await stage.advance(1.5, others)
                written = await stage.advance(3, others)
                rate = allowance.busy if others else allowance.quiet
                together = max(1, min(rate // 4, allowance.burst // 2))
                assert written <= 3 * rate + together, (allowance, others)
                assert written >= 3 * rate * 0.9 - 2, (allowance, others)
                seen["busy" if others else "quiet"] += 1
    assert min(seen["busy"], seen["quiet"]) > 15, seen


async def test_those_that_are_over_the_burst_go_together_four_times_a_second() -> None:
    stage = Stage(Allowance(burst=100, quiet=40, busy=8, many=10))
    async with in_background(stage.write_all_the_time()):
        await stage.clock.advance(0, settle=400)
        assert stage.written == 100
        gone = []
        for _ in range(40):
            before = stage.written
            await stage.clock.advance(25 * MILLISECOND, settle=60)
            gone.append(stage.written - before)
    assert gone == [*([0] * 9), 10] * 4


async def test_no_more_is_gathered_than_half_a_burst() -> None:
    stage = Stage(Allowance(burst=4, quiet=40, busy=8, many=10))
    async with in_background(stage.write_all_the_time()):
        await stage.clock.advance(0, settle=80)
        await stage.clock.advance(49 * MILLISECOND)
        assert stage.written == 4
        await stage.clock.advance(MILLISECOND)
        assert stage.written == 6


async def test_writes_that_go_first_are_counted_and_leases_are_not() -> None:
    gate = WriteGate()
    for priority in (Priority.LEASE, Priority.INTENT, Priority.EVICT, Priority.STATUS):
        async with gate.turn(priority):
            pass
    async with gate.turn(Priority.LEASE), gate.turn(Priority.LEASE):
        pass
    counts = {each: gate.passed_before(each) for each in Priority}
    assert counts == {
        Priority.LEASE: 0,
        Priority.INTENT: 0,
        Priority.EVICT: 1,
        Priority.STATUS: 2,
        Priority.EVENT: 3,
    }


async def test_a_clock_that_moves_on_by_hours_gives_no_more_than_a_burst(stage: Stage) -> None:
    await stage.clock.advance(3_600 * SECOND)
    async with in_background(stage.write_all_the_time()):
        await stage.clock.advance(0, settle=80)
        assert stage.written == 5


async def test_one_of_many_who_wait_asks_and_who_came_first_goes_first() -> None:
    clock, asked, gone = VirtualClock(), 0, []

    def passed() -> int:
        nonlocal asked
        asked += 1
        return 0

    budget = WriteBudget(clock, passed, Allowance(burst=1, quiet=10, busy=1, many=10))

    async def write(number: int) -> None:
        await budget.turn()
        gone.append(number)

    async with in_background(*(write(number) for number in range(20))):
        for _ in range(21):
            await clock.advance(100 * MILLISECOND, settle=5)
        assert gone == list(range(20))
        assert asked <= 2 * len(gone) + 1
