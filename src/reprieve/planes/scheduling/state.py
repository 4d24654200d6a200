"""Events of the watches into the cluster's state and the queue's hints.

Each change of an object reaches `Cluster` first, then as hints the queue, which queries the new
state. Besides rows only a few facts are kept that writes need: of our pending pods and of groups
their condition and generation. Source: the design's "How data flows"; specification 22.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kubeworld.units.clock import Clock
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.forest import Forest
from reprieve.engine.cluster.rows import (
    Change,
    Entry,
    Gone,
    GroupRow,
    Kind,
    Labels,
    NodeRow,
    PodRow,
    PriorityClassRow,
)
from reprieve.engine.cluster.trees import Way
from reprieve.engine.notice.granting import MOST
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.queueing.events import Event, Happening
from reprieve.engine.scheduling.queueing.pre_enqueue import tree_of
from reprieve.engine.scheduling.queueing.queue import Queue
from reprieve.planes.scheduling.announced import Announced
from reprieve.planes.scheduling.context import log
from reprieve.planes.scheduling.declared import Declared
from reprieve.planes.scheduling.differences import (
    decisive,
    min_runtime,
    node_events,
    pod_events,
    protected,
)
from reprieve.planes.scheduling.gangs.members import Members
from reprieve.planes.scheduling.memberships import Memberships, group_of
from reprieve.planes.scheduling.objects import ObjectRow, Objects
from reprieve.planes.scheduling.reserved import Reserved, unused
from reprieve.planes.scheduling.written import Written
from reprieve.units.ids import Uid
from reprieve.wording.plans import unit_text

__all__ = ["ClusterState"]


_UNREACHABLE: Final = "node.kubernetes.io/unreachable"


@dataclass(slots=True)
class ClusterState:
    """The cluster, the queue, and which pod belongs to which group.

    `disturbed` counts changes that may make a decision wrong that was made before them; what we did
    ourselves is none. `queue_limits`: the delay that a pod's queue states, and the notice that it
    allows. `overdue`: victims that did not end; no plan uses their capacity. `unreachable`: names
    of nodes whose kubelet has not reported for so long that the control plane taints them.
    """

    cluster: Cluster
    clock: Clock
    scheduler_names: frozenset[str]
    changed: Callable[[], None]
    pod_gone: Callable[[PodRow], None] = lambda row: None
    gangs: Members | None = None
    group_gone: Callable[[GroupRow], None] = lambda row: None
    queue_limits: Callable[[PodRow], tuple[int | None, int]] = lambda row: (None, MOST)
    observers: list[Callable[[PodRow | None, PodRow | None], None]] = field(default_factory=list)
    queue: Queue = field(init=False)
    reserved: Reserved = field(init=False)
    _announced: Announced = field(init=False)
    disturbed: int = 0
    overdue: set[Uid] = field(default_factory=set)
    unreachable: set[str] = field(default_factory=set)
    declared: Declared = field(default_factory=Declared)
    written: dict[Uid, Written] = field(default_factory=dict)
    _members: Memberships = field(default_factory=Memberships)
    forest: Forest = field(default_factory=Forest)
    _nodes: dict[Uid, NodeRow] = field(default_factory=dict)
    objects: Objects = field(default_factory=Objects)
    _pods: dict[Uid, PodRow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def show(entry: Entry) -> None:
            self.cluster.apply((entry,))

        self.reserved = Reserved(self.objects.entry, show)
        self._announced = Announced(self.cluster, self.clock, self._disturb)

    # Facts for PreEnqueue.

    def group(self, key: str) -> GroupRow | None:
        return self.forest.get(key)

    def root(self, key: str) -> tuple[Way, str]:
        return self.forest.root(key)

    def children(self, key: str) -> Sequence[str]:
        return self.forest.children(key)

    def known(self, key: str) -> int:
        return len(self._members.of(key))

    def claims(self, pod: PodRow) -> str:
        return self.objects.missing_claim(pod)

    def gang_key(self, pod: PodRow) -> str:
        """Return nothing: gangs have facts of their own (`controllers.gangs.plane`)."""
        return ""

    def namespace_labels(self, namespace: str) -> Labels:
        return self.objects.namespace_labels(namespace)

    # Reading.

    def pod(self, uid: Uid) -> PodRow | None:
        """Return a pod as it was seen last."""
        return self._pods.get(uid)

    def called(self, unit: Unit) -> str:
        """Return how log lines name a unit: by its group, or else by its pods."""
        return unit_text(unit, self._pods)

    def members(self, key: str) -> Iterator[PodRow]:
        """Yield the pods of a group, or of a tree, that have not finished."""
        for leaf in self.forest.leaves(key):
            for uid in self._members.of(leaf):
                yield self._pods[uid]

    def pods(self) -> Iterator[PodRow]:
        """Yield all pods as they were seen last."""
        yield from self._pods.values()

    def is_cordoned(self, node: str) -> bool:
        """Whether a node is there and was cordoned."""
        return any(row.name == node and row.unschedulable for row in self._nodes.values())

    def ours(self, row: PodRow) -> bool:
        """Whether the pod waits for us to place it."""
        return (
            not row.node
            and not row.finished
            and not row.deleting
            and row.pod_class.scheduler_name in self.scheduler_names
        )

    # What other schedulers of ours write.

    def claimed(self, uid: Uid, node: str) -> None:
        """Another scheduler is binding the pod to the node: count it there, now or once known."""
        self._announced.claimed(uid, node, self._pods.get(uid))

    def known_pod(self, uid: Uid) -> bool:
        """Whether a pod that another scheduler announced is counted, or was created and deleted."""
        return uid in self._pods or self._announced.left(uid)

    def _disturb(self) -> None:
        self.disturbed += 1

    # Changes.

    def apply(self, change: Change, written: Written | None = None) -> None:
        """Apply one object, or its deletion."""
        if isinstance(change, PodRow):
            self._pod(change, written)
        elif isinstance(change, Gone):
            self._gone(change)
        else:
            self._object(change, written)
        self.changed()

    def replace(self, kind: Kind, changes: Iterable[tuple[Change, Written | None]]) -> None:
        """Apply a complete list of a kind."""
        listed = list(changes)
        rows = [row for row, _ in listed]
        shown = [self._shown(row) for row in rows]
        before = self._known(kind)
        self.cluster.replace(kind, shown)
        self._after_list(kind, before, {row.uid for row in rows})
        self._after_rows(listed)
        self.disturbed += 1
        self.changed()

    def apply_page(self, changes: Sequence[tuple[Change, Written | None]]) -> None:
        """Apply a part of the first list of a kind; `complete` ends it."""
        self.cluster.apply([self._shown(row) for row, _ in changes])
        self._after_rows(changes)

    def complete(self, kind: Kind, uids: Set[Uid]) -> None:
        """End the first list of a kind, all of which was applied: other objects are deleted.

        That may be something, where an earlier attempt at the list has failed.
        """
        before = self._known(kind)
        self.cluster.complete(kind, uids)
        self._after_list(kind, before, uids)
        self.disturbed += 1
        self.changed()

    def _known(self, kind: Kind) -> Mapping[Uid, Change]:
        return dict(self._pods) if kind is Kind.POD else self._held(kind)

    def _after_list(self, kind: Kind, before: Mapping[Uid, Change], uids: Set[Uid]) -> None:
        for uid, old in before.items():
            if uid not in uids:
                self._after_gone(kind, uid, old)

    def _after_rows(self, listed: Iterable[tuple[Change, Written | None]]) -> None:
        for row, written in listed:
            try:
                if isinstance(row, PodRow):
                    self._after_pod(row, written)
                else:
                    self._after_object(row, written)
            except Exception:
                # A fault of ours about one object is not to cost the others of its list.
                log.exception(
                    "an observer failed on a change of %s %s", type(row).__name__, row.uid
                )

    # Pods.

    def _pod(self, row: PodRow, written: Written | None) -> None:
        old = self._pods.get(row.uid)
        if old is not None and row.version < old.version:
            return
        self.cluster.apply((row,))
        self._after_pod(row, written)

    def _after_pod(self, row: PodRow, written: Written | None) -> None:
        old = self._pods.get(row.uid)
        self._pods[row.uid] = row
        for observer in self.observers:
            observer(old, row)
        self.declared.by_pod(old, row)
        self._announced.seen(row)
        self._members.seen(row)
        if row.gang and self.gangs is not None:
            self.gangs.pod_seen(row)
        if self.ours(row):
            if written is not None:
                self.written[row.uid] = written
            if self.gangs is None or not self.gangs.waits(row.uid):
                self.queue.add(row, self.clock.monotonic())
            if old is not None and old.nominated and old.nominated != row.nominated:
                self._freed(old, at_most=row.priority)
            return
        if old is not None:
            self.written.pop(row.uid, None)
            self.queue.remove(row.uid)
            if not old.node and old.nominated and not row.node:
                self._freed(old, at_most=old.priority)
        if row.finished:
            if old is None or not old.finished:
                self.pod_gone(row)
            if old is not None and old.node and not old.finished:
                self._freed(row)
        elif row.node:
            self._placed(old, row)

    def _placed(self, old: PodRow | None, row: PodRow) -> None:
        if old is None or not old.node:
            # Of fifty thousand pods that exist at the start hardly one concerns a listener.
            if self.queue.listens:
                key = group_of(row)
                tree = tree_of(self, self.forest.root(key)[1])
                event = Event(Happening.POD_ADDED, pod=row, group=key, tree=tree)
                self.queue.on_event(event, self.clock.monotonic())
            if old is None or old.pod_class.scheduler_name not in self.scheduler_names:
                self.disturbed += 1
            return
        if protected(old) != protected(row) or old.disruption != row.disruption:
            self._protection_changed(row)
        self._requeue(pod_events(old, row))

    def _protection_changed(self, row: PodRow | GroupRow) -> None:
        """Units that wait for victims may find some now."""
        self.declared.again(row)
        pods = self.members(row.key) if isinstance(row, GroupRow) else iter((row,))
        placed = next((pod for pod in pods if pod.node), None)
        if placed is not None:
            self._freed(placed)

    def unassume(self, row: PodRow) -> None:
        """A pod that was counted on a node does not come there: others may have its capacity."""
        self.cluster.forget(row.uid)
        self._freed(row)

    def _requeue(self, events: Iterable[Event]) -> None:
        for event in events:
            self.disturbed += 1
            self.queue.on_event(event, self.clock.monotonic())

    def _freed(self, row: PodRow, at_most: int | None = None) -> None:
        self._requeue((Event(Happening.POD_DELETED, pod=row, at_most=at_most),))

    # Other kinds.

    def _class_changed(self, name: str) -> None:
        for row in (*self.forest, *self._pods.values()):
            if row.protection == name:
                self._protection_changed(row)

    def _runtime_changed(self, old: Entry | None, row: Entry) -> None:
        """Units that wait may find victims among those of a namespace or class, or no longer."""
        self.declared.by_runtime(old, row)
        if (None if old is None else min_runtime(old)) == min_runtime(row):
            return
        for pod in self._pods.values():
            of_class = pod.pod_class.priority_class == row.name
            if pod.node and (
                of_class if row.kind is Kind.PRIORITY_CLASS else pod.namespace == row.name
            ):
                self._freed(pod)
                return

    def _delay_changed(self, old: Entry | None, row: Entry) -> None:
        if (None if old is None else old.row.delay) != row.row.delay:
            self.delays_changed()

    def delays_changed(self) -> None:
        """Try all units again: one that waits before it preempts may have waited long enough."""
        keys = [entry.key for entry in self.queue.entries()]
        self.queue.activate(keys, self.clock.monotonic())

    def _held(self, kind: Kind) -> Mapping[Uid, Change]:
        if kind is Kind.NODE:
            return dict(self._nodes)
        if kind in (Kind.GROUP, Kind.COMPOSITE):
            return {row.uid: row for row in self.forest if row.kind is kind}
        return self.objects.of_kind(kind)

    def _shown(self, row: Any) -> Any:
        return self.reserved.shown(row) if isinstance(row, Entry) else row

    def _object(self, row: Any, written: Written | None) -> None:
        self.cluster.apply((self._shown(row),))
        self._after_object(row, written)

    def _after_object(self, row: Any, written: Written | None) -> None:
        if isinstance(row, NodeRow):
            old = self._nodes.get(row.uid)
            self._nodes[row.uid] = row
            if any(taint.key == _UNREACHABLE for taint in row.taints):
                self.unreachable.add(row.name)
            else:
                self.unreachable.discard(row.name)
            self._requeue(node_events(old, row))
        elif isinstance(row, GroupRow):
            self._after_group(row, written)
        else:
            self._after_other(row)

    def _after_group(self, row: GroupRow, written: Written | None) -> None:
        key = row.key
        before = self.forest.get(key)
        if before is not None and before.uid == row.uid and row.version < before.version:
            return
        self.forest.apply(row)
        self.declared.by_group(before, row)
        if before is not None and (
            protected(before) != protected(row) or before.floor != row.floor
        ):
            self._protection_changed(row)
        if written is not None:
            self.written[row.uid] = written
        if before is None or decisive(before) != decisive(row):
            self.disturbed += 1
            lowered = before is not None and (row.min_count or 0) < (before.min_count or 0)
            self.queue.group_changed(key, self.clock.monotonic(), lowered=lowered)

    def _after_other(self, row: ObjectRow) -> None:
        former = self.objects.observe(row)
        self.disturbed += 1
        if not isinstance(row, Entry):
            return
        if row.kind in (Kind.PRIORITY_CLASS, Kind.NAMESPACE):
            self._runtime_changed(former if isinstance(former, Entry) else None, row)
        if row.kind is Kind.PRIORITY_CLASS:
            self._class_changed(row.name)
            self._delay_changed(former if isinstance(former, Entry) else None, row)
        self._offer(row, freed=unused(row))

    def _offer(self, row: Entry, *, freed: bool) -> None:
        event = Event(
            Happening.OBJECT,
            kind=row.kind,
            namespace=row.namespace,
            name=row.name,
            freed=freed,
        )
        self.queue.on_event(event, self.clock.monotonic())

    # What is deleted.

    def _gone(self, gone: Gone) -> None:
        old: Change | None
        if gone.kind is Kind.POD:
            old = self._pods.get(gone.uid)
        else:
            old = self._held(gone.kind).get(gone.uid)
        self.cluster.apply((gone,))
        if old is not None:
            self._after_gone(gone.kind, gone.uid, old)

    def _after_gone(self, kind: Kind, uid: Uid, old: Any) -> None:
        now = self.clock.monotonic()
        self.written.pop(uid, None)
        if kind is Kind.POD:
            self._pod_gone(uid, old)
        elif kind is Kind.NODE:
            self._nodes.pop(uid, None)
            self.unreachable.discard(old.name)
            self.disturbed += 1
            self.queue.on_event(Event(Happening.NODE_DELETED, node=old), now)
        elif isinstance(old, GroupRow):
            key = old.key
            self.forest.remove(key)
            self.disturbed += 1
            self.queue.group_changed(key, now)
            self.group_gone(old)
        else:
            self.reserved.gone(kind, (getattr(old, "namespace", ""), old.name))
            self.objects.remove(kind, old)
            self.disturbed += 1
            if isinstance(old, Entry):
                self._offer(old, freed=True)
                if kind is Kind.PRIORITY_CLASS:
                    gone = replace(old, row=PriorityClassRow(0))
                    self._runtime_changed(old, gone)
                    self._delay_changed(old, gone)

    def _pod_gone(self, uid: Uid, old: PodRow) -> None:
        self._pods.pop(uid, None)
        for observer in self.observers:
            observer(old, None)
        self.overdue.discard(uid)
        self._announced.gone(uid)
        self._members.leave(old)
        self.queue.remove(uid)
        if old.gang and self.gangs is not None:
            self.gangs.pod_gone(old)
        if not old.finished:
            if old.node:
                self._freed(old)
            elif old.nominated:
                self._freed(old, at_most=old.priority)
        self.pod_gone(old)
