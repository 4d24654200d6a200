"""Why Workloads wait is written late where there is much to write, and yet for all that still wait.

In memory, over a clock turned by hand: what the cycles say is made up, what is written is kept.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.api.core import ObjectMeta
from reprieve.api.kueue import Admission, Workload
from reprieve.engine.quota import model
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.intake.quota_workloads import condition_of
from reprieve.kube.writes import Priority
from reprieve.planes.quota.workload_status.explanations import Explanations
from tests.background import ended, in_background

BURST, BUSY_PER_S = 100, 10


class World:
    """Workloads that wait, and everything that an `Explanations` asks for."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.configuration = model.Configuration()
        self.deciding: set[str] = set()
        self.unexplained: set[str] = set()
        self.client = self
        self.passed = 0
        self.objects: dict[str, Workload] = {}
        self.said: dict[str, str] = {}
        # All writes: when, about whom, what it says then.
        self.written: list[tuple[int, str, str]] = []
        self.announced: list[str] = []
        everything: Any = self
        self.explanations = Explanations(everything, everything, everything)
        self.tells = 0

    def passed_before(self, priority: Priority) -> int:
        assert priority is Priority.STATUS
        return self.passed

    def workload(self, key: str) -> Workload | None:
        return self.objects.get(key)

    def announce(self, regarding: Any, event: Any) -> None:
        self.announced.append(regarding.name)

    def come(self, name: str) -> None:
        self.objects[f"team/{name}"] = Workload(
            metadata=ObjectMeta(namespace="team", name=name, uid=name)
        )

    def tell(self, name: str, message: str) -> None:
        row = model.Workload("team", name, name)
        self.said[name] = message
        self.tells += 1
        self.explanations.explain(
            Entry(row, "cq", outcome=Outcome.NO_FIT, reason="Pending", message=message)
        )

    def admit(self, name: str) -> None:
        """Write an admission, as somebody else does."""
        self.passed += 1
        known = self.objects[f"team/{name}"]
        status = replace(known.status, admission=Admission("cq", []))
        self.objects[f"team/{name}"] = replace(known, status=status)

    async def change(
        self, key: str, uid: str, change: Callable[[Workload], Workload | None]
    ) -> Workload | None:
        changed = change(self.objects[key])
        if changed is None:
            return None
        assert changed.status.admission is None
        self.objects[key] = changed
        self.written.append((self.clock.monotonic(), uid, self.message(uid)))
        return changed

    def message(self, name: str) -> str:
        found = condition_of(self.objects[f"team/{name}"].status.conditions, "QuotaReserved")
        return found.message if found is not None else ""

    async def advance(self, seconds: float, admissions_per_s: int = 0) -> int:
        """Let time pass, with other writes that go first; return how many were written."""
        before = len(self.written)
        for _ in range(round(seconds * 5)):
            self.passed += admissions_per_s // 5
            await self.clock.advance(200 * MILLISECOND, settle=8)
        return len(self.written) - before


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    async with in_background(made.explanations.run()):
        yield made


async def test_who_waits_is_told_within_a_second_while_little_is_written(world: World) -> None:
    for number in range(50):
        world.come(f"w-{number}")
        world.tell(f"w-{number}", "no room")
    await world.advance(1)
    assert [message for _, _, message in world.written] == ["no room"] * 50
    assert sorted(world.announced) == sorted(f"w-{number}" for number in range(50))
    world.tell("w-3", "one more is needed")
    await world.advance(1)
    assert world.written[50:] == [(world.written[50][0], "w-3", "one more is needed")]


async def test_the_same_is_not_written_twice(world: World) -> None:
    world.come("w")
    for _ in range(5):
        world.tell("w", "no room")
        await world.advance(1)
    assert len(world.written) == 1
    world.tell("w", "little room")
    world.tell("w", "no room")
    await world.advance(10)
    assert len(world.written) == 1


async def test_admissions_come_first_and_all_that_wait_are_told_in_the_end(world: World) -> None:
    await world.advance(2, admissions_per_s=50)
    for number in range(1_000):
        world.come(f"w-{number}")
        world.tell(f"w-{number}", "no room")
    assert await world.advance(10, admissions_per_s=50) <= BURST + 10 * BUSY_PER_S + 1
    assert await world.advance(10, admissions_per_s=50) == pytest.approx(10 * BUSY_PER_S, abs=5)
    before = {name for _, name, _ in world.written}
    # Who got quota meanwhile needs no word.
    for number in range(0, 1_000, 2):
        world.admit(f"w-{number}")
    await world.advance(25)
    told = Counter(name for _, name, _ in world.written)
    assert told == Counter(before | {f"w-{number}" for number in range(1, 1_000, 2)})


async def test_while_much_is_written_who_was_told_waits_for_other_words(world: World) -> None:
    world.come("w")
    world.tell("w", "no room")
    await world.advance(2, admissions_per_s=50)
    assert len(world.written) == 1
    for number in range(40):
        world.tell("w", f"{number} more are needed")
        await world.advance(0.2, admissions_per_s=50)
    assert [message for _, _, message in world.written[1:]] == ["24 more are needed"]
    await world.advance(6, admissions_per_s=50)
    assert world.message("w") == "39 more are needed"


async def test_whatever_happens_who_waits_says_in_the_end_what_was_said_last() -> None:
    seen = Counter[str]()
    for seed in range(25):
        numbers, world = random.Random(seed), World()
        task = asyncio.ensure_future(world.explanations.run())
        names = [f"w-{number}" for number in range(numbers.randint(5, 60))]
        for name in names:
            world.come(name)
        waiting = set(names)
        for _ in range(60):
            for name in numbers.sample(sorted(waiting), min(len(waiting), 8)):
                world.tell(name, numbers.choice(["no room", "little room", "1 more", "2 more"]))
            if waiting and numbers.random() < 0.2:
                gone = numbers.choice(sorted(waiting))
                waiting.discard(gone)
                world.admit(gone)
                seen["admitted"] += 1
            await world.advance(0.4, admissions_per_s=numbers.choice([0, 50]))
        await world.advance(10)
        told = {name: world.message(name) for name in waiting if name in world.said}
        assert told == {name: world.said[name] for name in told}, seed
        last: dict[str, str] = {}
        for _, name, message in world.written:
            assert last.get(name) != message, (seed, name)
            last[name] = message
        _check_budget([at for at, _, _ in world.written])
        seen["written"] += len(world.written)
        seen["spared"] += world.tells - len(world.written)
        await ended(task)
    assert seen["admitted"] > 100, seen
    assert seen["written"] > 1_000, seen
    assert seen["spared"] > 1_000, seen


def _check_budget(times: list[int]) -> None:
    """No second has more than a burst and what a quiet second allows."""
    for start, at in enumerate(times):
        within = sum(1 for each in times[start:] if each - at < SECOND)
        assert within <= BURST + 50
