"""When a node counts as failed for a workload: by what it reports, its pods, taints and gates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.constraints import Taint
from reprieve.engine.quota.failing_nodes import NodeCondition, failing_nodes, next_failure
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    Configuration,
    Gates,
    PodSet,
    Settings,
    Workload,
)
from reprieve.engine.topology.model import HOSTNAME, Domain, Topology, TopologyAssignment
from reprieve.engine.topology.places import Grounds, Places, TasFlavor
from tests.engine.topology.build import GPU, LEVELS, node

NOW = Nanos(1_800_000_000 * SECOND)
BY_PODS, BY_TIME, BOTH, NEITHER = (
    Gates(tas_replace_node_on_pod_termination=pods, tas_replace_node_after_fixed_time=time)
    for pods, time in ((True, False), (False, True), (True, True), (False, False))
)
REPAIR = (Taint("repair", "", "NoSchedule"),)


def unready(seconds: float) -> NodeCondition:
    return NodeCondition(ready=False, unready_since=NOW - int(seconds * SECOND))


@pytest.mark.parametrize(
    ("condition", "running", "gates", "fails"),
    [
        (NodeCondition(), True, BY_PODS, False),
        (NodeCondition(), False, BY_PODS, False),
        (None, False, BY_PODS, True),
        (NodeCondition(ready=False), True, BY_PODS, True),
        (unready(1), True, BY_PODS, False),
        (unready(1), False, BY_PODS, True),
        (unready(3600), True, BY_PODS, False),
        (unready(29.9), True, BOTH, False),
        (unready(30), True, BOTH, True),
        (unready(1), False, BOTH, True),
        (unready(29.9), False, BY_TIME, False),
        (unready(30), True, BY_TIME, True),
        (unready(29.9), False, NEITHER, False),
        (unready(30), True, NEITHER, True),
        (NodeCondition(REPAIR), True, BY_PODS, False),
        (NodeCondition(REPAIR), False, BY_PODS, True),
        (NodeCondition(REPAIR), False, BY_TIME, True),
        (NodeCondition(REPAIR), False, Gates(tas_replace_node_on_node_taints=False), False),
        (unready(30), False, Gates(tas_failed_node_replacement=False), False),
        (None, False, Gates(tas_failed_node_replacement=False), False),
    ],
)
def test_a_node_has_failed(
    condition: NodeCondition | None, running: bool, gates: Gates, fails: bool
) -> None:
    there = condition is not None and condition.ready
    nodes = [replace(node("b/r/a", 4), ready=there), node("b/r/c", 4)]
    flavor = TasFlavor("tree", Topology("default", LEVELS), {}, ())
    places = Places({"tree": flavor}, {"tree": Grounds(nodes).tree(flavor)}, gates.topology)
    assigned = TopologyAssignment((HOSTNAME,), (Domain(("a",), 1), Domain(("c",), 1)))
    held = AdmittedPodSet("main", 2, {GPU: "tree"}, {GPU: 2}, assigned)
    workload = Workload(
        "ns",
        "gang",
        "gang",
        "ns/q",
        pod_sets=(PodSet("main", 2, {GPU: 1}),),
        admission=Admission("team", (held,)),
    )
    known = {"a": condition, "c": NodeCondition()}
    found = failing_nodes(
        workload,
        Configuration({}, {}, {}, {}, {}, settings=Settings(gates=gates)),
        places,
        NOW,
        lambda host: running,
        known.__getitem__,
    )
    assert found == (["a"] if fails else [])


@pytest.mark.parametrize("gates", [BY_PODS, BY_TIME, BOTH, NEITHER])
def test_who_looks_again_is_named_the_instant_at_which_time_alone_fails_a_node(
    gates: Gates,
) -> None:
    nodes = [NodeCondition(), NodeCondition(ready=False), unready(40), unready(5), unready(20)]
    settings = Settings(gates=gates)
    found = next_failure(nodes, Configuration({}, {}, {}, {}, {}, settings=settings), NOW)
    assert found == (None if gates is BY_PODS else NOW + 10 * SECOND)
