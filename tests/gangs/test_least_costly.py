"""Profile `best` for jobs: no victims cost less, by brute force, and the record says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reprieve.engine.placement.profile import Policy, Profile, VictimChoice
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.job import Budgets, Job, JobPolicy, JobReason, Placement
from reprieve.engine.scheduling.gangs.job_preemption import preempt_for_job
from tests.engine import builders
from tests.gangs.proofs import faults_of_job
from tests.gangs.worlds import attempt, judged, tight, world
from tests.oracle.gangs import Node, Outcome, Pod, World, faults, least

COMPATIBLE = Policy(profiles=(Profile(),))
BEST = replace(COMPATIBLE, choice=VictimChoice.BEST)
NOBODY = -(2**63)


def cost(given: World, outcome: Outcome) -> tuple[int, int, int] | None:
    """Top priority, number and sum of priorities; None where the gang is not placed."""
    if not outcome.nodes:
        return None
    own = {pod.name: pod.priority for pod in given.pods}
    gone = [own[name] for name in outcome.victims]
    return max(gone, default=NOBODY), len(gone), sum(gone)


@pytest.mark.parametrize(
    ("first", "clusters"), [(0, 60), pytest.param(60, 440, marks=pytest.mark.thorough)]
)
def test_over_random_clusters_no_victims_cost_less(first: int, clusters: int) -> None:
    cheaper = preempted = stated = 0
    for seed in range(first, first + clusters):
        given = world(seed, nodes=3, members=3)
        found, outcome = attempt(given, JobPolicy(), by=BEST)
        assert faults(given, outcome) == [], seed
        best = least(given)
        if not outcome.victims:
            assert best is None or best[1] == 0, seed
            continue
        assert cost(given, outcome) == best, seed
        preempted += 1
        stated += found.gap == 0
        now, before = cost(given, outcome), cost(given, attempt(given, JobPolicy())[1])
        assert now is not None and (before is None or now <= before), seed
        cheaper += before is None or now < before
    assert preempted >= clusters // 6 and cheaper >= clusters // 40, (preempted, cheaper)
    assert stated == preempted


def test_members_are_placed_where_the_search_in_orders_places_them() -> None:
    refused = 0
    for seed in range(30):
        given = tight(seed)
        found, outcome = attempt(given, JobPolicy(), by=BEST)
        before, _ = attempt(given, JobPolicy())
        assert faults(given, outcome) == [], seed
        assert found.reason is JobReason.SUCCESS or before.reason is not JobReason.SUCCESS, seed
        refused += found.reason is not JobReason.SUCCESS
    assert refused >= 3


def two_nodes(*pods: tuple[str, int, int, str], members: Mapping[str, int]) -> World:
    offers = {"cpu": 8, "memory": 64, "pods": 110}
    return World(
        (Node("node-1", offers), Node("node-2", offers)),
        tuple(Pod(name, {"cpu": cpu}, priority, node) for name, cpu, priority, node in pods),
        tuple(Pod(name, {"cpu": cpu}, 1_000) for name, cpu in members.items()),
    )


def test_a_lower_priority_goes_before_fewer_pods() -> None:
    given = two_nodes(
        ("a", 8, 20, "node-1"), ("b", 4, 10, "node-2"), ("c", 4, 10, "node-2"), members={"g0": 8}
    )
    _, outcome = attempt(given, JobPolicy(), by=BEST)
    assert outcome.victims == {"b", "c"}


def test_the_placement_of_the_reference_keeps_its_victims() -> None:
    given = two_nodes(
        ("a", 8, 20, "node-1"), ("b", 4, 10, "node-2"), ("c", 4, 10, "node-2"), members={"g0": 8}
    )
    first_fit = JobPolicy(placement=Placement.FIRST_FIT)
    found, outcome = attempt(given, first_fit, by=BEST)
    _, compatible = attempt(given, first_fit)
    assert outcome == compatible
    assert (found.best, found.gap) == (False, None)


def test_the_proof_refuses_a_higher_priority_than_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = two_nodes(("a", 8, 20, "node-1"), ("b", 8, 10, "node-2"), members={"g0": 8})
    assert judged(given, JobPolicy(), by=BEST)[2] == ()
    of_jobs = "reprieve.engine.scheduling.gangs.job_preemption"
    monkeypatch.setattr(f"{of_jobs}.cheapest", lambda *given: given[-1][-1])
    monkeypatch.setattr(f"{of_jobs}._DryRun._place", lambda *given: [0])
    monkeypatch.setattr(f"{of_jobs}._DryRun._in_member_order", lambda *given: [])
    found, outcome, wrong = judged(given, JobPolicy(), by=BEST)
    assert found.best and outcome.victims == {"a"}
    assert [str(each.fault) for each in wrong] == [
        "the pod fits without the victims of lower priorities alone"
    ]


@pytest.mark.parametrize(
    ("budgets", "victims"), [(Budgets.IGNORE, {"a"}), (Budgets.PREFER, {"b", "c"})]
)
def test_the_proof_counts_budgets_where_the_choice_does(
    budgets: Budgets, victims: set[str]
) -> None:
    options = JobPolicy(budgets=budgets)
    snapshot = builders.snapshot_of(
        *(builders.node(name, cpu=8) for name in ("node-1", "node-2")),
        builders.pod("a", cpu=8, priority=10, node="node-1", labels={"app": "guarded"}),
        *(builders.pod(name, cpu=4, priority=10, node="node-2") for name in ("b", "c")),
        builders.pod("g0", cpu=8, priority=1_000),
        builders.budget("guard", {"app": "guarded"}, allowed=0),
    )
    simulation = Simulation(snapshot, BEST, BEST.profiles[0])
    member = builders.pending_of(snapshot, "g0")
    job = Job("default/g", member, (member,))
    found = preempt_for_job(simulation, job, options)
    assert {snapshot.pod_keys[slot].partition("/")[2] for slot in found.slots} == victims
    assert found.gap == 0
    assert faults_of_job(snapshot, BEST, job, found, jobs=options) == ()
