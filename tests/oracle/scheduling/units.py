"""Victim units: who is evicted together, with which priority, in which order, against which budget.

Sections 4.3, 7.2, 7.3, 7.5, 7.6 and 13. Options are keys of the cluster's objects, named as in the
configuration. `together` there names groups that go as a whole besides those of mode `all`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.oracle.scheduling import harm, objects, runtimes
from tests.oracle.scheduling.objects import Cluster, Object, key_of, name_of, namespace_of

NOW = "9999-12-31T23:59:59Z"
LEVELS = 4  # of groups above each other


class Unit(NamedTuple):
    pods: tuple[Object, ...]
    priority: int
    type: str
    start: str
    lost: int = 0  # with `harmOrder`


def group_name(pod: Object) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")


def group_of(pod: Object, cluster: Cluster) -> Object | None:
    if not cluster.gate("GenericWorkload") or not group_name(pod):
        return None
    return cluster.one("podGroups", group_name(pod), namespace_of(pod))


def composite(group: Object, cluster: Cluster) -> bool:
    return any(group is each for each in cluster.every("compositePodGroups"))


def parent_name(group: Object, cluster: Cluster) -> str:
    if not cluster.gate("CompositePodGroup"):
        return ""
    return str(group["spec"].get("parentCompositePodGroupName") or "")


def with_those_above(group: Object, cluster: Cluster) -> list[Object]:
    """The group and those above it as far as they are there, at most four levels."""
    way = [group]
    while len(way) < LEVELS and (name := parent_name(way[-1], cluster)):
        parent = cluster.one("compositePodGroups", name, namespace_of(group))
        if parent is None:
            break
        way.append(parent)
    return way


def children_of(group: Object, cluster: Cluster) -> list[Object]:
    """The groups that name this one as their parent, the older ones first, then by name."""
    found = [
        (str(each["metadata"].get("creationTimestamp") or ""), name_of(each), order, each)
        for order, kind in enumerate(("podGroups", "compositePodGroups"))
        for each in cluster.every(kind)
        if parent_name(each, cluster) == name_of(group)
        and namespace_of(each) == namespace_of(group)
    ]
    return [each for *_, each in sorted(found, key=lambda one: one[:3])]


def leaves_of(group: Object, cluster: Cluster) -> list[Object]:
    """The pod groups at and below a group, in the order in which they are placed."""
    if not composite(group, cluster):
        return [group]
    return [leaf for child in children_of(group, cluster) for leaf in leaves_of(child, cluster)]


def named_priority(pod: Object, cluster: Cluster) -> int:
    """The priority of the root of the pod's tree, or with the option that of its own group."""
    group = group_of(pod, cluster)
    if group is None:
        return objects.own_priority(pod)
    nearest = cluster.objects.get("compositePriority") == "Nearest"
    return objects.own_priority(group if nearest else with_those_above(group, cluster)[-1])


def effective_priority(pod: Object, cluster: Cluster) -> int:
    """Pods that go together have the highest priority of any of them."""
    return max(named_priority(p, cluster) for p in together_with(pod, cluster))


def priority_as_victim(pod: Object, cluster: Cluster) -> int:
    """The same, but for work that names a PriorityClass of its own for that."""
    return max(_protected(p, cluster) for p in together_with(pod, cluster))


def _protected(pod: Object, cluster: Cluster) -> int:
    own = named_priority(pod, cluster)
    limits = cluster.objects.get("preemptionPriority")
    in_group = cluster.gate("GenericWorkload") and group_name(pod)
    holder = group_of(pod, cluster) if in_group else pod
    name = objects.annotation(holder, "preemption-priority-class") if holder else ""
    named = cluster.one("priorityClasses", name)
    if not limits or named is None:
        return own
    cap = limits.get("cap", 10**9)
    limit = limits.get("namespaces", {}).get(namespace_of(pod), cap)
    return max(own, min(int(named["value"]), int(limit)))


def whole_of(pod: Object, cluster: Cluster) -> Object | None:
    """The highest group above the pod that goes as a whole."""
    group = group_of(pod, cluster)
    if group is None:
        return None
    way = with_those_above(group, cluster)
    whole = next((each for each in reversed(way) if evicted_together(each)), None)
    if whole is None and key_of(group) in cluster.objects.get("together", ()):
        return group
    return whole


def together_with(pod: Object, cluster: Cluster) -> list[Object]:
    whole = whole_of(pod, cluster)
    if whole is None:
        return [pod]
    return [p for p in cluster.live if whole_of(p, cluster) is whole] or [pod]


def evicted_together(group: Object | None) -> bool:
    mode = ((group or {}).get("spec") or {}).get("disruptionMode") or {}
    return mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode)


def members_placed(group: Object, cluster: Cluster) -> list[Object]:
    """The placed pods of a group, or of all groups of a tree."""
    leaves = leaves_of(group, cluster)
    return [p for p in cluster.live if any(group_of(p, cluster) is leaf for leaf in leaves)]


def unit_of(pod: Object, cluster: Cluster) -> Unit:
    pods = together_with(pod, cluster)
    whole = whole_of(pod, cluster)
    kind = "podgroup" if cluster.gate("GenericWorkload") and group_name(pod) else "pod"
    if whole is not None and composite(whole, cluster):
        kind = "compositepodgroup"
    return Unit(
        tuple(sorted(pods, key=importance_of_pod)),
        priority_as_victim(pod, cluster),
        kind,
        min(start_of(p) for p in pods),
        harm.lost_together(pods, cluster) if cluster.objects.get("harmOrder") else 0,
    )


def start_of(pod: Object) -> str:
    return (pod.get("status") or {}).get("startTime") or NOW


