"""Random cases of assignment in the form of the published ones, wider than those.

Racks of several blocks share a name, nodes share a host name, lack labels, are cordoned or tainted;
there are pods beside topologies, usage, groups, three layers of slices, elastic slices and failed
nodes. Imports nothing of the engine.
"""

from __future__ import annotations

import copy
from random import Random
from typing import Any, Final

from tests.oracle.topology.answers import answer, groups, held
from tests.oracle.topology.domains import HOSTNAME, Json, tree

__all__ = ["drawn", "small", "with_a_failed_node", "with_failed_nodes", "with_former_places"]

ZONE, BLOCK, RACK = "example.com/zone", "example.com/block", "example.com/rack"
LEVELS: Final = (
    (HOSTNAME,),
    (RACK, HOSTNAME),
    (BLOCK, RACK, HOSTNAME),
    (BLOCK, RACK, HOSTNAME),
    (ZONE, BLOCK, RACK, HOSTNAME),
    (BLOCK, RACK),
)
GPU = "example.com/gpu"
REQUESTS: Final[tuple[dict[str, int], ...]] = (
    {"cpu": 1000},
    {"cpu": 500, GPU: 1},
    {GPU: 1},
    {GPU: 2, "cpu": 1000},
    {"cpu": 1500, "memory": 2**30},
    {"cpu": 1000, GPU: 0},
    {},
)
TAINTS: Final = (
    {"key": "repair", "effect": "NoSchedule"},
    {"key": "gpu", "value": "yes", "effect": "NoExecute"},
    {"key": "soon", "effect": "PreferNoSchedule"},
)
TOLERATIONS: Final = (
    {"key": "repair", "operator": "Exists"},
    {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoExecute"},
    {"operator": "Exists"},
    {"key": "gpu", "value": "no"},
)


def drawn(draw: Random) -> Json:
    """Return a case with one to three pod sets."""
    levels = draw.choice(LEVELS)
    case: Json = {
        "kind": "tasAssignment",
        "topologyName": "default",
        "levels": [*levels],
        "nodes": _nodes(draw),
        "podSets": _pod_sets(draw, levels),
        "featureGates": {
            "TASBalancedPlacement": draw.random() < 0.35,
            "TASProfileMixed": draw.random() < 0.7,
            "TASRespectNodeAffinityPreferred": draw.random() < 0.25,
        },
        "simulateEmpty": draw.random() < 0.1,
    }
    if draw.random() < 0.3:
        case["flavorNodeLabels"] = {"pool": "a"}
    if draw.random() < 0.2:
        case["flavorTolerations"] = [draw.choice(TOLERATIONS)]
    case["pods"] = [
        {
            "namespace": "n",
            "name": f"p{number}",
            "node": draw.choice(case["nodes"])["name"],
            "phase": draw.choice(("Running", "Running", "Pending", "Succeeded")),
            "requests": draw.choice(REQUESTS),
        }
        for number in range(draw.choice((0, 0, 1, 3)))
    ]
    case["usage"] = {
        ",".join(leaf.leaf.key): {
            "cpu": draw.choice((500, 1000)),
            GPU: draw.choice((0, 1)),
            "pods": 1,
        }
        for leaf in tree(case).leaves()
        if leaf.leaf is not None and draw.random() < 0.25
    }
    return case


def _nodes(draw: Random) -> list[Json]:
    rich = draw.random() < 0.5
    shapes = {
        HOSTNAME: draw.randint(1, 4),
        RACK: draw.randint(1, 3),
        BLOCK: draw.randint(1, 2),
        ZONE: draw.randint(1, 2),
    }
    found: list[Json] = []
    for number in range(draw.randint(2, 14)):
        block = f"b{draw.randrange(shapes[BLOCK])}"
        # Racks of two blocks share a name in some clusters, and are no less two.
        rack = f"r{draw.randrange(shapes[RACK])}" if rich else f"{block}-{draw.choice('xyz')}"
        labels = {
            ZONE: f"z{draw.randrange(shapes[ZONE])}",
            BLOCK: block,
            RACK: rack,
            HOSTNAME: f"h-{number}" if draw.random() < 0.95 else "h-0",
            "pool": "a" if draw.random() < 0.85 else "b",
            "disk": draw.choice(("ssd", "hdd")),
            "size": str(draw.randint(1, 9)),
        }
        if draw.random() < 0.05:
            labels.pop(draw.choice((*LEVELS[4], "disk")))
        elif draw.random() < 0.04:
            labels[draw.choice((BLOCK, RACK))] = ""
        node: Json = {
            "name": f"n{number}",
            "labels": labels,
            "allocatable": {
                "cpu": draw.choice(("2", "4", "8", "2500m")),
                "memory": draw.choice(("2Gi", "8Gi")),
                GPU: str(draw.choice((0, 1, 2, 4, 8))),
                "pods": draw.choice(("2", "6", "110")),
            },
            "ready": draw.random() < 0.95,
            "unschedulable": draw.random() < 0.03,
        }
        if draw.random() < 0.2:
            node["taints"] = draw.sample(TAINTS, draw.randint(1, 2))
        if draw.random() < 0.1:
            del node["allocatable"][draw.choice((GPU, "pods", "memory"))]
        found.append(node)
    return found


def _pod_sets(draw: Random, levels: tuple[str, ...]) -> list[Json]:
    if draw.random() < 0.25:
        sizes = (draw.choice((1, 1, 2)), draw.randint(1, 8))
        request = _request(draw, levels, grouped=True)
        both = [
            _pod_set(draw, levels, name, count, copy.deepcopy(request))
            for name, count in zip(("lead", "work"), draw.sample(sizes, 2), strict=True)
        ]
        for each in both:
            each["podSetGroupName"] = "g"
        extra = [_pod_set(draw, levels, "extra", 2)] if draw.random() < 0.3 else []
        return [*extra, *both]
    return [_pod_set(draw, levels, f"ps{n}") for n in range(draw.choice((1, 1, 1, 2, 3)))]


def _pod_set(
    draw: Random, levels: tuple[str, ...], name: str, count: int = 0, request: Any = ...
) -> Json:
    given = _request(draw, levels) if request is ... else request
    sizes = [e["size"] for e in given.get("podsetSliceRequiredTopologyConstraints") or ()]
    sizes = sizes or [given.get("podSetSliceSize") or 1]
    number = count or sizes[0] * draw.choice((1, 1, 2, 3, 4, 6)) + (draw.random() < 0.08)
    found: Json = {"name": name, "count": number, "requests": draw.choice(REQUESTS)}
    if given:
        found["topologyRequest"] = given
    else:
        found["implied"] = True
    if draw.random() < 0.2:
        found["tolerations"] = draw.sample(TOLERATIONS, draw.randint(1, 2))
    if draw.random() < 0.15:
        found["nodeSelector"] = {"disk": "ssd"}
    if draw.random() < 0.3:
        found["nodeAffinity"] = _affinity(draw)
    return found


def _request(draw: Random, levels: tuple[str, ...], grouped: bool = False) -> Json:
    """Return a request whose slices mostly fit into one another, and its level above them."""
    mode = draw.choice(("required", "preferred") if grouped else _MODES)
    if mode == "implied":
        return {}
    top = draw.randrange(len(levels))
    request: Json = {}
    if mode in ("required", "preferred"):
        request[mode] = levels[top] if draw.random() < 0.98 else "example.com/nowhere"
    elif mode == "unconstrained":
        return {"unconstrained": draw.random() < 0.95}
    if mode == "slices" or draw.random() < (0.2 if grouped else 0.5):
        below = [*range(0 if mode == "slices" else top, len(levels))]
        at = sorted(draw.sample(below, min(len(below), draw.choice((1, 1, 2, 3)))))
        sizes = draw.choice(((4, 2, 1), (8, 4, 2), (6, 3, 3), (2, 2, 1), (3, 1, 1), (12, 4, 2)))
        layers = [
            {"topology": levels[level], "size": size}
            for level, size in zip(at, sizes, strict=False)
        ]
        if draw.random() < 0.03:
            layers.reverse()
        if len(layers) == 1:
            request["podSetSliceRequiredTopology"] = layers[0]["topology"]
            request["podSetSliceSize"] = layers[0]["size"]
        else:
            request["podsetSliceRequiredTopologyConstraints"] = layers
    return request


_MODES: Final = (
    "required",
    "required",
    "preferred",
    "preferred",
    "preferred",
    "unconstrained",
    "slices",
    "implied",
)


def _affinity(draw: Random) -> Json:
    terms: tuple[Json, ...] = (
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["hdd"]}]},
        {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["4"]}]},
        {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["ssd"]}]},
        {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
    )
    found: Json = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": draw.choice((1, 10, 50)), "preference": each}
            for each in draw.sample(terms, 2)
        ]
    }
    if draw.random() < 0.4:
        required = {"nodeSelectorTerms": draw.sample(terms, draw.choice((1, 2)))}
        found["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return found


def with_a_failed_node(case: Json, draw: Random) -> Json | None:
    """Return a case whose workload runs and loses a node, None where that cannot be."""
    return with_failed_nodes(case, draw, 1)


def with_failed_nodes(case: Json, draw: Random, most: int) -> Json | None:
    """Return the same with up to `most` failed nodes; now and then another is gone, too."""
    case = copy.deepcopy(case)
    if case["levels"][-1] != HOSTNAME:
        return None
    case["podSets"] = [
        each for each in case["podSets"] if not each.get("podSetGroupName") and _is_whole(each)
    ]
    case["simulateEmpty"] = False
    found = answer(case)
    if not case["podSets"] or any(each["assignment"] is None for each in found.values()):
        return None
    admitted = {name: each["assignment"] for name, each in found.items()}
    for each in case["podSets"]:
        for values, pods in held(admitted[each["name"]]).items():
            row = case["usage"].setdefault(",".join(values), {})
            for resource, amount in {**each["requests"], "pods": 1}.items():
                row[resource] = row.get(resource, 0) + amount * pods
    hosts = sorted({values[0] for form in admitted.values() for values in held(form)})
    failed = draw.sample(hosts, min(len(hosts), draw.randint(1, most)))
    gone = {*failed, *(draw.sample(hosts, 1) if draw.random() < 0.1 else ())}
    if draw.random() < 0.1:
        gone.remove(failed[0])  # it is marked, and ready again
    case["nodes"] = [each for each in case["nodes"] if each["labels"].get(HOSTNAME) not in gone]
    case["workload"] = {"admission": admitted, "unhealthyNodes": failed}
    if draw.random() < 0.05:
        case["workload"]["ownedBySinglePod"] = True
    return case if case["nodes"] else None


def small(draw: Random) -> Json:
    """Return a case of six nodes at most, so that all ways to place one group can be tried."""
    case = drawn(draw)
    case["nodes"] = case["nodes"][:6]
    names = {each["name"] for each in case["nodes"]}
    case["pods"] = [each for each in case["pods"] if each["node"] in names]
    case["podSets"] = groups(case["podSets"])[0]
    case["featureGates"]["TASBalancedPlacement"] = False
    return case


def _is_whole(pod_set: Json) -> bool:
    given = pod_set.get("topologyRequest") or {}
    layers = given.get("podsetSliceRequiredTopologyConstraints") or ()
    size = layers[0]["size"] if layers else given.get("podSetSliceSize") or 1
    return bool(pod_set["count"] % size == 0)


def with_former_places(case: Json, draw: Random) -> Json | None:
    """Return a case whose pod sets had places before and grow or shrink, None where none had."""
    case = copy.deepcopy(case)
    case["featureGates"]["ElasticJobsViaWorkloadSlicesWithTAS"] = True
    before = answer(case)
    if any(each["assignment"] is None for each in before.values()):
        return None
    for each in case["podSets"]:
        each["previousAssignment"] = before[each["name"]]["assignment"]
        if not each.get("podSetGroupName"):
            each["count"] = max(1, each["count"] + draw.choice((-2, -1, 0, 1, 2, 4)))
    if draw.random() < 0.15:
        case["nodes"].pop(draw.randrange(len(case["nodes"])))
    return case if case["nodes"] else None
