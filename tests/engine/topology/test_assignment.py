"""Which domains pods get: best fit, least free, slices, groups, replacements."""

from __future__ import annotations

import pytest

from reprieve.engine.quota.model import Taint
from reprieve.engine.topology.assign import Placing
from reprieve.engine.topology.model import HOSTNAME, Domain, TopologyAssignment, TopologyGates
from reprieve.engine.topology.replacing import replace_node
from reprieve.engine.topology.tree import Tree, Usage
from tests.engine.topology.build import (
    BLOCK,
    GPU,
    LEVELS,
    RACK,
    node,
    placed,
    places,
    pods,
    tree,
)


def test_a_required_rack_is_the_smallest_that_holds_all_pods() -> None:
    on = tree({"b/r1/a": 8, "b/r1/b": 8, "b/r2/c": 8, "b/r2/d": 4, "b/r3/e": 4})
    assert places(placed(on, pods(12, required=RACK))["main"]) == {"c": 8, "d": 4}


def test_a_required_rack_that_no_rack_can_be_says_how_many_fit_the_best() -> None:
    on = tree({"b/r1/a": 8, "b/r1/b": 6, "b/r2/c": 8, "b/r3/d": 0})
    outcome = placed(on, pods(15, required=RACK))["main"]
    assert outcome.assignment is None
    assert outcome.reason == (
        'topology "default" allows to fit only 14 out of 15 pod(s). Total nodes: 4; excluded: '
        'resource "nvidia.com/gpu": 1'
    )


def test_a_preferred_rack_gives_way_to_its_block_and_then_to_several() -> None:
    on = tree({"b1/r1/a": 4, "b1/r2/b": 4, "b2/r3/c": 2})
    assert places(placed(on, pods(4, preferred=RACK))["main"]) == {"a": 4}
    assert places(placed(on, pods(8, preferred=RACK))["main"]) == {"a": 4, "b": 4}
    assert places(placed(on, pods(10, preferred=RACK))["main"]) == {"a": 4, "b": 4, "c": 2}


def test_unconstrained_pods_fill_the_fullest_hosts_first() -> None:
    on = tree({"b/r/a": 8, "b/r/b": 3, "b/r/c": 2})
    wanted = pods(4, unconstrained=True)
    assert places(placed(on, wanted)["main"]) == {"a": 4}
    assert places(placed(on, pods(10, unconstrained=True))["main"]) == {"c": 2, "b": 3, "a": 5}
    best_fit = TopologyGates(profile_mixed=False)
    assert places(placed(on, pods(10, unconstrained=True), gates=best_fit)["main"]) == {
        "a": 8,
        "c": 2,
    }


def test_slices_stay_together_though_their_pods_would_fit_elsewhere() -> None:
    on = tree({"b/r1/a": 3, "b/r1/b": 3, "b/r2/c": 1, "b/r2/d": 1})
    wanted = pods(4, preferred=BLOCK, layers=((HOSTNAME, 2),))
    assert places(placed(on, wanted)["main"]) == {"a": 2, "b": 2}


def test_pod_sets_of_one_workload_do_not_share_a_gpu() -> None:
    on = tree({"b/r/a": 4, "b/r/b": 4})
    found = placed(on, pods(4, required=HOSTNAME), pods(3, required=HOSTNAME, name="second"))
    assert places(found["main"]) == {"a": 4}
    assert places(found["second"]) == {"b": 3}


def test_nothing_is_placed_after_a_pod_set_that_gets_nothing() -> None:
    on = tree({"b/r/a": 4})
    found = placed(on, pods(5, required=RACK), pods(1, required=RACK, name="second"))
    assert [*found] == ["main"]


def test_a_leader_is_in_the_domain_of_its_workers() -> None:
    on = tree({"b/r1/a": 4, "b/r2/b": 5})
    found = placed(
        on,
        pods(1, required=RACK, name="leader", group="g"),
        pods(4, required=RACK, name="workers", group="g"),
    )
    assert places(found["workers"]) == {"b": 4}
    assert places(found["leader"]) == {"b": 1}


def test_balanced_placement_leaves_no_rack_nearly_empty() -> None:
    on = tree({"b/r1/a": 8, "b/r2/b": 8})
    wanted = pods(10, preferred=RACK)
    assert places(placed(on, wanted)["main"]) == {"a": 8, "b": 2}
    balanced = placed(on, wanted, gates=TopologyGates(balanced_placement=True))
    assert places(balanced["main"]) == {"a": 5, "b": 5}


def test_tainted_hosts_are_left_out_and_counted() -> None:
    first, second = node("b/r/a", 4), node("b/r/b", 4)
    tainted = type(second)(
        second.name, second.labels, second.allocatable, (Taint("team", "x", "NoSchedule"),)
    )
    on = Tree("default", LEVELS, [first, tainted])
    outcome = placed(on, pods(5, required=RACK))["main"]
    assert outcome.reason.endswith('Total nodes: 2; excluded: taint "team=x:NoSchedule": 1')


def test_usage_of_others_is_not_free_and_neither_are_their_pods() -> None:
    on = tree({"b/r/a": 4, "b/r/b": 4})
    used = Usage(on)
    used.add(TopologyAssignment((HOSTNAME,), (Domain(("a",), 3),)), {GPU: 1})
    assert places(placed(on, pods(4, required=HOSTNAME), used=used)["main"]) == {"b": 4}
    assert used.of["pods"].tolist() == [3, 0]


@pytest.mark.parametrize("required", [RACK, BLOCK])
def test_a_replacement_stays_in_the_required_domain(required: str) -> None:
    on = tree({"b/r1/a": 2, "b/r2/c": 2})  # b of r1 is gone
    present = TopologyAssignment((HOSTNAME,), (Domain(("a",), 2), Domain(("b",), 2)))
    used = Usage(on)
    used.add(present, {GPU: 1})
    found = replace_node(
        Placing(on, (used,)), [pods(4, required=required)], {"main": present}, "b"
    )["main"]
    if required == RACK:
        assert found.assignment is None
        assert "topologyDomain: 1" in found.reason
    else:
        assert places(found) == {"a": 2, "c": 2}
