"""Whether a choice of victims keeps what is promised, whatever search has found it.

Feasible: the minimum fits beside all that stays. Irreducible: no victim could stay alone. Nobody of
too high a priority goes, and what goes as a whole is named as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.oracle.scheduling import harm, objects, placement, placements, preemption, trees, units
from tests.oracle.scheduling.harm import Harm
from tests.oracle.scheduling.objects import Cluster, Object, key_of
from tests.oracle.scheduling.placement import Attempt
from tests.oracle.scheduling.preemption import Choice
from tests.oracle.scheduling.reach import Reach
from tests.oracle.scheduling.units import Unit

#: Situations in which one pod more may make room: nothing is promised of a single one there.
NOT_MONOTONE = frozenset({"spread", "affinity"})


def faults(case: Object, choice: Choice) -> list[str]:
    """What is wrong with a choice that names victims."""
    cluster, pending = Cluster.of(case), list(case["pending"])
    group = group_of(case, cluster)
    waiting = [p for p in pending if key_of(p) in (choice.nominated or {})]
    if group is None:
        priority = objects.own_priority(waiting[0])
        enough = len(waiting) == 1
    else:
        whole = pending
        if units.composite(group, cluster):
            whole = trees.in_order(group, pending, cluster)
        priority = preemption.preempting_priority(group, whole, cluster)
        enough = bool(waiting) and reached(group, waiting, cluster)
    victims = set(choice.victims)
    assert [key for unit in choice.units for key in unit] == list(choice.victims)
    every = units.cluster_units(cluster)
    going = [u for u in every if any(key_of(p) in victims for p in u.pods)]
    found = []
    if len(victims) < len(choice.victims) or sum(len(u.pods) for u in going) != len(victims):
        found.append("a victim is named twice, is not there, or goes without others")
    found += [f"{key_of(u.pods[0])} has {u.priority}" for u in going if u.priority >= priority]
    found += [f"{key} is torn" for key in units.torn(victims, cluster)]
    found += _no_units(choice, every, cluster)
    if not enough:
        found.append("the minimum has no nodes")
    found += [f"{key} does not fit" for key in preemption.refused_with(choice, cluster, pending)]
    return found


def returnable(case: Object, choice: Choice) -> list[tuple[str, ...]]:
    """Victim units that could each stay alone, and tear no group by that."""
    cluster, pending = Cluster.of(case), list(case["pending"])
    found = []
    for unit in choice.units:
        fewer = choice._replace(victims=tuple(key for key in choice.victims if key not in unit))
        fits = not preemption.refused_with(fewer, cluster, pending)
        if fits and not units.torn(fewer.victims, cluster):
            found.append(unit)
    return found


def around_its_nodes(case: Object, choice: Choice) -> Choice:
    """What a group's placement asks for when nobody is spared from the start.

    The choice itself where nobody can tell which priorities have to go.
    """
    case = {**case, "maxPlacements": 1, "topologyPreemption": False}
    cluster, pending = Cluster.of(case), list(case["pending"])
    group = group_of(case, cluster)
    assert group is not None
    if units.composite(group, cluster):
        pending = trees.in_order(group, pending, cluster)
    priority = preemption.preempting_priority(group, pending, cluster)
    search = placements.examined(group, pending, cluster, priority, None)
    if not search.settled:
        return choice
    by_key = {key_of(p): p for p in pending}
    placed = tuple((by_key[key], node) for key, node in (choice.nominated or {}).items())
    nothing: set[str] = set()
    attempt = Attempt("Success", "", placed, {}, {key_of(p): nothing for p, _ in placed})
    return preemption.around(attempt, cluster, search.below)


def _no_units(choice: Choice, every: list[Unit], cluster: Cluster) -> list[str]:
    """Victims that are said to go together and need not."""
    known = [{key_of(p) for p in u.pods} for u in every]
    for group in cluster.every("podGroups"):
        members = units.members_placed(group, cluster)
        leads = any(objects.annotation(p, "disruption") == "with-group" for p in members)
        if cluster.objects.get("nonUniformGroups") and (leads or units.floor_of(group)):
            known.append({key_of(p) for p in members})
    return [f"{unit[0]} goes with others" for unit in choice.units if set(unit) not in known]


def harm_of(case: Object, choice: Choice) -> Harm:
    """How much harm a choice does."""
    cluster = Cluster.of(case)
    by_key = {key_of(p): p for p in cluster.pods}
    return harm.of_victims([by_key[key] for key in choice.victims], choice.violations, cluster)


def reach_of(case: Object, choice: Choice) -> Reach:
    """How far a choice goes."""
    return preemption.reach_of(choice, Cluster.of(case))


def group_of(case: Mapping[str, Object], cluster: Cluster) -> Object | None:
    """The group that preempts, of a tree the root; None for a plain pod."""
    name = case["preemptor"].get("podGroup")
    if not name or not cluster.gate("GenericWorkload"):
        return None
    leaf = cluster.one("podGroups", name)
    return None if leaf is None else units.with_those_above(leaf, cluster)[-1]


def reached(group: Object, waiting: list[Object], cluster: Cluster) -> bool:
    """Whether a group has its minimum with these pods and those that run."""
    if units.composite(group, cluster):
        got = sum(reached(child, waiting, cluster) for child in units.children_of(group, cluster))
    else:
        mine = [p for p in waiting if units.group_of(p, cluster) is group]
        got = len(units.members_placed(group, cluster)) + len(mine)
    return got >= placement.min_count(group)
