"""Random cases that nobody recorded: the engine answers as the oracle, and as nobody could better.

The oracle follows the specification step by step, reasons included. All ways to place one group in
a small cluster are tried as well: who is refused could not be placed, and who is placed is where
the request wants it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any, Final

import pytest

from reprieve.engine.topology import assign, descent, leaves, replacing, requests, search
from reprieve.engine.topology.assign import Placing
from reprieve.engine.topology.model import TopologyAssignment
from reprieve.engine.topology.orders import Rules
from reprieve.engine.topology.replacing import replace_nodes
from reprieve.engine.topology.tree import Usage
from tests.conformance.quota_objects import toleration
from tests.conformance.topology_objects import assignment, decide, pod_set, tree_of
from tests.oracle.topology.answers import answer, groups, held, roles
from tests.oracle.topology.arrangements import Arrangement, holds, narrowest, room_of, ways
from tests.oracle.topology.cases import (
    drawn,
    small,
    with_a_failed_node,
    with_failed_nodes,
    with_former_places,
)
from tests.oracle.topology.counting import Cluster, cluster
from tests.oracle.topology.domains import Json
from tests.oracle.topology.requests import Ask, Impossible, ask

#: No cluster is searched that has more arrangements than this.
MOST: Final = 30_000


def _of(seed: int) -> list[tuple[str, Json]]:
    """Return the cases of a seed by kind."""
    draw = Random(seed)
    fresh = drawn(draw)
    found = [("fresh", fresh)]
    failed, elastic = with_a_failed_node(fresh, draw), with_former_places(fresh, draw)
    found += [("failed node", failed)] if failed is not None else []
    found += [("elastic", elastic)] if elastic is not None else []
    return found


def _kinds(kind: str, case: Json, found: Mapping[str, Json]) -> Counter[str]:
    """Return what of a case is worth counting."""
    seen: Counter[str] = Counter()
    by_name = {each["name"]: each for each in case["podSets"]}
    for name, told in found.items():
        seen[f"{kind}, {'placed' if told['assignment'] else 'refused'}"] += 1
        given = by_name[name].get("topologyRequest") or {}
        layers = len(given.get("podsetSliceRequiredTopologyConstraints") or ())
        layers = layers or int(bool(given.get("podSetSliceRequiredTopology")))
        mode = next((m for m in ("required", "preferred") if given.get(m)), "neither")
        if kind == "fresh" and told["assignment"]:
            seen[f"{mode}, {layers} layers, placed"] += 1
        for word in ("taint", "nodeSelector", "affinity", "topologyDomain", 'resource "pods"'):
            seen[f"kept out by {word}"] += f"{word}" in told.get("reason", "")
    if kind == "fresh":
        grouped = [each for each in groups(case["podSets"]) if len(each) == 2]
        for group in grouped:
            leading = found.get(group[0]["name"])
            if leading is not None:
                seen[f"group {'placed' if leading['assignment'] else 'refused'}"] += 1
        gates = {**case["featureGates"], "TASBalancedPlacement": False}
        if case["featureGates"]["TASBalancedPlacement"]:
            seen["balanced otherwise"] += answer({**case, "featureGates": gates}) != found
    return seen


def _compare(seeds: range) -> tuple[Counter[str], list[Any]]:
    seen: Counter[str] = Counter()
    different = []
    for seed in seeds:
        for kind, case in _of(seed):
            expected = answer(case)
            found = decide(case)
            if found != expected:
                different.append((seed, kind, found, expected))
            seen += _kinds(kind, case, expected)
    return seen, different


def test_assignments_and_reasons_are_those_of_the_specification() -> None:
    seen, different = _compare(range(500))
    assert different == []
    _are_interesting(seen, 1)


@pytest.mark.thorough
def test_assignments_and_reasons_are_those_of_the_specification_in_many_cases() -> None:
    seen, different = _compare(range(500, 4_500))
    assert different == []
    _are_interesting(seen, 8)


def _are_interesting(seen: Counter[str], times: int) -> None:
    modes = ("required", "preferred", "neither")
    least = {
        **{f"{kind}, {end}": 50 for kind in ("fresh", "elastic") for end in ("placed", "refused")},
        "failed node, placed": 60,
        "failed node, refused": 20,
        **{
            f"{mode}, {layers} layers, placed": number
            for mode in modes
            for layers, number in ((0, 50), (1, 10), (2, 4))
        },
        "3 layers, placed": 5,
        **{f"kept out by {word}": 10 for word in ("taint", "nodeSelector", "affinity")},
        "kept out by topologyDomain": 3,
        'kept out by resource "pods"': 20,
        "group placed": 30,
        "group refused": 20,
        "balanced otherwise": 3,
    }
    seen["3 layers, placed"] = sum(seen[f"{mode}, 3 layers, placed"] for mode in modes)
    few = {key: seen[key] for key, number in least.items() if seen[key] < number * times}
    assert few == {}


#: Rules of the engine, broken one at a time: where, what, and what stands in its place.
BROKEN: Final[tuple[tuple[Any, str, Any], ...]] = (
    (leaves, "_leave_out_tainted", lambda *_: None),
    (leaves, "_any_term", lambda tree, _: tree.none == 0),
    (search, "best_of", lambda _c, entries, *_: int(entries[0])),
    (search, "leader_first", lambda _c, entries, *_: entries),
    (descent, "best_of", lambda _c, entries, *_: int(entries[0])),
    (descent, "leader_first", lambda _c, entries, *_: entries),
    (assign, "balance", lambda *_: None),
    (assign, "_rules", lambda *_: Rules()),
    (Usage, "add", lambda *_: None),
    (requests, "_inner", lambda *_: {}),
    (replacing, "_bound", lambda *_: None),
    (replacing, "_finer", lambda meant, *_: meant),
    (replacing, "_stale", lambda *_: None),
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("where", "name", "instead"), BROKEN, ids=[f"{e[0].__name__}.{e[1]}" for e in BROKEN]
)
def test_each_broken_rule_is_noticed(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, instead: Callable[..., Any]
) -> None:
    cases = _answered(1_000)
    monkeypatch.setattr(where, name, instead)
    assert any(_fails(case, expected) for case, expected in cases)


@cache
def _answered(seeds: int) -> list[tuple[Json, Mapping[str, Json]]]:
    return [(case, answer(case)) for seed in range(seeds) for _, case in _of(seed)]


def _fails(case: Json, expected: Mapping[str, Json]) -> bool:
    try:
        return decide(case) != expected
    except (AssertionError, KeyError, IndexError):
        return True


def test_who_is_refused_could_not_be_placed_and_who_is_placed_is_as_narrow_as_can_be() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1_500):
        case = small(Random(f"small {seed}"))
        on, (workers, leader) = cluster(case), roles(case["podSets"])
        try:
            asked = ask(workers, on.levels)
        except Impossible:
            continue
        led = leader is not None
        tried = ways(room_of(on, workers, leader, asked), workers["count"], led, MOST)
        if workers["count"] % asked.size or tried is None:
            continue
        best = narrowest(tried, asked)
        found = decide(case)
        placed = found[workers["name"]]["assignment"] is not None
        assert placed == (best is not None), (seed, found)
        mode = "required" if asked.required else "preferred" if asked.preferred else "neither"
        word = f"{mode}, {len(asked.layers)} layers, leader {led}"
        seen[f"{word}, {'placed' if placed else 'refused'}"] += 1
        if placed:
            assert best is not None
            _is_where_it_wants(on, asked, found, workers, best, case)
            seen["several domains" if best < 0 else f"{asked.level - best} levels up"] += 1
    for mode in ("required", "preferred"):
        for end in ("placed", "refused"):
            assert seen[f"{mode}, 0 layers, leader True, {end}"] >= 20, seen
    for layers in (0, 1, 2):
        for end in ("placed", "refused"):
            rows = [n for key, n in seen.items() if f" {layers} layers" in key and end in key]
            assert sum(rows) >= 40, (layers, end, seen)
    assert seen["several domains"] >= 20 and seen["1 levels up"] >= 20, seen


def _is_where_it_wants(
    on: Cluster, asked: Ask, found: Mapping[str, Json], workers: Json, best: int, case: Json
) -> None:
    paths = {d.leaf.key: d.path for d in on.root.leaves() if d.leaf is not None}
    places = {
        name: {paths[key]: pods for key, pods in held(each["assignment"]).items()}
        for name, each in found.items()
    }
    mine = places.pop(workers["name"])
    leader = next((path for row in places.values() for path in row), None)
    assert sum(mine.values()) == workers["count"]
    assert holds(Arrangement(mine, leader), asked)
    for path, alone, beside, fits in room_of(on, workers, _leader(case), asked).leaves:
        assert mine.get(path, 0) <= (beside if path == leader else alone)
        assert path != leader or fits
    if (
        asked.preferred
        and best >= 0
        and not case["featureGates"]["TASRespectNodeAffinityPreferred"]
    ):
        both = [*mine, *([leader] if leader else [])]
        assert len({path[: best + 1] for path in both}) == 1


def _leader(case: Json) -> Json | None:
    return roles(case["podSets"])[1]


def test_all_failed_nodes_are_replaced_wherever_that_can_be() -> None:
    seen: Counter[str] = Counter()
    for seed in range(4_000):
        draw = Random(f"lost {seed}")
        case = small(draw)
        case["featureGates"], case["podSets"] = {}, case["podSets"][:1]
        lost = with_failed_nodes(case, draw, 3)
        if lost is None or lost["workload"].get("ownedBySinglePod"):
            continue
        (wanted,), given = lost["podSets"], lost["workload"]
        before, failed = given["admission"][wanted["name"]], given["unhealthyNodes"]
        rest = {key: n for key, n in held(before).items() if key[0] not in failed}
        tried = _completed(cluster(lost), wanted, rest, failed)
        if tried is None:
            continue
        found = _replaced(lost, wanted, before, failed)
        assert (found is not None) == tried, (seed, found)
        if found is not None:
            after = {each.values: each.count for each in found.domains}
            assert found.pods == wanted["count"]
            assert all(after[key] >= n for key, n in rest.items())
            assert not any(key[0] in failed for key in after)
        kept = "some stay" if rest else "all lost"
        seen[f"{len(failed)} failed, {kept}, {'replaced' if tried else 'refused'}"] += 1
    for number in (1, 2):
        for kept in ("some stay", "all lost"):
            for end in ("replaced", "refused"):
                assert seen[f"{number} failed, {kept}, {end}"] >= 8, seen


def _completed(
    on: Cluster, wanted: Json, rest: Mapping[tuple[str, ...], int], failed: list[str]
) -> bool | None:
    """Return whether pods can be added to those that stay, None where too many ways are there."""
    paths = {d.leaf.key: d.path for d in on.root.leaves() if d.leaf is not None}
    if not rest.keys() <= paths.keys():
        return None
    for leaf in on.root.leaves():
        if leaf.leaf is not None and leaf.leaf.key[0] in failed:
            leaf.leaf.free.clear()
    asked, kept = ask(wanted, on.levels), Counter({paths[key]: n for key, n in rest.items()})
    missing = wanted["count"] - kept.total()
    tried = ways(room_of(on, wanted, None, asked), missing, False, MOST)
    if tried is None:
        return None
    return any(holds(Arrangement(dict(kept + Counter(e.pods))), asked) for e in tried)


def _replaced(
    case: Json, wanted: Json, before: Json, failed: list[str]
) -> TopologyAssignment | None:
    tree = tree_of(case)
    used = Usage(tree)
    for key, amounts in case["usage"].items():
        used.add_leaf(tuple(key.split(",")), amounts)
    tolerations = tuple(map(toleration, case.get("flavorTolerations") or ()))
    on = Placing(tree, (used,), tolerations)
    present = {wanted["name"]: assignment(before)}
    return replace_nodes(on, [pod_set(wanted)], present, failed)[wanted["name"]].assignment
