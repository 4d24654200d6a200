"""A naive tree of domains: nested objects, built anew for each case and counted by recursion.

A case is a dict in the form of the published cases of topology-aware assignment (`tasAssignment`):
nodes, pods that are no pods of topologies, usage by leaf, pod sets, gates. Written from the
specification alone; imports nothing of the engine.

Source: specification of topology-aware scheduling, sections 2.1 to 2.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubeworld.units.quantities import parse_milli, parse_quantity

__all__ = ["HOSTNAME", "Domain", "Json", "Leaf", "countable", "keeps_out", "tree"]

Json = dict[str, Any]
Amounts = Mapping[str, int]

HOSTNAME: Final = "kubernetes.io/hostname"
MOST_PODS: Final = 2**31 - 1


@dataclass
class Leaf:
    """What is known of a domain of the lowest level; `free` is without usage of topologies."""

    key: tuple[str, ...]
    labels: Mapping[str, str]
    taints: Sequence[Json]
    free: Counter[str] = field(default_factory=Counter)


@dataclass
class Domain:
    """A domain with what fits it: pods and slices, alone and beside a leader."""

    path: tuple[str, ...]
    children: list[Domain] = field(default_factory=list)
    leaf: Leaf | None = None
    pods: int = 0
    pods_beside: int = 0
    slices: int = 0
    slices_beside: int = 0
    leader: int = 0
    affinity: int = 0

    def below(self, level: int) -> Iterator[Domain]:
        """Yield its domains of a level (0 is the widest), itself where it is of that level."""
        if len(self.path) - 1 == level:
            yield self
            return
        for child in self.children:
            yield from child.below(level)

    def leaves(self) -> Iterator[Domain]:
        """Yield its domains of the lowest level."""
        if self.leaf is not None:
            yield self
        for child in self.children:
            yield from child.leaves()


def tree(case: Json) -> Domain:
    """Return the root, whose children are the domains of the widest level."""
    levels = case["levels"]
    by_host = levels[-1] == HOSTNAME
    leaves: dict[tuple[str, ...], Leaf] = {}
    paths: dict[tuple[str, ...], tuple[str, ...]] = {}
    of_node: dict[str, Leaf] = {}
    for node in case["nodes"]:
        labels = node.get("labels") or {}
        flavor = case.get("flavorNodeLabels") or {}
        counts = node.get("ready", True) and not node.get("unschedulable")
        counts = counts and all(labels.get(key) == value for key, value in flavor.items())
        if not counts or not all(level in labels for level in levels):
            continue
        path = tuple(labels[level] for level in levels)
        key = path[-1:] if by_host else path
        if key not in leaves:
            leaves[key] = Leaf(key, labels, node.get("taints") or ())
            paths[key] = path
        for resource, text in (node.get("allocatable") or {}).items():
            amount = parse_milli(text) if resource == "cpu" else parse_quantity(text)
            leaves[key].free[resource] += amount
        of_node[node["name"]] = leaves[key]
    for pod in case.get("pods") or ():
        leaf = of_node.get(pod["node"])
        if leaf is not None and pod.get("phase") not in ("Succeeded", "Failed"):
            for resource, amount in pod["requests"].items():
                leaf.free[resource] -= amount
            leaf.free["pods"] -= 1
    root = Domain(())
    for key, path in sorted(paths.items(), key=lambda each: each[1]):
        _insert(root, path, leaves[key])
    return root


def _insert(root: Domain, path: tuple[str, ...], leaf: Leaf) -> None:
    at = root
    for depth in range(1, len(path) + 1):
        last = depth == len(path)
        found = next((c for c in at.children if c.path == path[:depth] and not last), None)
        if found is None:
            found = Domain(path[:depth], leaf=leaf if last else None)
            at.children.append(found)
        at = found


def countable(request: Amounts, room: Amounts) -> tuple[int, str]:
    """Return how many such pods fit, and the resource that limits them."""
    counts = {
        name: min(MOST_PODS, max(0, room.get(name, 0)) // amount)
        for name, amount in request.items()
        if amount > 0
    }
    name = min(sorted(counts), key=lambda each: counts[each])
    return counts[name], name


def keeps_out(leaf: Leaf, wanted: Json, tolerations: Sequence[Json]) -> str:
    """Return what keeps pods from a host, in the words of the message; empty for nothing."""
    accepted = [*(wanted.get("tolerations") or ()), *tolerations]
    for taint in leaf.taints:
        if taint["effect"] != "PreferNoSchedule" and not any(
            tolerates(each, taint) for each in accepted
        ):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f'taint "{taint["key"]}{value}:{taint["effect"]}"'
    selector = wanted.get("nodeSelector") or {}
    if any(leaf.labels.get(key) != value for key, value in selector.items()):
        return "nodeSelector"
    affinity = wanted.get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not any(
        matches(term, leaf.labels) for term in required["nodeSelectorTerms"]
    ):
        return "affinity"
    return ""


def tolerates(toleration: Json, taint: Json) -> bool:
    """Return whether a toleration accepts a taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(toleration.get("key")) and same


def matches(term: Json, labels: Mapping[str, str]) -> bool:
    """Return whether all expressions of a term hold; a term without any holds nowhere."""
    expressions = term.get("matchExpressions") or ()
    return bool(expressions) and all(_holds(each, labels) for each in expressions)


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    operator: str = expression["operator"]
    values: Sequence[str] = expression.get("values") or ()
    value = labels.get(expression["key"])
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator == "NotIn":
        return value not in values
    if value is None:
        return False
    if operator == "In":
        return value in values
    try:
        left, right = int(value), int(values[0])
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right


def weight(wanted: Json, labels: Mapping[str, str]) -> int:
    """Return the sum of the weights of the preferred terms that hold."""
    affinity = wanted.get("nodeAffinity") or {}
    terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return sum(each["weight"] for each in terms if matches(each["preference"], labels))
