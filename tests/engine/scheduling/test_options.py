"""Every option beyond the KEP, alone and with others, against the naive oracle on random clusters.

Each chunk counts preemptions, refusals, ties and the cases in which the option changed the outcome,
and fails when there are too few of them.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from reprieve.engine.cluster.cluster import Cluster
from tests.engine.api_objects import rows_of
from tests.engine.scheduling.agreement import sound
from tests.engine.scheduling.options import (
    assert_enough,
    compared,
    decided,
    some_options,
    with_second_pass,
)
from tests.oracle.scheduling import optional, promises

FIRST, CHUNK = 50, 45
#: The options that are on, the last one being switched, and in how many cases it has to matter.
SINGLY = {
    "nonUniformGroups": 4,
    "preemptionPriority": 5,
    "binarySearchPriority": 4,
    "topologyPreemption": 4,
    "maxPlacements": 6,
    "topologyPreemption+cascadeAware": 2,
    "maxPlacements+cascadeAware": 3,
    "harmOrder": 6,
    "harmOrder+maxLostWork": 1,
    "simulateClaims": 8,
    "compositePriority": 10,
    "maxMinRuntime": 2,
}
#: In how many cases a search has to find something better than what the rules come to without it.
BETTER = {"maxPlacements": 3, "harmOrder": 2}
TOGETHER = 100


@pytest.mark.parametrize("names", SINGLY)
def test_each_option_chooses_as_the_oracle_does(names: str) -> None:
    _singly(names, FIRST, CHUNK)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 4_000, 250))
@pytest.mark.parametrize("names", SINGLY)
def test_each_option_chooses_as_the_oracle_does_on_many_clusters(names: str, first: int) -> None:
    _singly(names, first, 250)


def _singly(names: str, first: int, count: int) -> None:
    options = names.split("+")
    found = [compared(seed, options, options[-1]) for seed in range(first, first + count)]
    better = BETTER.get(names, 0)
    assert_enough(found, preempting=10, refused=2, tied=10, changed=SINGLY[names], better=better)


def test_options_together_choose_as_the_oracle_does() -> None:
    _together(0)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(TOGETHER, 50 * TOGETHER, TOGETHER))
def test_options_together_choose_as_the_oracle_does_on_many_clusters(first: int) -> None:
    _together(first)


def _together(first: int) -> None:
    found = [compared(seed, some_options(seed)) for seed in range(first, first + TOGETHER)]
    assert_enough(found, preempting=25, refused=12, tied=25, settled=40, searched=12)


def test_with_options_plans_are_feasible_irreducible_and_the_same_in_any_order_of_events() -> None:
    _promised(20_200, 40)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(21_000, 31_000, 500))
def test_with_options_promises_hold_on_many_clusters(first: int) -> None:
    _promised(first, 500)


def _promised(first: int, count: int) -> None:
    """With the second reprieve pass nothing could stay, whatever the constraints of the group."""
    seen = Counter[str]()
    for seed in range(first, first + count):
        random = Random(seed)
        case = optional.random_optional(seed, some_options(seed))
        rows, policy = rows_of(case), with_second_pass(case)
        told = []
        for _ in range(2):
            random.shuffle(rows)
            cut = random.randrange(len(rows))
            cluster = Cluster()
            cluster.apply(rows[:cut])
            cluster.apply(rows[cut:])
            told.append(decided(case, policy, cluster.snapshot()))
        assert told[0] == told[1], seed
        choice, plan = told[0][0].choice, told[0][1]
        if plan is None or choice is None:
            continue
        assert promises.faults(sound(case), choice) == [], seed
        if "podGroup" in case["preemptor"] or not promises.NOT_MONOTONE & set(case["situations"]):
            assert promises.returnable(sound(case), choice) == [], seed
        seen["preempting"] += 1
        seen["of all options"] += seed % 4 == 0
    assert seen["preempting"] >= count // 4
    assert seen["of all options"] >= count // 40
