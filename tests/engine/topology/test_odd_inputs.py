"""Odd trees and odd requests: never a traceback, and what is placed has room and is whole.

Labels are missing or empty, host names are shared, nodes are not ready or tainted, topologies have
one level to four, requests ask for no pods, for slices of up to three layers of any size and level,
and for levels that there are not. Capacity is added up here again, by leaf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.engine.quota.assigning.constraints import Taint, Toleration
from reprieve.engine.topology.assign import Placing, assign, groups_of, led
from reprieve.engine.topology.capacity import capacity
from reprieve.engine.topology.encoding import decoded, encoded
from reprieve.engine.topology.model import (
    HOSTNAME,
    Domain,
    Layer,
    Outcome,
    PodsWanted,
    TopologyAssignment,
    TopologyGates,
    TopologyNode,
    TopologyRequest,
)
from reprieve.engine.topology.replacing import replace_node, replace_nodes
from reprieve.engine.topology.tree import Tree, Usage

CPU, GPU = "cpu", "example.com/gpu"
LABELS = ("example.com/block", "example.com/rack", HOSTNAME)
TOPOLOGIES = (
    LABELS,
    (HOSTNAME,),
    ("example.com/rack",),
    ("example.com/block", "example.com/rack"),
    ("example.com/zone", *LABELS),
)
MAINTENANCE = Taint("maintenance", "", "NoSchedule")

_values = st.sampled_from(("", "a", "b", "c,d", "e"))
_amounts = st.sampled_from((-4, 0, 1, 2, 8, 64, 2**40, 2**63))


@st.composite
def _nodes(draw: st.DrawFn) -> list[TopologyNode]:
    found = []
    for number in range(draw(st.integers(0, 7))):
        labels = {
            key: draw(_values)
            for key in ("example.com/zone", *LABELS[:2])
            if draw(st.integers(0, 9))
        }
        if draw(st.integers(0, 9)):
            labels[HOSTNAME] = draw(st.sampled_from((f"n{number}", "n0", "")))
        offers = {name: draw(_amounts) for name in (CPU, GPU, "pods") if draw(st.integers(0, 9))}
        taints = (MAINTENANCE,) if draw(st.integers(0, 5)) == 0 else ()
        ready, cordoned = draw(st.integers(0, 9)) > 0, draw(st.integers(0, 9)) == 0
        found.append(TopologyNode(f"n{number}", labels, offers, taints, ready, cordoned))
    return found


@st.composite
def _wanted(draw: st.DrawFn, name: str, group: str = "") -> PodsWanted:
    level = st.sampled_from((*LABELS, "example.com/zone", "nowhere"))
    mode = draw(st.integers(0, 4))
    sizes = [draw(st.sampled_from((1, 2, 4, 8, 0, -1, 3))) for _ in range(draw(st.integers(0, 3)))]
    request = TopologyRequest(
        draw(level) if mode == 1 else "",
        draw(level) if mode == 2 else "",
        True if mode == 3 else None,
        tuple(Layer(draw(level), size) for size in sorted(sizes, reverse=True)),
    )
    requests = {key: draw(st.sampled_from((0, 1, 2, 8, 2**62))) for key in (CPU, GPU)}
    return PodsWanted(
        name,
        draw(st.sampled_from((0, 1, 2, 3, 4, 8, 16, 10_000))),
        requests if draw(st.integers(0, 5)) else {},
        request if mode else None,
        implied=mode == 0 and bool(draw(st.integers(0, 3))),
        group=group,
        tolerations=(Toleration(operator="Exists"),) if draw(st.integers(0, 3)) == 0 else (),
    )


@st.composite
def _pod_sets(draw: st.DrawFn) -> list[PodsWanted]:
    if draw(st.integers(0, 2)) == 0:
        return [draw(_wanted("leader", "g")), draw(_wanted("main", "g"))]
    return [draw(_wanted(f"set{number}")) for number in range(draw(st.integers(1, 3)))]


@pytest.mark.thorough
@settings(max_examples=600, deadline=None)
@given(st.data())
def test_whatever_is_asked_of_whatever_nodes_is_answered_and_fits(data: st.DataObject) -> None:
    nodes, levels = data.draw(_nodes()), data.draw(st.sampled_from(TOPOLOGIES))
    wanted = data.draw(_pod_sets())
    gates = TopologyGates(
        profile_mixed=data.draw(st.booleans()), balanced_placement=data.draw(st.booleans())
    )
    tree = Tree("odd", levels, nodes)
    used = Usage(tree)
    for key in tree.index:
        used.add_leaf(key, {GPU: data.draw(st.integers(0, 3)), "pods": 1})
    on = Placing(tree, (used,), (), gates)
    found = assign(on, wanted)
    _holds(on, wanted, found)
    for each in wanted:
        capacity(on, [each])
    for outcome in found.values():
        if outcome.assignment is not None:
            assert decoded(encoded(outcome.assignment)) == outcome.assignment
    _check_replacement(data, on, wanted, found)


def _holds(on: Placing, wanted: list[PodsWanted], found: Mapping[str, Outcome]) -> None:
    """What is placed is as many pods as the slices have, with room on each leaf for them all."""
    taken: dict[tuple[str, ...], Counter[str]] = {}
    for group in groups_of(wanted):
        workers, leader = led(group)
        for each in group:
            outcome = found.get(each.name)
            if outcome is None or outcome.assignment is None:
                assert outcome is None or outcome.reason
                continue
            layers = each.request.layers if each.request is not None else ()
            size = layers[0].size if layers and each is workers else 1
            pods = 1 if each is leader else each.count // size * size
            assert outcome.assignment.pods == pods, (each, outcome)
            assert all(domain.count > 0 for domain in outcome.assignment.domains)
            if each is workers:
                _is_whole(on.tree, outcome.assignment, each)
            for domain in outcome.assignment.domains:
                row = taken.setdefault(domain.values, Counter())
                for resource, amount in each.requests.items():
                    row[resource] += amount * domain.count
                row["pods"] += domain.count
    for values, row in taken.items():
        leaf = on.tree.index[values]
        for resource, amount in row.items():
            if amount:
                free = int(on.tree.free[resource][leaf]) if resource in on.tree.free else 0
                gone = on.usage[0].of.get(resource)
                assert amount <= free - (0 if gone is None else int(gone[leaf])), (values, row)


def _is_whole(tree: Tree, assigned: TopologyAssignment, wanted: PodsWanted) -> None:
    request = wanted.request or TopologyRequest()
    for layer in request.layers:
        at = tree.levels.index(layer.level)
        there: Counter[int] = Counter()
        for each in assigned.domains:
            there[tree.ancestor(tree.index[each.values], at)] += each.count
        assert all(count % layer.size == 0 for count in there.values()), (layer, there)
    if request.required:
        at = tree.levels.index(request.required)
        leaves = [tree.index[each.values] for each in assigned.domains]
        assert len({tree.ancestor(leaf, at) for leaf in leaves}) <= 1


def _check_replacement(
    data: st.DataObject, on: Placing, wanted: list[PodsWanted], found: Mapping[str, Outcome]
) -> None:
    """A node that fails, in whatever state its tree is by then, is replaced or refused."""
    present = {name: each.assignment for name, each in found.items()}
    hosts = [e.values[-1] for each in present.values() if each for e in each.domains]
    failed = data.draw(st.lists(st.sampled_from([*hosts, "gone"]), min_size=1, max_size=3))
    left = [node for node in on.tree.first if node.labels.get(HOSTNAME) not in failed[:2]]
    tree = Tree("odd", on.tree.levels, left)
    used = Usage(tree)
    for each in wanted:
        held = present.get(each.name)
        if held is not None:
            used.add(held, each.requests)
    placing = replace(on, tree=tree, usage=(used,))
    for answered in (
        replace_node(placing, wanted, present, failed[0]),
        replace_nodes(placing, wanted, present, failed),
    ):
        for name, outcome in answered.items():
            before = present[name]
            assert outcome.assignment is not None or outcome.reason
            if outcome.assignment is not None and before is not None:
                assert outcome.assignment.pods == before.pods, (name, before, outcome)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("ab-1", min_size=1, max_size=8), st.integers(1, 3)),
        unique_by=lambda each: each[0],
        max_size=12,
    )
)
def test_any_names_of_hosts_are_written_and_read_back(rows: list[tuple[str, int]]) -> None:
    domains = tuple(Domain((name,), count) for name, count in sorted(rows))
    assigned = TopologyAssignment((HOSTNAME,), domains)
    assert decoded(encoded(assigned)) == assigned
