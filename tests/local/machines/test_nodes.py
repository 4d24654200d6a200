"""Nodes: the file that describes them, and their registration."""

from __future__ import annotations

import pytest

from reprieve.local.machines.nodes import InvalidNodes, NodeSpec, load_nodes
from tests.local.machines.cluster import gpu_node, running

TEXT = """
nodes:
- name: gpu
  count: 2
  labels: {model: mi300x}
  taints: [{key: gpu, value: busy, effect: NoSchedule}]
  allocatable: {cpu: 64, amd.com/gpu: 8}
- name: plain
"""


def test_a_small_file_describes_nodes() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule", "value": "busy"}
    amounts = {"cpu": "64", "amd.com/gpu": "8"}
    assert load_nodes(TEXT) == [
        NodeSpec.of("gpu-0", amounts, {"model": "mi300x"}, [taint]),
        NodeSpec.of("gpu-1", amounts, {"model": "mi300x"}, [taint]),
        NodeSpec.of("plain", {}),
    ]


def test_cpu_memory_and_pods_have_defaults() -> None:
    [node] = load_nodes("nodes: [{name: a, allocatable: {memory: 1Gi}}]")
    assert node.allocatable == {
        "cpu": "32",
        "memory": "1Gi",
        "pods": "110",
        "ephemeral-storage": "1Ti",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: 3", "Expected `array`, got `int`"),
        ("nods: []", "unknown field `nods`"),
        ("nodes: [{name: a, gpus: 3}]", "unknown field `gpus` - at `$.nodes[0]`"),
        ("nodes: [{name: a, count: -1}]", "nodes[0].count: -1; accepted: 0 or more"),
        (
            "nodes: [{name: a, allocatable: {amd.com/gpu: many}}]",
            "nodes[0].allocatable.amd.com/gpu: 'many' is not a quantity",
        ),
        (
            "nodes: [{name: a, taints: [{key: k, effect: Never}]}]",
            "nodes[0].taints: effect 'Never'; accepted: NoSchedule",
        ),
        ("nodes: [{name: a}, {name: a}]", "two nodes are named 'a'"),
        ("nodes: [{name: Big_Node}]", "nodes[0].name: 'Big_Node'; accepted: lower-case"),
        ("{", "cluster.yaml: "),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_with_what_and_where(text: str, said: str) -> None:
    with pytest.raises(InvalidNodes) as caught:
        load_nodes(text, "cluster.yaml")
    message = str(caught.value)
    assert message.startswith("cluster.yaml: ")
    assert said.lower() in message.lower()
    assert "\n" not in message


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


async def test_a_deleted_node_stays_away() -> None:
    async with running([gpu_node("a"), gpu_node("b")]) as cluster:
        await cluster.delete("nodes", "a")
        await cluster.wait(60)
        assert cluster.names("nodes") == ["b"]
