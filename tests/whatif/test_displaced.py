"""Who is preempted in a plan: for what is submitted, and in turn since it came."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from kubeworld.time import LoopClock, run_virtually
from kubeworld.units.instants import Nanos
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.cli.texts.plan_text import plan_text
from reprieve.kube.resource import GPU_WORKLOADS, PODS, PREEMPTIONS
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.happened import Run
from reprieve.whatif.questions.answer import Verdict
from reprieve.whatif.questions.displaced import displaced
from reprieve.whatif.questions.document import plan_document
from reprieve.whatif.questions.judging import answer_of
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot
from reprieve.whatif.submitting.submission import Submitted
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
    assert "in turn, for others than this" in line


def test_work_that_the_idle_plane_decides_for_is_known_by_whose_it_is() -> None:
    """A displaced job demands GPUs in the name of its GpuWorkload, which names it in a field."""

    async def main() -> list[tuple[str, bool]]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        job = {"metadata": {"name": "job-a", "namespace": "team", "uid": "gpu-a"}}
        demand = {**job, "spec": {"workloadRef": {"kind": "Job", "name": "a", "uid": "job-a"}}}
        kinds = {
            (GPU_WORKLOADS.group, GPU_WORKLOADS.plural): Listed(
                GPU_WORKLOADS, {("team", "job-a"): msgspec.json.encode(demand)}, 1
            )
        }
        overlay = Overlay(Snapshot(Nanos(0), kinds), clock)
        overlay.create(PREEMPTIONS, record("first", "Pod", "ours", "Job", "a"))
        overlay.create(PREEMPTIONS, record("then", "GpuWorkload", "gpu-a", "Job", "b"))
        overlay.create(PREEMPTIONS, record("nobody", "Pod", "", "Job", "c", preemptor=False))
        run = Run(overlay, (), tuple(overlay.history), clock.wall(), clock.wall(), rest=True)
        found = displaced(run, {"ours"}, lambda uid: set())
        return [(each.name, each.in_turn) for each in found]

    assert run_virtually(main) == [("a", False), ("b", True)]


def test_who_makes_way_for_others_since_the_submission_moved_somebody_is_a_victim_in_turn() -> None:
    async def main(victim_of_ours: bool) -> list[tuple[str, bool]]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(Snapshot(Nanos(0), {}), clock)
        overlay.create(PREEMPTIONS, record("waited", "Pod", "other", "Job", "b"))
        if victim_of_ours:
            overlay.create(PREEMPTIONS, record("first", "Pod", "ours", "Job", "a"))
        run = Run(overlay, (), tuple(overlay.history), clock.wall(), clock.wall(), rest=True)
        return [(e.name, e.in_turn) for e in displaced(run, {"ours"}, lambda uid: set())]

    assert run_virtually(lambda: main(True)) == [("a", False), ("b", True)]
    assert run_virtually(lambda: main(False)) == [("b", True)]


def test_a_pod_that_was_made_anew_for_a_victim_is_not_named_besides() -> None:
    async def main() -> list[str]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        kinds = {("", "pods"): Listed(PODS, {}, 1)}
        overlay = Overlay(Snapshot(Nanos(0), kinds), clock)
        for name in ("set-anew", "other-anew"):
            overlay.create(PODS, {"metadata": {"name": name, "uid": f"pod-{name}"}, "spec": {}})
        for number, victim in enumerate(("set-a", "set-anew", "set-b", "other-anew")):
            overlay.create(PREEMPTIONS, record(f"record-{number}", "Pod", "ours", "Pod", victim))
        run = Run(overlay, (), tuple(overlay.history), clock.wall(), clock.wall(), rest=True)
        found = displaced(run, {"ours"}, lambda uid: {uid.partition("-a")[0].partition("-b")[0]})
        return [each.name for each in found]

    # Of `other` nobody has been preempted before: that is told, by the name that it has here.
    assert run_virtually(main) == ["set-a", "set-b", "other-anew"]


def record(
    name: str, kind: str, uid: str, victim: str, victim_name: str, *, preemptor: bool = True
) -> Object:
    """Return a record of one victim, whose uid is made of its kind and name."""
    group = {"Pod": "v1", "GpuWorkload": "kaiwo.silogen.ai/v1alpha1", "Job": "batch/v1"}
    root = {"apiVersion": group[victim], "kind": victim, "name": victim_name, "namespace": "team"}
    root["uid"] = f"{victim.lower()}-{victim_name}"
    whose = {"apiVersion": group[kind], "kind": kind, "name": "job-a", "namespace": "team"}
    return {
        "metadata": {"name": name},
        "spec": {
            "plane": "idle",
            "planId": name,
            "attempt": 1,
            "proof": {"level": "Nodes"},
            "decidedAt": "2026-01-01T00:00:00Z",
            "preemptor": {**whose, "uid": uid} if preemptor else None,
            "victims": [{"root": root, "subject": root, "amounts": {}, "rule": ""}],
        },
    }
