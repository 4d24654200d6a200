"""What the runners hold for a deviation, and what for wrong, on cases of our own.

The published cases are beside the project; these are here wherever it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.conformance import deviations, gang_jobs, test_workload_aware_vectors
from tests.conformance.workload_aware_vectors import Vector
from tests.engine.scheduling import agreement, engine_cycle
from tests.oracle.scheduling import group, preemption
from tests.oracle.scheduling.objects import Cluster

Json = dict[str, Any]
_FEATURES = {
    "GenericWorkload": True,
    "PodGroupPreemptionPolicy": False,
    "TopologyAwareWorkloadScheduling": False,
    "CompositePodGroup": False,
}


def _node(name: str) -> Json:
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "10"}
    labels = {"kubernetes.io/hostname": name}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _pod(name: str, cpu: int, priority: int, *, node: str = "", port: int = 0, **spec: Any) -> Json:
    container: Json = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    body = {"containers": [container], "schedulerName": "default-scheduler", "priority": priority}
    if node:
        body["nodeName"] = node
    status = {"startTime": "2023-11-14T22:10:00Z"} if node else {}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": name[0]}}
    return {"metadata": metadata, "spec": {**body, **spec}, "status": status}


def _case(**objects: Any) -> Json:
    return {
        "seed": 0,
        "situations": [],
        "features": _FEATURES,
        "namespaces": [{"metadata": {"name": "default", "labels": {}}}],
        "nodes": [_node("node-0")],
        "podGroups": [],
        "pdbs": [],
        "nominated": [],
        **objects,
    }


def _against(app: str) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _barred(placed_priority: int = 10) -> Json:
    """A group of one, and a small pod that has anti-affinity against it beside a large one."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, "priority": 100}
    return _case(
        podGroups=[{"metadata": {"name": "g", "namespace": "default", "uid": "g"}, "spec": spec}],
        pods=[
            _pod("small", 1, placed_priority, node="node-0", affinity=_against("m")),
            _pod("large", 3, 10, node="node-0"),
        ],
        pending=[_pod("m-0", 3, 100, schedulingGroup={"podGroupName": "g"})],
        preemptor={"podGroup": "g"},
    )


def test_a_lower_pod_that_bars_a_member_makes_way_where_the_reference_puts_it_back() -> None:
    case = _barred()
    literal, ours = group.cycle(case).choice, engine_cycle.cycle(case).choice
    assert literal is not None
    assert ours is not None
    assert literal.victims == ("default/large",)
    sound = Cluster.of(agreement.sound(case))
    assert preemption.refused_with(literal, sound, case["pending"]) == ["default/m-0"]
    assert sorted(ours.victims) == ["default/large", "default/small"]
    assert preemption.refused_with(ours, sound, case["pending"]) == []
    vector = Vector("own.json::barred", "executed", {**case, "expect": {}}, "")
    assert test_workload_aware_vectors._as_the_oracle(vector)


def test_the_rule_of_skipped_affinity_depends_on_the_case_alone() -> None:
    case = _barred()
    assert deviations.skips_affinity(case)
    assert not deviations.skips_affinity(_barred(placed_priority=100))
    member = _pod("m-0", 3, 100, affinity=_against("z"), schedulingGroup={"podGroupName": "g"})
    assert not deviations.skips_affinity({**case, "pending": [member]})
    assert not deviations.skips_affinity({**case, "pods": case["pods"][1:]})
    assert not deviations.skips_affinity({**case, "preemptor": {"pod": "m-0"}})


def test_a_listed_deviation_holds_under_our_own_placement_too() -> None:
    """The reference frees a port that another pod still holds."""
    pods = [
        _pod("low", 1, 10, node="node-0", port=80),
        _pod("high", 1, 200, node="node-0", port=80),
    ]
    expect = {"preemptionAttempted": True, "status": {"code": "Success"}}
    pending = [_pod("p", 1, 100, port=80)]
    case = _case(pods=pods, pending=pending, preemptor={"pod": "p"}, expect=expect)
    test_workload_aware_vectors.test_with_our_own_placement(Vector("own::p", "executed", case, ""))
    apart = {**case, "pods": pods[1:]}
    with pytest.raises(AssertionError):
        test_workload_aware_vectors.test_with_our_own_placement(
            Vector("own::p", "executed", apart, "")
        )


def _job(name: str, **nominated: str) -> Json:
    """A job that evicts two pods; `nominated`: nodes of waiting pods of lower priority."""
    scheduler: Json = {"schedulerName": "koord-scheduler"}
    low = [_pod(f"low-{n}", 4, 10, node=f"node-{n}", **scheduler) for n in (0, 1)]
    waiting = []
    for each, node in nominated.items():
        pod = _pod(each, 1, 50, **scheduler)
        waiting.append({**pod, "status": {"nominatedNodeName": node}})
    members = [_pod(f"m-{n}", 3, 100, **scheduler) for n in (0, 1)]
    for member in members:
        member["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "g"}
    keys = ["default/m-0", "default/m-1"]
    wanted = dict(zip(keys, ("node-0", "node-1"), strict=True))
    insufficient = {"code": "Unschedulable", "message": "", "reasons": []}
    message = "preempt success, alreadyWaitingForBound: 0/2"
    return {
        "name": name,
        "kind": "JobPreemption",
        "nodes": [_node("node-0"), _node("node-1")],
        "pods": [*low, *waiting, *members],
        "triggerPod": keys[0],
        "pendingPods": keys,
        "gangGroup": ["default/g"],
        "nodeStatusForTrigger": {"node-0": insufficient, "node-1": insufficient},
        "orderSensitive": False,
        "expect": {
            "status": {"code": "Success", "message": "", "reasons": None},
            "reason": "preempt success, alreadyWaitingForBound: %d/%d",
            "message": message,
            "podToNominatedNode": wanted,
            "nominatedNodeNameInAPI": wanted,
        },
    }


def test_nominations_that_are_taken_back_are_judged_whatever_the_case_is_called() -> None:
    for name in ("a lower-priority pod nominated to a node", "any name"):
        case = _job(name, one="node-0", two="node-1")
        assert gang_jobs.differences(case) == []
        kept = {**case["expect"]["nominatedNodeNameInAPI"], "default/one": "node-0"}
        left = {**case, "expect": {**case["expect"], "nominatedNodeNameInAPI": kept}}
        assert gang_jobs.differences(left) != []


def test_the_reference_may_leave_them_where_nobody_is_nominated_to_a_victims_node() -> None:
    case = _job("any name", one="node-0")
    assert gang_jobs.differences(case) == []
    kept = {**case["expect"]["nominatedNodeNameInAPI"], "default/one": "node-0"}
    left = {**case, "expect": {**case["expect"], "nominatedNodeNameInAPI": kept}}
    assert gang_jobs.differences(left) == []


def test_a_nomination_that_should_be_taken_back_and_is_not_is_noticed() -> None:
    played = gang_jobs.Played(_job("any name", one="node-0", two="node-1"))
    played.found = replace(played.found, lower=played.found.lower[:1])
    wrong, _ = gang_jobs._taken_back(played, {})
    assert wrong == ["taken back: expected ['default/one', 'default/two'], got ['default/one']"]
