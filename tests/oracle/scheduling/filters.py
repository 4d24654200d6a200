"""May this pod run on this node? One function per filter, run in the order of section 21.1.

A filter answers None or a `Refusal`. Each looks at the whole cluster as it is given and remembers
nothing, so that a simulation is a cluster with other pods in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tests.oracle.scheduling import objects
from tests.oracle.scheduling.objects import Cluster, Object, name_of


class Refusal(NamedTuple):
    """Why not: the filter, U (removing pods may help) or X (it cannot), and the texts."""

    plugin: str
    code: str
    texts: tuple[str, ...]
    everywhere: bool = False


Filter = Callable[[Object, Object, Cluster], Refusal | None]


def refusal(
    pod: Object, node: Object, cluster: Cluster, skipped: Iterable[str] = ()
) -> Refusal | None:
    """The first refusal of the default filters on a node, narrowing by PreFilter included."""
    for plugin, allowed in narrowed(pod, cluster).items():
        if not allowed:
            return Refusal(plugin, "X", ("pod affinity terms conflict",), everywhere=True)
        if name_of(node) not in allowed:
            return Refusal(plugin, "X", (f"node(s) didn't satisfy plugin(s) [{plugin}]",))
    for plugin, check in default_filters().items():
        if cluster.runs(plugin) and plugin not in skipped:
            found = check(pod, node, cluster)
            if found:
                return found
    return None


def refusal_with_nominated(
    pod: Object, node: Object, cluster: Cluster, skipped: Iterable[str] = ()
) -> Refusal | None:
    """Section 8.7: first with the pods nominated there (equal or higher priority), then without."""
    others = [
        objects.assumed(p, name_of(node))
        for p in cluster.every("nominated")
        if objects.nominated_node(p) == name_of(node)
        and objects.own_priority(p) >= objects.own_priority(pod)
        and objects.key_of(p) != objects.key_of(pod)
    ]
    if others:
        found = refusal(pod, node, cluster.adding(others), skipped)
        if found:
            return found
    return refusal(pod, node, cluster, skipped)


def skipped_filters(pod: Object, cluster: Cluster) -> set[str]:
    """Filters whose PreFilter finds nothing to check in this state, so that they never run later.

    Only inter-pod affinity decides this by the cluster: no terms of its own, and no placed pod
    with an anti-affinity term that matches the pod (21.1). A consequence for groups, whose state
    is made while all victims are gone: a victim that keeps the pod away is reprieved though it
    does. `everyFilterAtReprieve` in the cluster's objects switches that off.
    """
    if cluster.objects.get("everyFilterAtReprieve"):
        return set()
    from tests.oracle.scheduling import topology

    if topology.nothing_to_check(pod, cluster):
        return {"InterPodAffinity"}
    return set()


def fit_text(refusals: Mapping[str, Refusal], nodes: int) -> str:
    """The sentence of a pod that fits nowhere; `refusals` by node name."""
    if not nodes:
        return "no nodes available to schedule pods"
    for each in refusals.values():
        if each.everywhere:
            return f"0/{nodes} nodes are available: {each.texts[0]}."
    counts = Counter(text for each in refusals.values() for text in each.texts)
    parts = sorted(f"{count} {text}" for text, count in counts.items())
    return f"0/{nodes} nodes are available: {', '.join(parts)}."


def narrowed(pod: Object, cluster: Cluster) -> dict[str, set[str]]:
    """The node names that PreFilter leaves, by plugin."""
    sets: dict[str, set[str]] = {}
    required = objects.node_affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (required or {}).get("nodeSelectorTerms") or ()
    per_term = []
    for term in terms:
        named = [
            set(f.get("values") or ())
            for f in term.get("matchFields") or ()
            if f["key"] == "metadata.name" and f["operator"] == "In"
        ]
        if not named:
            break
        per_term.append(set.intersection(*named))
    else:
        if terms and cluster.runs("NodeAffinity"):
            sets["NodeAffinity"] = set().union(*per_term)
    if pod["spec"].get("nodeName") and cluster.runs("NodeName"):
        sets["NodeName"] = {pod["spec"]["nodeName"]}
    return sets


def default_filters() -> dict[str, Filter]:
    from tests.oracle.scheduling import devices, topology, volumes

    return {
        "NodeName": node_name,
        "NodeUnschedulable": node_unschedulable,
        "TaintToleration": taint_toleration,
        "NodeAffinity": node_affinity,
        "NodePorts": node_ports,
        "NodeResourcesFit": node_resources_fit,
        "VolumeRestrictions": volumes.volume_restrictions,
        "NodeVolumeLimits": volumes.node_volume_limits,
        "VolumeBinding": volumes.volume_binding,
        "VolumeZone": volumes.volume_zone,
        "PodTopologySpread": topology.pod_topology_spread,
        "InterPodAffinity": topology.inter_pod_affinity,
        "DynamicResources": devices.dynamic_resources,
        "NodeDeclaredFeatures": node_declared_features,
    }


def node_name(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    if pod["spec"].get("nodeName") in (None, "", name_of(node)):
        return None
    return Refusal("NodeName", "X", ("node(s) didn't match the requested node name",))


def node_unschedulable(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if not (node.get("spec") or {}).get("unschedulable"):
        return None
    if any(objects.covers(t, taint) for t in pod["spec"].get("tolerations") or ()):
        return None
    return Refusal("NodeUnschedulable", "X", ("node(s) were unschedulable",))


def taint_toleration(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    comparisons = cluster.gate("TaintTolerationComparisonOperators")
    if objects.untolerated(pod, node, ("NoSchedule", "NoExecute"), comparisons):
        return Refusal("TaintToleration", "X", ("node(s) had untolerated taint(s)",))
    return None


def node_affinity(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    added = cluster.objects.get("addedAffinity") or {}
    required = added.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not objects.selector_holds(required, node):
        text = "node(s) didn't match scheduler-enforced node affinity"
        return Refusal("NodeAffinity", "X", (text,))
    if objects.wants_node(pod, node):
        return None
    return Refusal("NodeAffinity", "X", ("node(s) didn't match Pod's node affinity/selector",))


def ports_of(pod: Object) -> list[tuple[str, int, str]]:
    """(protocol, port, host IP) of each host port."""
    restartable = [
        c for c in pod["spec"].get("initContainers") or () if c.get("restartPolicy") == "Always"
    ]
    return [
        (p.get("protocol") or "TCP", p["hostPort"], p.get("hostIP") or "0.0.0.0")
        for c in [*(pod["spec"].get("containers") or ()), *restartable]
        for p in c.get("ports") or ()
        if p.get("hostPort", 0) > 0
    ]


def node_ports(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    used = [port for placed in cluster.on(node) for port in ports_of(placed)]
    for protocol, number, address in ports_of(pod):
        for other_protocol, other_number, other in used:
            if (protocol, number) == (other_protocol, other_number) and (
                address == other or "0.0.0.0" in (address, other)
            ):
                text = "node(s) didn't have free ports for the requested pod ports"
                return Refusal("NodePorts", "U", (text,))
    return None


def node_resources_fit(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    offered = objects.allocatable(node)
    used = objects.plus(*(objects.used_by(p, cluster) for p in cluster.on(node)))
    wanted = {k: v for k, v in objects.requests_of(pod).items() if v > 0}
    arguments = cluster.objects.get("fitArgs") or {}
    basic = ("cpu", "memory", "ephemeral-storage")
    texts, code = [], "U"
    if len(cluster.on(node)) + 1 > offered.get("pods", 0):
        texts.append("Too many pods")
    for resource in [*(b for b in basic if b in wanted), *(w for w in wanted if w not in basic)]:
        if resource not in basic and (
            resource in (arguments.get("ignoredResources") or ())
            or resource.split("/")[0] in (arguments.get("ignoredResourceGroups") or ())
            or (not offered.get(resource) and _class_stands_for(resource, cluster))
        ):
            continue
        if wanted[resource] > offered.get(resource, 0) - used.get(resource, 0):
            texts.append(f"Insufficient {resource}")
            if wanted[resource] > offered.get(resource, 0):
                code = "X"
    return Refusal("NodeResourcesFit", code, tuple(texts)) if texts else None


def _class_stands_for(resource: str, cluster: Cluster) -> bool:
    return any(
        c["spec"].get("extendedResourceName") == resource
        or f"deviceclass.resource.kubernetes.io/{name_of(c)}" == resource
        for c in cluster.every("deviceClasses")
    )


def node_declared_features(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    """The features that a pod needs are inferred by the real plugin; here they are given."""
    needed = set((cluster.objects.get("requiredFeatures") or {}).get(objects.key_of(pod), ()))
    if needed <= set((node.get("status") or {}).get("declaredFeatures") or ()):
        return None
    text = "node(s) didn't match Pod's required features"
    return Refusal("NodeDeclaredFeatures", "X", (text,))
