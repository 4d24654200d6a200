"""What must be true of the columns: they state what the rows state, no more and no less.

`contents` spells out a snapshot without slots and numbers, which depend on the order of events;
`rebuilt` makes the same from the rows alone, slowly. `Cluster(validate=True)` compares the two
after every batch. Source: the design's "State that can be trusted".
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from reprieve.engine.cluster.limits import LIMIT
from reprieve.engine.cluster.overlay import Overlay
from reprieve.engine.cluster.rows import PODS, GroupRow, Kind, NodeRow, PodRow
from reprieve.engine.cluster.snapshot import NO_START, Flag, Snapshot
from reprieve.units.ids import Uid

__all__ = ["Contents", "Inconsistent", "check", "contents", "rebuilt"]

Contents: TypeAlias = dict[str, Any]


class Inconsistent(AssertionError):
    """Columns and rows disagree: a defect of the program."""


def check(snapshot: Snapshot, expected: Contents) -> None:
    """Compare a snapshot with what `rebuilt` returns.

    Raises:
        Inconsistent: they differ; the message names the first part that does.
    """
    found = contents(snapshot)
    for part, value in expected.items():
        if found[part] != value:
            raise Inconsistent(f"{part}: {found[part]!r} in columns, {value!r} in rows")


def contents(snapshot: Snapshot) -> Contents:
    """Return what the snapshot states, by names instead of numbers; zero amounts are left out."""
    names = [node.name for node in snapshot.nodes]
    pods: dict[str, Any] = {}
    for slot, uid in enumerate(snapshot.pod_uids):
        node, group = int(snapshot.pod_node[slot]), int(snapshot.pod_group[slot])
        if not uid:
            assert node < 0
            continue
        pods[uid] = (
            snapshot.pod_keys[slot],
            names[node] if node >= 0 else None,
            int(snapshot.pod_priority[slot]),
            snapshot.group_keys[group] if group >= 0 else "",
            snapshot.classes[snapshot.pod_class[slot]],
            _labels(snapshot, int(snapshot.pod_labels[slot])),
            _amounts(snapshot, snapshot.pod_requests[slot].tolist()),
            int(snapshot.pod_start[slot]),
            int(snapshot.pod_checkpoint[slot]),
            snapshot.protections.get(slot, ""),
            snapshot.min_runtimes.get(slot),
            int(snapshot.pod_flags[slot]),
        )
    return {
        "nodes": [_unversioned(node) for node in snapshot.nodes],
        "node_index": dict(snapshot.node_index),
        "allocatable": [_amounts(snapshot, row) for row in snapshot.allocatable.tolist()],
        "used": [_amounts(snapshot, row) for row in snapshot.used.tolist()],
        "scored": snapshot.scored.tolist(),
        "pods": pods,
        "pending": {
            uid: (
                pending.row,
                snapshot.classes[pending.pod_class],
                _labels(snapshot, pending.labels),
            )
            for uid, pending in snapshot.pending.items()
        },
        "groups": {
            key: snapshot.group_rows[number] for key, number in snapshot.group_index.items()
        },
        "group_keys": sorted(key for key in snapshot.group_keys if key),
        "classes": {entry for entry in snapshot.classes if entry is not None},
        "labels": {(e.namespace, e.labels) for e in snapshot.labels if e is not None},
        "nominations": [
            (
                each.namespace,
                each.name,
                each.uid,
                names[each.node],
                each.priority,
                snapshot.group_keys[each.group] if each.group >= 0 else "",
                snapshot.classes[each.pod_class],
                _labels(snapshot, each.labels),
            )
            for each in snapshot.nominations
        ],
        "budgets": snapshot.budgets,
        "tables": {kind: dict(table) for kind, table in snapshot.tables.items() if table},
    }


def rebuilt(
    pods: Iterable[PodRow],
    tables: Mapping[Kind, Mapping[tuple[str, str], Any]],
    overlay: Overlay,
    resources: Container[str] | None = None,
) -> Contents:
    """Return what a snapshot of these rows must state; `tables` hold nodes and groups too.

    `resources`: those that are counted, where not all are.
    """
    nodes = tuple(row for _, row in sorted(tables[Kind.NODE].items()))
    names = [node.name for node in nodes]
    kinds = (Kind.GROUP, Kind.COMPOSITE)
    groups = {row.key: row for kind in kinds for row in tables.get(kind, {}).values()}
    alive = [row for row in pods if not row.finished]
    places = {row.uid: _place(row, overlay) for row in alive}
    waiting = [row for row in alive if not places[row.uid]]
    standing = [row for row in alive if places[row.uid]]
    amounts = {row.uid: _counted(row, resources) for row in standing}
    used, scored = _sums(names, standing, places, amounts)
    nominations = [
        _nomination(row, overlay, groups) for row in waiting if _wanted(row, overlay) in used
    ]
    keys = {*groups, *(_group_of(row) for row in alive if row.group)}
    others = frozenset(Kind) - {Kind.POD, Kind.NODE, *kinds}
    return {
        "nodes": [_unversioned(node) for node in nodes],
        "node_index": {name: index for index, name in enumerate(names)},
        "allocatable": [
            _positive({name: min(amount, LIMIT) for name, amount in node.allocatable.items()})
            for node in nodes
        ],
        "used": [_positive(_cut(used[name])) for name in names],
        "scored": [[min(LIMIT, amount) for amount in scored[name]] for name in names],
        "pods": {
            row.uid: _standing(
                row, places[row.uid] if places[row.uid] in used else None, amounts[row.uid]
            )
            for row in standing
        },
        "pending": {
            row.uid: (
                replace(row, nominated=_wanted(row, overlay)),
                row.pod_class,
                (row.namespace, row.labels),
            )
            for row in waiting
        },
        "groups": {key: groups.get(key) for key in keys},
        "group_keys": sorted(keys),
        "classes": {row.pod_class for row in alive},
        "labels": {(row.namespace, row.labels) for row in alive},
        "nominations": sorted(nominations, key=lambda each: each[:2]),
        "budgets": tuple(row for _, row in sorted(tables[Kind.BUDGET].items())),
        "tables": {kind: dict(tables[kind]) for kind in others if tables.get(kind)},
    }


def _sums(
    names: Iterable[str],
    standing: Iterable[PodRow],
    places: Mapping[Uid, str],
    amounts: Mapping[Uid, Mapping[str, int]],
) -> tuple[dict[str, dict[str, int]], dict[str, list[int]]]:
    """Return what is used on each node, and what counts there for scores."""
    used: dict[str, dict[str, int]] = {name: {} for name in names}
    scored: dict[str, list[int]] = {name: [0, 0] for name in names}
    for row in standing:
        node = places[row.uid]
        if node in used:
            for name, amount in amounts[row.uid].items():
                used[node][name] = used[node].get(name, 0) + amount
            scored[node][0] += min(row.pod_class.scored_cpu, LIMIT)
            scored[node][1] += min(row.pod_class.scored_memory, LIMIT)
    return used, scored


def _place(row: PodRow, overlay: Overlay) -> str:
    """Return the node that a pod is on, or is assumed to be on; empty for one that waits."""
    assumed = overlay.assumed.get(row.uid)
    return row.node or (assumed.node if assumed else "")


def _group_of(row: PodRow) -> str:
    return f"{row.namespace}/{row.group}" if row.group else ""


def _counted(row: PodRow, resources: Container[str] | None) -> dict[str, int]:
    """Return what a pod with a node uses there of the resources that are counted."""
    amounts = {PODS: 1}
    for name, amount in row.pod_class.requests:
        if resources is None or name in resources:
            amounts[name] = min(amount, LIMIT)
    return amounts


def _standing(row: PodRow, node: str | None, amounts: Mapping[str, int]) -> tuple[Any, ...]:
    """Return what a snapshot states of a pod with a node, which is None where it is not known."""
    flags = 0 if row.node else int(Flag.ASSUMED)
    if row.deleting:
        flags |= Flag.DELETING | (Flag.PREEMPTED if row.preempted else 0)
    if row.disruption == "with-group":
        flags |= Flag.WITH_GROUP
    return (
        f"{row.namespace}/{row.name}",
        node,
        row.priority,
        _group_of(row),
        row.pod_class,
        (row.namespace, row.labels),
        _positive(amounts),
        NO_START if row.start is None else row.start,
        row.checkpoint,
        row.protection,
        row.min_runtime,
        flags,
    )


def _wanted(row: PodRow, overlay: Overlay) -> str:
    """Return the node that a pod that waits is nominated to."""
    expected = overlay.nominated.get(row.uid)
    return expected.node if expected else row.nominated


def _nomination(row: PodRow, overlay: Overlay, groups: Mapping[str, GroupRow]) -> tuple[Any, ...]:
    """Return what a snapshot states of a nomination."""
    expected, owner = overlay.nominated.get(row.uid), groups.get(_group_of(row))
    priority = owner.priority if owner else row.priority
    if expected:
        priority = expected.priority
    return (
        row.namespace,
        row.name,
        row.uid,
        _wanted(row, overlay),
        priority,
        _group_of(row),
        row.pod_class,
        (row.namespace, row.labels),
    )


def _unversioned(node: NodeRow) -> NodeRow:
    return replace(node, version=0)  # heartbeats do not touch the row that decisions read


def _labels(snapshot: Snapshot, number: int) -> tuple[str, Any]:
    entry = snapshot.labels[number]
    assert entry is not None
    return entry.namespace, entry.labels


def _amounts(snapshot: Snapshot, row: list[int]) -> dict[str, int]:
    return _positive(dict(zip(snapshot.resources, row, strict=True)))


def _positive(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def _cut(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: min(LIMIT, amount) for name, amount in amounts.items()}
