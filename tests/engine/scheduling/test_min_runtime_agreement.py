"""Engine and oracle agree on who is spared for having just started, on random clusters.

Everybody who may speak does: pods, groups, groups above them, classes and the namespace; some say
what cannot be read. Each case is decided with the option and without.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from reprieve.engine.scheduling.proofs.proof import faults_of
from tests.engine.api_objects import Json, cluster_of, policy_of
from tests.engine.scheduling import engine_cycle
from tests.engine.scheduling.agreement import disagreement, judged
from tests.oracle.scheduling import units
from tests.oracle.scheduling.clusters import random_cluster
from tests.oracle.scheduling.forests import random_forest
from tests.oracle.scheduling.group import Outcome
from tests.oracle.scheduling.objects import Cluster, key_of, name_of

NOW = 1_700_002_800  # 2023-11-14T23:00:00Z; pods started in the hour before
CHUNK, CHUNKS = 100, 5
#: Shares of a chunk that have to be of each kind.
LEAST = {
    "another outcome": 0.08,
    "other victims": 0.03,
    "refused": 0.1,
    "preempting": 0.2,
    "a pod": 0.01,
    "a group": 0.05,
}


def saying(random: Random, each: Json, likely: float) -> None:
    if random.random() < likely:
        text = random.choice(("0s", "20m", "40m", "50m", "2h", "2h", "soon", "-5m"))
        said = each["metadata"].setdefault("annotations", {})
        said["reprieve.dev/preempt-min-runtime"] = text


def case_of(seed: int) -> Json:
    random = Random(f"runtimes {seed}")
    case = (random_forest if seed % 4 == 0 else random_cluster)(seed)
    case.pop("compositePriority", None)
    case["priorityClasses"] = [{"metadata": {"name": name}, "value": 1} for name in "abc"]
    spaces = case.setdefault("namespaces", [])
    if not any(name_of(each) == "default" for each in spaces):
        spaces.append({"metadata": {"name": "default"}})
    groups = [*case["podGroups"], *case.get("compositePodGroups", ())]
    for each, likely in (
        *((each, 0.6) for each in case["pods"]),
        *((each, 0.6) for each in groups),
        *((each, 0.4) for each in case["priorityClasses"]),
        *((each, 0.3) for each in spaces),
    ):
        saying(random, each, likely)
    for pod in case["pods"]:
        if random.random() < 0.6:
            pod["spec"]["priorityClassName"] = random.choice("abcd")
        if random.random() < 0.5 and "startTime" in pod["status"]:
            minute = random.randrange(60)
            pod["status"]["startTime"] = f"2023-11-14T22:{minute:02}:00Z"
    case["seed"], case["now"] = seed, NOW
    case["maxMinRuntime"] = random.choice((1_800, 2_700, 3_600))
    return case


def without(case: Json) -> Json:
    return {key: value for key, value in case.items() if key != "maxMinRuntime"}


def victims(outcome: Outcome) -> frozenset[str]:
    return frozenset(outcome.choice.victims) if outcome.choice is not None else frozenset()


def young(case: Json) -> frozenset[str]:
    """Whoever is within its minimum runtime."""
    cluster = Cluster.of(case)
    spared = [units.unit_of(p, cluster) for p in cluster.live]
    spared = [unit for unit in spared if not units.makes_way(unit, cluster)]
    return frozenset(key_of(pod) for unit in spared for pod in unit.pods)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_and_oracle_agree_on_who_is_spared(chunk: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        case = case_of(seed)
        outcome, before = judged(case), judged(without(case))
        assert disagreement(case, outcome) == ""
        assert not victims(outcome) & young(case), seed
        seen["another outcome"] += outcome != before
        found = outcome.choice
        seen["preempting"] += bool(victims(outcome))
        seen["refused"] += found is not None and found.code != "Success"
        seen["other victims"] += bool(victims(outcome) - victims(before))
        if victims(outcome) != victims(before):
            seen["a group" if "podGroup" in case["preemptor"] else "a pod"] += 1
    lacking = {what: seen[what] for what, least in LEAST.items() if seen[what] < least * CHUNK}
    assert lacking == {}, f"of {CHUNK} cases"


def test_the_proof_holds_for_what_the_engine_decides_and_breaks_without_the_option() -> None:
    held = broken = 0
    for seed in range(300):
        case = case_of(seed)
        snapshot = cluster_of(case).snapshot()
        policy, lax = policy_of(case), policy_of(without(case))
        found = engine_cycle.attempt_of(case, snapshot, policy)
        if found is not None and found.plan is not None:
            held += 1
            assert faults_of(snapshot, policy, found, NOW) == (), seed
        careless = engine_cycle.attempt_of(case, snapshot, lax)
        if careless is not None and careless.plan is not None:
            named = {f"{v.root.namespace}/{v.root.name}" for v in careless.plan.victims}
            faults = faults_of(snapshot, policy, careless, NOW)
            assert bool(faults) == bool(named & young(case)), seed
            broken += bool(faults)
    assert held > 20 and broken > 20
