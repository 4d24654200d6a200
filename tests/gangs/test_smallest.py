"""What the search evicts is never more than what members in their own order would evict."""

from __future__ import annotations

import pytest

from reprieve.engine.scheduling.gangs import job_preemption
from reprieve.engine.scheduling.gangs.job import JobPolicy, JobReason, Placement
from tests.gangs.worlds import attempt, world
from tests.oracle.gangs import Node, Outcome, Pod, World, faults

CLUSTERS = 240


def evicted(given: World, outcome: Outcome) -> tuple[int, list[int]]:
    """Return the victims as the plane compares them: how many, and their priorities downwards."""
    priorities = {pod.name: pod.priority for pod in given.pods}
    return len(outcome.victims), sorted((priorities[v] for v in outcome.victims), reverse=True)


def mixed() -> World:
    """The large member costs one victim on the first node, and three on the second."""
    offers = {"cpu": 8, "memory": 64, "pods": 110}

    def pod(name: str, cpu: int, priority: int, node: str) -> Pod:
        return Pod(name, {"cpu": cpu, "memory": 1}, priority, node)

    pods = (
        pod("a-4", 4, 5_000, "node-1"),
        pod("b-1", 1, 5_000, "node-1"),
        pod("c-1", 1, 5_000, "node-1"),
        pod("system-1", 1, 2_000_000, "node-2"),
        pod("system-2", 1, 2_000_000, "node-2"),
        pod("d-1", 1, 2_000, "node-2"),
        pod("e-2", 2, 500, "node-2"),
        pod("f-3", 3, 500, "node-2"),
    )
    members = (
        Pod("g0", {"cpu": 3, "memory": 1}, 10_000),
        Pod("g1", {"cpu": 6, "memory": 1}, 10_000),
    )
    return World((Node("node-1", offers), Node("node-2", offers)), pods, members)


def test_of_two_placements_the_one_with_fewer_victims_is_taken() -> None:
    given = mixed()
    found, outcome = attempt(given, JobPolicy())
    assert found.reason is JobReason.SUCCESS
    _, in_order = attempt(given, JobPolicy(placement=Placement.FIRST_FIT))
    assert len(outcome.victims) == len(in_order.victims) == 2
    assert faults(given, outcome) == []


def test_a_placement_in_member_order_comes_without_what_a_search_cut_off_would_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_preemption, "search", lambda *given: None)
    found, _ = attempt(mixed(), JobPolicy(), explain=True)
    assert (found.reason, found.statuses) == (JobReason.SUCCESS, {})


def test_over_random_clusters_a_search_evicts_no_more_than_member_order() -> None:
    both = smaller = 0
    for seed in range(CLUSTERS):
        given = world(seed)
        found, outcome = attempt(given, JobPolicy())
        other, in_order = attempt(given, JobPolicy(placement=Placement.FIRST_FIT))
        if other.reason is not JobReason.SUCCESS:
            continue
        assert found.reason is JobReason.SUCCESS, seed
        assert evicted(given, outcome) <= evicted(given, in_order), seed
        both += 1
        sizes = {tuple(sorted(pod.asks.items())) for pod in given.members}
        smaller += len(sizes) > 1 and evicted(given, outcome) < evicted(given, in_order)
    assert both >= CLUSTERS // 4 and smaller >= 3, (both, smaller)


def test_the_reference_is_given_the_costs_of_the_nodes_that_it_looks_at() -> None:
    given = world(4917)  # with the costs of all candidates of the search its order is another
    found, outcome = attempt(given, JobPolicy())
    assert found.reason is JobReason.SUCCESS
    assert evicted(given, outcome) == (2, [10, 10])
