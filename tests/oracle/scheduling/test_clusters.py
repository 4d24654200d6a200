"""The random clusters contain what they are for, and faults of the rules show on them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.oracle.scheduling import (
    clusters,
    filters,
    group,
    objects,
    preemption,
    situations,
    topology,
    units,
)
from tests.oracle.scheduling.clusters import random_cluster
from tests.oracle.scheduling.group import Outcome

SEEDS = range(300)


def situation(cluster: objects.Object, outcome: Outcome) -> set[str]:
    """What is interesting about a case."""
    choice = outcome.choice
    if choice is None:
        return {"bound"} if outcome.bound else {"not tried"}
    if choice.code != "Success":
        return {"refused"}
    found = {"preempting"} if choice.victims else {"without victims"}
    state = objects.Cluster.of(cluster)
    every = units.cluster_units(state)
    lower = [u for u in every if u.priority < situations.PREEMPTOR_PRIORITY]
    if len({units.importance(u)[:-1] for u in lower}) < len(lower):
        found.add("tied units")
    gone = [u for u in every if objects.key_of(u.pods[0]) in choice.victims]
    if any(len(u.pods) > 1 for u in gone):
        found.add("whole group evicted")
    if len(gone) < len(lower):
        found.add("reprieved")
    if choice.violations:
        found.add("budget violated")
    if len(choice.winners) > 1:
        found.add("tied nodes")
    if {p["metadata"]["name"] for p in cluster["pending"]} - {
        key.split("/")[1] for key in choice.nominated or {}
    }:
        found.add("members left over")
    return found


@pytest.fixture(scope="module")
def outcomes() -> list[tuple[objects.Object, Outcome]]:
    return [(case, group.cycle(case)) for case in map(random_cluster, SEEDS)]


def test_the_interesting_situations_are_common(
    outcomes: list[tuple[objects.Object, Outcome]],
) -> None:
    counts = Counter(each for case, outcome in outcomes for each in situation(case, outcome))
    counts.update(each for case, _ in outcomes for each in case["situations"])
    least = {
        "preempting": 0.25,
        "refused": 0.1,
        "bound": 0.1,
        "tied units": 0.15,
        "whole group evicted": 0.06,
        "reprieved": 0.2,
        "budget violated": 0.04,
        **dict.fromkeys(situations.APPLY, 0.03),
    }
    assert {s: counts[s] for s, part in least.items() if counts[s] < part * len(SEEDS)} == {}
    assert counts["tied nodes"] and counts["members left over"]


def test_clusters_are_small_and_the_same_for_a_seed(
    outcomes: list[tuple[objects.Object, Outcome]],
) -> None:
    for seed, (case, _) in zip(SEEDS, outcomes, strict=True):
        assert case == random_cluster(seed)
        assert len(case["nodes"]) <= clusters.MOST_NODES
        pods = [*case["pods"], *case["pending"], *case["nominated"]]
        assert len(pods) <= clusters.MOST_PODS
        assert len({objects.key_of(p) for p in pods}) == len(pods)


def test_victims_leave_room_for_every_placed_member(
    outcomes: list[tuple[objects.Object, Outcome]],
) -> None:
    for case, outcome in outcomes:
        if not outcome.choice or not outcome.choice.victims:
            continue
        sound = {**case, "everyFilterAtReprieve": True}
        choice = group.cycle(sound).choice
        assert choice is not None
        assert preemption.refused_with(choice, objects.Cluster.of(sound), case["pending"]) == []


def test_no_victim_could_stay_where_all_constraints_are_monotone(
    outcomes: list[tuple[objects.Object, Outcome]],
) -> None:
    checked = 0
    for case, _ in outcomes:
        if {"spread", "affinity"} & set(case["situations"]):
            continue
        sound = {**case, "everyFilterAtReprieve": True}
        choice = group.cycle(sound).choice
        if choice is not None and choice.victims:
            checked += 1
            assert preemption.returnable(choice, objects.Cluster.of(sound), case["pending"]) == []
    assert checked >= 60


def _spread_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "pod_topology_spread", lambda pod, node, cluster: None)


def _budgets_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        units, "split_by_budget", lambda ordered, budgets: ({}, list(range(len(ordered))))
    )


def _refused_units_not_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = preemption.reprieved

    def without_rollback(potential, emptied, fits):  # type: ignore[no-untyped-def]
        kept: list[objects.Object] = []

        def check(state: objects.Cluster) -> bool:
            here = {objects.key_of(p) for p in state.pods}
            kept.extend(state.pods)
            missing = {objects.key_of(p): p for p in kept if objects.key_of(p) not in here}
            return bool(fits(state.adding(missing.values())))

        return real(potential, emptied, check)

    monkeypatch.setattr(preemption, "reprieved", without_rollback)


@pytest.mark.parametrize("fault", [_spread_dropped, _budgets_ignored, _refused_units_not_taken_out])
def test_a_fault_of_the_rules_shows(
    fault: object, outcomes: list[tuple[objects.Object, Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(fault)
    fault(monkeypatch)
    assert "PodTopologySpread" in filters.default_filters()
    different = [case["seed"] for case, before in outcomes if group.cycle(case) != before]
    assert len(different) >= 3
