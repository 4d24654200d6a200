"""The oracle of the scheduling plane meets what the real scheduler did, case by case.

Only so may it judge the engine. The placement that a case gives is imposed, and each step of it
has to be one that the oracle's filters allow.
"""

from __future__ import annotations

import pytest

from tests.conformance import workload_aware_oracle, workload_aware_vectors
from tests.conformance.workload_aware_vectors import Vector

TWO_HOLDERS = (
    "two placed pods hold the same host port of the node, which no kubelet admits; the real"
    " scheduler keeps ports as a set, so taking out one of them frees the port of the other"
)
DEVIATIONS = {
    "generated_group_constraints.json::group-constraints-0018": TWO_HOLDERS,
    "generated_pod_constraints.json::pod-constraints-0018": TWO_HOLDERS,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "vector" not in metafunc.fixturenames:
        return
    where = workload_aware_vectors.folder(metafunc.config.getoption("vectors", default=None))
    if where is None:
        reason = "no vectors of workload-aware preemption: give their folder with --vectors"
        metafunc.parametrize(
            "vector", [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]
        )
        return
    checked = [
        v
        for v in workload_aware_vectors.vectors_in(where, *workload_aware_oracle.CHECKS)
        if not v.skip
    ]
    metafunc.parametrize("vector", checked, ids=lambda v: v.id)


def test_the_oracle_meets_the_real_scheduler(vector: Vector) -> None:
    if vector.id not in DEVIATIONS:
        assert workload_aware_oracle.differences(vector) == []
        return
    try:
        found = workload_aware_oracle.differences(vector)
    except AssertionError as refused:
        found = [str(refused)]
    assert any("ports" in difference for difference in found), DEVIATIONS[vector.id]
