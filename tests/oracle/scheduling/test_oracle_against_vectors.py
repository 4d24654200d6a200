"""The oracle of the scheduling plane meets what the real scheduler did, case by case.

Only so may it judge the engine. The placement that a case gives is imposed, and each step of it
has to be one that the oracle's filters allow.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.conformance import workload_aware_oracle, workload_aware_vectors
from tests.conformance.workload_aware_vectors import Vector
from tests.oracle.scheduling import group, preemption
from tests.oracle.scheduling.objects import Cluster

TWO_HOLDERS = (
    "two placed pods hold the same host port of the node, which no kubelet admits; the real"
    " scheduler keeps ports as a set, so taking out one of them frees the port of the other"
)
DEVIATIONS = {
    "generated_group_constraints.json::group-constraints-0018": TWO_HOLDERS,
    "generated_pod_constraints.json::pod-constraints-0018": TWO_HOLDERS,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name in ("vector", "placed_vector"):
        if name not in metafunc.fixturenames:
            continue
        where = workload_aware_vectors.folder(metafunc.config.getoption("vectors", default=None))
        if where is None:
            reason = "no vectors of workload-aware preemption: give their folder with --vectors"
            absent = pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))
            metafunc.parametrize(name, [absent])
            continue
        checked = [v for v in _found(where) if not v.skip and "mockReservePlugin" not in v.case]
        if name == "placed_vector":
            checked = [v for v in checked if v.imposed is not None and v.kind == "executed"]
            checked = [v for v in checked if v.id not in DEVIATIONS]
        metafunc.parametrize(name, checked, ids=lambda v: v.id)


@cache
def _found(where: Path) -> tuple[Vector, ...]:
    return tuple(workload_aware_vectors.vectors_in(where, *workload_aware_oracle.FOUND))


def test_its_own_placement_comes_to_the_same_result(placed_vector: Vector) -> None:
    case, expect = placed_vector.case, placed_vector.expect
    choice = group.cycle(case).choice
    assert choice is not None and expect["preemptionAttempted"]
    assert choice.code == expect["status"]["code"]
    cluster = Cluster.of({**case, "everyFilterAtReprieve": True})
    assert preemption.refused_with(choice, cluster, case["pending"]) == []


def test_the_oracle_meets_the_real_scheduler(vector: Vector) -> None:
    if vector.id not in DEVIATIONS:
        assert workload_aware_oracle.differences(vector) == []
        return
    try:
        found = workload_aware_oracle.differences(vector)
    except AssertionError as refused:
        found = [str(refused)]
    assert any("ports" in difference for difference in found), DEVIATIONS[vector.id]
