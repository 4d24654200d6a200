"""What job preemption promises, on random clusters against an oracle that knows nothing of it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.job import (
    Budgets,
    Job,
    JobPolicy,
    JobReason,
    Placement,
    VictimGangs,
)
from reprieve.engine.scheduling.gangs.job_preemption import preempt_for_job
from reprieve.engine.scheduling.proofs.proof import Fault
from reprieve.units.ids import Uid
from tests.engine import builders
from tests.engine.scheduling.broken_rules import (
    see_less_room,
    skip_the_reprieve_of_groups,
    take_one_too_many,
)
from tests.gangs.proofs import faults_of_job
from tests.gangs.worlds import attempt, judged, tight, world
from tests.oracle.gangs import faults, may_go, placed_in_turn

#: So many random clusters, and all of them in the slow run.
CASES = pytest.mark.parametrize(
    "cases",
    [
        200,
        pytest.param(600, marks=pytest.mark.thorough),
        pytest.param(2_000, marks=pytest.mark.slow),
    ],
)
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


@pytest.mark.parametrize("fault", [skip_the_reprieve_of_groups, take_one_too_many, see_less_room])
@pytest.mark.parametrize("policy", [OURS, LITERAL], ids=["search", "first fit"])
def test_the_proof_notices_a_job_that_takes_more_than_it_has_to(
    fault: Callable[[pytest.MonkeyPatch], None],
    policy: JobPolicy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(monkeypatch)
    noticed = 0
    for seed in range(200):
        found = {each.fault for each in judged(world(seed), policy)[2]}
        assert found <= {Fault.REDUCIBLE}
        noticed += bool(found)
    assert noticed >= 3


def test_the_proof_notices_a_gang_that_is_taken_whole_where_one_pod_is_enough() -> None:
    snapshot = builders.snapshot_of(
        [builders.node(name, gpus=8) for name in "ab"],
        [builders.pod(f"low-{name}", gpus=4, priority=1, node=name) for name in "ab"],
        [builders.pod(f"high-{name}", gpus=4, priority=5000, node=name) for name in "ab"],
        builders.pod("train", gpus=4, priority=1000),
    )
    train = builders.pending_of(snapshot, "train")
    job = Job("default/train", train, (train,), gangs=((Uid("pod-low-a"), Uid("pod-low-b")),))
    simulation = Simulation(snapshot, Policy(), Policy().profiles[0])
    found = preempt_for_job(simulation, job, JobPolicy(victim_gangs=VictimGangs.ALL))
    assert [len(pods) for pods in found.gangs] == [2]
    assert faults_of_job(snapshot, Policy(), job, found) == ()
    faults = faults_of_job(snapshot, Policy(), job, found, VictimGangs.POD)
    assert [(each.fault, each.subject) for each in faults] == [(Fault.REDUCIBLE, "default/low-b")]
