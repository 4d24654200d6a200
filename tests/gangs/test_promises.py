"""What job preemption promises, on random clusters against an oracle that knows nothing of it."""

from __future__ import annotations

import random

import pytest

from reprieve.engine.gangs.job import Budgets, JobPolicy, JobReason, Placement
from tests.gangs.worlds import attempt, tight, world
from tests.oracle.gangs import faults, may_go, placed_in_turn

#: So many random clusters, and all of them in the slow run.
CASES = pytest.mark.parametrize("cases", [600, pytest.param(2_000, marks=pytest.mark.slow)])
LITERAL = JobPolicy(Placement.FIRST_FIT, Budgets.IGNORE)
OURS = JobPolicy()


@CASES
def test_nothing_is_overfilled_evicted_in_vain_or_reducible_whoever_comes_first(cases: int) -> None:
    succeeded = victims = failed = 0
    for seed in range(cases):
        given = world(seed)
        found, outcome = attempt(given, OURS)
        assert faults(given, outcome) == [], seed
        order = random.Random(seed).sample(range(len(given.members)), len(given.members))
        assert attempt(given, OURS, order)[1] == outcome, seed
        succeeded += found.reason is JobReason.SUCCESS and len(given.members) > 1
        victims += len(outcome.victims) > 1
        failed += found.reason is JobReason.NOT_HELPFUL
    assert succeeded >= cases * 0.15
    assert victims >= cases * 0.075
    assert failed >= cases * 0.15


@CASES
def test_first_fit_is_the_reference_with_its_copies_kept(cases: int) -> None:
    succeeded = failed = 0
    for seed in range(cases):
        given = world(seed)
        found, outcome = attempt(given, LITERAL)
        assert outcome == placed_in_turn(given), seed
        succeeded += found.reason is JobReason.SUCCESS and len(given.members) > 1
        failed += found.reason is JobReason.NOT_HELPFUL and any(
            may_go(given, pod) for pod in given.pods
        )
    assert succeeded >= cases * 0.15
    assert failed >= cases * 0.15


@CASES
def test_search_succeeds_wherever_first_fit_does(cases: int) -> None:
    more = both = 0
    for seed in range(cases):
        given = tight(seed) if seed % 4 == 0 else world(seed, mixed=True)
        literal, ours = attempt(given, LITERAL)[0], attempt(given, OURS)[0]
        if literal.reason is JobReason.SUCCESS:
            assert ours.reason is JobReason.SUCCESS, seed
            both += 1
        more += ours.reason is JobReason.SUCCESS and literal.reason is not JobReason.SUCCESS
    assert both >= cases * 0.15
    assert more >= cases * 0.05
