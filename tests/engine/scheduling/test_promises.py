"""The promises of the design, each on random clusters; the oracle judges what has to fit.

Feasible, irreducible, deterministic; nobody is evicted where the unit fits without, or where it
cannot fit at all; the second reprieve pass only ever spares.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Attempt
from reprieve.engine.scheduling.proofs.commit import still_holds
from tests.engine.api_objects import Json, cluster_of, policy_of, rows_of
from tests.engine.scheduling import engine_cycle
from tests.engine.scheduling.agreement import cases_of, judged, sound
from tests.oracle.scheduling import objects
from tests.oracle.scheduling.preemption import Choice, refused_with, returnable
from tests.tiers import first_of

CHUNK, CHUNKS = 150, 4
FIRST = 5_000  # seeds that nobody else looks at
NOT_MONOTONE = {"spread", "affinity"}

chunks = pytest.mark.parametrize("chunk", first_of(range(CHUNKS), most=2))


def cases(chunk: int) -> list[Json]:
    start = FIRST + chunk * CHUNK
    return cases_of(range(start, start + CHUNK))


def preempting(case: Json, *, second: bool = False) -> Choice | None:
    """What the engine chose if it evicts somebody."""
    choice = engine_cycle.cycle(case, second_reprieve_pass=second).choice
    return choice if choice is not None and choice.victims else None


@chunks
def test_feasible_every_placed_member_fits_once_the_victims_are_gone(chunk: int) -> None:
    seen = Counter[str]()
    for case in cases(chunk):
        outcome = engine_cycle.cycle(case)
        choice = outcome.choice or Choice("Success", "", nominated=outcome.bound)
        if choice.code == "Success" and choice.nominated and "ongoing" not in choice.message:
            state = objects.Cluster.of(sound(case))
            assert refused_with(choice, state, case["pending"]) == [], case["seed"]
            seen["evicting" if choice.victims else "fitting"] += 1
    assert min(seen["evicting"], seen["fitting"]) >= CHUNK // 12


@chunks
def test_a_decision_holds_on_the_state_that_it_was_made_on(chunk: int) -> None:
    checked = 0
    for case in cases(chunk):
        snapshot, policy = cluster_of(case).snapshot(), policy_of(case)
        attempt = engine_cycle.attempt_of(case, snapshot, policy)
        claims = attempt is not None and any(m.claims or m.volumes for m in attempt.members)
        if attempt is None or claims or attempt.code is Code.ERROR:
            continue
        if attempt.plan is not None or any(member.bind for member in attempt.members):
            checked += 1
            assert still_holds(snapshot, policy, attempt), case["seed"]
    assert checked >= CHUNK // 4


@chunks
def test_irreducible_no_single_victim_could_stay(chunk: int) -> None:
    checked = 0
    for case in cases(chunk):
        choice = None if NOT_MONOTONE & set(case["situations"]) else preempting(case)
        if choice is not None:
            checked += 1
            state = objects.Cluster.of(sound(case))
            assert returnable(choice, state, case["pending"]) == [], case["seed"]
    assert checked >= CHUNK // 8


@chunks
def test_deterministic_whatever_the_order_of_events(chunk: int) -> None:
    random = Random(chunk)
    preempted = 0
    for case in cases(chunk):
        rows, policy = rows_of(case), policy_of(case)
        told: list[object] = []
        for _ in range(3):
            random.shuffle(rows)
            cluster = Cluster()
            cut = random.randrange(len(rows))
            cluster.apply(rows[:cut])
            cluster.apply(rows[cut:])
            snapshot = cluster.snapshot()
            attempt = engine_cycle.attempt_of(case, snapshot, policy)
            if attempt is None:
                told.append(None)
                continue
            outcome = engine_cycle.told(case, snapshot, policy, attempt)
            told.append((outcome, _plan(attempt)))
            preempted += attempt.plan is not None
        assert told[0] == told[1] == told[2], case["seed"]
    assert preempted >= CHUNK // 2


def _plan(attempt: Attempt) -> object:
    return None if attempt.plan is None else replace(attempt.plan, revision=0)


@chunks
def test_nobody_is_evicted_where_the_unit_fits_without_or_cannot_fit_at_all(chunk: int) -> None:
    seen = Counter[str]()
    for case in cases(chunk):
        snapshot = cluster_of(case).snapshot()
        attempt = engine_cycle.attempt_of(case, snapshot, policy_of(case))
        if attempt is None:
            continue
        outcome = judged(case)
        hopeless = outcome.choice is None or outcome.choice.code != "Success"
        seen["fits"] += bool(outcome.bound)
        seen["hopeless"] += hopeless and not outcome.bound
        if outcome.bound or hopeless:
            assert attempt.plan is None, case["seed"]
            assert attempt.preemption is None or attempt.preemption.victims == ()
    assert min(seen["fits"], seen["hopeless"]) >= CHUNK // 12


@chunks
def test_the_second_pass_spares_and_leaves_nobody_who_could_return(chunk: int) -> None:
    seen = Counter[str]()
    start = FIRST + chunk * 2_000
    for case in cases_of(range(start, start + 2_000)):
        if "podGroup" not in case["preemptor"] or not NOT_MONOTONE & set(case["situations"]):
            continue
        first, second = preempting(case), preempting(case, second=True)
        if first is None:
            continue
        victims = () if second is None else second.victims
        seen["compared"] += 1
        seen["spared"] += len(victims) < len(first.victims)
        assert len(victims) <= len(first.victims), case["seed"]
        if second is not None:
            assert second.nominated == first.nominated
            state = objects.Cluster.of(sound(case))
            assert refused_with(second, state, case["pending"]) == [], case["seed"]
            assert returnable(second, state, case["pending"]) == [], case["seed"]
    assert seen["compared"] >= 50
    assert seen["spared"] >= 2
