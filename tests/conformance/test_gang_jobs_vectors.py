"""The published cases of gangs and job preemption, one test a case.

Beside the stored outcome: with our own placement a job succeeds wherever any stored expectation
that fits on its nodes does, whatever the order in which members are handed in; and where the
reference's released code overfills a node, neither placement does.
"""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.engine.scheduling.gangs.job import Budgets, JobPolicy, JobReason, VictimGangs
from tests.conformance.gang_jobs import Played, differences, invariants

Vector = tuple[str, str, dict[str, Any]]

OURS = JobPolicy()
_BY_ITS_OWN_MEANS = ("JobPreemption",)


def test_published(gang_vector: Vector) -> None:
    assert differences(gang_vector[2]) == []


def test_search_finds_what_any_expectation_finds(gang_vector: Vector) -> None:
    _, kind, case = gang_vector
    if kind not in _BY_ITS_OWN_MEANS:
        return
    played = Played(case, OURS)
    assert invariants(played) == []
    fitting = [case["expect"], case.get("expectWithoutNarrowing") or case["expect"]]
    if any(each["status"]["code"] == "Success" for each in fitting):
        assert played.found.reason is JobReason.SUCCESS
    if case["pendingPods"]:
        turned = Played(case, OURS, order=[*reversed(case["pendingPods"])])
        assert turned.found == played.found


def test_nothing_is_overfilled_where_the_released_code_does(gang_vector: Vector) -> None:
    _, kind, case = gang_vector
    if kind not in _BY_ITS_OWN_MEANS or not _overfills(case):
        return
    for policy in (OURS, JobPolicy(budgets=Budgets.IGNORE, victim_gangs=VictimGangs.ALL)):
        assert invariants(Played(case, policy)) == []
    assert invariants(Played(case)) == []


def test_the_released_code_overfills_nodes_in_some_cases(
    request: pytest.FixtureRequest,
) -> None:
    from tests.conformance.conftest import _gang_cases, _planes

    planes = _planes(request.config)
    cases = [case for plane in planes for _, _, case in _gang_cases(plane)]
    if not any(case["kind"] == "JobPreemption" for case in cases):
        pytest.skip("no cases of job preemption beside the project")
    assert sum(map(_overfills, cases)) >= 10


def _overfills(case: dict[str, Any]) -> bool:
    """Whether the released code's own result puts more CPU on a node than there is."""
    literal = case.get("expectUpstreamLiteral")
    if case["kind"] != "JobPreemption" or not literal or not literal.get("podToNominatedNode"):
        return False
    played = Played(case)
    snapshot = played.snapshot
    cpu = snapshot.resources.index("cpu")
    room = (snapshot.allocatable - snapshot.used)[:, cpu]
    for name, victims in (literal.get("victims") or {}).items():
        for key in victims:
            slot = snapshot.pod_keys.index(key)
            room[snapshot.node_index[name]] += snapshot.pod_requests[slot, cpu]
    for key, name in literal["podToNominatedNode"].items():
        entry = snapshot.classes[played.pending(key).pod_class]
        assert entry is not None
        room[snapshot.node_index[name]] -= dict(entry.requests).get("cpu", 0)
    return bool((room < 0).any())
