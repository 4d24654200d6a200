"""Which feasible node is best: the default scores of section 17, written as the text has them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from math import floor, log, sqrt, trunc
from typing import Any

from tests.oracle.scheduling import devices, objects, topology, units, volumes
from tests.oracle.scheduling.objects import Cluster, Object, labels_of, name_of

WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "VolumeBinding": 1,
}
SCORE_DEFAULTS = {"cpu": 100, "memory": 200 * 1024 * 1024}
CPU_AND_MEMORY: list[Object] = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
MEBIBYTE = 1024 * 1024
Scores = dict[str, int]


def rounded(value: float) -> int:
    """Half away from zero."""
    return floor(value + 0.5) if value >= 0 else -floor(-value + 0.5)


def totals(pod: Object, nodes: list[Object], cluster: Cluster) -> Scores:
    """Sum over plugins of weight and normalised score, per feasible node."""
    if len(nodes) == 1:
        return {name_of(nodes[0]): 0}
    weights = {**WEIGHTS, **(cluster.objects.get("scoreWeights") or {})}
    total = {name_of(n): 0 for n in nodes}
    for plugin, per_node in by_plugin(pod, nodes, cluster).items():
        for name, score in per_node.items():
            total[name] += weights[plugin] * score
    for name, score in (cluster.objects.get("nodeScores") or {}).items():
        if name in total:
            total[name] += score
    return total


def by_plugin(pod: Object, nodes: list[Object], cluster: Cluster) -> dict[str, Scores]:
    functions = {
        "TaintToleration": taint_toleration,
        "NodeAffinity": node_affinity,
        "PodTopologySpread": pod_topology_spread,
        "InterPodAffinity": inter_pod_affinity,
        "NodeResourcesFit": node_resources_fit,
        "NodeResourcesBalancedAllocation": balanced_allocation,
        "ImageLocality": image_locality,
        "DynamicResources": dynamic_resources,
        "VolumeBinding": volume_binding,
    }
    return {
        plugin: score(pod, nodes, cluster)
        for plugin, score in functions.items()
        if cluster.runs(plugin)
    }


def used_on(node: Object, cluster: Cluster, defaults: Mapping[str, int]) -> dict[str, int]:
    return objects.plus(*(objects.requests_of(p, defaults) for p in cluster.on(node)))


def one_resource(strategy: Object, q: int, a: int) -> int:
    kind = strategy.get("type") or "LeastAllocated"
    if kind == "LeastAllocated":
        return 0 if q > a else (a - q) * 100 // a
    if kind == "MostAllocated":
        return min(q, a) * 100 // a
    points = strategy["requestedToCapacityRatio"]["shape"]
    return shape(points, 100 if q > a else q * 100 // a)


def shape(points: list[Any], p: int) -> int:
    xs = [(point["utilization"], point["score"] * 10) for point in points]
    for i, (x1, y1) in enumerate(xs):
        if p <= x1:
            if i == 0:
                return int(y1)
            x0, y0 = xs[i - 1]
            return int(y0 + trunc((y1 - y0) * (p - x0) / (x1 - x0)))
    return int(xs[-1][1])


def strategy_score(
    strategy: Object, wanted: Mapping[str, int], used: Mapping[str, int], offered: Mapping[str, int]
) -> int:
    weighted = []
    for resource in strategy.get("resources") or CPU_AND_MEMORY:
        name, weight = resource["name"], resource.get("weight") or 1
        a, q = offered.get(name, 0), used.get(name, 0) + wanted.get(name, 0)
        extended = name not in ("cpu", "memory", "ephemeral-storage")
        if a == 0 or (extended and not wanted.get(name)):
            continue
        weighted.append((one_resource(strategy, q, a), weight))
    ratio = strategy.get("type") == "RequestedToCapacityRatio"
    if ratio:
        weighted = [(s, w) for s, w in weighted if s > 0]
    if not weighted:
        return 0
    total, weights = sum(s * w for s, w in weighted), sum(w for _, w in weighted)
    return rounded(total / weights) if ratio else total // weights


def scoring_strategy(cluster: Cluster) -> Object:
    return dict((cluster.objects.get("fitArgs") or {}).get("scoringStrategy") or {})


def node_resources_fit(pod: Object, nodes: list[Object], cluster: Cluster) -> Scores:
    return {
        name_of(n): strategy_score(
            scoring_strategy(cluster),
            objects.requests_of(pod, SCORE_DEFAULTS),
            used_on(n, cluster, SCORE_DEFAULTS),
            objects.allocatable(n),
        )
        for n in nodes
    }


def balanced_allocation(pod: Object, nodes: list[Object], cluster: Cluster) -> Scores:
    resources = (cluster.objects.get("balancedArgs") or {}).get("resources") or CPU_AND_MEMORY
    names = [r["name"] for r in resources]
    wanted = objects.requests_of(pod)
    if not any(wanted.get(name) for name in names):
        return {}
    result = {}
    for node in nodes:
        offered, used = objects.allocatable(node), used_on(node, cluster, {})
        basic = ("cpu", "memory", "ephemeral-storage")
        mine = [n for n in names if offered.get(n) and (n in basic or wanted.get(n))]
        without = _balance([min(1.0, used.get(n, 0) / offered[n]) for n in mine])
        together = _balance(
            [min(1.0, (used.get(n, 0) + wanted.get(n, 0)) / offered[n]) for n in mine]
        )
        result[name_of(node)] = 50 + trunc((50 + together - without) / 2)
    return result


def _balance(fractions: list[float]) -> int:
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs(fractions[0] - fractions[1]) / 2
    elif len(fractions) > 2:
        mean = sum(fractions) / len(fractions)
        deviation = sqrt(sum((f - mean) ** 2 for f in fractions) / len(fractions))
    return floor((1 - deviation) * 100)


def image_locality(pod: Object, nodes: list[Object], cluster: Cluster) -> Scores:
    def full(image: str) -> str:
        return image if ":" in image.rsplit("/", 1)[-1] or "@" in image else f"{image}:latest"

    def present(node: Object) -> dict[str, int]:
        listed = (node.get("status") or {}).get("images") or ()
        return {full(n): i.get("sizeBytes", 0) for i in listed for n in i["names"]}

    spec = pod["spec"]
    wanted = [c.get("image") or "" for c in spec.get("containers") or ()]
    wanted += [c.get("image") or "" for c in spec.get("initContainers") or ()]
    wanted += [v["image"].get("reference", "") for v in spec.get("volumes") or () if "image" in v]
    every = cluster.nodes
    low, high = 23 * MEBIBYTE, len(wanted) * 1000 * MEBIBYTE
    result = {}
    for node in nodes:
        size = 0
        for image in map(full, wanted):
            if image in present(node):
                having = sum(image in present(n) for n in every)
                size += floor(present(node)[image] * (having / len(every)))
        result[name_of(node)] = 100 * (min(max(size, low), high) - low) // max(high - low, 1)
    return result


def taint_toleration(pod: Object, nodes: list[Object], cluster: Cluster) -> Scores:
    comparisons = cluster.gate("TaintTolerationComparisonOperators")
    raw = {
        name_of(n): objects.untolerated(pod, n, ("PreferNoSchedule",), comparisons) for n in nodes
    }
    most = max(raw.values())
    return {name: 100 - 100 * s // most if most else 100 for name, s in raw.items()}


def node_affinity(pod: Object, nodes: list[Object], cluster: Cluster) -> Scores:
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    terms = list(objects.node_affinity(pod).get(kind) or ())
    terms += list((cluster.objects.get("addedAffinity") or {}).get(kind) or ())
    if not terms:
        return {}
    raw = {
        name_of(n): sum(t["weight"] for t in terms if objects.term_holds(t["preference"], n))
        for n in nodes
    }
    most = max(raw.values())
    return {name: 100 * s // most if most else 0 for name, s in raw.items()}


def dynamic_resources(pod: Object, nodes: list[Object], cluster: Cluster) -> Scores:
    if not pod["spec"].get("resourceClaims"):
        return {}
    raw = devices.score(pod, nodes, cluster)
    most = max(raw.values())
    return {name: 100 * s // most if most else 0 for name, s in raw.items()}


def volume_binding(pod: Object, nodes: list[Object], cluster: Cluster) -> Scores:
    arguments = cluster.objects.get("volumeArgs") or {}
    falling = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    points = arguments.get("shape") or falling
    result = {}
    for node in nodes:
        sums: dict[str, list[int]] = {}
        for name, requested, capacity in volumes.storage_score(pod, node, cluster):
            so_far = sums.setdefault(name, [0, 0])
            so_far[0], so_far[1] = so_far[0] + requested, so_far[1] + capacity
        per_class = [
            shape(points, 100 if q > a or not a else q * 100 // a) for q, a in sums.values()
        ]
        if per_class:
            result[name_of(node)] = rounded(sum(per_class) / len(per_class))
    return result


def pod_topology_spread(pod: Object, nodes: list[Object], cluster: Cluster) -> Scores:
    constraints = topology.constraints_of(pod, cluster, "ScheduleAnyway")
    if not constraints:
        return {}
    strict = not topology.uses_system_defaults(pod, cluster)
    keys = [c["topologyKey"] for c in constraints]
    scored = [n for n in nodes if not strict or all(k in labels_of(n) for k in keys)]
    sums: dict[str, float] = {name_of(n): 0.0 for n in scored}
    for constraint in constraints:
        key = constraint["topologyKey"]
        on_node = key == "kubernetes.io/hostname"
        values = {labels_of(n)[key] for n in scored if key in labels_of(n)}
        weight = log((len(scored) if on_node else len(values)) + 2)
        counts: Counter[str] = Counter()
        for other in topology.eligible_nodes(constraint, constraints, pod, cluster, strict):
            if key in labels_of(other):
                here = topology.matching_pods(constraint, pod, cluster.on(other))
                counts[labels_of(other)[key]] += len(here)
        for node in scored:
            if key not in labels_of(node):
                continue
            count = counts[labels_of(node)[key]]
            if on_node:
                count = len(topology.matching_pods(constraint, pod, cluster.on(node)))
            sums[name_of(node)] += count * weight + (constraint["maxSkew"] - 1)
    raw = {name: rounded(value) for name, value in sums.items()}
    result = {name_of(n): 0 for n in nodes}
    for name, value in raw.items():
        most, least = max(raw.values()), min(raw.values())
        result[name] = 100 * (most + least - value) // most if most else 100
    return result


def inter_pod_affinity(pod: Object, nodes: list[Object], cluster: Cluster) -> Scores:
    arguments = cluster.objects.get("affinityArgs") or {}
    hard = arguments.get("hardPodAffinityWeight", 1)
    signs = (("podAffinity", 1), ("podAntiAffinity", -1))
    own = [(s * w, t) for k, s in signs for w, t in topology.preferred_terms_of(pod, k)]
    if arguments.get("ignorePreferredTermsOfExistingPods") and not own:
        return {}
    added: dict[tuple[str, str], int] = defaultdict(int)
    for placed in cluster.live:
        there = cluster.one("nodes", placed["spec"]["nodeName"])
        assert there is not None
        theirs = [(hard, t) for t in topology.terms_of(placed, "podAffinity")]
        if not arguments.get("ignorePreferredTermsOfExistingPods"):
            theirs += [
                (s * w, t) for k, s in signs for w, t in topology.preferred_terms_of(placed, k)
            ]
        matching = [(w, t) for w, t in own if topology.term_matches(t, pod, placed, cluster)]
        matching += [(w, t) for w, t in theirs if topology.term_matches(t, placed, pod, cluster)]
        for weight, term in matching:
            key = term["topologyKey"]
            if key in labels_of(there):
                added[key, labels_of(there)[key]] += weight
    if not added:
        return {}
    raw = {name_of(n): sum(added.get(pair, 0) for pair in labels_of(n).items()) for n in nodes}
    most, least = max(raw.values()), min(raw.values())
    return {
        name: floor(100 * ((s - least) / (most - least))) if most > least else 0
        for name, s in raw.items()
    }


def placement_totals(
    group: Object,
    found: Mapping[str, tuple[list[Object], tuple[tuple[Object, str], ...]]],
    cluster: Cluster,
) -> Scores:
    """Scores of whole placements (17.5): placed members, and how full the domain gets."""
    already = len(units.members_placed(group, cluster))
    counts = {domain: already + len(placed) for domain, (_, placed) in found.items()}
    strategy = {"type": "MostAllocated", "resources": scoring_strategy(cluster).get("resources")}
    extra = cluster.objects.get("nodeScores") or {}
    result = {}
    for domain, (nodes, placed) in found.items():
        fill = strategy_score(
            strategy,
            objects.plus(*(objects.requests_of(p, SCORE_DEFAULTS) for p, _ in placed)),
            objects.plus(*(used_on(n, cluster, SCORE_DEFAULTS) for n in nodes)),
            objects.plus(*map(objects.allocatable, nodes)),
        )
        given = sum(extra.get(name_of(n), 0) for n in nodes)
        result[domain] = counts[domain] * 100 // max(counts.values()) + fill + given
    return result
