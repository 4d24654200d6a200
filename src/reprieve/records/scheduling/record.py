"""The input of a scheduling decision, as it stands in a Preemption's `spec.input`.

The wrapping is that of `record`; `data` holds a `SchedulingInput`: the rows of the snapshot that
the attempt can have read, placed pods as columns because there are many of them. Left out are other
pending pods, images that no pod of the unit uses, selectors of other namespaces, and objects of
volumes and devices where no pod requests any. `restored` makes a snapshot of it again, which
decides alike. Source: promise "Explained" of the design.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Self

import msgspec
import numpy as np

import reprieve
from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.devices import DeviceClassRow, ResourceClaimRow, ResourceSliceRow
from reprieve.engine.cluster.rows import (
    WITH_GROUP,
    BudgetRow,
    Entry,
    GroupRow,
    IdleRow,
    Kind,
    NamespaceRow,
    NodeRow,
    NoticeRow,
    PodClass,
    PodLabels,
    PodRow,
    PriorityClassRow,
    SelectorRow,
)
from reprieve.engine.cluster.snapshot import NO_START, Flag, Snapshot
from reprieve.engine.cluster.storage import (
    AttachmentRow,
    CapacityRow,
    ClaimRow,
    CsiDriverRow,
    CsiNodeRow,
    StorageClassRow,
    VolumeRow,
)
from reprieve.engine.disruptions.questions import BudgetHold, Hold, Rule, budget_of
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.records.idle.record import packed
from reprieve.units.counts import counted
from reprieve.units.ids import Uid

__all__ = ["MOST_PODS", "SchedulingInput", "encode_scheduling", "holds_of", "restored"]

#: Most placed pods: more would not fit into a record, whatever they are called.
MOST_PODS: Final = 15_000

_VOLUMES: Final = (
    Kind.CLAIM,
    Kind.VOLUME,
    Kind.STORAGE_CLASS,
    Kind.CSI_NODE,
    Kind.CSI_DRIVER,
    Kind.CSI_CAPACITY,
    Kind.ATTACHMENT,
)
_DEVICES: Final = (Kind.RESOURCE_CLAIM, Kind.RESOURCE_SLICE, Kind.DEVICE_CLASS)
_FAR: Final = 2**62  # a deadline that never comes


class Tables(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rows of kinds that are kept whole, each by namespace and name.

    `runtimes`: of Namespaces and PriorityClasses that state a minimum runtime, with kind and name.
    `among`: the only pods that could be victims, where the unit was given some.
    """

    namespaces: tuple[tuple[str, dict[str, str]], ...] = ()
    budgets: tuple[BudgetRow, ...] = ()
    selectors: tuple[SelectorRow, ...] = ()
    claims: tuple[ClaimRow, ...] = ()
    volumes: tuple[VolumeRow, ...] = ()
    storage_classes: tuple[StorageClassRow, ...] = ()
    csi_nodes: tuple[CsiNodeRow, ...] = ()
    csi_drivers: tuple[CsiDriverRow, ...] = ()
    capacities: tuple[CapacityRow, ...] = ()
    attachments: tuple[AttachmentRow, ...] = ()
    resource_claims: tuple[ResourceClaimRow, ...] = ()
    resource_slices: tuple[ResourceSliceRow, ...] = ()
    device_classes: tuple[DeviceClassRow, ...] = ()
    idle: tuple[IdleRow, ...] = ()
    notices: tuple[NoticeRow, ...] = ()
    priority_classes: tuple[tuple[str, int], ...] = ()
    runtimes: tuple[tuple[str, str, int], ...] = ()
    among: tuple[Uid, ...] = ()


class _Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """A hold; `budget` stands there where a harm budget is the reason."""

    until: int
    rule: Rule
    budget: str = ""

    @classmethod
    def of(cls, hold: Hold) -> Self:
        """Return the stored form of a hold."""
        return cls(hold.until, hold.rule, budget_of(hold))

    @property
    def hold(self) -> Hold:
        """Return the hold."""
        until = Nanos(self.until)
        return BudgetHold(until, self.rule, self.budget) if self.budget else Hold(until, self.rule)


