"""Harm decides only among what the KEP's order holds equal (`harmOrder`).

Whatever is found by harm breaks no budget further than the plan without the option, and takes
nobody of a higher priority, for gangs and for single pods, alone and with the options that compare
several placements.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from reprieve.engine.cluster.rows import BudgetRow, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from tests.engine.builders import budget, gang, node, pod, snapshot_of

NOW = 1_800_000_000
HOUR = 3_600
APPS = "abc"
OPTIONS: dict[str, dict[str, Any]] = {
    "alone": {},
    "placements": {"max_placements": 4},
    "cascade": {"max_placements": 3, "cascade_aware": True},
    "domains": {"topology_preemption": True},
    "halving": {"binary_search_priority": True, "max_placements": 2, "topology_preemption": True},
    "floors": {"non_uniform_groups": True, "max_placements": 2},
}


@dataclass(frozen=True)
class Case:
    """A cluster, who waits, and what its budgets say of the pods by name."""

    snapshot: Snapshot
    unit: Unit
    allowed: dict[str, int]  # by app
    app: dict[str, str]  # by pod


def case_of(rows: list[Any], group: str = "default/train") -> Case:
    snapshot = snapshot_of(*rows)
    pods = [row for row in rows if isinstance(row, PodRow)]
    budgets = [row for row in rows if isinstance(row, BudgetRow)]
    return Case(
        snapshot,
        Unit(tuple(snapshot.pending), group),
        {row.name: row.allowed for row in budgets},
        {row.name: dict(row.labels).get("app", "") for row in pods},
    )


def attempt(case: Case, policy: Policy) -> Attempt:
    """Decide; the plan, if any, is proven."""
    found = Session(case.snapshot, policy, now=NOW).attempt(case.unit)
    assert found is not None
    assert faults_of(case.snapshot, policy, found, NOW) == ()
    return found


def victims(found: Attempt) -> dict[str, str]:
    """Return the victims with the rule that chose each."""
    return {v.root.name: v.rule for v in found.plan.victims} if found.plan is not None else {}


def reach(case: Case, found: Attempt) -> dict[str, int]:
    """Return how far a plan goes, by what is compared; no budget shares a pod with another one."""
    assert found.preemption is not None
    gone = Counter(case.app[name] for name in victims(found))
    priority = dict(zip(case.snapshot.pod_keys, case.snapshot.pod_priority.tolist(), strict=True))
    return {
        "pods that break a budget": found.preemption.violating,
        "priority": max((priority[f"default/{name}"] for name in victims(found)), default=-1),
        **{app: max(0, gone[app] - allowed) for app, allowed in case.allowed.items()},
    }


def clusters(seed: int) -> Case:
    """A random full cluster with budgets; a gang waits, or of every third seed a single pod."""
    chosen = random.Random(f"reach {seed}")
    names = count()
    free = [8] * chosen.randint(2, 6)
    rows: list[Any] = [
        node(
            f"n{number}",
            gpus=8,
            cpu=chosen.choice([32_000, 64_000]),
            labels={"rack": chosen.choice("ab")},
        )
        for number in range(len(free))
    ]
    priorities = chosen.choice([[1], [1, 1, 2], [1, 2, 3]])
    for _ in range(30):
        gpus = chosen.choice([1, 2, 4, 8])
        rooms = [number for number, room in enumerate(free) if room >= gpus]
        size = min(len(rooms), chosen.choice([1, 1, 1, 2, 3]))
        if not size:
            continue
        places = chosen.sample(rooms, size)
        for place in places:
            free[place] -= gpus
        shared: dict[str, Any] = {
            "gpus": gpus,
            "priority": chosen.choice(priorities),
            "start": NOW - chosen.randint(0, 3 * HOUR),
            "checkpoint": chosen.choice([0, NOW - chosen.randint(0, HOUR)]),
            "labels": {"app": chosen.choice(APPS)},
        }
        name = f"g{next(names)}"
        if size == 1 and chosen.random() < 0.6:
            rows.append(pod(name, node=f"n{places[0]}", **shared))
            continue
        whole = chosen.random() < 0.6
        on = [f"n{place}" for place in places]
        members: list[Any] = gang(size, name, all_or_nothing=whole, nodes=on, **shared)
        members[0] = replace(members[0], floor=chosen.choice([0, 0, 2]))
        rows += members
    for app in APPS[: chosen.choice([0, 1, 2, 3])]:
        rows.append(budget(app, {"app": app}, chosen.choice([0, 0, 1, 2])))
    gpus = chosen.choice([2, 3, 4, 8])
    if seed % 3 == 0:
        return case_of([*rows, pod("single", gpus=gpus, priority=10)], "")
    key = chosen.choice(["", "", "rack"])
    size = chosen.choice([1, 2, 3])
    return case_of([*rows, *gang(size, "train", gpus=gpus, priority=10, topology_key=key)])


def compare(name: str, first: int, number: int) -> Counter[str]:
    """Hold plans by harm against those without; return how often something was to be seen."""
    by_kep = Policy(**OPTIONS[name])
    by_harm = replace(by_kep, harm_order=True)
    seen = Counter[str]()
    for seed in range(first, first + number):
        case = clusters(seed)
        without, found = attempt(case, by_kep), attempt(case, by_harm)
        assert (found.plan is None) == (without.plan is None), seed
        if not victims(without):
            continue
        most, far = reach(case, without), reach(case, found)
        assert all(far[each] <= most[each] for each in most), (seed, far, most)
        seen["preempting"] += 1
        seen["single pods"] += not case.unit.group
        seen["budgets"] += bool(case.allowed)
        seen["broken budgets"] += any(most[app] for app in case.allowed)
        placed = case.snapshot.pod_node >= 0
        seen["several priorities"] += len(set(case.snapshot.pod_priority[placed].tolist())) > 1
        seen["by harm"] += set(victims(found)) != set(victims(without))
        # Equals were told apart by the KEP's order, since harm would have gone further.
        seen["held back"] += set(victims(found).values()) <= {
            "lower priority",
            "lower priority, whole group",
        }
    return seen


LEAST = {
    "preempting": 0.5,
    "single pods": 0.12,
    "budgets": 0.3,
    "broken budgets": 0.05,
    "several priorities": 0.25,
    "by harm": 0.2,
    "held back": 0.01,
}


def assert_no_further(name: str, first: int, number: int) -> None:
    seen = compare(name, first, number)
    lacking = {kind: seen[kind] for kind, part in LEAST.items() if seen[kind] < part * number}
    assert lacking == {}, f"of {number}: {dict(seen)}"


@pytest.mark.parametrize("name", OPTIONS)
def test_harm_breaks_no_budget_and_takes_no_priority_that_the_kep_would_not(name: str) -> None:
    assert_no_further(name, 0, 150)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 9_000, 1_000))
@pytest.mark.parametrize("name", OPTIONS)
def test_harm_goes_no_further_on_many_clusters(name: str, first: int) -> None:
    assert_no_further(name, first, 1_000)


def rules(case: Case, **options: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the victims without `harmOrder` and with it."""
    by_kep = Policy(**options)
    return (
        victims(attempt(case, by_kep)),
        victims(attempt(case, replace(by_kep, harm_order=True))),
    )


