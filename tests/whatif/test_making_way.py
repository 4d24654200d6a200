"""Who makes way in a plan: for what is submitted, and for those who did in turn."""

from __future__ import annotations

from typing import Any

from reprieve.cli.deciding import deciders_of
from reprieve.cli.plan_text import plan_text
from reprieve.kube.resource import PODS
from reprieve.whatif.answer import Verdict
from reprieve.whatif.document import plan_document
from reprieve.whatif.judging import answer_of
from reprieve.whatif.run import settled
from reprieve.whatif.submission import Submitted
from tests.whatif.test_kinds import snapshot

Object = dict[str, Any]
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "110"}
PRIORITIES = {"low": 100, "middle": 1000, "high": 10_000}


def node(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"node": name}},
        "spec": {},
        "status": {"allocatable": AMOUNTS, "capacity": AMOUNTS},
    }


def spec(priority: str, **more: Any) -> Object:
    container = {"name": "c", "resources": {"requests": {"cpu": "4"}}}
    return {
        "schedulerName": "default-scheduler",
        "priority": PRIORITIES[priority],
        "containers": [container],
        **more,
    }


def pod(name: str, body: Object, **metadata: Any) -> Object:
    running = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", **metadata},
        "spec": body,
        "status": running if body.get("nodeName") else {"phase": "Pending"},
    }


def test_who_makes_way_for_a_victim_that_is_made_again_is_a_victim_in_turn() -> None:
    labels = {"app": "service"}
    service = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "service", "namespace": "team"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec("middle")},
        },
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "service",
        "uid": "ReplicaSet-service",
        "controller": True,
    }
    deciders = deciders_of("scheduling", ("default-scheduler",), {})
    cluster = snapshot(
        deciders,
        node("node-0"),
        node("node-1"),
        service,
        pod("service-a", spec("middle", nodeName="node-0"), labels=labels, ownerReferences=[owner]),
        pod("batch", spec("low", nodeName="node-1")),
    )
    wanted = pod("urgent", spec("high", nodeSelector={"node": "node-0"}))
    answer = answer_of(settled(cluster, deciders, [Submitted(PODS, wanted)]))
    assert answer.verdict is Verdict.STARTS_WITH_VICTIMS
    assert [(each.name, each.in_turn) for each in answer.victims] == [
        ("service-a", False),
        ("batch", True),
    ]
    document = plan_document(answer, ["scheduling"])
    assert [each.in_turn for each in document.victims] == [False, True]
    (line,) = (e for e in plan_text(answer, ["scheduling"]) if "batch" in e)
    assert "in turn, for one of these" in line
