"""Bounds from measured waits hold as often as they say, and nothing is bounded by too few."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.diagnosis.estimates import CONFIDENCE, FEWEST, QUANTILE, Bound, Case, bound

#: Draws of a wait, and the 90 % quantile of the distribution.
DRAWN: dict[str, tuple[Callable[[random.Random], float], float]] = {
    "exponential": (lambda chance: chance.expovariate(1 / 600), -600 * math.log(0.1)),
    "heavy-tailed": (lambda chance: 60 * chance.paretovariate(0.8), 60 * 10 ** (1 / 0.8)),
    "of two kinds": (
        lambda chance: chance.uniform(1, 2) if chance.random() < 0.7 else chance.uniform(0, 9e3),
        9e3 * 2 / 3,
    ),
}
ROUNDS = 1_000


def cases(*waits: float, over: bool = True) -> list[Case]:
    return [Case(Nanos(n), int(wait * SECOND), over) for n, wait in enumerate(waits)]


@pytest.mark.parametrize("name", sorted(DRAWN))
@pytest.mark.parametrize("size", [29, 46, 100])
def test_the_bound_holds_as_often_as_its_confidence(name: str, size: int) -> None:
    draw, quantile = DRAWN[name]
    chance = random.Random(f"{name}{size}")
    held = said = 0
    for _ in range(ROUNDS):
        found = bound(cases(*(draw(chance) for _ in range(size))))
        assert found.wait is not None
        said += 1
        held += found.wait >= int(quantile * SECOND)
    assert said == ROUNDS
    # Four standard deviations of that many rounds.
    least = CONFIDENCE - 4 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / ROUNDS)
    assert held / said >= least, f"held in {held} of {said}"


@pytest.mark.parametrize("size", [60, 200])
def test_the_bound_holds_while_some_still_wait(size: int) -> None:
    """Of work that came over two hours, what has not started yet is only known to wait still."""
    chance = random.Random(size)
    quantile = -600 * math.log(0.1)
    held = said = 0
    for _ in range(ROUNDS):
        found = []
        for n in range(size):
            wait, age = chance.expovariate(1 / 600), chance.uniform(0, 72_000)
            found.append(Case(Nanos(n), int(min(wait, age) * SECOND), wait <= age))
        told = bound(found)
        if told.wait is not None:
            said += 1
            held += told.wait >= int(quantile * SECOND)
    assert said > ROUNDS // 10
    assert held / said >= CONFIDENCE - 4 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / said)


def test_of_29_cases_the_longest_is_the_bound_and_28_bound_nothing() -> None:
    assert FEWEST == 29
    assert bound(cases(*range(1, 30))) == Bound(29 * SECOND, 29, QUANTILE, CONFIDENCE)
    assert bound(cases(*range(1, 29))) == Bound(None, 28, QUANTILE, CONFIDENCE)
    assert bound([]) == Bound(None, 0, QUANTILE, CONFIDENCE)


def test_of_many_cases_some_of_the_longest_are_left_out() -> None:
    # The binomial of 100 trials of 0.9 is at most 94 with 94.2 %, at most 95 with 97.6 %.
    assert bound(cases(*range(1, 101))).wait == 96 * SECOND


def test_who_still_waits_is_longer_than_all_that_ended() -> None:
    waiting = cases(2, over=False)
    assert bound([*cases(*range(10, 38)), *waiting]) == Bound(None, 29, QUANTILE, CONFIDENCE)
    many = [*cases(*range(1, 98)), *cases(2, 2, 2, over=False)]
    assert bound(many).wait == 96 * SECOND


def test_of_what_has_waited_already_only_longer_waits_are_similar() -> None:
    found = [*cases(*range(1, 60)), *cases(5, over=False)]
    told = bound(found, 30 * SECOND)
    assert told == Bound(59 * SECOND, 29, QUANTILE, CONFIDENCE)
    assert bound(found, 31 * SECOND).wait is None


def test_of_thousands_the_newest_count() -> None:
    old = [Case(Nanos(n), 1_000 * SECOND) for n in range(3_000)]
    new = [Case(Nanos(10_000 + n), 2 * SECOND) for n in range(1_000)]
    assert bound([*new, *old]) == Bound(2 * SECOND, 1_000, QUANTILE, CONFIDENCE)