class PlacedPods(msgspec.Struct, frozen=True):
    """Placed pods, by slot; numbers are indices into the lists of `SchedulingInput`."""

    uids: list[str]
    keys: list[str]  # namespace/name
    nodes: list[int]
    classes: list[int]
    labels: list[int]
    groups: list[int]  # -1 for none
    priorities: list[int]
    starts: list[int | None]
    flags: list[int]
    checkpoints: list[int] = []  # empty where none was stated
    protections: list[tuple[int, str]] = []  # with the place in these lists
    min_runtimes: list[tuple[int, int]] = []  # likewise
    holds: list[tuple[int, _Held]] = []  # likewise


class SchedulingInput(msgspec.Struct, frozen=True):
    """Everything that the attempt depends on; `program` is Reprieve's version then.

    `nominations`: pod, node, priority, as they stood when the unit's turn came. `overdue`: victims
    that did not end, with whose capacity no unit plans. `now`: Unix seconds of the decision, 0
    where it made no difference.
    """

    unit: Unit
    policy: Policy
    revision: int
    nodes: tuple[NodeRow, ...]
    classes: tuple[PodClass, ...]
    labels: tuple[PodLabels, ...]
    groups: tuple[str, ...]
    group_rows: tuple[GroupRow, ...]
    pods: PlacedPods
    pending: tuple[PodRow, ...]
    nominations: tuple[tuple[Uid, str, int], ...] = ()
    overdue: tuple[Uid, ...] = ()
    tables: Tables = Tables()
    program: str = ""
    now: int = 0


_FIELDS: Final[Mapping[Kind, str]] = {
    Kind.CLAIM: "claims",
    Kind.VOLUME: "volumes",
    Kind.STORAGE_CLASS: "storage_classes",
    Kind.CSI_NODE: "csi_nodes",
    Kind.CSI_DRIVER: "csi_drivers",
    Kind.CSI_CAPACITY: "capacities",
    Kind.ATTACHMENT: "attachments",
    Kind.RESOURCE_CLAIM: "resource_claims",
    Kind.RESOURCE_SLICE: "resource_slices",
    Kind.DEVICE_CLASS: "device_classes",
    Kind.IDLE: "idle",
    Kind.NOTICE: "notices",
}


def encode_scheduling(
    snapshot: Snapshot,
    policy: Policy,
    unit: Unit,
    earlier: Iterable[Attempt] = (),
    overdue: Collection[Uid] = (),
    now: int = 0,
    holds: Mapping[Uid, Hold] = MappingProxyType({}),
    among: Collection[Uid] = (),
) -> dict[str, Any]:
    """Return the value for `spec.input`.

    `earlier`: attempts over the same snapshot before this one, whose nominations count already.
    `holds`: who was held from the unit. `among`: the only pods that could be its victims.
    """
    slots = np.flatnonzero(snapshot.pod_node >= 0)
    omitted = counted(len(slots), "pod")
    if len(slots) > MOST_PODS:
        return packed(b"", omitted, leave_out=True)
    nominations = _nominations(snapshot, earlier)
    wanted = dict.fromkeys((*unit.pods, *(uid for uid, _, _ in nominations)))
    pending = tuple(snapshot.pending[uid].row for uid in wanted if uid in snapshot.pending)
    classes, class_of = np.unique(snapshot.pod_class[slots], return_inverse=True)
    checkpoints = snapshot.pod_checkpoint[slots]
    labels, label_of = np.unique(snapshot.pod_labels[slots], return_inverse=True)
    decided_on = SchedulingInput(
        unit=unit,
        policy=policy,
        revision=snapshot.revision,
        nodes=_nodes(snapshot.nodes, pending),
        classes=_present(snapshot.classes[number] for number in classes.tolist()),
        labels=_present(snapshot.labels[number] for number in labels.tolist()),
        groups=snapshot.group_keys,
        group_rows=_present(snapshot.group_rows),
        pods=PlacedPods(
            uids=[snapshot.pod_uids[slot] for slot in slots.tolist()],
            keys=[snapshot.pod_keys[slot] for slot in slots.tolist()],
            nodes=snapshot.pod_node[slots].tolist(),
            classes=class_of.tolist(),
            labels=label_of.tolist(),
            groups=snapshot.pod_group[slots].tolist(),
            priorities=snapshot.pod_priority[slots].tolist(),
            starts=[None if at == NO_START else at for at in snapshot.pod_start[slots].tolist()],
            flags=snapshot.pod_flags[slots].tolist(),
            checkpoints=checkpoints.tolist() if checkpoints.any() else [],
            protections=[
                (place, snapshot.protections[slot])
                for place, slot in enumerate(slots.tolist() if snapshot.protections else ())
                if slot in snapshot.protections
            ],
            min_runtimes=[
                (place, snapshot.min_runtimes[slot])
                for place, slot in enumerate(slots.tolist() if snapshot.min_runtimes else ())
                if slot in snapshot.min_runtimes
            ],
            holds=[
                (place, _Held.of(holds[Uid(snapshot.pod_uids[slot])]))
                for place, slot in enumerate(slots.tolist() if holds else ())
                if snapshot.pod_uids[slot] in holds
            ],
        ),
        pending=pending,
        nominations=nominations,
        overdue=tuple(sorted(overdue)),
        tables=msgspec.structs.replace(_tables(snapshot, pending), among=tuple(sorted(among))),
        program=reprieve.__version__,
        now=now,
    )
    return packed(msgspec.json.encode(decided_on, order="deterministic"), omitted)


