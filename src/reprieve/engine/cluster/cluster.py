"""The state of the cluster, kept up to date by events and copied out as snapshots.

Event-loop only. An object is its uid: a row older than the one held is dropped, a new uid under an
old name ends the old one, and nothing depends on the order in which kinds arrive: every node name
that a pod mentions has a number, so that a pod counts on its node before and after the node is
known. What we did and have not seen yet stays apart (`overlay`). Source: the design's "State that
can be trusted".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from reprieve.engine.cluster.columns import LIMIT, ClassColumns, Numbers, PodColumns, grown
from reprieve.engine.cluster.invariants import check, rebuilt
from reprieve.engine.cluster.overlay import Assumption, Expected, Overlay
from reprieve.engine.cluster.rows import (
    CPU,
    MEMORY,
    PODS,
    STORAGE,
    BudgetRow,
    Change,
    Entry,
    Gone,
    GroupRow,
    Kind,
    NodeRow,
    PodClass,
    PodRow,
    SelectorRow,
)
from reprieve.engine.cluster.snapshot import (
    I64,
    NO_START,
    Flag,
    Nomination,
    Pending,
    PodLabels,
    Snapshot,
)
from reprieve.engine.cluster.texts import CHUNK
from reprieve.units.ids import Uid

__all__ = ["Cluster", "NotSynced"]

_NOWHERE: Final = 0  # the node number of free slots
_SELECTORS: Final = frozenset(
    (Kind.SERVICE, Kind.REPLICA_SET, Kind.STATEFUL_SET, Kind.REPLICATION_CONTROLLER)
)

N = TypeVar("N", bound=np.generic)


class NotSynced(Exception):
    """A kind has not been listed yet, so that the state is not that of any moment."""


@dataclass(slots=True)
class _Pod:
    """A pod and its numbers; a finished pod has none of them."""

    row: PodRow
    key: str
    node: int = _NOWHERE
    slot: int = -1
    pod_class: int = 0
    labels: int = 0
    group: int = -1
    finished: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    """A row of any kind but pods, and what orders its events."""

    uid: Uid
    version: int
    row: Any


class Cluster:
    """All rows, in columns.

    `kinds`: what must have been listed (`replace`) before the first snapshot. `validate`: after
    every batch the columns are compared with a rebuild, which takes time in proportion to all pods.
    """

    def __init__(self, kinds: Iterable[Kind] = (), *, validate: bool = False) -> None:
        self.revision = 0
        self.overlay = Overlay()
        self._unsynced = set(kinds)
        self._validate = validate
        self._columns: dict[str, int] = {PODS: 0, CPU: 1, MEMORY: 2, STORAGE: 3}
        self._pods: dict[Uid, _Pod] = {}
        self._pod_names: dict[str, Uid] = {}
        self._classes: Numbers[PodClass] = Numbers(1)
        self._labels: Numbers[PodLabels] = Numbers(1)
        self._groups: Numbers[str] = Numbers()
        self._nodes: Numbers[str] = Numbers(1)
        self._class_columns = ClassColumns(4)
        self._placed = PodColumns(4)
        self._assumed = PodColumns(4)
        self._allocatable: I64 = np.zeros((64, 4), np.int64)  # by node number
        self._tables: dict[Kind, dict[tuple[str, str], _Held]] = {kind: {} for kind in Kind}
        self._pending: dict[Uid, Pending] = {}
        self._nominated: set[Uid] = set()  # pending pods that name a node
        self._changed: set[str] = {"nodes", "pending", "groups", *Kind}
        self._order: NDArray[np.intp] = np.zeros(0, np.intp)  # node numbers by name
        self._views = _Views()
        self._last: Snapshot | None = None
        self._kept: dict[Kind, Mapping[tuple[str, str], Any]] = {}

    # Observations.

    def apply(self, changes: Iterable[Change]) -> None:
        """Take in rows and deletions as one batch; all of them may come late, early or twice."""
        for change in changes:
            self._apply(change)
        self._after()

    def replace(self, kind: Kind, rows: Iterable[Change]) -> None:
        """Take in a complete list of one kind: what it does not name is gone."""
        listed = list(rows)
        uids = {row.uid for row in listed}
        table = Kind.SELECTOR if kind in _SELECTORS else kind
        if kind is Kind.POD:
            gone = [
                (pod.row.uid, pod.row.namespace, pod.row.name)
                for uid, pod in self._pods.items()
                if uid not in uids
            ]
        else:
            prefix = f"{kind}/" if table is not kind else ""
            gone = [
                (held.uid, namespace, name.removeprefix(prefix))
                for (namespace, name), held in self._tables[table].items()
                if name.startswith(prefix) and held.uid not in uids
            ]
        for uid, namespace, name in gone:
            self._apply(Gone(kind, uid, namespace, name))
        for row in listed:
            self._apply(row)
        self._unsynced.discard(kind)
        self._after()

    # What we did.

    def assume(self, uid: Uid, node: str, deadline: int) -> bool:
        """Count a pending pod on a node, until it is seen there or the deadline passes.

        Returns whether the pod is pending: one that is gone or bound by now is left as it is.
        """
        pod = self._pods.get(uid)
        if pod is None or pod.finished or pod.slot >= 0:
            return False
        self._unassume(uid)
        self._assume(pod, node, deadline)
        self._after()
        return True

    def forget(self, uid: Uid) -> None:
        """Take an assumption back: the pod is pending again."""
        if uid in self.overlay.assumed:
            self._unassume(uid)
            self._show(self._pods[uid])
            self._after()

    def nominate(self, uid: Uid, node: str, priority: int, deadline: int) -> None:
        """Keep a node for a pending pod until this is seen on the pod; an empty node: no longer."""
        pod = self._pods.get(uid)
        if pod is None or pod.finished or pod.slot >= 0:
            return
        if pod.row.nominated != node:
            self.overlay.nominated[uid] = Expected(node, priority, deadline)
        else:
            self.overlay.nominated.pop(uid, None)
        self._show(pod)
        self._after()

    def expire(self, now: int) -> tuple[list[Uid], list[Uid]]:
        """End what has reached its deadline; return the pods assumed and those nominated so far."""
        assumed, nominated = self.overlay.expired(now)
        for uid in assumed:
            self._unassume(uid)
        for uid in nominated:
            del self.overlay.nominated[uid]
        for uid in {*assumed, *nominated}:
            self._show(self._pods[uid])
        if assumed or nominated:
            self._after()
        return assumed, nominated

    # Reading.

    def snapshot(self) -> Snapshot:
        """Return the state; the same object as long as nothing has changed.

        Raises:
            NotSynced: a kind named at construction has not been listed yet.
        """
        if self._unsynced:
            missing = ", ".join(sorted(self._unsynced))
            raise NotSynced(f"not listed yet: {missing}")
        if self._last is None or self._last.revision != self.revision:
            self._last = self._copy()
        return self._last

    def pod(self, uid: Uid) -> PodRow | None:
        """Return the row of a pod, finished ones included."""
        pod = self._pods.get(uid)
        return None if pod is None else pod.row

    # How rows are taken in.

    def _apply(self, change: Change) -> None:
        if isinstance(change, PodRow):
            self._put_pod(change)
        elif isinstance(change, Gone):
            self._remove(change)
        elif isinstance(change, NodeRow):
            self._put_node(change)
        elif isinstance(change, GroupRow):
            self._put_group(change)
        elif isinstance(change, BudgetRow):
            self._put(Kind.BUDGET, (change.namespace, change.name), change, change)
        elif isinstance(change, SelectorRow):
            key = (change.namespace, f"{change.kind}/{change.name}")
            self._put(Kind.SELECTOR, key, change, change)
        else:
            self._put(change.kind, (change.namespace, change.name), change, change.row)

    def _after(self) -> None:
        self.revision += 1
        if self._validate:
            tables = {
                kind: {key: held.row for key, held in table.items()}
                for kind, table in self._tables.items()
            }
            rows = [pod.row for pod in self._pods.values()]
            check(self._copy(), rebuilt(rows, tables, self.overlay))

    def _put(
        self,
        kind: Kind,
        key: tuple[str, str],
        change: NodeRow | GroupRow | BudgetRow | SelectorRow | Entry,
        row: object,
    ) -> bool:
        table = self._tables[kind]
        held = table.get(key)
        if held is not None and change.version < held.version:
            return False
        table[key] = _Held(change.uid, change.version, row)
        self._changed.add(kind)
        return True

    def _remove(self, gone: Gone) -> None:
        if gone.kind is Kind.POD:
            if gone.uid in self._pods:
                self._end_pod(gone.uid)
            return
        kind, key = gone.kind, (gone.namespace, gone.name)
        if kind in _SELECTORS:
            kind, key = Kind.SELECTOR, (gone.namespace, f"{gone.kind}/{gone.name}")
        held = self._tables[kind].get(key)
        if held is None or held.uid != gone.uid:
            return
        del self._tables[kind][key]
        self._changed.add(kind)
        if kind is Kind.NODE:
            number = self._nodes.numbers[gone.name]
            self._allocatable[number] = 0
            self._nodes.drop(number)
            self._changed.add("nodes")
        elif kind is Kind.GROUP:
            self._groups.drop(self._groups.numbers[f"{gone.namespace}/{gone.name}"])
            self._changed.add("groups")

    def _put_node(self, row: NodeRow) -> None:
        key = ("", row.name)
        held = self._tables[Kind.NODE].get(key)
        if held is not None and held.version <= row.version and _same_node(held.row, row):
            # A heartbeat: the row that decisions read stays the same object.
            self._tables[Kind.NODE][key] = _Held(row.uid, row.version, held.row)
            return
        if not self._put(Kind.NODE, key, row, row):
            return
        if held is None:
            self._take_node(row.name)
            self._changed.add("nodes")
        self._widen(row.allocatable)
        amounts = self._allocatable[self._nodes.numbers[row.name]]
        amounts[:] = 0
        for name, amount in row.allocatable.items():
            amounts[self._columns[name]] = min(amount, LIMIT)

    def _put_group(self, row: GroupRow) -> None:
        key = (row.namespace, row.name)
        known = key in self._tables[Kind.GROUP]
        if self._put(Kind.GROUP, key, row, row):
            if not known:
                self._groups.take(f"{row.namespace}/{row.name}")
            self._changed.add("groups")

    def _put_pod(self, row: PodRow) -> None:
        uid = row.uid
        pod = self._pods.get(uid)
        if pod is None:
            key = f"{row.namespace}/{row.name}"
            other = self._pod_names.get(key)
            if other is not None:
                if row.version < self._pods[other].row.version:
                    return
                self._end_pod(other)
            self._pod_names[key] = uid
            pod = self._pods[uid] = _Pod(row, key)
            self._start(pod)
            return
        old = pod.row
        if row.version < old.version:
            return
        pod.row = row
        if (
            row.pod_class is old.pod_class
            and row.node == old.node
            and row.finished == old.finished
            and row.group == old.group
            and row.labels == old.labels
        ):
            if pod.slot >= 0:
                self._placed.set_facts(pod.slot, row.priority, _start(row), _flags(row))
            elif not row.finished:
                self._show(pod)
            return
        before = _Pod(old, pod.key, pod.node, pod.slot, pod.pod_class, pod.labels, pod.group)
        before.finished = pod.finished
        assumption = self.overlay.assumed.get(uid)
        self._unassume(uid)
        self._start(pod)
        if assumption is not None and pod.slot < 0 and not pod.finished:
            self._assume(pod, assumption.node, assumption.deadline)
        self._release(before)  # after the new numbers are taken, so that shared ones stay

    def _start(self, pod: _Pod) -> None:
        """Give the pod its numbers, and its slot or its place among the pending."""
        row = pod.row
        pod.finished = row.finished
        pod.slot, pod.node = -1, _NOWHERE
        if row.finished:
            self.overlay.nominated.pop(row.uid, None)
            self._hide(row.uid)
            return
        pod.pod_class = self._classes.take(row.pod_class)
        if self._classes.users(pod.pod_class) == 1:
            self._widen(dict(row.pod_class.requests))
            self._class_columns.fill(pod.pod_class, row.pod_class, self._columns)
        pod.labels = self._labels.take(PodLabels(row.namespace, row.labels))
        pod.group = self._groups.take(f"{row.namespace}/{row.group}") if row.group else -1
        if not row.node:
            self._show(pod)
            return
        self.overlay.nominated.pop(row.uid, None)
        self._hide(row.uid)
        pod.node = self._take_node(row.node)
        pod.slot = self._slot(self._placed, pod, pod.node, _flags(row))

    def _release(self, pod: _Pod) -> None:
        if pod.finished:
            return
        if pod.slot >= 0:
            self._placed.remove(pod.slot, pod.node, pod.pod_class, self._class_columns)
            self._nodes.drop(pod.node)
        self._classes.drop(pod.pod_class)
        self._labels.drop(pod.labels)
        if pod.group >= 0:
            self._groups.drop(pod.group)

    def _end_pod(self, uid: Uid) -> None:
        self._unassume(uid)
        self.overlay.nominated.pop(uid, None)
        self._hide(uid)
        pod = self._pods.pop(uid)
        del self._pod_names[pod.key]
        self._release(pod)

    def _slot(self, columns: PodColumns, pod: _Pod, node: int, flags: int) -> int:
        row = pod.row
        slot = columns.add(
            row.uid, pod.key, node, pod.pod_class, pod.labels, pod.group, self._class_columns
        )
        columns.set_facts(slot, row.priority, _start(row), flags)
        return slot

    def _assume(self, pod: _Pod, node: str, deadline: int) -> None:
        number = self._take_node(node)
        slot = self._slot(self._assumed, pod, number, _flags(pod.row) | Flag.ASSUMED)
        self.overlay.assumed[pod.row.uid] = Assumption(node, number, slot, pod.pod_class, deadline)
        self._hide(pod.row.uid)

    def _unassume(self, uid: Uid) -> None:
        held = self.overlay.assumed.pop(uid, None)
        if held is not None:
            self._assumed.remove(held.slot, held.node_number, held.pod_class, self._class_columns)
            self._nodes.drop(held.node_number)

    def _show(self, pod: _Pod) -> None:
        """Bring a pod without node up to date: among the pending, or in its assumed slot."""
        row = pod.row
        expected = self.overlay.nominated.get(row.uid)
        if expected is not None and expected.node == row.nominated:
            del self.overlay.nominated[row.uid]
            expected = None
        assumption = self.overlay.assumed.get(row.uid)
        if assumption is not None:
            flags = _flags(row) | Flag.ASSUMED
            self._assumed.set_facts(assumption.slot, row.priority, _start(row), flags)
            return
        self._pending[row.uid] = Pending(row, pod.pod_class, pod.labels)
        self._changed.add("pending")
        if row.nominated if expected is None else expected.node:
            self._nominated.add(row.uid)
        else:
            self._nominated.discard(row.uid)

    def _hide(self, uid: Uid) -> None:
        if self._pending.pop(uid, None) is not None:
            self._changed.add("pending")
            self._nominated.discard(uid)

    def _take_node(self, name: str) -> int:
        number = self._nodes.take(name)
        if number >= len(self._allocatable):
            self._allocatable = grown(self._allocatable, number + 1)
        self._placed.cover_nodes(number + 1)
        self._assumed.cover_nodes(number + 1)
        return number

    def _widen(self, names: Iterable[str]) -> None:
        new = sorted(name for name in names if name not in self._columns)
        if not new:
            return
        for name in new:
            self._columns[name] = len(self._columns)
        width = len(self._columns)
        self._allocatable = _wider(self._allocatable, width)
        self._class_columns.requests = _wider(self._class_columns.requests, width)
        self._placed.used = _wider(self._placed.used, width)
        self._assumed.used = _wider(self._assumed.used, width)

    # How snapshots are made.

    def _copy(self) -> Snapshot:
        self._refresh()
        views = self._views
        classes, order = self._class_columns, self._order
        placed, assumed = self._placed, self._assumed
        position = np.full(len(self._allocatable), -1, np.int32)
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
            revision=self.revision,
            resources=tuple(self._columns),
            nodes=views.nodes,
            node_index=views.node_index,
            allocatable=_frozen(self._allocatable.take(order, axis=0)),
            used=_frozen(used),
            scored=_frozen(scored),
            pod_uids=placed.uids.copy(assumed.uids if ahead else None),
            pod_keys=placed.keys.copy(assumed.keys if ahead else None),
            pod_node=_frozen(position.take(column(lambda pods: pods.node))),
            pod_priority=column(lambda pods: pods.priority),
            pod_group=column(lambda pods: pods.group),
            pod_class=pod_class,
            pod_labels=column(lambda pods: pods.labels),
            pod_requests=_frozen(classes.requests.take(pod_class, axis=0)),
            pod_start=column(lambda pods: pods.start),
            pod_flags=column(lambda pods: pods.flags),
            classes=views.classes,
            labels=views.labels,
            group_keys=views.group_keys,
            group_rows=views.group_rows,
            group_index=views.group_index,
            pending=views.pending,
            nominations=self._nominations(),
            budgets=views.budgets,
            tables=views.tables,
        )

    def _refresh(self) -> None:
        """Make anew those tuples and mappings whose contents have changed."""
        views, changed = self._views, self._changed
        rows = self._tables[Kind.NODE]
        if "nodes" in changed:
            names = sorted(name for _, name in rows)
            numbers = self._nodes.numbers
            self._order = np.array([numbers[name] for name in names], np.intp)
            views.node_index = MappingProxyType({name: i for i, name in enumerate(names)})
        if Kind.NODE in changed:
            views.nodes = tuple([rows["", name].row for name in views.node_index])
        if self._classes.changed:
            views.classes = tuple(self._classes.values)
        if self._labels.changed:
            views.labels = tuple(self._labels.values)
        if "groups" in changed or self._groups.changed:
            groups = self._tables[Kind.GROUP]
            keys = self._groups.values
            views.group_keys = tuple(key or "" for key in keys)
            views.group_index = MappingProxyType(dict(self._groups.numbers))
            found: list[GroupRow | None] = [None] * len(keys)
            for (namespace, name), held in groups.items():
                found[self._groups.numbers[f"{namespace}/{name}"]] = held.row
            views.group_rows = tuple(found)
        if "pending" in changed:
            views.pending = MappingProxyType(dict(self._pending))
        if Kind.BUDGET in changed:
            budgets = sorted(self._tables[Kind.BUDGET].items())
            views.budgets = tuple(held.row for _, held in budgets)
        for kind in _TABLES:
            if kind in changed:
                table = {key: held.row for key, held in self._tables[kind].items()}
                self._kept[kind] = MappingProxyType(table)
        if not changed.isdisjoint(_TABLES):
            views.tables = MappingProxyType(dict(self._kept))
        changed.clear()
        self._classes.changed = self._labels.changed = self._groups.changed = False

    def _nominations(self) -> tuple[Nomination, ...]:
        found = []
        for uid in self._nominated:
            pod = self._pods[uid]
            row, expected = pod.row, self.overlay.nominated.get(uid)
            node = self._views.node_index.get(row.nominated if expected is None else expected.node)
            if node is None:
                continue
            group = None if pod.group < 0 else self._views.group_rows[pod.group]
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


@dataclass(slots=True)
class _Views:
    """The immutable tuples and mappings that snapshots share until their contents change."""

    nodes: tuple[NodeRow, ...] = ()
    node_index: Mapping[str, int] = field(default_factory=dict)
    classes: tuple[PodClass | None, ...] = ()
    labels: tuple[PodLabels | None, ...] = ()
    group_keys: tuple[str, ...] = ()
    group_rows: tuple[GroupRow | None, ...] = ()
    group_index: Mapping[str, int] = field(default_factory=dict)
    pending: Mapping[Uid, Pending] = field(default_factory=dict)
    budgets: tuple[BudgetRow, ...] = ()
    tables: Mapping[Kind, Mapping[tuple[str, str], Any]] = field(default_factory=dict)


_TABLES: Final = tuple(
    kind for kind in Kind if kind not in {Kind.POD, Kind.NODE, Kind.GROUP} | _SELECTORS
)


def _start(row: PodRow) -> int:
    return NO_START if row.start is None else row.start


def _flags(row: PodRow) -> int:
    if not row.deleting:
        return 0
    return Flag.DELETING | Flag.PREEMPTED if row.preempted else Flag.DELETING


def _same_node(held: NodeRow, row: NodeRow) -> bool:
    return (
        held.uid == row.uid
        and held.allocatable == row.allocatable
        and held.labels == row.labels
        and held.taints == row.taints
        and held.unschedulable == row.unschedulable
        and held.images == row.images
        and held.features == row.features
    )


def _frozen(column: NDArray[N]) -> NDArray[N]:
    column.flags.writeable = False
    return column


def _wider(amounts: I64, width: int) -> I64:
    wider = np.zeros((len(amounts), width), np.int64)
    wider[:, : amounts.shape[1]] = amounts
    return wider
