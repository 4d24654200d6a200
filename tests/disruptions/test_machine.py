"""The bound and the liveness, whatever befalls three planes on one API server.

A Hypothesis state machine looks for short stories that break them; a walk of 10,000 steps, which is
more than its examples can hold, goes through the same steps by a seed.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kubeworld.units.durations import SECOND
from reprieve.engine.disruptions.ledger import Actor
from reprieve.engine.disruptions.questions import GovernorPolicy
from tests.disruptions.machine import LAWLESS, MANNERS, World

WORKS = st.sampled_from("abcde")


class Machine(RuleBasedStateMachine):
    """Whatever may happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = self.run(self.made())

    async def made(self) -> World:
        return World(Random(5), GovernorPolicy())

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @rule(plane=st.sampled_from(list(MANNERS)), one=WORKS, other=WORKS, times=st.integers(1, 3))
    def displaces(self, plane: Actor, one: str, other: str, times: int) -> None:
        for _ in range(times):
            works = self.world.works
            self.run(self.world.displace(plane, works[one], works[other]))
            self.run(self.world.clock.advance(5 * SECOND))

    @rule(plane=st.sampled_from(list(MANNERS)), names=st.permutations("abcde"), count=st.just(2))
    def goes_around(self, plane: Actor, names: list[str], count: int) -> None:
        works = [self.world.works[name] for name in names[:3]]
        for _ in range(count):
            for one, other in zip(works, [*works[1:], works[0]], strict=True):
                self.run(self.world.displace(plane, one, other))
                self.run(self.world.clock.advance(SECOND))

    @rule(seconds=st.sampled_from((1, 30, 600, 2_000)))
    def time_passes(self, seconds: int) -> None:
        self.run(self.world.clock.advance(seconds * SECOND))

    @rule(name=WORKS)
    def priority_changes(self, name: str) -> None:
        self.world.relabel(self.world.works[name])

    @rule(name=WORKS)
    def others_evict(self, name: str) -> None:
        self.world.somebody_else(self.world.works[name])

    @rule(name=WORKS)
    def fails(self, name: str) -> None:
        self.world.fails(self.world.works[name])

    @rule(writes=st.integers(1, 6))
    def dies_soon(self, writes: int) -> None:
        self.world.kill_soon(writes)

    @rule()
    def waits_out(self) -> None:
        self.run(self.world.wait_out())

    @invariant()
    def no_cycle_of_equals_turns_too_often(self) -> None:
        assert self.world.turned() == []

    def teardown(self) -> None:
        for task in self.world.tasks:
            task.cancel()
        self.loop.close()


def tried(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens_in_whatever_order_no_cycle_turns_too_often_and_holds_end() -> None:
    tried(Machine, examples=3, steps=10)


@pytest.mark.slow
def test_whatever_happens_in_many_orders_no_cycle_turns_too_often_and_holds_end() -> None:
    tried(Machine, examples=200, steps=50)


async def walked(world: World, steps: int) -> None:
    """Take so many steps, most of them displacements."""
    random, works = world.random, list(world.works.values())
    for number in range(steps):
        match random.random():
            case chance if chance < 0.01:
                world.relabel(random.choice(works))
            case chance if chance < 0.02:
                world.somebody_else(random.choice(works))
            case chance if chance < 0.03:
                world.fails(random.choice(works))
            case chance if chance < 0.04:
                world.kill_soon(random.randint(1, 8))
            case chance if chance < 0.05:
                await world.restart()
            case chance if chance < 0.08:
                await world.wait_out()
            case _:
                plane = random.choice(list(MANNERS))
                await world.displace(plane, *random.sample(works, 2))
        await world.clock.advance(random.choice((1, 5, 30, 200)) * SECOND)
        if number % 50 == 0:  # far less than a window
            assert world.turned() == [], number
            world.tidy()
    assert world.turned() == []


async def test_over_a_walk_the_bound_and_the_liveness_hold_as_the_api_server_saw_it() -> None:
    world = World(Random(11), GovernorPolicy())
    await walked(world, 200)
    print(dict(world.seen), f"{len(world.audit)} displacements of equals")
    assert world.seen["held"] >= 20 and len(world.audit) >= 50, world.seen
    assert world.seen["restarts"] >= 2 and world.seen["other actors"] >= 2, world.seen


async def test_without_the_governor_the_same_walk_turns_cycles_too_often() -> None:
    world = World(Random(11), LAWLESS)
    with pytest.raises(AssertionError):
        await walked(world, 200)
    assert world.turned() and not world.seen["held"]


@pytest.mark.slow
async def test_over_ten_thousand_steps_the_bound_and_the_liveness_hold() -> None:
    world = World(Random(16), GovernorPolicy())
    await walked(world, 10_000)
    print(dict(world.seen), f"{len(world.audit)} displacements of equals")
    for plane in MANNERS:
        assert world.seen[plane.value] >= 200, world.seen
    for link in ("owner", "template", "label", "weak"):
        assert world.seen[link] >= 200, world.seen
    kinds = ("priorities changed", "restarts", "other actors", "failures", "waited out")
    for kind in kinds:
        assert world.seen[kind] >= 50, world.seen
    assert world.seen["held"] >= 1_000 and world.seen["new objects"] >= 1_000, world.seen
