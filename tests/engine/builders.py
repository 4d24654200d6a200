"""Small builders of rows, clusters and snapshots.

Names serve as uids (`pod-`, `node-`, `group-` before them); what is not said is absent. Amounts are
in base units: milli-CPU, bytes, counts. Versions rise with every row built, so that a row built
later replaces an earlier one of the same object.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import (
    BudgetRow,
    Change,
    Entry,
    GroupRow,
    Kind,
    Labels,
    NamespaceRow,
    NodeRow,
    Operator,
    PodClass,
    PodRow,
    PriorityClassRow,
    Requirement,
    Selector,
    SelectorRow,
    Taint,
)
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.units.ids import Uid

GPU = "nvidia.com/gpu"
GIB = 2**30

_versions = itertools.count(1)


def node(
    name: str = "n1",
    *,
    cpu: int = 64_000,
    memory: int = 256 * GIB,
    gpus: int = 0,
    pods: int = 110,
    storage: int = 0,
    extended: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint | str] = (),
    **facts: Any,
) -> NodeRow:
    """A node; a taint in words: `KEY=VALUE:EFFECT`. Its label kubernetes.io/hostname is given."""
    amounts = {"pods": pods, "cpu": cpu, "memory": memory, "ephemeral-storage": storage}
    if gpus:
        amounts[GPU] = gpus
    return NodeRow(
        uid=Uid(f"node-{name}"),
        name=name,
        version=next(_versions),
        allocatable={**amounts, **(extended or {})},
        labels={"kubernetes.io/hostname": name, **(labels or {})},
        taints=tuple(taint(each) if isinstance(each, str) else each for each in taints),
        **facts,
    )


def taint(text: str) -> Taint:
    """`KEY=VALUE:EFFECT`, the value may be left out."""
    left, _, effect = text.rpartition(":")
    key, _, value = left.partition("=")
    return Taint(key, value, effect)


def pod_class(
    *,
    cpu: int = 0,
    memory: int = 0,
    gpus: int = 0,
    storage: int = 0,
    extended: Mapping[str, int] | None = None,
    **spec: Any,
) -> PodClass:
    """What a pod's spec says; scored amounts are the requests, with the defaults where 0."""
    amounts = {"cpu": cpu, "memory": memory, GPU: gpus, "ephemeral-storage": storage}
    amounts.update(extended or {})
    spec.setdefault("scored_cpu", cpu or 100)
    spec.setdefault("scored_memory", memory or 200 * 2**20)
    if isinstance(spec.get("node_selector"), Mapping):
        spec["node_selector"] = labels_of(spec["node_selector"])
    requests = tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
    return PodClass(requests=requests, **spec)


_POD_FACTS = frozenset(PodRow.__dataclass_fields__)


def pod(
    name: str = "p",
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | Labels | None = None,
    **given: Any,
) -> PodRow:
    """A pod: fields of its row and, for its class, those of `pod_class`."""
    facts = {key: given.pop(key) for key in list(given) if key in _POD_FACTS}
    facts.setdefault(
        "uid", Uid(f"pod-{namespace}-{name}" if namespace != "default" else f"pod-{name}")
    )
    facts.setdefault("version", next(_versions))
    if "pod_class" not in facts:
        facts["pod_class"] = pod_class(**given)
    elif given:
        raise TypeError(f"both a class and {sorted(given)}")
    return PodRow(namespace=namespace, name=name, labels=labels_of(labels or {}), **facts)


def group(name: str = "g", *, namespace: str = "default", **facts: Any) -> GroupRow:
    """A PodGroup; `min_count` makes it a gang, `all_or_nothing` a unit of disruption."""
    facts.setdefault("uid", Uid(f"group-{namespace}-{name}"))
    facts.setdefault("version", next(_versions))
    return GroupRow(namespace=namespace, name=name, **facts)


def composite(name: str, *, namespace: str = "default", **facts: Any) -> GroupRow:
    """A CompositePodGroup; `min_count` child groups make it a gang."""
    facts.setdefault("uid", Uid(f"composite-{namespace}-{name}"))
    return group(name, namespace=namespace, composite=True, **facts)


