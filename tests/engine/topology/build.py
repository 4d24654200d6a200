"""Small clusters for tests of topologies: blocks, racks and hosts with whole GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from reprieve.engine.topology.assign import Placing, assign
from reprieve.engine.topology.model import (
    HOSTNAME,
    Layer,
    Outcome,
    PodsWanted,
    TopologyGates,
    TopologyNode,
    TopologyRequest,
)
from reprieve.engine.topology.tree import Tree, Usage

GPU = "nvidia.com/gpu"
BLOCK, RACK = "example.com/block", "example.com/rack"
LEVELS = (BLOCK, RACK, HOSTNAME)


def node(path: str, gpus: int, pods: int = 110) -> TopologyNode:
    """Return a node at `block/rack/host` with GPUs that are free."""
    block, rack, host = path.split("/")
    labels = {BLOCK: block, RACK: rack, HOSTNAME: host}
    return TopologyNode(host, labels, {GPU: gpus, "pods": pods})


def tree(gpus: Mapping[str, int], levels: tuple[str, ...] = LEVELS) -> Tree:
    """Return a tree of hosts by path, each with GPUs."""
    return Tree("default", levels, [node(path, each) for path, each in gpus.items()])


def pods(
    count: int,
    gpus: int = 1,
    required: str = "",
    preferred: str = "",
    layers: tuple[tuple[str, int], ...] = (),
    unconstrained: bool | None = None,
    name: str = "main",
    group: str = "",
) -> PodsWanted:
    """Return a pod set of pods with GPUs."""
    request = TopologyRequest(
        required, preferred, unconstrained, tuple(Layer(level, size) for level, size in layers)
    )
    return PodsWanted(name, count, {GPU: gpus}, request, group=group)


def places(outcome: Outcome) -> dict[str, int]:
    """Return pods by the last value of their domain."""
    assert outcome.assignment is not None, outcome.reason
    return {each.values[-1]: each.count for each in outcome.assignment.domains}


def placed(
    on: Tree, *wanted: PodsWanted, gates: TopologyGates | None = None, used: Usage | None = None
) -> dict[str, Outcome]:
    """Return what the pod sets get."""
    usage = () if used is None else (used,)
    return assign(Placing(on, usage, (), gates or TopologyGates()), wanted)
