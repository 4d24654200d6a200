"""The solver thread: what takes too long is stopped, or left, and the next decision is made."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from reprieve.engine.plan import Plane
from reprieve.planes.common.solve import (
    DecisionLimit,
    NotedPace,
    Solver,
    SolverPace,
    TookTooLong,
    at_work_on,
    full_collections,
)
from reprieve.planes.common.suspects import Accused, Suspects

SHORT = SECOND // 2


def spin() -> str:
    while True:
        pass


def keep_spinning(released: threading.Event) -> str:
    """Whatever is raised in here stays in here."""

    def spin_until_then() -> None:
        while not released.is_set():
            pass

    while not released.is_set():
        try:
            spin_until_then()
        except BaseException:
            continue
    return "too late"


async def test_a_decision_that_spins_is_stopped_and_its_thread_ends() -> None:
    solver = Solver(Plane.SCHEDULING, DecisionLimit(SHORT))
    # Threads of other tests may end meanwhile.
    before = set(threading.enumerate())
    with pytest.raises(TookTooLong) as stopped:
        await solver.run(spin)
    assert not stopped.value.left
    assert set(threading.enumerate()) <= before, "the stopped thread is gone"
    assert await solver.run(lambda: "next") == "next"
    solver.close()


@pytest.mark.parametrize("how", ["keeps what is raised", "sleeps"])
async def test_a_decision_that_cannot_be_stopped_is_left_and_its_answer_is_not_used(
    how: str,
) -> None:
    solver = Solver(Plane.SCHEDULING, DecisionLimit(SHORT))
    released = threading.Event()
    work = released.wait if how == "sleeps" else keep_spinning
    try:
        with pytest.raises(TookTooLong) as stopped:
            await solver.run(work, *(() if how == "sleeps" else (released,)))
        assert stopped.value.left
        assert await solver.run(lambda: "next") == "next"
    finally:
        released.set()
        solver.close()


@pytest.mark.parametrize("say", [at_work_on, NotedPace().begin], ids=["each", "the whole"])
async def test_the_process_is_given_up_when_four_decisions_are_left_at_the_same_time(
    say: Callable[[str], None],
) -> None:
    said: list[tuple[str, list[str]]] = []

    def give_up(reason: str, accused: Sequence[Accused]) -> None:
        said.append((reason, [each.what for each in accused]))

    solver = Solver(Plane.SCHEDULING, DecisionLimit(SHORT // 2, give_up))
    released = threading.Event()

    def sleep(name: str) -> None:
        say(name)
        released.wait()

    try:
        for number in range(4):
            assert said == []
            with pytest.raises(TookTooLong, match=f"about gang-{number} needed more"):
                await solver.run(sleep, f"gang-{number}")
    finally:
        released.set()
        solver.close()
    gangs = [f"gang-{number}" for number in range(4)]
    assert said == [("4 decisions could not be stopped, the last about gang-3", gangs)]


async def test_a_decision_that_was_left_and_has_ended_since_does_not_count() -> None:
    said: list[str] = []
    limit = DecisionLimit(SHORT // 2, lambda reason, accused: said.append(reason))
    solver = Solver(Plane.SCHEDULING, limit)
    before = set(threading.enumerate())
    released = threading.Event()
    for number in range(6):
        with pytest.raises(TookTooLong) as stopped:
            await solver.run(released.wait)
        assert stopped.value.left
        if number % 3 == 2:
            released.set()
            for left in set(threading.enumerate()) - before:
                left.join()
            released.clear()
    assert said == []
    solver.close()


def test_collections_of_everything_are_counted_and_no_others() -> None:
    gc.disable()
    try:
        before = full_collections()
        gc.collect(0)
        gc.collect(1)
        assert full_collections() == before
        gc.collect()
        assert full_collections() == before + 1
    finally:
        gc.enable()


@pytest.mark.parametrize(("during", "counted"), [(0, 2), (5, 7), (8, 10), (100, 10)])
async def test_turns_in_which_all_is_collected_do_not_count_but_for_eight(
    during: int, counted: int
) -> None:
    """Of a limit of two turns; `during`: how many turns have a collection, `counted`: all."""
    asked = 0

    def collections() -> int:
        nonlocal asked
        asked += 1
        return min(asked, during + 1)

    solver = Solver(Plane.SCHEDULING, DecisionLimit(SHORT, collections=collections))
    with pytest.raises(TookTooLong):
        await solver.run(spin)
    assert asked == counted + 1, "once before the first turn"
    solver.close()


async def test_a_slice_of_many_decisions_may_take_longer_than_one() -> None:
    solver = Solver(Plane.SCHEDULING, DecisionLimit(SHORT))

    def many() -> list[str]:
        names = [f"gang-{number}" for number in range(6)]
        for name in names:
            at_work_on(name)
            time.sleep(0.2)
        at_work_on("the slow one")
        time.sleep(10)
        return names

    with pytest.raises(TookTooLong) as stopped:
        await solver.run(many)
    assert stopped.value.what == "the slow one"
    solver.close()


async def test_a_decision_that_may_not_be_interrupted_ends_at_its_own_step_and_goes_on() -> None:
    solver = Solver(Plane.SCHEDULING, DecisionLimit(SHORT), interrupts=False)
    pace = SolverPace(Plane.QUOTA, Suspects(SystemClock()))

    def heads() -> list[str]:
        done = []
        for name in ("quick", "slow", "next"):
            pace.begin(name)
            try:
                while name == "slow":
                    time.sleep(0.01)
                    pace.check()
                pace.check()
            except TookTooLong as late:
                done.append(f"{late.what} {late.seconds}")
            else:
                done.append(name)
        return done

    assert await solver.run(heads) == ["quick", "slow 0.5", "next"]
    solver.close()


async def test_who_comes_after_one_that_took_too_long_has_its_own_time() -> None:
    solver = Solver(Plane.SCHEDULING, DecisionLimit(SHORT), interrupts=False)
    pace = SolverPace(Plane.QUOTA, Suspects(SystemClock()))

    def heads() -> str:
        pace.begin("slow, and comes to no step")
        time.sleep(3 * SHORT / SECOND)
        pace.begin("next")
        pace.check()
        return "decided"

    assert await solver.run(heads) == "decided"
    solver.close()


async def test_a_decision_that_does_not_come_to_a_step_gives_up_the_process() -> None:
    said = asyncio.Event()
    accused: list[Accused] = []

    def give_up(reason: str, whom: Sequence[Accused]) -> None:
        accused.extend(whom)
        said.set()

    limit = DecisionLimit(SECOND // 4, give_up)
    solver = Solver(Plane.QUOTA, limit, interrupts=False)
    released = threading.Event()

    def decide() -> bool:
        at_work_on("work/slow")
        return released.wait()

    running = asyncio.create_task(solver.run(decide))
    try:
        await asyncio.wait_for(said.wait(), 60)
        assert accused == [Accused(Plane.QUOTA, "work/slow")]
        assert not running.done(), "nothing is stopped in the middle"
    finally:
        released.set()
    assert await running is True
    solver.close()


async def test_a_decision_that_ends_the_interpreter_ends_itself_only() -> None:
    def leave() -> None:
        raise SystemExit(3)

    solver = Solver(Plane.SCHEDULING)
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await solver.run(leave)
    assert await solver.run(lambda: "next") == "next"
    solver.close()


async def test_what_a_thread_is_at_is_noted_until_its_decision_ends() -> None:
    noted: list[tuple[Plane, str]] = []
    limit = DecisionLimit(SHORT, noted=lambda plane, what, thread: noted.append((plane, what)))
    solver = Solver(Plane.IDLE, limit)

    def decide() -> None:
        NotedPace().begin("work/a")
        at_work_on("work/b")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await solver.run(decide)
    assert noted == [(Plane.IDLE, what) for what in ("", "work/a", "work/b", "")]
    solver.close()
