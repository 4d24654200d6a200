"""Nodes and their registration."""

from __future__ import annotations

from kubelocal.machines.node.nodes import NodeSpec
from kubelocal.tests.machines.cluster import Cluster, gpu_node, running


def test_cpu_memory_and_pods_have_defaults() -> None:
    assert NodeSpec.of("a", {"memory": "1Gi"}).allocatable == {
        "cpu": "32",
        "memory": "1Gi",
        "pods": "110",
        "ephemeral-storage": "1Ti",
    }


async def test_a_node_is_registered_ready_with_labels_taints_and_amounts() -> None:
    taint = {"key": "gpu", "value": "busy", "effect": "NoSchedule"}
    async with running([gpu_node("a", 4, labels={"zone": "x"}, taints=[taint])]) as cluster:
        node = cluster.one("nodes", "a")
        assert node["metadata"]["labels"] == {
            "kubernetes.io/hostname": "a",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "zone": "x",
        }
        assert node["spec"] == {"taints": [taint]}
        assert node["status"]["allocatable"] == node["status"]["capacity"]
        assert node["status"]["allocatable"]["amd.com/gpu"] == "4"
        assert {t: c[0] for t, c in cluster.conditions("nodes", "a").items()} == {
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
            "Ready": "True",
        }


async def test_the_nodes_are_there_when_the_start_is_over() -> None:
    names = [f"node-{number:02}" for number in range(20)]
    cluster = Cluster([gpu_node(name) for name in names])
    await cluster.machines.start()
    try:
        assert cluster.names("nodes") == names
        ready = {name: cluster.conditions("nodes", name)["Ready"][0] for name in names}
        assert ready == dict.fromkeys(names, "True")
    finally:
        await cluster.machines.stop()


async def test_a_deleted_node_stays_away() -> None:
    async with running([gpu_node("a"), gpu_node("b")]) as cluster:
        await cluster.delete("nodes", "a")
        await cluster.wait(60)
        assert cluster.names("nodes") == ["b"]