def gang(
    size: int,
    name: str = "g",
    *,
    namespace: str = "default",
    priority: int = 0,
    min_count: int | None = None,
    all_or_nothing: bool = False,
    topology_key: str = "",
    parent: str = "",
    nodes: Iterable[str] = (),
    **given: Any,
) -> list[GroupRow | PodRow]:
    """A group that needs all its pods (or `min_count`), and the pods `NAME-0`... `NAME-(size-1)`.

    `nodes`: where the first pods run. The rest of the arguments are those of `pod`.
    """
    owner = group(
        name,
        namespace=namespace,
        priority=priority,
        min_count=size if min_count is None else min_count,
        all_or_nothing=all_or_nothing,
        topology_key=topology_key,
        parent=parent,
    )
    places = [*nodes]
    places += [""] * (size - len(places))
    shared = {key: given.pop(key) for key in list(given) if key not in _POD_FACTS}
    given.setdefault("pod_class", pod_class(**shared))
    members: list[GroupRow | PodRow] = [owner]
    for number, place in enumerate(places):
        members.append(
            pod(
                f"{name}-{number}",
                namespace=namespace,
                group=name,
                node=place,
                priority=priority,
                **given,
            )
        )
    return members


def budget(name: str, selector: Mapping[str, str], allowed: int = 0, **facts: Any) -> BudgetRow:
    """A PodDisruptionBudget over the pods with these labels."""
    namespace = facts.pop("namespace", "default")
    facts.setdefault("uid", Uid(f"budget-{namespace}-{name}"))
    facts.setdefault("version", next(_versions))
    return BudgetRow(
        namespace=namespace, name=name, selector=matching(selector), allowed=allowed, **facts
    )


def service(name: str, selector: Mapping[str, str], kind: str = "Service") -> SelectorRow:
    """A Service, or another kind that selects pods."""
    return SelectorRow(
        Uid(f"{kind}-{name}"), kind, "default", name, next(_versions), matching(selector)
    )


def namespace(
    name: str, labels: Mapping[str, str] | None = None, *, min_runtime: int | None = None
) -> Entry:
    """A Namespace, its labels and the minimum runtime of what runs in it."""
    row = NamespaceRow(dict(labels or {}), min_runtime)
    return Entry(Kind.NAMESPACE, Uid(f"ns-{name}"), "", name, next(_versions), row)


def priority_class(name: str, value: int, *, min_runtime: int | None = None) -> Entry:
    """A PriorityClass."""
    row = PriorityClassRow(value, min_runtime)
    return Entry(Kind.PRIORITY_CLASS, Uid(f"class-{name}"), "", name, next(_versions), row)


def matching(labels: Mapping[str, str]) -> Selector:
    """The selector that asks for each of these labels."""
    return tuple(Requirement(key, Operator.IN, (value,)) for key, value in sorted(labels.items()))


def labels_of(labels: Mapping[str, str] | Labels) -> Labels:
    """Labels as rows have them."""
    return tuple(sorted(labels.items())) if isinstance(labels, Mapping) else labels


def flat(rows: Iterable[Any]) -> list[Change]:
    """Rows, lists of rows and lists of those as one list."""
    found: list[Change] = []
    for each in rows:
        if isinstance(each, list | tuple):
            found.extend(flat(each))
        else:
            found.append(each)
    return found


def cluster_of(*rows: Change | Iterable[Change]) -> Cluster:
    """A cluster that checks itself and has taken in the rows; lists of rows are flattened."""
    cluster = Cluster(validate=True)
    cluster.apply(flat(rows))
    return cluster


def snapshot_of(*rows: Change | Iterable[Change]) -> Snapshot:
    """The snapshot of these rows."""
    return cluster_of(*rows).snapshot()


def pending_of(snapshot: Snapshot, name: str, namespace: str = "default") -> Pending:
    """The pending pod of that name."""
    return next(
        each
        for each in snapshot.pending.values()
        if (each.row.namespace, each.row.name) == (namespace, name)
    )


def slot_of(snapshot: Snapshot, name: str, namespace: str = "default") -> int:
    """The slot of the placed pod of that name."""
    return snapshot.pod_keys.index(f"{namespace}/{name}")


def later(row: Any, **facts: Any) -> Any:
    """The row of the same object after an update."""
    return replace(row, version=next(_versions), **facts)
