"""Trees of composite groups on random clusters: engine and oracle agree, and promises hold.

Trees look for room and are preempted, with and without topology constraints on several levels, with
parents that are missing, and with either value of `compositePriority`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.proofs.proof import faults_of
from tests.engine.api_objects import Json, cluster_of, policy_of, rows_of
from tests.engine.scheduling import engine_cycle
from tests.engine.scheduling.agreement import judged, plain, sound
from tests.oracle.scheduling import objects, units
from tests.oracle.scheduling.forests import random_forest
from tests.oracle.scheduling.group import Outcome
from tests.oracle.scheduling.objects import key_of
from tests.oracle.scheduling.preemption import refused_with, returnable

CHUNK = 100
PARENT = "parentCompositePodGroupName"
NOT_MONOTONE = {"spread", "affinity"}
#: Shares of the cases that have to be of each kind.
LEAST = {
    "a tree is bound": 0.1,
    "a part of it fails": 0.05,
    "a tree preempts": 0.12,
    "a tree is refused": 0.02,
    "a pod preempts": 0.05,
    "a tree goes as a whole": 0.02,
    "a tree is reprieved as a whole": 0.01,
    "preempts by the nearest priority": 0.01,
    "constraints on several levels": 0.02,
}


def interesting(case: Json, outcome: Outcome) -> set[str]:
    """What a case shows of trees."""
    found = set()
    tree = "podGroup" in case["preemptor"]
    choice = outcome.choice
    victims = set(choice.victims) if choice is not None else set()
    if tree:
        groups = [*case["podGroups"], *case["compositePodGroups"]]
        constrained = sum("schedulingConstraints" in each["spec"] for each in groups)
        found |= {"a tree is bound"} if outcome.bound else set()
        found |= {"a part of it fails"} if outcome.bound and outcome.group_conditions else set()
        found |= {"a tree preempts"} if victims else set()
        found |= {"a tree is refused"} if choice and choice.code != "Success" else set()
        acts = bool(outcome.bound or victims)
        found |= {"constraints on several levels"} if acts and constrained > 1 else set()
    elif victims:
        found.add("a pod preempts")
    if victims and case.get("compositePriority"):
        found.add("preempts by the nearest priority")
    for unit in units.cluster_units(objects.Cluster.of(case)):
        if unit.type == "compositepodgroup" and len(unit.pods) > 1 and victims:
            gone = key_of(unit.pods[0]) in victims
            lower = unit.priority < 100
            found |= {"a tree goes as a whole"} if gone else set()
            found |= {"a tree is reprieved as a whole"} if lower and not gone else set()
    return found


def agree(first: int) -> None:
    """Compare so many cases, and fail when too few of them show what they are made for."""
    wrong, counts = [], Counter[str]()
    for seed in range(first, first + CHUNK):
        case = random_forest(seed)
        outcome = judged(case)
        counts.update(interesting(case, outcome))
        expected, got = plain(case, outcome), plain(case, engine_cycle.cycle(case))
        if got != expected:
            wrong.append(f"seed {seed}:\n expected {expected}\n got      {got}")
    assert wrong == []
    lacking = {kind: counts[kind] for kind, part in LEAST.items() if counts[kind] < part * CHUNK}
    assert lacking == {}, f"of {CHUNK} cases"


def test_engine_and_oracle_agree_about_trees() -> None:
    agree(0)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(CHUNK, 20 * CHUNK, CHUNK))
def test_engine_and_oracle_agree_about_many_trees(first: int) -> None:
    agree(first)


def test_feasible_irreducible_and_the_same_whatever_the_order_of_events() -> None:
    random, seen = Random(8), Counter[str]()
    for seed in range(10_000, 10_000 + CHUNK):
        case = random_forest(seed)
        rows, policy = rows_of(case), policy_of(case)
        told: list[Outcome | None] = []
        for _ in range(2):
            random.shuffle(rows)
            cluster = Cluster()
            cluster.apply(rows)
            snapshot = cluster.snapshot()
            attempt = engine_cycle.attempt_of(case, snapshot, policy)
            if attempt is not None and attempt.code is not Code.ERROR:
                assert faults_of(snapshot, policy, attempt) == (), seed
            told.append(
                None if attempt is None else engine_cycle.told(case, snapshot, policy, attempt)
            )
        assert told[0] == told[1], seed
        choice = told[0].choice if told[0] is not None else None
        if choice is None or not choice.victims:
            continue
        seen["preempting"] += 1
        state = objects.Cluster.of(sound(case))
        assert refused_with(choice, state, case["pending"]) == [], seed
        if not NOT_MONOTONE & set(case["situations"]):
            seen["irreducible"] += 1
            assert returnable(choice, state, case["pending"]) == [], seed
    assert seen["preempting"] >= CHUNK // 5
    assert seen["irreducible"] >= CHUNK // 8


@pytest.mark.parametrize(
    "options",
    [
        {"max_placements": 4},
        {"topology_preemption": True, "cascade_aware": True},
        {"binary_search_priority": True},
        {"harm_order": True},
    ],
    ids=lambda options: "+".join(options),
)
def test_options_keep_the_promises_for_trees(options: Json) -> None:
    preempting = 0
    for seed in range(30_000, 30_000 + CHUNK // 4):
        case = random_forest(seed)
        policy = replace(policy_of(case), **options)
        snapshot = cluster_of(case).snapshot()
        attempt = engine_cycle.attempt_of(case, snapshot, policy)
        if attempt is None or attempt.plan is None:
            continue
        assert faults_of(snapshot, policy, attempt) == (), seed
        told = engine_cycle.told(case, snapshot, policy, attempt)
        assert told is not None and told.choice is not None
        preempting += 1
        if not NOT_MONOTONE & set(case["situations"]):
            assert returnable(told.choice, objects.Cluster.of(sound(case)), case["pending"]) == []
    assert preempting >= 4


def test_without_the_gate_trees_change_nothing() -> None:
    compared = 0
    for seed in range(20_000, 20_000 + CHUNK // 2):
        case = random_forest(seed)
        case["features"]["CompositePodGroup"] = False
        alone: Json = {**case, "compositePodGroups": []}
        alone["podGroups"] = [
            {**each, "spec": {k: v for k, v in each["spec"].items() if k != PARENT}}
            for each in case["podGroups"]
        ]
        snapshot, plainly = cluster_of(case).snapshot(), cluster_of(alone).snapshot()
        policy = policy_of(case)
        first = engine_cycle.attempt_of(case, snapshot, policy)
        second = engine_cycle.attempt_of(alone, plainly, policy)
        told = [
            attempt and engine_cycle.told(given, state, policy, attempt)
            for given, state, attempt in ((case, snapshot, first), (alone, plainly, second))
        ]
        assert told[0] == told[1], seed
        if first is not None and second is not None and first.plan and second.plan:
            compared += 1
            assert first.plan.id == second.plan.id
    assert compared >= 5
