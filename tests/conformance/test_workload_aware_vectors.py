"""The published cases of workload-aware preemption, one a test: `workload-aware/FILE.json::NAME`.

Single functions are asked what they are asked upstream; whole runs are played on a cluster in
memory. Executed cases run twice: under the placement that the real scheduler had, where victims,
texts and nominations have to be its own, and under ours, where the outcome has to be of the same
kind and everything has to fit. Every case runs as a copy with other times and uids as well, which
an engine that knows a case instead of the rule would fail. They run without the second reprieve
pass, which the real scheduler has not; what it changes is tested here as well: fewer victims, and
still everything fits.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.engine.scheduling.nodes.placing import best_node
from tests.conformance import deviations, workload_aware_engine, workload_aware_runs
from tests.conformance.workload_aware_vectors import Vector
from tests.engine.api_objects import cluster_of, policy_of
from tests.engine.scheduling import agreement, engine_cycle
from tests.oracle.scheduling import preemption
from tests.oracle.scheduling.group import Outcome
from tests.oracle.scheduling.objects import Cluster

DELTA = 9_679 * HOUR + 431 * SECOND
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
UID = re.compile(r'"uid": "([^"]+)"')


def test_published(judged_vector: Vector) -> None:
    vector = _asserted(_runnable(judged_vector))
    assert workload_aware_engine.differences(vector) == [] or _as_the_oracle(vector)


def test_shifted_copy(judged_vector: Vector) -> None:
    vector = _shifted(_asserted(_runnable(judged_vector)))
    assert workload_aware_engine.differences(vector) == [] or _as_the_oracle(vector)


def test_the_oracle_judges_only_cases_of_which_deviations_md_speaks() -> None:
    containers = [{"ports": [{"hostPort": 80}]}]
    for nodes, expected in ((("n1", "n1"), True), (("n1", "n2"), False)):
        pods = [{"spec": {"nodeName": name, "containers": containers}} for name in nodes]
        assert deviations.shares_a_port({"pods": pods}) == expected
    constraint = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    pending = [{"spec": {"topologySpreadConstraints": [constraint]}}]
    for zones, expected in (("abc", True), ("aab", False)):
        labelled = [{"metadata": {"labels": {"zone": zone}}} for zone in zones]
        case = {"nodes": labelled, "pending": pending}
        assert deviations.spreads_widely(case) == expected


def test_with_our_own_placement(executed_vector: Vector) -> None:
    vector = _asserted(_runnable(executed_vector))
    found = engine_cycle.cycle(vector.case)
    assert _of_the_same_kind(vector, found) or _as_the_oracle(vector)
    _assert_all_fits(vector, found)


def test_with_the_second_reprieve_pass(executed_vector: Vector) -> None:
    vector = _runnable(executed_vector)
    without = engine_cycle.cycle(vector.case, vector.imposed).choice
    found = engine_cycle.cycle(vector.case, vector.imposed, second_reprieve_pass=True)
    choice = found.choice
    if without is None or choice is None:
        assert without is choice
        return
    assert (choice.code, choice.nominated) == (without.code, without.nominated)
    assert len(choice.victims) <= len(without.victims)
    _assert_all_fits(vector, found)
    _assert_proven(vector)
    cluster = Cluster.of({**vector.case, "everyFilterAtReprieve": True})
    if choice.victims and "podGroup" in vector.case["preemptor"]:
        assert preemption.returnable(choice, cluster, vector.case["pending"]) == []


def test_first_cycle_as_people_see_it(cycled_vector: Vector) -> None:
    vector = _asserted(_runnable(cycled_vector))
    assert workload_aware_runs.first_cycle(vector) == [] or _as_the_oracle(vector)


def test_played(played_vector: Vector) -> None:
    vector = _asserted(_runnable(played_vector))
    if vector.kind != "steps":
        assert workload_aware_runs.integration(vector) == []
        return
    for topology_aware in vector.case["topologyAwareWorkloadScheduling"]:
        assert workload_aware_runs.steps(vector, topology_aware) == []


def test_played_with_our_own_placement(integration_vector: Vector) -> None:
    vector = _runnable(integration_vector)
    assert workload_aware_runs.integration_under_our_placement(vector) == []


def _of_the_same_kind(vector: Vector, found: Outcome) -> bool:
    """Whether somebody preempts where it is published, with the published status."""
    attempted = bool(vector.expect["preemptionAttempted"])
    if found.choice is None or not attempted:
        return (found.choice is not None) == attempted
    return bool(found.choice.code == vector.expect["status"]["code"])


def _asserted(vector: Vector) -> Vector:
    """The vector with what is asserted instead, where it deviates on purpose."""
    if vector.id not in deviations.WORKLOAD_AWARE:
        return vector
    expect = deviations.workload_aware(vector.id, vector.expect)
    return replace(vector, case={**vector.case, "expect": expect})


def _as_the_oracle(vector: Vector) -> bool:
    """Whether it is a deviation of the kind that DEVIATIONS.md describes, and the oracle agrees."""
    case = {**vector.case, "seed": vector.id, "situations": ""}
    explained = (
        deviations.shares_a_port(case)
        or deviations.spreads_widely(case)
        or deviations.skips_affinity(case)
    )
    return explained and agreement.disagreement(case) == ""


def _shifted(vector: Vector) -> Vector:
    """Other times and uids, in input and expectation alike."""
    text = INSTANT.sub(
        lambda found: format_instant(Nanos(parse_instant(found.group()) + DELTA)),
        json.dumps(vector.case),
    )
    return replace(vector, case=json.loads(UID.sub(r'"uid": "z9-\1"', text)))


def _runnable(vector: Vector) -> Vector:
    if vector.skip:
        pytest.skip(vector.skip)
    return vector


def _assert_all_fits(vector: Vector, found: Outcome) -> None:
    """Every placed member passes all filters, in order, once the victims are gone."""
    case = {**vector.case, "everyFilterAtReprieve": True}
    choice = found.choice or preemption.Choice("Success", "", nominated=found.bound)
    if choice.code == "Success":
        assert preemption.refused_with(choice, Cluster.of(case), case["pending"]) == []


def _assert_proven(vector: Vector) -> None:
    """The plan with the second pass has no fault: no victim could stay."""
    snapshot = cluster_of(vector.case).snapshot()
    policy = policy_of(vector.case, second_reprieve_pass=True)
    choose = best_node if vector.imposed is None else engine_cycle.imposed_by(vector.imposed)
    attempt = engine_cycle.attempt_of(vector.case, snapshot, policy, choose)
    if attempt is not None and attempt.plan is not None:
        engine_cycle.assert_proven(snapshot, policy, attempt)
