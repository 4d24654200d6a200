"""Reading Kubernetes-shaped dicts: keys, quantities, requests, selectors, tolerations.

Sections 21.1 to 21.4 of the behaviour specification. Everything is computed anew at each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import ceil
from typing import Any

Object = dict[str, Any]

FINISHED = ("Succeeded", "Failed")
DEFAULT_FEATURES = {
    "GenericWorkload": False,
    "PodGroupPreemptionPolicy": False,
    "TopologyAwareWorkloadScheduling": False,
    "CompositePodGroup": False,
    "TaintTolerationComparisonOperators": False,
    "DRANodeAllocatableResources": False,
}
_FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    **{letter + "i": Fraction(1024**n) for n, letter in enumerate("KMGTPE", start=1)},
}


@dataclass(frozen=True)
class Cluster:
    """A cluster at one moment of a simulation.

    `objects` are the lists `nodes`, `podGroups`, `pdbs`, `namespaces`, `persistentVolumeClaims`
    and so on, plus `features`, `nominated` (unscheduled pods of others with a nominated node) and,
    optionally, `plugins` (the filters that run). `pods` are the placed pods: those bound and
    those assumed.
    """

    objects: Object
    pods: tuple[Object, ...] = field(default=())

    @classmethod
    def of(cls, objects: Object) -> Cluster:
        placed = [p for p in objects.get("pods", ()) if p["spec"].get("nodeName")]
        return cls(objects, tuple(placed))

    @property
    def nodes(self) -> list[Object]:
        return list(self.objects.get("nodes", ()))

    @property
    def live(self) -> list[Object]:
        """The placed pods that count for filters: all but the finished ones."""
        names = {name_of(n) for n in self.nodes}
        return [
            p
            for p in self.pods
            if p.get("status", {}).get("phase") not in FINISHED and p["spec"]["nodeName"] in names
        ]

    def on(self, node: Object) -> list[Object]:
        return [p for p in self.live if p["spec"]["nodeName"] == name_of(node)]

    def every(self, kind: str) -> list[Object]:
        return list(self.objects.get(kind) or ())

    def one(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        for each in self.every(kind):
            if name_of(each) == name and namespace in (None, namespace_of(each)):
                return each
        return None

    def gate(self, name: str) -> bool:
        return bool({**DEFAULT_FEATURES, **(self.objects.get("features") or {})}[name])

    def runs(self, plugin: str) -> bool:
        plugins = self.objects.get("plugins")
        return plugins is None or plugin in plugins

    def adding(self, pods: Iterable[Object]) -> Cluster:
        return Cluster(self.objects, (*self.pods, *pods))

    def together(self, groups: Iterable[str]) -> Cluster:
        """The same cluster in which these groups go as a whole, too."""
        more = {*self.objects.get("together", ()), *groups}
        return Cluster({**self.objects, "together": more}, self.pods)

    def removing(self, pods: Iterable[Object]) -> Cluster:
        gone = {key_of(p) for p in pods}
        return Cluster(self.objects, tuple(p for p in self.pods if key_of(p) not in gone))


def name_of(each: Object) -> str:
    return str(each["metadata"]["name"])


def namespace_of(each: Object) -> str:
    return str(each["metadata"].get("namespace") or "default")


def key_of(each: Object) -> str:
    return f"{namespace_of(each)}/{name_of(each)}"


def uid_of(each: Object) -> str:
    return str(each["metadata"].get("uid") or "")


def labels_of(each: Object) -> dict[str, str]:
    return dict(each["metadata"].get("labels") or {})


def annotation(each: Object, name: str) -> str:
    """The value of one of our annotations, empty when it is not there."""
    return str((each["metadata"].get("annotations") or {}).get(f"reprieve.dev/{name}") or "")


def own_priority(each: Object) -> int:
    return int(each.get("spec", {}).get("priority") or 0)


def terminating(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def assumed(pod: Object, node: str) -> Object:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


def nominated_node(pod: Object) -> str:
    return str(pod.get("status", {}).get("nominatedNodeName") or "")


@cache
def number(text: str | int | float) -> Fraction:
    text = str(text)
    for suffix in sorted(_FACTORS, key=len, reverse=True):
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * _FACTORS[suffix]
    return Fraction(text)


def amount(resource: str, text: str | int | float) -> int:
    """Millicores for cpu, whole units for the rest, rounded up."""
    return ceil(number(text) * (1000 if resource == "cpu" else 1))


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: amount(name, text) for name, text in (quantities or {}).items()}


def plus(*maps: Mapping[str, int]) -> dict[str, int]:
    names = [name for each in maps for name in each]
    return {name: sum(each.get(name, 0) for each in maps) for name in names}


def most(*maps: Mapping[str, int]) -> dict[str, int]:
    names = [name for each in maps for name in each]
    return {name: max(each.get(name, 0) for each in maps) for name in names}


def allocatable(node: Object) -> dict[str, int]:
    return amounts(node.get("status", {}).get("allocatable"))


def container_requests(pod: Object, container: Object, defaults: Mapping[str, int]) -> Any:
    """What one container asks for; `defaults` stand for requests that are absent."""
    spec = amounts((container.get("resources") or {}).get("requests"))
    status = pod.get("status", {})
    seen = [
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    ]
    mine = [s for s in seen if s.get("name") == container.get("name")]
    reported = [amounts(s.get("allocatedResources")) for s in mine]
    reported += [amounts((s.get("resources") or {}).get("requests")) for s in mine]
    infeasible = any(
        c.get("type") == "PodResizePending" and c.get("reason") == "Infeasible"
        for c in status.get("conditions") or ()
    )
    if pod["spec"].get("nodeName") and any(reported):
        spec = most(*reported) if infeasible else most(spec, *reported)
    return {**defaults, **spec}


def requests_of(pod: Object, defaults: Mapping[str, int] | None = None) -> dict[str, int]:
    """The request of a pod per resource (21.4), with defaults per container for scores (17.2)."""
    pod_level = amounts((pod["spec"].get("resources") or {}).get("requests"))
    assumed_requests = {k: v for k, v in (defaults or {}).items() if k not in pod_level}
    total = plus(
        *(container_requests(pod, c, assumed_requests) for c in pod["spec"].get("containers") or ())
    )
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod["spec"].get("initContainers") or ():
        own = container_requests(pod, container, assumed_requests)
        if container.get("restartPolicy") == "Always":
            total = plus(total, own)
            sidecars = plus(sidecars, own)
            peak = most(peak, sidecars)
        else:
            peak = most(peak, plus(own, sidecars))
    total = most(total, peak)
    for name, value in pod_level.items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = value
    return plus(total, amounts(pod["spec"].get("overhead")))


def used_by(pod: Object, cluster: Cluster) -> dict[str, int]:
    """What a placed pod takes: its request, and behind a gate what its claims take of the node."""
    claims = pod.get("status", {}).get("nodeAllocatableResourceClaimStatuses") or ()
    if not cluster.gate("DRANodeAllocatableResources"):
        claims = ()
    taken = [amounts({m["name"]: m["quantity"]}) for c in claims for m in c["mapping"]]
    return plus(requests_of(pod), *taken)


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; an absent one matches nothing, `{}` everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(k) != v for k, v in wanted.items()):
        return False
    return all(_holds(e, labels) for e in selector.get("matchExpressions") or ())


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    name, operator = expression["key"], expression["operator"]
    values = expression.get("values") or []
    if operator == "In":
        return labels.get(name) in values
    if operator == "NotIn":
        return name not in labels or labels[name] not in values
    if operator == "Exists":
        return name in labels
    if operator == "DoesNotExist":
        return name not in labels
    if operator in ("Gt", "Lt") and name in labels and len(values) == 1:
        try:
            left, right = int(labels[name]), int(values[0])
        except ValueError:
            return False
        return left > right if operator == "Gt" else left < right
    return False


def term_holds(term: Object, node: Object) -> bool:
    """One node selector term: all expressions and all fields; without either it holds nowhere."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    names = {"metadata.name": name_of(node)}
    return all(_holds(e, labels_of(node)) for e in expressions) and all(
        f["key"] == "metadata.name" and f["operator"] in ("In", "NotIn") and _holds(f, names)
        for f in fields
    )


def selector_holds(selector: Object, node: Object) -> bool:
    return any(term_holds(t, node) for t in selector.get("nodeSelectorTerms") or ())


def node_affinity(pod: Object) -> Object:
    return dict((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {})


def wants_node(pod: Object, node: Object) -> bool:
    """Whether nodeSelector and the required node affinity of the pod hold on the node."""
    pairs = pod["spec"].get("nodeSelector") or {}
    if any(labels_of(node).get(k) != v for k, v in pairs.items()):
        return False
    required = node_affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or selector_holds(required, node)


def covers(toleration: Object, taint: Object, comparisons: bool = False) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    given, there = toleration.get("value") or "", taint.get("value") or ""
    if operator == "Equal":
        return bool(given == there)
    if not comparisons:
        return False
    try:
        left, right = int(there), int(given)
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right


def untolerated(pod: Object, node: Object, effects: tuple[str, ...], comparisons: bool) -> int:
    """How many taints of these effects the pod does not tolerate."""
    tolerations = pod["spec"].get("tolerations") or ()
    taints = (node.get("spec") or {}).get("taints") or ()
    return sum(
        taint.get("effect") in effects
        and not any(covers(t, taint, comparisons) for t in tolerations)
        for taint in taints
    )
