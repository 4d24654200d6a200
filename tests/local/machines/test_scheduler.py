"""The stand-in scheduler: which pod, which node, and the words when there is none."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.local.machines.nodes import NodeSpec
from tests.local.machines.cluster import Cluster, gpu_node, pod, running

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


def scheduled(cluster: Cluster, name: str) -> tuple[str, str, str]:
    return cluster.conditions("pods", name)["PodScheduled"]


async def test_a_pod_that_no_node_has_room_for_says_so_in_kube_schedulers_words() -> None:
    async with running([gpu_node(f"n{i}", 4) for i in range(4)]) as cluster:
        for index in range(4):
            await cluster.create(pod(f"busy-{index}", 4))
        await cluster.wait(1)
        await cluster.create(pod("waiting", 4))
        await cluster.wait(1)
        assert scheduled(cluster, "waiting") == (
            "False",
            "Unschedulable",
            (
                "0/4 nodes are available: 4 Insufficient amd.com/gpu. preemption: "
                f"0/4 nodes are available: 4 {NO_VICTIMS}."
            ),
        )


async def test_what_no_node_could_ever_hold_is_told_apart() -> None:
    async with running([gpu_node("n0", 4), gpu_node("n1", 4)]) as cluster:
        await cluster.create(pod("waiting", 64))
        await cluster.wait(1)
        assert scheduled(cluster, "waiting")[2] == (
            "0/2 nodes are available: 2 Insufficient amd.com/gpu. preemption: "
            f"0/2 nodes are available: 2 {NOT_HELPFUL}."
        )


async def test_reasons_are_counted_per_node_and_sorted() -> None:
    nodes = [
        gpu_node("small", 4, labels={"zone": "a"}, allocatable={"cpu": "1"}),
        gpu_node("elsewhere-0", 8),
        gpu_node("elsewhere-1", 8),
    ]
    async with running(nodes) as cluster:
        await cluster.create(pod("waiting", 8, requests={"cpu": "2"}, nodeSelector={"zone": "a"}))
        await cluster.wait(1)
        assert scheduled(cluster, "waiting")[2] == (
            "0/3 nodes are available: 1 Insufficient amd.com/gpu, 1 Insufficient cpu, "
            "2 node(s) didn't match Pod's node affinity/selector. preemption: "
            f"0/3 nodes are available: 3 {NOT_HELPFUL}."
        )


async def test_without_nodes_the_text_is_another() -> None:
    async with running([]) as cluster:
        await cluster.create(pod("waiting", 1))
        await cluster.wait(1)
        assert scheduled(cluster, "waiting")[2] == "no nodes available to schedule pods"


async def test_a_pod_that_never_preempts_says_so() -> None:
    async with running([gpu_node("n0", 1)]) as cluster:
        await cluster.create(pod("waiting", 2, preemptionPolicy="Never"))
        await cluster.wait(1)
        assert scheduled(cluster, "waiting")[2].endswith(
            ". preemption: not eligible due to preemptionPolicy=Never."
        )


TAINT = {"key": "gpu", "value": "busy", "effect": "NoSchedule"}
AFFINITY: dict[str, Any] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "model", "operator": "In", "values": ["mi300x"]}]}
            ]
        }
    }
}
PLACES = [
    ("room", [gpu_node("a", 1), gpu_node("b", 4)], {}, "b"),
    (
        "extended resources by name",
        [gpu_node("a", 4), gpu_node("b", 0, allocatable={"nvidia.com/gpu": 4})],
        {"requests": {"nvidia.com/gpu": "4"}, "gpus": 0},
        "b",
    ),
    (
        "selector",
        [gpu_node("a"), gpu_node("b", labels={"x": "y"})],
        {"nodeSelector": {"x": "y"}},
        "b",
    ),
    (
        "affinity",
        [gpu_node("a"), gpu_node("b", labels={"model": "mi300x"})],
        {"affinity": AFFINITY},
        "b",
    ),
    ("taint", [gpu_node("a", taints=[TAINT]), gpu_node("b")], {}, "b"),
    (
        "toleration",
        [gpu_node("a", taints=[TAINT])],
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        "a",
    ),
    ("taint without toleration", [gpu_node("a", taints=[TAINT])], {}, None),
    ("gates", [gpu_node("a")], {"schedulingGates": [{"name": "quota"}]}, None),
    ("another scheduler", [gpu_node("a")], {"schedulerName": "other"}, None),
    ("number of pods", [gpu_node("a", allocatable={"pods": 0}), gpu_node("b")], {}, "b"),
    (
        "emptier node first",
        [gpu_node("a", allocatable={"cpu": "4"}), gpu_node("b", allocatable={"cpu": "64"})],
        {"requests": {"cpu": "2"}},
        "b",
    ),
]


@pytest.mark.parametrize(
    ("nodes", "spec", "place"), [p[1:] for p in PLACES], ids=[p[0] for p in PLACES]
)
async def test_a_pod_goes_where_it_may(
    nodes: list[NodeSpec], spec: dict[str, Any], place: str | None
) -> None:
    async with running(nodes) as cluster:
        options = {"gpus": 4, **spec}
        await cluster.create(pod("p", **options))
        await cluster.wait(1)
        assert cluster.nodes_of() == {"p": place}


async def test_an_unschedulable_node_takes_no_pods_until_it_is_opened() -> None:
    async with running() as cluster:
        await cluster.change("nodes", "gpu-0", unschedulable=True)
        await cluster.create(pod("p", 1))
        await cluster.wait(1)
        assert "1 node(s) were unschedulable." in scheduled(cluster, "p")[2]
        await cluster.change("nodes", "gpu-0", unschedulable=False)
        await cluster.wait(1)
        assert cluster.nodes_of() == {"p": "gpu-0"}


async def test_the_higher_priority_is_first_then_the_older() -> None:
    async with running([gpu_node("n0", 1)]) as cluster:
        await cluster.create(pod("running", 1))
        await cluster.wait(1)
        for name, priority in (("old", 0), ("young", 0), ("high", 10)):
            await cluster.create(pod(name, 1, priority=priority))
            await cluster.wait(1)
        order = []
        for _ in range(4):
            [now] = [name for name, node in cluster.nodes_of().items() if node]
            order.append(now)
            await cluster.delete("pods", now)
            await cluster.wait(5)
        assert order == ["running", "high", "old", "young"]


async def test_a_pod_being_deleted_holds_its_room_until_it_has_gone() -> None:
    async with running([gpu_node("n0", 1)]) as cluster:
        await cluster.create(
            pod("first", 1, annotations={"sim.reprieve.dev/termination-time": "8s"})
        )
        await cluster.wait(1)
        await cluster.create(pod("second", 1))
        await cluster.delete("pods", "first")
        await cluster.wait(7)
        assert cluster.nodes_of() == {"first": "n0", "second": None}
        await cluster.wait(2)
        assert cluster.nodes_of() == {"second": "n0"}


async def test_a_finished_pod_gives_its_room_back() -> None:
    async with running([gpu_node("n0", 1)]) as cluster:
        done = {"sim.reprieve.dev/run-time": "5s"}
        await cluster.create(pod("first", 1, annotations=done, restartPolicy="Never"))
        await cluster.wait(1)
        await cluster.create(pod("second", 1))
        await cluster.wait(10)
        assert cluster.phases() == {"first": "Succeeded", "second": "Running"}


async def test_no_node_is_ever_overcommitted() -> None:
    async with running([gpu_node("a", 4), gpu_node("b", 8)]) as cluster:
        for index in range(12):
            await cluster.create(pod(f"p{index}", 1 + index % 3))
        await cluster.wait(1)
        held = {"a": 0, "b": 0}
        for made in cluster.all("pods"):
            node = made["spec"].get("nodeName")
            if node:
                requests = made["spec"]["containers"][0]["resources"]["requests"]
                held[node] += int(requests["amd.com/gpu"])
        assert held == {"a": 4, "b": 8}


async def test_a_new_node_takes_the_pods_that_wait() -> None:
    async with running([]) as cluster:
        await cluster.create(pod("p", 1))
        await cluster.wait(1)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}}
        status = {"allocatable": {"amd.com/gpu": "1", "pods": "10"}}
        await cluster.create({**node, "status": status})
        await cluster.wait(1)
        assert cluster.phases() == {"p": "Running"}


async def test_an_unschedulable_pod_is_written_once_while_nothing_changes() -> None:
    async with running([gpu_node("n0", 1)]) as cluster:
        await cluster.create(pod("waiting", 2))
        await cluster.wait(1)
        before = len(cluster.store.writes)
        await cluster.wait(3600)
        assert len(cluster.store.writes) == before
