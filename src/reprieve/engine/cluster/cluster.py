"""The state of the cluster, kept up to date by events and copied out as snapshots.

Event-loop only. An object is its uid: a row older than the one held is dropped, a new uid under an
old name ends the old one, and nothing depends on the order in which kinds arrive. What we did and
have not seen yet stays apart (`overlay`). Source: the design's "State that can be trusted".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from reprieve.engine.cluster.copies import SELECTORS, Copies
from reprieve.engine.cluster.devices import EXTENDED_PREFIX, DeviceClassRow, extended_classes
from reprieve.engine.cluster.invariants import check, rebuilt
from reprieve.engine.cluster.limits import LIMIT
from reprieve.engine.cluster.overlay import Expected, Overlay
from reprieve.engine.cluster.pods import apply_pod, assume_pod, end_pod, show, unassume
from reprieve.engine.cluster.progress import Progress
from reprieve.engine.cluster.rows import (
    BudgetRow,
    Change,
    Entry,
    Gone,
    GroupRow,
    Kind,
    NodeRow,
    PodRow,
    SelectorRow,
)
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.cluster.state import Held, State
from reprieve.units.ids import Uid

__all__ = ["Cluster", "NotSynced"]


class NotSynced(Exception):
    """A kind has not been listed yet, so that the state is not that of any moment."""


class Cluster:
    """All rows, in columns.

    `kinds`: what must have been listed (`replace`) before the first snapshot. `validate`: after
    every batch the columns are compared with a rebuild, whose cost is proportional to the number of
    pods.
    """

    def __init__(self, kinds: Iterable[Kind] = (), *, validate: bool = False) -> None:
        self.revision = 0
        self.progress = Progress()
        self._state = State()
        self._copies = Copies(self._state)
        self._last: Snapshot | None = None
        self._unsynced = set(kinds)
        self._validate = validate

    @property
    def overlay(self) -> Overlay:
        """What we did and have not seen yet."""
        return self._state.overlay

    # Observations.

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply rows and deletions as one batch; all of them may come late, early or twice."""
        for change in changes:
            self._apply(change)
        self._after()

    def replace(self, kind: Kind, rows: Iterable[Change]) -> None:
        """Apply a complete list of one kind: objects that it does not name are deleted."""
        listed = list(rows)
        self._end_others(kind, {row.uid for row in listed})
        for row in listed:
            self._apply(row)
        self._unsynced.discard(kind)
        self._after()

    def complete(self, kind: Kind, uids: Set[Uid]) -> None:
        """End a list of one kind whose rows were all applied: objects of other uids are deleted."""
        self._end_others(kind, uids)
        self._unsynced.discard(kind)
        self._after()

    def _end_others(self, kind: Kind, uids: Set[Uid]) -> None:
        table = Kind.SELECTOR if kind in SELECTORS else kind
        if kind is Kind.POD:
            gone = [
                (pod.row.uid, pod.row.namespace, pod.row.name)
                for uid, pod in self._state.pods.items()
                if uid not in uids
            ]
        else:
            prefix = f"{kind}/" if table is not kind else ""
            gone = [
                (held.uid, namespace, name.removeprefix(prefix))
                for (namespace, name), held in self._state.tables[table].items()
                if name.startswith(prefix) and held.uid not in uids
            ]
        for uid, namespace, name in gone:
            self._apply(Gone(kind, uid, namespace, name))

    # What we did.

    def assume(self, uid: Uid, node: str, deadline: int) -> bool:
        """Count a pending pod on a node, until it is seen there or the deadline passes.

        Returns whether the pod is pending: a pod that is deleted or bound by now is left as it is.
        """
        pod = self._state.pods.get(uid)
        if pod is None or pod.finished or pod.slot >= 0:
            return False
        unassume(self._state, uid)
        assume_pod(self._state, pod, node, deadline)
        self.progress.used()
        self._after()
        return True

    def forget(self, uid: Uid) -> None:
        """Undo an assumption: the pod is pending again."""
        if uid in self.overlay.assumed:
            unassume(self._state, uid)
            show(self._state, self._state.pods[uid])
            self.progress.released()
            self._after()

    def nominate(self, uid: Uid, node: str, priority: int, deadline: int) -> None:
        """Keep a node for a pending pod until this is seen on the pod; an empty node: no longer."""
        pod = self._state.pods.get(uid)
        if pod is None or pod.finished or pod.slot >= 0:
            return
        pending = self._state.pending.get(uid)
        if pending is not None and pending.row.nominated not in ("", node):
            self.progress.released()
        if pod.row.nominated != node:
            self.overlay.nominated[uid] = Expected(node, priority, deadline)
        else:
            self.overlay.nominated.pop(uid, None)
        show(self._state, pod)
        self._after()

    def expire(self, now: int) -> tuple[list[Uid], list[Uid]]:
        """End what has reached its deadline; return the pods assumed and those nominated so far."""
        assumed, nominated = self.overlay.expired(now)
        for uid in assumed:
            unassume(self._state, uid)
        for uid in nominated:
            del self.overlay.nominated[uid]
        for uid in {*assumed, *nominated}:
            show(self._state, self._state.pods[uid])
        if assumed or nominated:
            self.progress.released()
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
            self._last = self._copies.make(self.revision)
        return self._last

    def pod(self, uid: Uid) -> PodRow | None:
        """Return the row of a pod, finished ones included."""
        pod = self._state.pods.get(uid)
        return None if pod is None else pod.row

    def node(self, name: str) -> NodeRow | None:
        """Return a node as it is now, None where there is none."""
        held = self._state.tables[Kind.NODE].get(("", name))
        return None if held is None else held.row

    def extended_classes(self) -> Mapping[str, DeviceClassRow]:
        """Return the DeviceClass that stands for each extended resource."""
        held = self._state.tables[Kind.DEVICE_CLASS]
        return extended_classes({Kind.DEVICE_CLASS: {key: each.row for key, each in held.items()}})

    # How rows are applied.

    def _apply(self, change: Change) -> None:
        if isinstance(change, PodRow):
            self._apply_pod(change)
        elif isinstance(change, Gone):
            self._remove(change)
        elif isinstance(change, NodeRow):
            self._apply_node(change)
        elif isinstance(change, GroupRow):
            self._apply_group(change)
        elif isinstance(change, BudgetRow):
            self._apply_row(Kind.BUDGET, (change.namespace, change.name), change, change)
        elif isinstance(change, SelectorRow):
            key = (change.namespace, f"{change.kind}/{change.name}")
            self._apply_row(Kind.SELECTOR, key, change, change)
        else:
            self._apply_row(change.kind, (change.namespace, change.name), change, change.row)
            if isinstance(change.row, DeviceClassRow):
                stands_for = (change.row.extended_resource, f"{EXTENDED_PREFIX}{change.row.name}")
                self._state.widen(filter(None, stands_for))

    def _apply_pod(self, row: PodRow) -> None:
        held = self._state.pods.get(row.uid)
        before = None if held is None else held.row
        if before is None:
            # One of the same name that is still held is ended by this one.
            former = self._state.pod_names.get(f"{row.namespace}/{row.name}")
            if former is not None and row.version >= self._state.pods[former].row.version:
                self._end_pod(former)
        elif row.uid in self.overlay.assumed and (row.node or row.finished or row.deleting):
            assumption = self.overlay.assumed[row.uid]
            if row.node != assumption.node:
                self.progress.released()
        apply_pod(self._state, row)
        held = self._state.pods.get(row.uid)
        self.progress.pod(before, None if held is None else held.row)

    def _end_pod(self, uid: Uid) -> None:
        if uid in self.overlay.assumed or uid in self._state.nominated:
            self.progress.released()
        self.progress.pod(self._state.pods[uid].row, None)
        end_pod(self._state, uid)

    def _after(self) -> None:
        self.revision += 1
        if self._validate:
            tables = {
                kind: {key: held.row for key, held in table.items()}
                for kind, table in self._state.tables.items()
            }
            rows = [pod.row for pod in self._state.pods.values()]
            expected = rebuilt(rows, tables, self.overlay, self._state.resources)
            check(self._copies.make(self.revision), expected)

    def _apply_row(
        self,
        kind: Kind,
        key: tuple[str, str],
        change: NodeRow | GroupRow | BudgetRow | SelectorRow | Entry,
        row: object,
    ) -> bool:
        table = self._state.tables[kind]
        held = table.get(key)
        if held is not None and change.version < held.version:
            return False
        table[key] = Held(change.uid, change.version, row)
        self._touch(kind, key, moved=held is None)
        self._count(kind, None if held is None else held.row, row)
        return True

    def _count(self, kind: Kind, before: object, row: object) -> None:
        if kind in (Kind.GROUP, Kind.COMPOSITE):
            old = before if isinstance(before, GroupRow) else None
            new = row if isinstance(row, GroupRow) else None
            self.progress.group(old, new, self._state.has_placed)
        else:
            self.progress.object(kind, before, row)

    def _touch(self, kind: Kind, key: tuple[str, str], *, moved: bool) -> None:
        self._state.changed.add(kind)
        touched = self._state.touched.get(kind)
        if touched is not None:
            if moved:
                touched.pop(key, None)
            touched[key] = moved or touched.get(key, False)

    def _remove(self, gone: Gone) -> None:
        if gone.kind is Kind.POD:
            if gone.uid in self._state.pods:
                self._end_pod(gone.uid)
            return
        kind, key = gone.kind, (gone.namespace, gone.name)
        if kind in SELECTORS:
            kind, key = Kind.SELECTOR, (gone.namespace, f"{gone.kind}/{gone.name}")
        held = self._state.tables[kind].get(key)
        if held is None or held.uid != gone.uid:
            return
        del self._state.tables[kind][key]
        self._touch(kind, key, moved=True)
        self._count(kind, held.row, None)
        if kind is Kind.NODE:
            number = self._state.nodes.numbers[gone.name]
            self._state.allocatable[number] = 0
            self._state.nodes.drop(number)
            self._state.changed.add("nodes")
        elif isinstance(held.row, GroupRow):
            number = self._state.groups.numbers[held.row.key]
            self._state.group_rows[number] = None
            self._state.groups.drop(number)
            self._state.changed.add("groups")

    def _apply_node(self, row: NodeRow) -> None:
        key = ("", row.name)
        held = self._state.tables[Kind.NODE].get(key)
        if held is not None and held.version <= row.version and _same_node(held.row, row):
            # A heartbeat: the row that decisions read stays the same object.
            self._state.tables[Kind.NODE][key] = Held(row.uid, row.version, held.row)
            return
        if not self._apply_row(Kind.NODE, key, row, row):
            return
        if held is None:
            self._state.acquire_node(row.name)
            self._state.changed.add("nodes")
        self._state.widen(row.allocatable)
        amounts = self._state.allocatable[self._state.nodes.numbers[row.name]]
        amounts[:] = 0
        for name, amount in row.allocatable.items():
            amounts[self._state.resources[name]] = min(amount, LIMIT)

    def _apply_group(self, row: GroupRow) -> None:
        key = (row.namespace, row.name)
        known = key in self._state.tables[row.kind]
        if not self._apply_row(row.kind, key, row, row):
            return
        groups = self._state.groups
        number = groups.numbers[row.key] if known else groups.acquire(row.key)
        rows = self._state.group_rows
        if number >= len(rows):
            rows.extend([None] * (number + 1 - len(rows)))
        rows[number] = row
        self._state.changed.add("groups")


def _same_node(held: NodeRow, row: NodeRow) -> bool:
    return (
        held.uid == row.uid
        and held.allocatable == row.allocatable
        and held.labels == row.labels
        and held.taints == row.taints
        and held.unschedulable == row.unschedulable
        and held.images == row.images
        and held.features == row.features
        and held.ready == row.ready
        and held.unready_since == row.unready_since
    )
