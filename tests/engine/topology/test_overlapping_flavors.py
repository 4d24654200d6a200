"""Two flavors over the same hosts: each sees what the other uses, unless a gate says otherwise."""

from __future__ import annotations

import pytest

from reprieve.engine.topology.model import (
    HOSTNAME,
    Domain,
    PlacedPods,
    Topology,
    TopologyAssignment,
    TopologyGates,
)
from reprieve.engine.topology.places import Grounds, Places, TasFlavor
from tests.engine.topology.build import GPU, LEVELS, RACK, node, pods


def places(levels: tuple[str, ...], gates: TopologyGates) -> Places:
    """Return the places of flavors `one` and `two` over one host of 4 GPUs, 3 in use by `one`."""
    grounds = Grounds([node("b/r/h", 4)])
    flavors = {name: TasFlavor(name, Topology("t", levels), {}, ()) for name in ("one", "two")}
    trees = {name: grounds.tree(flavor) for name, flavor in flavors.items()}
    found = Places(flavors, trees, gates)
    values = ("h",) if levels[-1] == HOSTNAME else ("b", "r")
    written = (HOSTNAME,) if levels[-1] == HOSTNAME else levels
    held = PlacedPods({GPU: 1}, TopologyAssignment(written, (Domain(values, 3),)))
    found.change([("one", held)], 1)
    return found


@pytest.mark.parametrize(
    ("levels", "together", "fits"),
    [(LEVELS, True, 1), (LEVELS, False, 4), (LEVELS[:2], True, 4), (LEVELS[:2], False, 4)],
)
def test_usage_of_a_host_counts_for_all_flavors_with_hosts_as_leaves(
    levels: tuple[str, ...], together: bool, fits: int
) -> None:
    found = places(levels, TopologyGates(handle_overlapping=together))
    for count in range(1, 6):
        outcome = found.assign({"two": [pods(count, required=RACK)]})["main"]
        assert (outcome.assignment is not None) == (count <= fits)
        own = found.assign({"one": [pods(count, required=RACK)]})["main"]
        assert (own.assignment is not None) == (count <= 1)


@pytest.mark.parametrize("together", [True, False])
def test_pod_sets_of_one_workload_see_each_other_by_the_same_rule(together: bool) -> None:
    found = places(LEVELS, TopologyGates(handle_overlapping=together))
    asked = {"one": [pods(1, required=RACK, name="a")], "two": [pods(1, required=RACK, name="b")]}
    outcomes = found.assign(asked)
    assert outcomes["a"].assignment is not None
    assert (outcomes["b"].assignment is not None) == (not together)