def guarded(*, single: bool, allowed: int) -> Case:
    """Two full nodes: on one of them work is saved that a budget covers."""
    waits: list[Any] = gang(1, "train", gpus=8, cpu=1_000, priority=10)
    if single:
        waits = [pod("train-0", gpus=8, cpu=1_000, priority=10)]
    rows = [
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("silent", gpus=8, priority=1, node="a", start=NOW - 2 * HOUR),
        pod(
            "saved",
            gpus=8,
            priority=1,
            node="b",
            start=NOW - 2 * HOUR,
            checkpoint=NOW - 60,
            labels={"app": "a"},
        ),
        budget("a", {"app": "a"}, allowed),
        *waits,
    ]
    return case_of(rows, "" if single else "default/train")


@pytest.mark.parametrize("single", [False, True], ids=["gang", "pod"])
def test_a_budget_that_allows_nothing_counts_more_than_lost_work(single: bool) -> None:
    _, by_harm = rules(guarded(single=single, allowed=1))
    assert by_harm == {"saved": "lower priority, least lost work"}
    by_kep, by_harm = rules(guarded(single=single, allowed=0))
    assert set(by_kep) == set(by_harm) == {"silent"}


def test_of_a_pods_node_those_stay_whose_budget_would_be_broken_by_more_pods() -> None:
    # Least is lost with both small ones, which is one pod more than the budget is broken by anyway.
    rows = [
        node("a", gpus=8),
        pod("large", gpus=4, priority=1, node="a", start=NOW - 1_000, labels={"app": "a"}),
        *(
            pod(
                f"small-{number}",
                gpus=2,
                priority=1,
                node="a",
                start=NOW - 3_000,
                checkpoint=NOW - 60,
                labels={"app": "a"},
            )
            for number in range(2)
        ),
        budget("a", {"app": "a"}, 0),
        pod("single", gpus=4, priority=10),
    ]
    by_kep, by_harm = rules(case_of(rows, ""))
    assert by_kep == by_harm == {"large": "lower priority"}
    by_kep, by_harm = rules(case_of([row for row in rows if not isinstance(row, BudgetRow)], ""))
    assert set(by_kep) == {"large"}
    assert by_harm == dict.fromkeys(("small-0", "small-1"), "lower priority, least lost work")


def test_fewer_pods_that_break_a_budget_are_no_reason_to_take_a_higher_priority() -> None:
    # Which of its pods a budget still lets go depends on who is the most important one.
    high: dict[str, Any] = {"priority": 2, "node": "b", "labels": {"app": "b"}}
    rows = [
        node("a", gpus=4),
        pod("low", gpus=4, priority=1, node="a", start=NOW - 60, labels={"app": "a"}),
        budget("a", {"app": "a"}, 0),
        node("b", gpus=7),
        pod("kept", gpus=2, start=NOW - 3_000, checkpoint=NOW - 60, **high),
        pod("large", gpus=4, start=NOW - 2_000, **high),
        pod("small", gpus=1, start=NOW - 1_000, checkpoint=NOW - 60, **high),
        budget("b", {"app": "b"}, 1),
        pod("single", gpus=4, priority=10),
    ]
    by_kep, by_harm = rules(case_of(rows, ""))
    assert by_kep == by_harm == {"low": "lower priority"}


@pytest.mark.parametrize(("name", "seed"), [("alone", 362), ("placements", 208)])
def test_room_on_nodes_where_less_is_lost_is_not_made_by_a_higher_priority(
    name: str, seed: int
) -> None:
    assert compare(name, seed, 1)["several priorities"] == 1
