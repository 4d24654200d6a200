"""Texts that say the same are the same, and no others."""

from __future__ import annotations

from typing import Any

from tests.conformance.comparison import differences


def demand(name: str, *resources: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"gpuResources": dict.fromkeys(resources, 4)}}


def why(amounts: str, workload: str = "d") -> dict[str, Any]:
    return {
        "preempt": {"v": {"reason": f"Preempted to free {amounts} for pending workload {workload}"}}
    }


def test_a_duration_is_the_same_in_both_forms_but_where_its_form_is_asked() -> None:
    short, long = {"gracePeriod": "5m"}, {"gracePeriod": "5m0s"}
    assert differences("discovery", long, short) == []
    assert differences("discovery", {"gracePeriod": "5m1s"}, short) != []
    assert differences("duration_format", long, short) != []
    assert differences("discovery", {"name": "a"}, {"name": "b"}) != []


def test_a_reason_may_name_any_resource_that_the_demand_asks_for_with_one_amount() -> None:
    given = {"workloads": [demand("d", "amd.com/gpu", "amd.com/mig"), demand("e", "amd.com/gpu")]}

    def same(ours: dict[str, Any], published: dict[str, Any]) -> bool:
        return not differences("decision_evaluate", ours, published, given)

    assert same(why("4 amd.com/gpu"), why("2 amd.com/mig"))
    assert same(why("4 amd.com/gpu, 2 amd.com/mig"), why("2 amd.com/mig"))
    assert not same(why("4 amd.com/gpu"), why("3 amd.com/gpu"))
    assert not same(why("4 amd.com/gpu"), why("4 nvidia.com/gpu"))
    assert not same(why("4 amd.com/gpu"), why("4 amd.com/gpu", "e"))
    assert not same(why("4 amd.com/gpu", "e"), why("4 amd.com/mig", "e"))
