"""Answers to whole cases: pod set after pod set, groups, elastic slices, a failed node.

Answers have the form that the published cases expect. Written from the specification alone; imports
nothing of the engine.

Source: specification of topology-aware scheduling, sections 3, 6.7 and 7.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.oracle.topology.assignment import placed
from tests.oracle.topology.counting import Cluster, Share, cluster
from tests.oracle.topology.domains import Json
from tests.oracle.topology.requests import Ask, Impossible, ask

__all__ = ["answer", "groups", "held", "roles"]

Held = dict[tuple[str, ...], int]


def answer(case: Json) -> dict[str, Json]:
    """Return what each pod set gets, up to the first that gets nothing."""
    on = cluster(case)
    if case.get("workload"):
        return _replacements(on, case)
    found: dict[str, Json] = {}
    for group in groups(case["podSets"]):
        told = _of_group(on, group)
        found |= told
        if any(each["assignment"] is None for each in told.values()):
            break
        for each in group:
            for values, pods in held(told[each["name"]]["assignment"]).items():
                on.assume(values, pods, each.get("requests") or {})
    return found


def groups(pod_sets: Sequence[Json]) -> list[list[Json]]:
    """Return the pod sets that are placed together; those without pods are left out."""
    found: dict[Any, list[Json]] = {}
    for number, each in enumerate(pod_sets):
        if each["count"]:
            found.setdefault(each.get("podSetGroupName") or number, []).append(each)
    return list(found.values())


def roles(group: Sequence[Json]) -> tuple[Json, Json | None]:
    """Return the workers of a group and its leader: the smaller, or the second of equal ones."""
    if len(group) == 1:
        return group[0], None
    first, second = group
    return (first, second) if second["count"] <= first["count"] else (second, first)


def held(form: Json) -> Held:
    """Return pods by the values of their domain."""
    return {tuple(each["values"]): each["count"] for each in form["domains"]}


def _of_group(on: Cluster, group: list[Json]) -> dict[str, Json]:
    workers, leader = roles(group)
    if on.gates.get("ElasticJobsViaWorkloadSlicesWithTAS") and workers.get("previousAssignment"):
        resized = _resized(on, workers, leader)
        if resized is not None:
            return resized
    return _fresh(on, workers, leader)


def _fresh(on: Cluster, workers: Json, leader: Json | None) -> dict[str, Json]:
    names = [each["name"] for each in (workers, leader) if each is not None]
    try:
        shares = placed(on, workers, leader, ask(workers, on.levels))
    except Impossible as fault:
        shares = str(fault)
    if isinstance(shares, str):
        return {key: {"assignment": None, "reason": shares} for key in names}
    found = {workers["name"]: {"assignment": _written(on, shares, lambda s: s.pods)}}
    if leader is not None:
        found[leader["name"]] = {"assignment": _written(on, shares, lambda s: s.leaders)}
    return found


def _written(on: Cluster, shares: Sequence[Share], number: Callable[[Share], int]) -> Json:
    found: Held = {}
    for share in shares:
        assert share.domain.leaf is not None
        if number(share):
            key = share.domain.leaf.key
            found[key] = found.get(key, 0) + number(share)
    return listed(on, found)


def listed(on: Cluster, pods: Held) -> Json:
    """Return pods by domain in the order of their full level values."""
    paths = {d.leaf.key: d.path for d in on.root.leaves() if d.leaf is not None}
    rows = sorted((key for key in pods if key in paths), key=lambda key: paths[key])
    return {
        "levels": on.levels[-1:] if on.by_host else on.levels,
        "domains": [{"values": [*key], "count": pods[key]} for key in rows],
    }


def _resized(on: Cluster, workers: Json, leader: Json | None) -> dict[str, Json] | None:
    """Return what a larger or smaller slice gets, None where it is placed afresh."""
    given = workers.get("topologyRequest") or {}
    names = [each["name"] for each in (workers, leader) if each is not None]
    for word in ("required", "preferred"):
        if given.get(word):
            why = f"{word} topology is not supported with ElasticJobsViaWorkloadSlices"
            return {key: {"assignment": None, "reason": why} for key in names}
    before = workers["previousAssignment"]
    known = {d.leaf.key for d in on.root.leaves() if d.leaf is not None}
    led = leader.get("previousAssignment") if leader is not None else None
    if any(not set(held(each)) <= known for each in (before, led) if each):
        return None
    if leader is not None and not led:
        return None
    found = {} if leader is None else {leader["name"]: {"assignment": led}}
    old = held(before)
    more = workers["count"] - sum(old.values())
    if more <= 0:
        kept, left = [], workers["count"]
        for each in before["domains"]:
            if left > 0:
                kept.append({**each, "count": min(left, each["count"])})
            left -= each["count"]
        return {workers["name"]: {"assignment": {**before, "domains": kept}}, **found}
    aside = {key: Counter(row) for key, row in on.assumed.items()}
    for each, places in ((workers, before), (leader, led)):
        if each is not None and places is not None:
            for values, pods in held(places).items():
                on.assume(values, pods, each.get("requests") or {})
    added = _fresh(on, {**workers, "count": more}, None)[workers["name"]]
    on.assumed = aside
    if added["assignment"] is None:
        return dict.fromkeys(names, added)
    both = Counter(old) + Counter(held(added["assignment"]))
    return {workers["name"]: {"assignment": listed(on, dict(both))}, **found}


# A failed node.


def _replacements(on: Cluster, case: Json) -> dict[str, Json]:
    given = case["workload"]
    failed = (given["unhealthyNodes"][0],)
    found: dict[str, Json] = {}
    for each in case["podSets"]:
        before = given["admission"].get(each["name"])
        if not before or failed not in held(before):
            continue
        if given.get("ownedBySinglePod") and on.gates.get(
            "SkipReassignmentForPodOwnedWorkloads", True
        ):
            found[each["name"]] = {"assignment": before}
            continue
        told = _replaced(on, each, held(before), failed)
        found[each["name"]] = told
        if told["assignment"] is None:
            break
        after = Counter(held(told["assignment"]))
        after.subtract(held(before))
        for values, pods in after.items():
            if pods > 0 and values != failed:
                on.assume(values, pods, each.get("requests") or {})
    return found


def _replaced(on: Cluster, wanted: Json, before: Held, failed: tuple[str, ...]) -> Json:
    rest = {values: pods for values, pods in before.items() if values != failed}
    leaves = {d.leaf.key: d for d in on.root.leaves() if d.leaf is not None}
    for values in rest:
        if values not in leaves:
            why = (
                "Cannot replace the node, because the existing topologyAssignment is invalid, "
                f"as it contains the stale domain {','.join(values)}"
            )
            return {"assignment": None, "reason": why}
    try:
        asked = ask(wanted, on.levels)
    except Impossible as fault:
        return {"assignment": None, "reason": str(fault)}
    missing = before[failed]
    bound = _bound(asked, [(leaves[v].path, pods) for v, pods in rest.items()], missing)
    if missing % asked.size and bound is not None:
        asked = asked.with_slices(*_divides(asked, missing, len(on.levels) - 1))
    inside = None if bound is None else (lambda d: d.path[: len(bound)] == bound)
    shares = placed(on, {**wanted, "count": missing}, None, asked, inside)
    if isinstance(shares, str):
        return {"assignment": None, "reason": shares}
    both = Counter(rest) + Counter(held(_written(on, shares, lambda s: s.pods)))
    return {"assignment": listed(on, dict(both))}


def _bound(
    asked: Ask, rest: list[tuple[tuple[str, ...], int]], missing: int
) -> tuple[str, ...] | None:
    """Return the path of the domain that has to have the missing pods."""
    if not rest:
        return None
    if missing % asked.size:
        level, size = asked.slice_level, asked.size
        for at, inner in asked.layers[1:]:
            if missing % inner:
                level, size = at, inner
        there: dict[tuple[str, ...], int] = {}
        for path, pods in rest:
            there[path[: level + 1]] = there.get(path[: level + 1], 0) + pods
        for path, pods in there.items():
            if (pods + missing) % size == 0:
                return path
    return rest[0][0][: asked.level + 1] if asked.required else None


def _divides(asked: Ask, missing: int, lowest: int) -> tuple[int, int]:
    found = (lowest, 1)
    for at, size in asked.layers[1:]:
        if missing % size == 0:
            found = (at, size)
    return found