def restored(decided_on: SchedulingInput) -> Snapshot:
    """Return a snapshot of the same rows.

    Raises:
        IndexError: a number leads nowhere, so that this was not written by `encode_scheduling`.
    """
    cluster = Cluster()
    cluster.apply(decided_on.nodes)
    cluster.apply(decided_on.group_rows)
    cluster.apply(_changes(decided_on.tables))
    placed = list(_placed(decided_on))
    cluster.apply(row for row, assumed in placed if not assumed)
    cluster.apply(replace(row, node="") for row, assumed in placed if assumed)
    for row, assumed in placed:
        if assumed:
            cluster.assume(row.uid, row.node, _FAR)
    cluster.apply(decided_on.pending)
    nominated = {uid: (node, priority) for uid, node, priority in decided_on.nominations}
    for row in decided_on.pending:
        node, priority = nominated.get(row.uid, ("", row.priority))
        cluster.nominate(row.uid, node, priority, _FAR)
    return replace(cluster.snapshot(), revision=decided_on.revision)


def holds_of(decided_on: SchedulingInput) -> Mapping[Uid, Hold]:
    """Return who was held from the unit, until when and by which rule.

    Raises:
        IndexError: as `restored`.
    """
    uids = decided_on.pods.uids
    return {Uid(uids[place]): held.hold for place, held in decided_on.pods.holds}


def _nominations(
    snapshot: Snapshot, earlier: Iterable[Attempt]
) -> tuple[tuple[Uid, str, int], ...]:
    found = {
        each.uid: (snapshot.nodes[each.node].name, each.priority) for each in snapshot.nominations
    }
    for attempt in earlier:
        index = snapshot.group_index.get(attempt.unit.group, -1)
        group = snapshot.group_rows[index] if index >= 0 else None
        for member in attempt.members:
            pending = snapshot.pending.get(member.uid)
            if pending is not None and isinstance(member.nominate, str):
                priority = pending.row.priority if group is None else group.priority
                found[member.uid] = member.nominate, priority
    return tuple((uid, node, priority) for uid, (node, priority) in sorted(found.items()))


def _nodes(rows: Iterable[NodeRow], pending: Sequence[PodRow]) -> tuple[NodeRow, ...]:
    """Return the nodes without images that decide nothing."""
    used = {image for row in pending for image in row.pod_class.images}
    return tuple(
        replace(row, images=tuple(each for each in row.images if not used.isdisjoint(each.names)))
        for row in rows
    )


