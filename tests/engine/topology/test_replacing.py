"""Several failed nodes at once: every pod has a place again, slices are whole, the others stay."""

from __future__ import annotations

import random
from collections import Counter

from reprieve.engine.topology.assign import Placing, assign
from reprieve.engine.topology.model import HOSTNAME, Domain, TopologyAssignment
from reprieve.engine.topology.replacing import replace_node, replace_nodes
from reprieve.engine.topology.tree import Usage
from tests.engine.topology.build import BLOCK, RACK, places, pods, tree

#: Layers from the coarsest to the finest.
LAYERS = (
    (),
    ((RACK, 2),),
    ((BLOCK, 4), (RACK, 2)),
    ((BLOCK, 8), (RACK, 4), (HOSTNAME, 2)),
    ((RACK, 4), (HOSTNAME, 2)),
)


def test_two_nodes_are_replaced_in_the_rack_that_is_required() -> None:
    before = {f"b/r1/{host}": 2 for host in "abcde"} | {"b/r2/f": 12}
    wanted = pods(6, required=RACK)
    present = assign(Placing(tree(before)), [wanted])["main"].assignment
    assert present is not None and {e.values[0] for e in present.domains} == {"a", "b", "c"}
    left = {path: n for path, n in before.items() if path[-1] not in "ab"}
    on = tree(left)
    used = Usage(on)
    used.add(present, wanted.requests)
    found = replace_nodes(Placing(on, (used,)), [wanted], {"main": present}, ["a", "b"])
    assert places(found["main"]) == {"c": 2, "d": 2, "e": 2}
    del left["b/r1/e"]
    on = tree(left)
    used = Usage(on)
    used.add(present, wanted.requests)
    refused = replace_nodes(Placing(on, (used,)), [wanted], {"main": present}, ["a", "b"])
    assert refused["main"].assignment is None


def test_a_leader_is_one_pod_whatever_the_size_of_its_slices_is() -> None:
    before = {"b/r/a": 1, "b/r/c": 1}
    leader = pods(1, layers=((BLOCK, 2),))
    present = TopologyAssignment((HOSTNAME,), (Domain(("a",), 1),))
    used = Usage(tree(before))
    used.add(present, leader.requests)
    placing = Placing(tree(before), (used,))
    for found in (
        replace_node(placing, [leader], {"main": present}, "a"),
        replace_nodes(placing, [leader], {"main": present}, ["a"]),
    ):
        assert places(found["main"]) == {"c": 1}


def test_over_random_clusters_all_pods_have_places_and_slices_are_whole() -> None:
    seen: Counter[str] = Counter()
    for number in range(500):
        draw = random.Random(number)
        gpus = {
            f"b{b}/b{b}r{r}/b{b}r{r}h{h}": draw.choice((0, 2, 4, 8))
            for b in range(draw.randint(1, 2))
            for r in range(draw.randint(1, 3))
            for h in range(draw.randint(2, 5))
        }
        layers = draw.choice(LAYERS)
        size = layers[0][1] if layers else 1
        required = draw.choice(("", BLOCK)) if draw.random() < 0.7 else ""
        wanted = pods(size * draw.randint(1, 4 if layers else 16), layers=layers, required=required)
        if not required and not layers:
            wanted = pods(wanted.count, preferred=RACK)
        present = assign(Placing(tree(gpus)), [wanted])["main"].assignment
        if present is None:
            continue
        hosts = [each.values[0] for each in present.domains]
        failed = sorted(draw.sample(hosts, min(len(hosts), draw.randint(1, 3))))
        gone = {host for host in failed if draw.random() < 0.7}
        left = {path: n for path, n in gpus.items() if path.split("/")[2] not in gone}
        on = tree(left)
        used = Usage(on)
        used.add(present, wanted.requests)
        placing = Placing(on, (used,))
        found = replace_nodes(placing, [wanted], {"main": present}, failed)["main"].assignment
        seen["refused" if found is None else "replaced"] += 1
        if found is None:
            continue
        seen[f"{len(failed)} failed, {len(layers)} layers"] += 1
        assert found.pods == wanted.count
        _stays(present, found, failed)
        _is_whole(found, layers, gpus)
        if required:
            assert len({_path(gpus, e.values[0])[0] for e in found.domains}) == 1
        _fits(present, found, left)
        if len(failed) == 1 and not layers:
            alone = replace_node(placing, [wanted], {"main": present}, failed[0])["main"]
            if not gone:
                continue  # the reference may take the failed node again while it is ready
            assert alone.assignment == found
    assert seen["replaced"] >= 150 and seen["refused"] >= 20, seen
    assert all(seen[f"2 failed, {n} layers"] >= 3 for n in (0, 1, 2)), seen


def _path(gpus: dict[str, int], host: str) -> list[str]:
    return next(path for path in gpus if path.endswith("/" + host)).split("/")


def _stays(present: TopologyAssignment, found: TopologyAssignment, failed: list[str]) -> None:
    after = {each.values[0]: each.count for each in found.domains}
    for each in present.domains:
        host = each.values[0]
        assert host not in after if host in failed else after[host] >= each.count


def _is_whole(
    found: TopologyAssignment, layers: tuple[tuple[str, int], ...], gpus: dict[str, int]
) -> None:
    at = {BLOCK: 0, RACK: 1, HOSTNAME: 2}
    for level, size in layers:
        there: Counter[str] = Counter()
        for each in found.domains:
            there[_path(gpus, each.values[0])[at[level]]] += each.count
        assert all(count % size == 0 for count in there.values()), (level, size, there)


def _fits(present: TopologyAssignment, found: TopologyAssignment, left: dict[str, int]) -> None:
    """What is new fits beside what was there; the failed nodes' share still counts."""
    before = {each.values[0]: each.count for each in present.domains}
    free = {path.split("/")[2]: n for path, n in left.items()}
    for each in found.domains:
        new = each.count - before.get(each.values[0], 0)
        assert new <= 0 or before.get(each.values[0], 0) + new <= free[each.values[0]]