def importance_of_pod(pod: Object) -> tuple[int, str, str]:
    """The pods of one unit, the more important first: 1. own priority, 2. start, 3. UID.

    The real order is a random one; with this order the first victim has the highest own number
    of its unit, as rule 2 of section 8.6 supposes.
    """
    return (-objects.own_priority(pod), start_of(pod), objects.uid_of(pod))


def units_with(pods: Iterable[Object], cluster: Cluster) -> list[Unit]:
    """The units that these pods belong to, each once."""
    found: list[Unit] = []
    for pod in pods:
        if not any(key_of(pod) == key_of(p) for unit in found for p in unit.pods):
            found.append(unit_of(pod, cluster))
    return found


def cluster_units(cluster: Cluster) -> list[Unit]:
    found = units_with((p for node in cluster.nodes for p in cluster.on(node)), cluster)
    return [unit for unit in found if makes_way(unit, cluster)]


def node_units(node: Object, cluster: Cluster) -> list[Unit]:
    return [unit for unit in units_with(cluster.on(node), cluster) if makes_way(unit, cluster)]


def makes_way(unit: Unit, cluster: Cluster) -> bool:
    """Whether no pod of the unit is within its minimum runtime, which counts for its whole work."""
    if not cluster.objects.get("maxMinRuntime"):
        return True
    return not any(_within_runtime(pod, cluster) for pod in unit.pods)


def _within_runtime(pod: Object, cluster: Cluster) -> bool:
    group = group_of(pod, cluster)
    way = with_those_above(group, cluster) if group is not None else []
    mode = next((each for each in reversed(way) if evicted_together(each)), None)
    named = group_name(pod) if cluster.gate("GenericWorkload") else ""
    if mode is not None:
        work = members_placed(mode, cluster)
    elif named:
        same = (named, namespace_of(pod))
        work = [p for p in cluster.live if (group_name(p), namespace_of(p)) == same]
    else:
        work = [pod]
    if mode is not None or (named and cluster.objects.get("nonUniformGroups")):
        out = any(terminating_by_preemption(p) for p in work)
    else:
        out = objects.terminating(pod)
    longest = max(_asked(p, cluster) for p in work)
    return not out and runtimes.young(work, longest, cluster)


def _asked(pod: Object, cluster: Cluster) -> int:
    group = group_of(pod, cluster)
    grouped = cluster.gate("GenericWorkload") and group_name(pod)
    alone = [] if grouped else [pod]
    return runtimes.asked(pod, with_those_above(group, cluster) if group else alone, cluster)


def importance(unit: Unit) -> tuple[int, int, int, int, str, str]:
    """More important first: 1. priority, 2. type, 3. lost work, 4. size, 5. start, 6. first UID."""
    types = ("compositepodgroup", "podgroup", "pod")
    first = objects.uid_of(unit.pods[0]) if unit.pods else ""
    kind = types.index(unit.type)
    return (-unit.priority, kind, -unit.lost, -len(unit.pods), unit.start, first)


def torn(victims: Iterable[str], cluster: Cluster) -> set[str]:
    """With `nonUniformGroups` the groups that lose too many of their pods, and not all.

    Fewer stay than the group is of use with, or one goes that goes only with all.
    """
    if not cluster.objects.get("nonUniformGroups"):
        return set()
    keys = set(victims)
    gone = [p for p in cluster.live if key_of(p) in keys]
    found = set()
    for pod in gone:
        group = group_of(pod, cluster)
        if group is None or whole_of(pod, cluster) is not None:
            continue
        members = [p for p in cluster.live if group_of(p, cluster) is group and p not in gone]
        staying = sum(not objects.terminating(p) for p in members)
        alone = objects.annotation(pod, "disruption") != "with-group"
        if staying and (staying < floor_of(group) or not alone):
            found.add(key_of(group))
    return found


def floor_of(group: Object) -> int:
    """Of how many pods fewer are of no use; 0 for none, and for what is no such number."""
    text = objects.annotation(group, "disruption-floor")
    return int(text) if text in {str(number) for number in range(1, 100)} else 0


def split_by_budget(units: list[Unit], budgets: list[Object]) -> tuple[dict[int, int], list[int]]:
    """Violating units by index with the number of violating pods, and the indices of the others."""
    left = [int((b.get("status") or {}).get("disruptionsAllowed") or 0) for b in budgets]
    violating: dict[int, int] = {}
    for index, unit in enumerate(units):
        for pod in unit.pods:
            for number, budget in enumerate(budgets):
                if not counts(budget, pod):
                    continue
                left[number] -= 1
                if left[number] < 0:
                    violating[index] = violating.get(index, 0) + 1
                    break
    return violating, [i for i in range(len(units)) if i not in violating]


def counts(budget: Object, pod: Object) -> bool:
    """Whether the eviction of the pod is one that the budget has to allow."""
    selector = budget["spec"].get("selector")
    if namespace_of(budget) != namespace_of(pod) or not objects.labels_of(pod):
        return False
    if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        return False
    if name_of(pod) in ((budget.get("status") or {}).get("disruptedPods") or {}):
        return False
    return _valid(selector) and objects.selects(selector, objects.labels_of(pod))


def _valid(selector: Object) -> bool:
    return all(
        e.get("operator") in ("Exists", "DoesNotExist")
        or (e.get("operator") in ("In", "NotIn") and e.get("values"))
        for e in selector.get("matchExpressions") or ()
    )


def terminating_by_preemption(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    targets = [c for c in conditions if c.get("type") == "DisruptionTarget"]
    return (
        objects.terminating(pod)
        and bool(targets)
        and targets[0].get("status") == "True"
        and targets[0].get("reason") == "PreemptionByScheduler"
    )
