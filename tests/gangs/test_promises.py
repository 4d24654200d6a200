"""What job preemption promises, on random clusters against an oracle that knows nothing of it."""

from __future__ import annotations

import random

from reprieve.engine.gangs.job import Budgets, JobPolicy, JobReason, Placement
from tests.gangs.worlds import attempt, tight, world
from tests.oracle.gangs import faults, may_go, placed_in_turn

CASES = 2_000
LITERAL = JobPolicy(Placement.FIRST_FIT, Budgets.IGNORE)
OURS = JobPolicy()


def test_nothing_is_overfilled_evicted_in_vain_or_reducible_whoever_comes_first() -> None:
    succeeded = victims = failed = 0
    for seed in range(CASES):
        given = world(seed)
        found, outcome = attempt(given, OURS)
        assert faults(given, outcome) == [], seed
        order = random.Random(seed).sample(range(len(given.members)), len(given.members))
        assert attempt(given, OURS, order)[1] == outcome, seed
        succeeded += found.reason is JobReason.SUCCESS and len(given.members) > 1
        victims += len(outcome.victims) > 1
        failed += found.reason is JobReason.NOT_HELPFUL
    assert succeeded >= 300
    assert victims >= 150
    assert failed >= 300


def test_first_fit_is_the_reference_with_its_copies_kept() -> None:
    succeeded = failed = 0
    for seed in range(CASES):
        given = world(seed)
        found, outcome = attempt(given, LITERAL)
        assert outcome == placed_in_turn(given), seed
        succeeded += found.reason is JobReason.SUCCESS and len(given.members) > 1
        failed += found.reason is JobReason.NOT_HELPFUL and any(
            may_go(given, pod) for pod in given.pods
        )
    assert succeeded >= 300
    assert failed >= 300


def test_search_succeeds_wherever_first_fit_does() -> None:
    more = both = 0
    for seed in range(CASES):
        given = tight(seed) if seed % 4 == 0 else world(seed, mixed=True)
        literal, ours = attempt(given, LITERAL)[0], attempt(given, OURS)[0]
        if literal.reason is JobReason.SUCCESS:
            assert ours.reason is JobReason.SUCCESS, seed
            both += 1
        more += ours.reason is JobReason.SUCCESS and literal.reason is not JobReason.SUCCESS
    assert both >= 300
    assert more >= 100
