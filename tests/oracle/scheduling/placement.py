"""Where a pod goes, and where the members of a group go: sections 5.2 to 5.5, 8.7 and 17.5.

A placement of members can be imposed; then each step of it is checked instead of chosen, and a
member without a node must have none that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tests.oracle.scheduling import filters, objects, scores, units
from tests.oracle.scheduling.filters import Refusal
from tests.oracle.scheduling.objects import Cluster, Object, key_of, labels_of, name_of

UNSCHEDULABLE = "pod group is unschedulable"


class ImposedPlacementRefused(AssertionError):
    """The placement that was imposed is not one that these filters allow."""


@dataclass(frozen=True)
class Attempt:
    """The outcome of the placement algorithm: `code`, `text`, who was placed where, who failed."""

    code: str
    text: str = ""
    placed: tuple[tuple[Object, str], ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, set[str]] = field(default_factory=dict)
    statuses: Mapping[str, str] = field(default_factory=dict)  # of the groups of a tree, by key


def place_pod(
    pod: Object, cluster: Cluster, nodes: list[Object]
) -> tuple[str | None, dict[str, Refusal]]:
    """The node of a plain pod or of one member, else None with the refusal of each node."""
    nominated = [n for n in nodes if name_of(n) == objects.nominated_node(pod)]
    for node in nominated:
        if not filters.refusal_with_nominated(pod, node, cluster):
            return name_of(node), {}
    refusals, feasible = {}, []
    for node in nodes:
        found = filters.refusal_with_nominated(pod, node, cluster)
        if found:
            refusals[name_of(node)] = found
        else:
            feasible.append(node)
    if not feasible:
        return None, refusals
    totals = scores.totals(pod, feasible, cluster)
    best = min(feasible, key=lambda n: (-totals[name_of(n)], name_of(n)))
    return name_of(best), {}


def min_count(group: Object) -> int:
    """How many pods the group needs, or child groups."""
    gang = (group["spec"].get("schedulingPolicy") or {}).get("gang")
    return 1 if gang is None else int(gang.get("minCount") or gang["minGroupCount"])


def place_members(
    group: Object,
    members: list[Object],
    cluster: Cluster,
    nodes: list[Object],
    imposed: Mapping[str, str] | None = None,
    *,
    part: bool = False,
) -> Attempt:
    """The default algorithm (5.3) on one set of nodes; `part`: the group is one of a tree."""
    needed = min_count(group)
    scheduled, remaining = len(units.members_placed(group, cluster)), len(members)
    placed: list[tuple[Object, str]] = []
    failures: dict[str, str] = {}
    skipped: dict[str, set[str]] = {}

    def stopped(text: str) -> Attempt:
        return Attempt("Unschedulable", text, tuple(placed), failures, skipped)

    def hopeless() -> str | None:
        if scheduled + remaining >= needed:
            return None
        return (
            f"minCount ({needed}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"
        )

    if text := hopeless():
        return stopped(text if part else f"{UNSCHEDULABLE}, {text}")
    for member in members:
        skipped[key_of(member)] = filters.skipped_filters(member, cluster)
        node, refusals = place_pod(member, cluster, nodes)
        if imposed is not None:
            node = _impose(member, node, cluster, nodes, imposed)
        remaining -= 1
        if node is None:
            failures[key_of(member)] = filters.fit_text(refusals, len(nodes))
        else:
            placed.append((member, node))
            cluster = cluster.adding([objects.assumed(member, node)])
            scheduled += 1
        if text := hopeless():
            return stopped(text)
    if not placed and not part:
        return stopped(UNSCHEDULABLE)
    return Attempt("Success", "", tuple(placed), failures, skipped)


def _impose(
    member: Object,
    chosen: str | None,
    cluster: Cluster,
    nodes: list[Object],
    imposed: Mapping[str, str],
) -> str | None:
    wanted = imposed.get(key_of(member))
    if wanted is None:
        if chosen is not None:
            raise ImposedPlacementRefused(f"{key_of(member)} would fit on {chosen}")
        return None
    node = next((n for n in nodes if name_of(n) == wanted), None)
    found = filters.refusal_with_nominated(member, node, cluster) if node else "not in placement"
    if found:
        raise ImposedPlacementRefused(f"{key_of(member)} on {wanted}: {found}")
    return wanted


def topology_key(group: Object, cluster: Cluster) -> str | None:
    if not cluster.gate("TopologyAwareWorkloadScheduling"):
        return None
    constraints = (group["spec"].get("schedulingConstraints") or {}).get("topology") or []
    return str(constraints[0]["key"]) if constraints else None


def place_group(
    group: Object,
    members: list[Object],
    cluster: Cluster,
    imposed: Mapping[str, str] | None = None,
) -> Attempt:
    """The whole placement of a group; with the topology gate over its candidate placements."""
    if not cluster.gate("TopologyAwareWorkloadScheduling"):
        return place_members(group, members, cluster, cluster.nodes, imposed)
    return over_placements(
        group,
        cluster,
        cluster.nodes,
        imposed,
        lambda nodes, where: place_members(group, members, cluster, nodes, where),
    )


def over_placements(
    group: Object,
    cluster: Cluster,
    inside: list[Object],
    imposed: Mapping[str, str] | None,
    run: Callable[[list[Object], Mapping[str, str] | None], Attempt],
) -> Attempt:
    """The best of the candidate placements among these nodes (5.5)."""
    key = topology_key(group, cluster)
    if key is None:
        domains = {"": inside}
    else:
        values = sorted({labels_of(n)[key] for n in inside if key in labels_of(n)})
        placed = units.members_placed(group, cluster)
        if placed:
            fixed = _domain_of_placed(placed, key, cluster)
            if isinstance(fixed, Attempt):
                return fixed
            values = [fixed]
        if not values:
            return Attempt("Unschedulable", "no feasible placements found")
        domains = {v: [n for n in inside if labels_of(n).get(key) == v] for v in values}
    where = {
        v: imposed if set((imposed or {}).values()) <= {name_of(n) for n in nodes} else None
        for v, nodes in domains.items()
    }
    attempts = {v: run(nodes, where[v]) for v, nodes in domains.items()}
    error = next((a for a in attempts.values() if a.code == "Error"), None)
    if error is not None:
        return error
    feasible = {v: a for v, a in attempts.items() if a.code == "Success"}
    if not feasible:
        first = next(iter(attempts.values()))
        if first.text == UNSCHEDULABLE and len(attempts) == 1:
            return first
        text = f"0/{len(attempts)} placements are available, first placement status: {first.text}"
        return replace(first, text=f"{UNSCHEDULABLE}, {text}")
    totals = scores.placement_totals(
        group, {v: (domains[v], a.placed) for v, a in feasible.items()}, cluster
    )
    # The domain of an imposed placement, else the best one.
    return feasible[min(feasible, key=lambda v: (not where[v], -totals[v], v))]


def _domain_of_placed(placed: list[Object], key: str, cluster: Cluster) -> str | Attempt:
    prefix = "cannot determine domain for already scheduled pods: "
    values = []
    for pod in placed:
        node = cluster.one("nodes", pod["spec"]["nodeName"])
        if node is None:
            return Attempt("Error", f"{prefix}getting node for pod {key_of(pod)}: not found")
        if key not in labels_of(node):
            return Attempt("Error", f"{prefix}no topology domain found for pod {key_of(pod)}")
        values.append(labels_of(node)[key])
    first_two = sorted(dict.fromkeys(values))[:2]
    if len(first_two) > 1:
        text = f"more than 1 domain found for pod group: {first_two[0]}, {first_two[1]}"
        return Attempt("Error", prefix + text)
    return values[0]