def _tables(snapshot: Snapshot, pending: Sequence[PodRow]) -> Tables:
    held = snapshot.tables
    at_home = {row.namespace for row in pending}
    kinds: list[Kind] = []
    if any(row.pod_class.volumes or row.pod_class.disks for row in pending):
        kinds += _VOLUMES
    groups = (row for row in snapshot.group_rows if row is not None)
    if any(row.claims or row.pod_class.extended for row in pending) or any(
        group.claims for group in groups
    ):
        kinds += _DEVICES
    kinds += (Kind.IDLE, Kind.NOTICE)
    return Tables(
        namespaces=tuple(
            (name, dict(row.labels))
            for (_, name), row in sorted(_of(held, Kind.NAMESPACE), key=_key)
        ),
        priority_classes=tuple(
            (name, row.value) for (_, name), row in sorted(_of(held, Kind.PRIORITY_CLASS), key=_key)
        ),
        runtimes=tuple(
            (kind.value, name, row.min_runtime)
            for kind in (Kind.NAMESPACE, Kind.PRIORITY_CLASS)
            for (_, name), row in sorted(_of(held, kind), key=_key)
            if row.min_runtime is not None
        ),
        budgets=snapshot.budgets,
        selectors=tuple(
            row for (home, _), row in sorted(_of(held, Kind.SELECTOR), key=_key) if home in at_home
        ),
        **{_FIELDS[kind]: tuple(r for _, r in sorted(_of(held, kind), key=_key)) for kind in kinds},
    )


def _of(
    tables: Mapping[Kind, Mapping[tuple[str, str], Any]], kind: Kind
) -> Iterable[tuple[tuple[str, str], Any]]:
    return tables.get(kind, {}).items()


def _key(item: tuple[tuple[str, str], Any]) -> tuple[str, str]:
    return item[0]


def _present(rows: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(row for row in rows if row is not None)


def _changes(tables: Tables) -> Iterator[BudgetRow | SelectorRow | Entry]:
    runtimes = {(kind, name): seconds for kind, name, seconds in tables.runtimes}
    for name, labels in tables.namespaces:
        space = NamespaceRow(labels, runtimes.get((Kind.NAMESPACE, name)))
        yield Entry(Kind.NAMESPACE, Uid(f"namespace-{name}"), "", name, 0, space)
    for name, value in tables.priority_classes:
        named = PriorityClassRow(value, runtimes.get((Kind.PRIORITY_CLASS, name)))
        yield Entry(Kind.PRIORITY_CLASS, Uid(f"priority-class-{name}"), "", name, 0, named)
    yield from tables.budgets
    yield from tables.selectors
    for kind, field in _FIELDS.items():
        for row in getattr(tables, field):
            yield Entry(kind, row.uid, getattr(row, "namespace", ""), row.name, row.version, row)


def _placed(decided_on: SchedulingInput) -> Iterator[tuple[PodRow, bool]]:
    """Yield the placed pods, and whether each was only assumed."""
    pods = decided_on.pods
    columns = (
        pods.uids,
        pods.keys,
        pods.nodes,
        pods.classes,
        pods.labels,
        pods.groups,
        pods.priorities,
        pods.starts,
        pods.flags,
        pods.checkpoints or [0] * len(pods.uids),
    )
    protections, min_runtimes = dict(pods.protections), dict(pods.min_runtimes)
    for place, facts in enumerate(zip(*columns, strict=True)):
        uid, key, node, pod_class, labels, group, priority, start, flags, checkpoint = facts
        namespace, _, name = key.partition("/")
        row = PodRow(
            uid=Uid(uid),
            namespace=namespace,
            name=name,
            version=0,
            pod_class=decided_on.classes[pod_class],
            labels=decided_on.labels[labels].labels,
            node=decided_on.nodes[node].name,
            priority=priority,
            group=decided_on.groups[group].partition("/")[2] if group >= 0 else "",
            start=start,
            deleting=bool(flags & Flag.DELETING),
            preempted=bool(flags & Flag.PREEMPTED),
            checkpoint=checkpoint,
            protection=protections.get(place, ""),
            disruption=WITH_GROUP if flags & Flag.WITH_GROUP else "",
            min_runtime=min_runtimes.get(place),
        )
        yield row, bool(flags & Flag.ASSUMED)
