"""How a snapshot is made: every column is copied, what has not changed otherwise is shared.

Node columns are ordered by name; names are sorted only when nodes are added or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from reprieve.engine.cluster.columns import PodColumns
from reprieve.engine.cluster.derived import Derived
from reprieve.engine.cluster.facts import LabelFacts, NodeFacts
from reprieve.engine.cluster.limits import LIMIT
from reprieve.engine.cluster.rows import BudgetRow, GroupRow, Kind, NodeRow, PodClass, PodLabels
from reprieve.engine.cluster.snapshot import Nomination, Pending, Snapshot
from reprieve.engine.cluster.state import State
from reprieve.engine.cluster.texts import CHUNK
from reprieve.engine.cluster.trees import GroupTrees
from reprieve.units.ids import Uid

__all__ = ["SELECTORS", "Copies"]

SELECTORS: Final = (
    Kind.SERVICE,
    Kind.REPLICA_SET,
    Kind.STATEFUL_SET,
    Kind.REPLICATION_CONTROLLER,
)
_TABLES: Final = tuple(
    kind
    for kind in Kind
    if kind not in (Kind.POD, Kind.NODE, Kind.GROUP, Kind.COMPOSITE, *SELECTORS)
)

N = TypeVar("N", bound=np.generic)
V = TypeVar("V")


@dataclass(slots=True)
class Copies:
    """The immutable parts that snapshots share until their contents change."""

    state: State
    _rows: dict[Kind, dict[tuple[str, str], Any]] = field(default_factory=dict)  # of `tables`
    order: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    nodes: tuple[NodeRow, ...] = ()
    node_index: Mapping[str, int] = field(default_factory=dict)
    classes: tuple[PodClass | None, ...] = ()
    labels: tuple[PodLabels | None, ...] = ()
    group_keys: tuple[str, ...] = ()
    group_rows: tuple[GroupRow | None, ...] = ()
    group_index: Mapping[str, int] = field(default_factory=dict)
    trees: GroupTrees = field(default_factory=lambda: GroupTrees((), {}))
    pending: Mapping[Uid, Pending] = field(default_factory=dict)
    nominations: tuple[Nomination, ...] = ()
    budgets: tuple[BudgetRow, ...] = ()
    tables: Mapping[Kind, Mapping[tuple[str, str], Any]] = field(default_factory=dict)
    node_facts: NodeFacts = field(default_factory=lambda: NodeFacts(()))
    label_facts: LabelFacts = field(default_factory=lambda: LabelFacts(()))
    derived: Derived = field(default_factory=Derived)

    def make(self, revision: int) -> Snapshot:
        """Return the state as it is now."""
        self._refresh()
        state, order = self.state, self.order
        placed, assumed, classes = state.placed, state.assumed, state.class_columns
        position = np.full(len(state.allocatable), -1, np.int32)
        position[order] = np.arange(len(order), dtype=np.int32)
        used, scored = placed.usage(order, classes)
        ahead = len(assumed) > 0
        if ahead:
            more_used, more_scored = assumed.usage(order, classes)
            used = np.minimum(used + more_used, LIMIT)
            scored = np.minimum(scored + more_scored, LIMIT)
        length = -(-placed.size // CHUNK) * CHUNK if ahead else placed.size  # as texts have it

        def column(read: Callable[[PodColumns], NDArray[N]]) -> NDArray[N]:
            if ahead:
                both = (read(placed)[:length], read(assumed)[: assumed.size])
                return _frozen(np.concatenate(both))
            return _frozen(read(placed)[:length].copy())

        pod_class = column(lambda pods: pods.pod_class)
        return Snapshot(
            revision=revision,
            resources=tuple(state.resources),
            nodes=self.nodes,
            node_index=self.node_index,
            allocatable=_frozen(state.allocatable.take(order, axis=0)),
            used=_frozen(used),
            scored=_frozen(scored),
            pod_uids=placed.uids.copy(assumed.uids if ahead else None),
            pod_keys=placed.keys.copy(assumed.keys if ahead else None),
            pod_node=_frozen(position.take(column(lambda pods: pods.node))),
            pod_priority=column(lambda pods: pods.priority),
            pod_group=column(lambda pods: pods.group),
            protections=_by_slot(placed.protections, assumed.protections, length),
            min_runtimes=_by_slot(placed.min_runtimes, assumed.min_runtimes, length),
            pod_class=pod_class,
            pod_labels=column(lambda pods: pods.labels),
            pod_requests=_frozen(classes.requests.take(pod_class, axis=0)),
            pod_start=column(lambda pods: pods.start),
            pod_checkpoint=column(lambda pods: pods.checkpoint),
            pod_flags=column(lambda pods: pods.flags),
            classes=self.classes,
            labels=self.labels,
            group_keys=self.group_keys,
            group_rows=self.group_rows,
            group_index=self.group_index,
            trees=self.trees,
            pending=self.pending,
            nominations=self.nominations,
            budgets=self.budgets,
            tables=self.tables,
            node_facts=self.node_facts,
            label_facts=self.label_facts,
            derived=self.derived,
        )

    def _refresh(self) -> None:
        state, changed = self.state, self.state.changed
        rows = state.tables[Kind.NODE]
        if "nodes" in changed:
            names = sorted(name for _, name in rows)
            numbers = state.nodes.numbers
            self.order = np.array([numbers[name] for name in names], np.intp)
            self.node_index = MappingProxyType({name: i for i, name in enumerate(names)})
        if Kind.NODE in changed:
            self.nodes = tuple([rows["", name].row for name in self.node_index])
            self.node_facts = NodeFacts(self.nodes, self.node_facts)
        if state.classes.changed:
            self.classes = tuple(state.classes.values)
        if state.labels.changed:
            self.labels = tuple(state.labels.values)
            self.label_facts = self.label_facts.after(self.labels, state.labels.touched)
        if state.groups.changed:
            self.group_keys = tuple([key or "" for key in state.groups.values])
            self.group_index = MappingProxyType(dict(state.groups.numbers))
        if "groups" in changed or state.groups.changed:
            unknown = [None] * (len(self.group_keys) - len(state.group_rows))
            self.group_rows = (*state.group_rows, *unknown)
            self.trees = GroupTrees(self.group_rows, self.group_index)
        if "pending" in changed:
            self.pending = MappingProxyType(dict(state.pending))
        if not changed.isdisjoint(("nominations", "nodes", "groups")):
            self.nominations = self._nominated()
        if Kind.BUDGET in changed:
            budgets = sorted(state.tables[Kind.BUDGET].items())
            self.budgets = tuple(held.row for _, held in budgets)
        if not changed.isdisjoint(_TABLES):
            self.tables = MappingProxyType(
                {
                    kind: self.tables[kind] if kind not in changed else self._table(kind)
                    for kind in _TABLES
                }
            )
        changed.clear()
        state.classes.changed = state.labels.changed = state.groups.changed = False
        for touched in (state.classes.touched, state.labels.touched, state.groups.touched):
            touched.clear()

    def _table(self, kind: Kind) -> Mapping[tuple[str, str], Any]:
        table, touched = self.state.tables[kind], self.state.touched.get(kind)
        self.state.touched[kind] = {}
        if touched is None or 4 * len(touched) > len(table):
            self._rows[kind] = {key: held.row for key, held in table.items()}
            return MappingProxyType(self._rows[kind])
        rows = self._rows[kind] = self._rows[kind].copy()
        for key, moved in touched.items():
            if moved:
                rows.pop(key, None)
            if key in table:
                rows[key] = table[key].row
        found = MappingProxyType(rows)
        self.derived.step(kind, self.tables[kind], found, touched)
        return found

    def _nominated(self) -> tuple[Nomination, ...]:
        found = []
        for uid in self.state.nominated:
            pod, expected = self.state.pods[uid], self.state.overlay.nominated.get(uid)
            row = pod.row
            node = self.node_index.get(row.nominated if expected is None else expected.node)
            if node is None:
                continue
            group = None if pod.group < 0 else self.group_rows[pod.group]
            priority = row.priority if group is None else group.priority
            found.append(
                Nomination(
                    uid,
                    row.namespace,
                    row.name,
                    node,
                    priority if expected is None else expected.priority,
                    pod.group,
                    pod.pod_class,
                    pod.labels,
                )
            )
        return tuple(sorted(found, key=lambda each: (each.namespace, each.name)))


def _by_slot(placed: Mapping[int, V], assumed: Mapping[int, V], length: int) -> Mapping[int, V]:
    """Return what few pods have by slot of the snapshot, assumed pods after the placed ones."""
    more = {length + slot: value for slot, value in assumed.items()}
    return MappingProxyType({**placed, **more})


def _frozen(column: NDArray[N]) -> NDArray[N]:
    column.flags.writeable = False
    return column
