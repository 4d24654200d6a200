"""Snapshots in which one thing about a waiting unit, or about who leaves, is different.

Each function returns what the engine would see had the object been written so; nothing else
changes. A changed pod spec is a class of its own behind the known ones.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from reprieve.engine.cluster.rows import GroupRow, Kind, PodClass, Taint, Toleration
from reprieve.engine.cluster.snapshot import Flag, Snapshot
from reprieve.engine.cluster.trees import GroupTrees
from reprieve.engine.scheduling.outcome import Unit
from reprieve.units.ids import Uid

__all__ = [
    "Constraint",
    "constraints_of",
    "higher_classes",
    "with_class",
    "with_group",
    "with_priority",
    "with_requests",
    "without_leaving",
]

_KEEPS_OUT: Final = ("NoSchedule", "NoExecute")
_OF_NODES: Final = "node.kubernetes.io/"
_SYSTEM: Final = "system-"
_MOST_TAINTS: Final = 3


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of a pod or group that could be left out, or a taint to be tolerated.

    `field`, `before` and `after` as in `Fix`; `plugin` checks it.
    """

    field: str
    before: str
    after: str
    plugin: str
    of_class: Callable[[PodClass], PodClass] | None = None
    of_group: Callable[[GroupRow], GroupRow] | None = None

    def apply(self, snapshot: Snapshot, unit: Unit) -> Snapshot:
        """Return the snapshot with the unit changed so."""
        if self.of_class is not None:
            snapshot = with_class(snapshot, unit.pods, self.of_class)
        if self.of_group is not None:
            snapshot = with_group(snapshot, unit.group, self.of_group)
        return snapshot


def with_class(
    snapshot: Snapshot, pods: Iterable[Uid], change: Callable[[PodClass], PodClass]
) -> Snapshot:
    """Return the snapshot with the spec of these pending pods changed."""
    classes = list(snapshot.classes)
    numbers: dict[int, int] = {}
    pending = dict(snapshot.pending)
    for uid in pods:
        if uid not in pending:
            continue
        each = pending[uid]
        if each.pod_class not in numbers:
            numbers[each.pod_class] = len(classes)
            classes.append(change(each.row.pod_class))
        number = numbers[each.pod_class]
        entry = classes[number]
        assert entry is not None, "it was made here"
        pending[uid] = replace(each, row=replace(each.row, pod_class=entry), pod_class=number)
    return replace(snapshot, classes=tuple(classes), pending=pending)


def with_group(snapshot: Snapshot, key: str, change: Callable[[GroupRow], GroupRow]) -> Snapshot:
    """Return the snapshot with a group's object changed; the same where it has none."""
    index = snapshot.group_index.get(key, -1)
    row = snapshot.group_rows[index] if index >= 0 else None
    if row is None:
        return snapshot
    rows = (*snapshot.group_rows[:index], change(row), *snapshot.group_rows[index + 1 :])
    return replace(snapshot, group_rows=rows, trees=GroupTrees(rows, snapshot.group_index))


def with_requests(snapshot: Snapshot, unit: Unit, resource: str, amount: int) -> Snapshot:
    """Return the snapshot with the unit's pods requesting that much of a resource."""

    def change(entry: PodClass) -> PodClass:
        amounts = {**dict(entry.requests), resource: amount}
        return replace(entry, requests=tuple(sorted(amounts.items())))

    return with_class(snapshot, unit.pods, change)


def with_priority(snapshot: Snapshot, unit: Unit, name: str, value: int) -> Snapshot:
    """Return the snapshot with the unit's pods, and its group, of another priority class."""
    snapshot = with_class(snapshot, unit.pods, lambda entry: replace(entry, priority_class=name))
    pending = dict(snapshot.pending)
    for uid in unit.pods:
        if uid in pending:
            pending[uid] = replace(pending[uid], row=replace(pending[uid].row, priority=value))
    snapshot = replace(snapshot, pending=pending)
    return with_group(snapshot, unit.group, lambda row: replace(row, priority=value))


def higher_classes(
    snapshot: Snapshot, above: int, others: Iterable[tuple[int, str]] = ()
) -> list[tuple[int, str]]:
    """Return value and name of the priority classes above a priority, the lowest first.

    `others` are known beside those of the snapshot. Those of the system's own pods are left out.
    """
    rows = snapshot.tables.get(Kind.PRIORITY_CLASS, {})
    known = {name: row.value for (_, name), row in rows.items()}
    known |= {name: value for value, name in others}
    found: dict[int, str] = {}
    for name, value in sorted(known.items()):
        if value > above and not name.startswith(_SYSTEM):
            found.setdefault(value, name)
    return sorted(found.items())


