"""Victim units: who is evicted together, with which priority, in which order, against which budget.

Sections 4.3, 7.2, 7.3, 7.5 and 7.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.oracle.scheduling import objects
from tests.oracle.scheduling.objects import Cluster, Object, key_of, name_of, namespace_of

NOW = "9999-12-31T23:59:59Z"


class Unit(NamedTuple):
    pods: tuple[Object, ...]
    priority: int
    type: str
    start: str


def group_name(pod: Object) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")


def group_of(pod: Object, cluster: Cluster) -> Object | None:
    if not cluster.gate("GenericWorkload") or not group_name(pod):
        return None
    return cluster.one("podGroups", group_name(pod), namespace_of(pod))


def effective_priority(pod: Object, cluster: Cluster) -> int:
    group = group_of(pod, cluster)
    return objects.own_priority(pod if group is None else group)


def evicted_together(group: Object | None) -> bool:
    mode = ((group or {}).get("spec") or {}).get("disruptionMode") or {}
    return mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode)


def members_placed(group: Object, cluster: Cluster) -> list[Object]:
    return [p for p in cluster.live if group_of(p, cluster) == group]


def unit_of(pod: Object, cluster: Cluster) -> Unit:
    group = group_of(pod, cluster)
    if group is not None and evicted_together(group):
        pods = members_placed(group, cluster)
    else:
        pods = [pod]
    grouped = cluster.gate("GenericWorkload") and group_name(pod)
    return Unit(
        tuple(sorted(pods, key=importance_of_pod)),
        effective_priority(pod, cluster),
        "podgroup" if grouped else "pod",
        min(start_of(p) for p in pods),
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
    return units_with((p for node in cluster.nodes for p in cluster.on(node)), cluster)


def node_units(node: Object, cluster: Cluster) -> list[Unit]:
    return units_with(cluster.on(node), cluster)


def importance(unit: Unit) -> tuple[int, int, int, str, str]:
    """More important first: 1. priority, 2. type, 3. size, 4. start, 5. UID of the first pod."""
    types = ("compositepodgroup", "podgroup", "pod")
    first = objects.uid_of(unit.pods[0]) if unit.pods else ""
    return (-unit.priority, types.index(unit.type), -len(unit.pods), unit.start, first)


def split_by_budget(units: list[Unit], budgets: list[Object]) -> tuple[dict[int, int], list[int]]:
    """Violating units by index with the number of violating pods, and the indices of the others."""
    left = [int((b.get("status") or {}).get("disruptionsAllowed") or 0) for b in budgets]
    violating: dict[int, int] = {}
    for index, unit in enumerate(units):
        for pod in unit.pods:
            for number, budget in enumerate(budgets):
                if not _counts(budget, pod):
                    continue
                left[number] -= 1
                if left[number] < 0:
                    violating[index] = violating.get(index, 0) + 1
                    break
    return violating, [i for i in range(len(units)) if i not in violating]


def _counts(budget: Object, pod: Object) -> bool:
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
