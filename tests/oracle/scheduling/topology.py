"""The filters that look beyond one node: spread constraints and affinity between pods.

Sections 21.6 and 21.7. Counts are exact: terminating pods never count for spread and taking them
out changes nothing; the minimum is taken over all domains.
"""

from __future__ import annotations

from collections import Counter

from tests.oracle.scheduling import objects
from tests.oracle.scheduling.filters import Refusal
from tests.oracle.scheduling.objects import Cluster, Object, labels_of, namespace_of

SPREAD = "node(s) didn't match pod topology spread constraints"


def constraints_of(pod: Object, cluster: Cluster, when: str) -> list[Object]:
    """The pod's spread constraints of one kind, or the plugin's defaults if it has none at all."""
    own = pod["spec"].get("topologySpreadConstraints") or []
    if not own:
        own = default_constraints(pod, cluster)
    return [c for c in own if c.get("whenUnsatisfiable", "DoNotSchedule") == when]


def default_constraints(pod: Object, cluster: Cluster) -> list[Object]:
    arguments = cluster.objects.get("spreadArgs") or {}
    if arguments.get("defaultingType", "System") == "List":
        defaults = arguments.get("defaultConstraints") or []
    else:
        keys = (("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5))
        defaults = [
            {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway"}
            for key, skew in keys
        ]
    selector = _selector_of_owners(pod, cluster)
    return [{**c, "labelSelector": selector} for c in defaults] if selector else []


def uses_system_defaults(pod: Object, cluster: Cluster) -> bool:
    arguments = cluster.objects.get("spreadArgs") or {}
    own = pod["spec"].get("topologySpreadConstraints")
    return not own and arguments.get("defaultingType", "System") == "System"


def _selector_of_owners(pod: Object, cluster: Cluster) -> Object | None:
    labels: Object = {}
    expressions: list[Object] = []
    for service in cluster.every("services"):
        pairs = service["spec"].get("selector") or {}
        if (
            pairs
            and namespace_of(service) == namespace_of(pod)
            and objects.selects({"matchLabels": pairs}, labels_of(pod))
        ):
            labels |= pairs
    for owner in pod["metadata"].get("ownerReferences") or ():
        kinds = {
            "ReplicaSet": "replicaSets",
            "StatefulSet": "statefulSets",
            "ReplicationController": "replicationControllers",
        }
        if not owner.get("controller") or owner["kind"] not in kinds:
            continue
        found = cluster.one(kinds[owner["kind"]], owner["name"], namespace_of(pod))
        selector = (found or {}).get("spec", {}).get("selector") or {}
        if owner["kind"] == "ReplicationController":
            selector = {"matchLabels": selector}
        labels |= selector.get("matchLabels") or {}
        expressions += selector.get("matchExpressions") or []
    if not labels and not expressions:
        return None
    return {"matchLabels": labels, "matchExpressions": expressions}


def constraint_selector(constraint: Object, pod: Object) -> Object | None:
    selector = constraint.get("labelSelector")
    if selector is None:
        return None
    added = [
        {"key": key, "operator": "In", "values": [labels_of(pod)[key]]}
        for key in constraint.get("matchLabelKeys") or ()
        if key in labels_of(pod)
    ]
    return {
        "matchLabels": selector.get("matchLabels") or {},
        "matchExpressions": [*(selector.get("matchExpressions") or ()), *added],
    }


def matching_pods(constraint: Object, pod: Object, placed: list[Object]) -> list[Object]:
    """The placed pods that a constraint counts."""
    selector = constraint_selector(constraint, pod)
    if not selector or not (selector["matchLabels"] or selector["matchExpressions"]):
        return []
    return [
        p
        for p in placed
        if namespace_of(p) == namespace_of(pod)
        and not objects.terminating(p)
        and objects.selects(selector, labels_of(p))
    ]


def eligible_nodes(
    constraint: Object,
    constraints: list[Object],
    pod: Object,
    cluster: Cluster,
    all_keys: bool = True,
) -> list[Object]:
    found = []
    comparisons = cluster.gate("TaintTolerationComparisonOperators")
    for node in cluster.nodes:
        if all_keys and any(c["topologyKey"] not in labels_of(node) for c in constraints):
            continue
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not objects.wants_node(
            pod, node
        ):
            continue
        if constraint.get("nodeTaintsPolicy", "Ignore") == "Honor" and objects.untolerated(
            pod, node, ("NoSchedule", "NoExecute"), comparisons
        ):
            continue
        found.append(node)
    return found


def pod_topology_spread(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    constraints = constraints_of(pod, cluster, "DoNotSchedule")
    for constraint in constraints:
        key = constraint["topologyKey"]
        if key not in labels_of(node):
            return Refusal("PodTopologySpread", "X", (f"{SPREAD} (missing required label)",))
        counts: Counter[str] = Counter()
        for other in eligible_nodes(constraint, constraints, pod, cluster):
            counts[labels_of(other)[key]] += len(matching_pods(constraint, pod, cluster.on(other)))
        enough = len(counts) >= (constraint.get("minDomains") or 1)
        minimum = min(counts.values()) if counts and enough else 0
        itself = objects.selects(constraint_selector(constraint, pod), labels_of(pod))
        if counts[labels_of(node)[key]] + itself - minimum > constraint["maxSkew"]:
            return Refusal("PodTopologySpread", "U", (SPREAD,))
    return None


def terms_of(pod: Object, kind: str) -> list[Object]:
    """Required terms of `podAffinity` or `podAntiAffinity`."""
    part = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return list(part.get("requiredDuringSchedulingIgnoredDuringExecution") or ())


def preferred_terms_of(pod: Object, kind: str) -> list[tuple[int, Object]]:
    part = (pod["spec"].get("affinity") or {}).get(kind) or {}
    terms = part.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return [(t["weight"], t["podAffinityTerm"]) for t in terms]


def term_matches(term: Object, holder: Object, other: Object, cluster: Cluster) -> bool:
    """Whether a term of the pod `holder` matches the pod `other`."""
    listed, selector = term.get("namespaces") or [], term.get("namespaceSelector")
    if not listed and selector is None:
        listed = [namespace_of(holder)]
    there = cluster.one("namespaces", namespace_of(other))
    in_namespace = namespace_of(other) in listed or objects.selects(
        selector, labels_of(there) if there else {}
    )
    return in_namespace and objects.selects(term.get("labelSelector"), labels_of(other))


def _same_domain(key: str, node: Object, placed: Object, cluster: Cluster) -> bool:
    there = cluster.one("nodes", placed["spec"]["nodeName"])
    return (
        there is not None
        and key in labels_of(node)
        and key in labels_of(there)
        and labels_of(node)[key] == labels_of(there)[key]
    )


def inter_pod_affinity(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    if not _affinity_holds(pod, node, cluster):
        return Refusal("InterPodAffinity", "X", ("node(s) didn't match pod affinity rules",))
    for term in terms_of(pod, "podAntiAffinity"):
        for placed in cluster.live:
            if term_matches(term, pod, placed, cluster) and _same_domain(
                term["topologyKey"], node, placed, cluster
            ):
                text = "node(s) didn't match pod anti-affinity rules"
                return Refusal("InterPodAffinity", "U", (text,))
    for placed in cluster.live:
        for term in terms_of(placed, "podAntiAffinity"):
            if term_matches(term, placed, pod, cluster) and _same_domain(
                term["topologyKey"], node, placed, cluster
            ):
                text = "node(s) didn't satisfy existing pods anti-affinity rules"
                return Refusal("InterPodAffinity", "U", (text,))
    return None


def _affinity_holds(pod: Object, node: Object, cluster: Cluster) -> bool:
    terms = terms_of(pod, "podAffinity")
    if any(t["topologyKey"] not in labels_of(node) for t in terms):
        return False
    matching = [p for p in cluster.live if all(term_matches(t, pod, p, cluster) for t in terms)]
    if all(any(_same_domain(t["topologyKey"], node, p, cluster) for p in matching) for t in terms):
        return True
    somewhere = any(
        t["topologyKey"] in labels_of(cluster.one("nodes", p["spec"]["nodeName"]) or node)
        for p in matching
        for t in terms
    )
    return not somewhere and all(term_matches(t, pod, pod, cluster) for t in terms)


def nothing_to_check(pod: Object, cluster: Cluster) -> bool:
    return (
        not terms_of(pod, "podAffinity")
        and not terms_of(pod, "podAntiAffinity")
        and not any(
            term_matches(term, placed, pod, cluster)
            for placed in cluster.live
            for term in terms_of(placed, "podAntiAffinity")
        )
    )