def without_leaving(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot once all pods that are being deleted have ended."""
    leaving = ((snapshot.pod_flags & Flag.DELETING) > 0) & (snapshot.pod_node >= 0)
    slots = np.flatnonzero(leaving)
    used = snapshot.used.copy()
    np.subtract.at(used, snapshot.pod_node[slots], snapshot.pod_requests[slots])
    node = snapshot.pod_node.copy()
    node[slots] = -1
    gone = set(slots.tolist())
    uids = [Uid("") if slot in gone else uid for slot, uid in enumerate(snapshot.pod_uids)]
    return replace(snapshot, used=used, pod_node=node, pod_uids=uids)


def constraints_of(
    snapshot: Snapshot, unit: Unit, imposed: Container[str] = frozenset()
) -> Iterator[Constraint]:
    """Yield what the unit's pods, all of one spec, and its group request besides amounts.

    `imposed`: keys of node selectors that others set, so that the user cannot leave them out.
    """
    index = snapshot.group_index.get(unit.group, -1)
    group = snapshot.group_rows[index] if index >= 0 else None
    classes = {snapshot.pending[uid].pod_class for uid in unit.pods if uid in snapshot.pending}
    entry = snapshot.classes[next(iter(classes))] if len(classes) == 1 else None
    if entry is not None:
        yield from _of_nodes(entry, imposed)
        yield from _taints(snapshot, entry)
        yield from _of_pods(entry)
    if group is not None and group.topology_key:
        yield Constraint(
            "spec.schedulingConstraints.topology",
            group.topology_key,
            "",
            "TopologyPlacement",
            of_group=lambda row: replace(row, topology_key=""),
        )


def _of_nodes(entry: PodClass, imposed: Container[str]) -> Iterator[Constraint]:
    for key, value in entry.node_selector:
        if key in imposed:
            continue
        less = _without("node_selector", (key, value))
        yield Constraint(f"spec.nodeSelector[{key}]", value, "", "NodeAffinity", less)
    if entry.node_affinity is not None:
        field, none = "spec.affinity.nodeAffinity", _with("node_affinity", None)
        yield Constraint(field, "required", "", "NodeAffinity", none)
    if entry.node_name:
        anywhere = _with("node_name", "")
        yield Constraint("spec.nodeName", entry.node_name, "", "NodeName", anywhere)


def _taints(snapshot: Snapshot, entry: PodClass) -> Iterator[Constraint]:
    """Yield the taints that keep the pods out of most nodes."""
    counts: dict[Taint, int] = {}
    for node in snapshot.nodes:
        for taint in node.taints:
            if taint.key.startswith(_OF_NODES):
                continue  # that a node is in trouble is not to be tolerated
            if taint.effect in _KEEPS_OUT and not _tolerated(entry, taint):
                counts[taint] = counts.get(taint, 0) + 1
    order = sorted(counts, key=lambda t: (-counts[t], t.key, t.value, t.effect))
    for taint in order[:_MOST_TAINTS]:
        text = f"{taint.key}={taint.value}:{taint.effect}"
        more = _tolerating(Toleration(taint.key, "Equal", taint.value, taint.effect))
        yield Constraint("spec.tolerations", "", text, "TaintToleration", more)


def _tolerated(entry: PodClass, taint: Taint) -> bool:
    return any(
        each.effect in ("", taint.effect)
        and each.key in ("", taint.key)
        and (each.operator == "Exists" or (each.key != "" and each.value == taint.value))
        for each in entry.tolerations
    )


def _of_pods(entry: PodClass) -> Iterator[Constraint]:
    for place, spread in enumerate(entry.spread):
        if spread.hard:
            field = f"spec.topologySpreadConstraints[{place}]"
            before = f"{spread.topology_key}, maxSkew {spread.max_skew}"
            yield Constraint(field, before, "", "PodTopologySpread", _without("spread", spread))
    for name, word in (("affinity", "podAffinity"), ("anti_affinity", "podAntiAffinity")):
        for place, term in enumerate(getattr(entry, name)):
            field = f"spec.affinity.{word}[{place}]"
            less = _without(name, term)
            yield Constraint(field, term.topology_key, "", "InterPodAffinity", less)


def _with(name: str, value: object) -> Callable[[PodClass], PodClass]:
    changes: dict[str, Any] = {name: value}
    return lambda entry: replace(entry, **changes)


def _without(name: str, item: object) -> Callable[[PodClass], PodClass]:
    """Return what leaves an item out of a list of the spec."""

    def change(entry: PodClass) -> PodClass:
        kept = tuple(each for each in getattr(entry, name) if each != item)
        return _with(name, kept)(entry)

    return change


def _tolerating(more: Toleration) -> Callable[[PodClass], PodClass]:
    return lambda entry: replace(entry, tolerations=(*entry.tolerations, more))
