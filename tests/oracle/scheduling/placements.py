"""For which placements of a group victims are chosen, and which of them is taken.

The options `binarySearchPriority`, `maxPlacements`, `topologyPreemption` and `cascadeAware`. All
priorities are tried from the lowest one up, and all domains that are asked for one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeVar

from tests.oracle.scheduling import harm, objects, placement, scores, trees, units
from tests.oracle.scheduling.objects import Cluster, Object, key_of, labels_of, name_of
from tests.oracle.scheduling.placement import Attempt


class Chosen(Protocol):
    """Victims by key, the most important unit's first, and the nodes of the members by key."""

    @property
    def victims(self) -> tuple[str, ...]: ...
    @property
    def units(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def nominated(self) -> dict[str, str] | None: ...
    @property
    def violations(self) -> int: ...


Found = TypeVar("Found", bound=Chosen)


class Search(NamedTuple):
    """Placements in the order in which they are preferred; only units below this priority go.

    `settled`: no other placement may be examined by anybody.
    """

    attempts: list[Attempt]
    below: int
    settled: bool


def examined(
    group: Object,
    members: list[Object],
    cluster: Cluster,
    priority: int,
    imposed: Mapping[str, str] | None,
) -> Search:
    """The placements that victims are chosen for; one that fails when nothing helps."""

    def first(below: int) -> Attempt:
        emptied = without(cluster, below)
        return place(group, members, emptied, cluster.nodes, imposed)

    settled = True
    if cluster.objects.get("binarySearchPriority"):
        levels = sorted({u.priority + 1 for u in units.cluster_units(cluster)})
        levels = [level for level in levels if level <= priority]
        helps = [first(level).code == "Success" for level in levels]
        # Where more room does not always help, nobody says which level is found.
        settled = helps == sorted(helps)
        priority = levels[helps.index(True)] if any(helps) else levels[-1]
    best = first(priority)
    if best.code != "Success":
        return Search([best], priority, settled)
    wanted = int(cluster.objects.get("maxPlacements", 1))
    everywhere = bool(cluster.objects.get("topologyPreemption"))
    others: list[Attempt] = []
    if (wanted > 1 or everywhere) and not units.members_placed(group, cluster):
        others = _in_other_domains(group, members, without(cluster, priority), best)
        others = others if everywhere else others[: wanted - 1]
    settled = settled and wanted <= 1 + len(others)
    return Search([best, *others], priority, settled)


def without(cluster: Cluster, below: int) -> Cluster:
    gone = [u for u in units.cluster_units(cluster) if u.priority < below]
    return cluster.removing(p for u in gone for p in u.pods)


def place(
    group: Object,
    members: list[Object],
    cluster: Cluster,
    nodes: list[Object],
    imposed: Mapping[str, str] | None = None,
) -> Attempt:
    if units.composite(group, cluster):
        return trees.place_tree(group, members, cluster, imposed, nodes)
    if not cluster.gate("TopologyAwareWorkloadScheduling"):
        return placement.place_members(group, members, cluster, nodes, imposed)
    return placement.over_placements(
        group,
        cluster,
        nodes,
        imposed,
        lambda inside, where: placement.place_members(group, members, cluster, inside, where),
    )


def _in_other_domains(
    group: Object, members: list[Object], emptied: Cluster, best: Attempt
) -> list[Attempt]:
    """Placements in the domains of the group's constraint that the best one is not in."""
    key = placement.topology_key(group, emptied)
    if key is None:
        return []

    def inside(value: str) -> list[Object]:
        return [n for n in emptied.nodes if labels_of(n).get(key) == value]

    taken = {node for _, node in best.placed}
    values = sorted({labels_of(n)[key] for n in emptied.nodes if key in labels_of(n)})
    values = [v for v in values if not taken & {name_of(n) for n in inside(v)}]
    found = {v: place(group, members, emptied, inside(v)) for v in values}
    found = {v: attempt for v, attempt in found.items() if attempt.code == "Success"}
    if not found:
        return []
    totals = scores.placement_totals(
        group, {v: (inside(v), attempt.placed) for v, attempt in found.items()}, emptied
    )
    return [found[v] for v in sorted(found, key=lambda v: (-totals[v], v))]


def least_harmful(found: list[Found], cluster: Cluster) -> Found:
    """The one that does the least harm: section 8.6, then victims that find another node."""
    by_key = {key_of(p): p for p in cluster.pods}

    def badness(chosen: Found) -> tuple[object, ...]:
        pods = [by_key[key] for key in chosen.victims]
        done = harm.of_victims(pods, chosen.violations, cluster)
        lost = homeless(chosen, cluster) if cluster.objects.get("cascadeAware") else 0
        return (done, lost)

    return min(found, key=badness)


def homeless(chosen: Chosen, cluster: Cluster) -> int:
    """How many pods of the victims fit nowhere once the preemptor has its nodes."""
    by_key = {key_of(p): p for p in cluster.pods}
    victims = [by_key[key] for key in chosen.victims]
    waiting = {key_of(p): p for p in cluster.every("pending")}
    state = cluster.removing(victims).adding(
        objects.assumed(waiting[key], node) for key, node in (chosen.nominated or {}).items()
    )
    left = 0
    for unit in chosen.units:
        going = [by_key[key] for key in unit]
        after, lost = state, 0
        for pod in sorted(going, key=lambda p: (p["spec"]["nodeName"], key_of(p))):
            again = _made_anew(pod)
            node, _ = placement.place_pod(again, after, after.nodes)
            lost += node is None
            after = after if node is None else after.adding([objects.assumed(again, node)])
        if lost:
            left += len(going)
        else:
            state = after
    return left


def _made_anew(pod: Object) -> Object:
    """The pod as it waits once its owner has made it again."""
    return {**pod, "spec": {**pod["spec"], "nodeName": ""}, "status": {}}
