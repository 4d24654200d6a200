"""The kinds that the scheduling plane watches; each list and event goes on as rows.

Kinds of API groups that may be absent count as empty while they are not served, PodGroups are read
in the newest version that is served, CompositePodGroups once their gate is on. Source:
specification 2.1; the design's "How data flows".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from reprieve.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from reprieve.api.kaiwo import GpuWorkload
from reprieve.api.scheduling import (
    Condition,
    LabelSelectorOwner,
    NamespaceObject,
    NodeObject,
    PodDisruptionBudget,
    PodGroup,
    PodObject,
    PriorityClass,
    SelectorOwner,
)
from reprieve.api.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from reprieve.controllers.persistent import persistent
from reprieve.controllers.scheduling.context import SchedulingContext, log
from reprieve.controllers.scheduling.served import COMPOSITE_GROUPS, pod_groups
from reprieve.controllers.scheduling.state import ClusterState, Written
from reprieve.controllers.troubles import Troubles
from reprieve.engine.cluster.rows import Change, Entry, Gone, Kind
from reprieve.engine.placement.profile import Policy
from reprieve.execution.reserve import DEVICE_CLAIMS, VOLUME_CLAIMS, VOLUMES
from reprieve.execution.turns import ANNOTATION, NodeTurns
from reprieve.intake.cluster.devices import (
    device_class_entry,
    resource_claim_entry,
    resource_slice_entry,
)
from reprieve.intake.cluster.groups import composite_row, group_row
from reprieve.intake.cluster.idle import idle_entry
from reprieve.intake.cluster.nodes import node_row
from reprieve.intake.cluster.pods import PodClasses, PodGates, pod_row
from reprieve.intake.cluster.policies import (
    budget_row,
    namespace_entry,
    priority_class_entry,
    selector_row,
)
from reprieve.intake.cluster.storage import (
    attachment_entry,
    capacity_entry,
    claim_entry,
    csi_driver_entry,
    csi_node_entry,
    storage_class_entry,
    volume_entry,
)
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.objects import identity_of
from reprieve.kube.reflector import Health, Reflector
from reprieve.kube.resource import GPU_WORKLOADS, NAMESPACES, NODES, PODS, Resource
from reprieve.units.durations import SECOND
from reprieve.units.ids import Uid
from reprieve.wording.kube_scheduler import (
    COMPOSITE_SCHEDULED,
    GROUP_SCHEDULED,
    GROUP_SCHEDULED_ALPHA,
    POD_SCHEDULED,
)

__all__ = ["Watches"]

_LOOK_AGAIN: Final = 30 * SECOND

W = TypeVar("W")
Converted = tuple[Change, Written | None]


@dataclass(frozen=True, slots=True)
class _Watched(Generic[W]):
    kind: Kind
    resource: Resource
    type: type[W]
    convert: Callable[[W], Converted]
    optional: bool = False


class _Sink(Generic[W]):
    """Hands what a reflector reads on to the state.

    An object that cannot be read is left out with a line in the log; what is known of it stays
    until the next list.
    """

    def __init__(self, watched: _Watched[W], state: ClusterState, listed: asyncio.Event) -> None:
        self._watched = watched
        self._state = state
        self._listed = listed

    def received(self, objects: list[W]) -> list[Converted]:
        found = (self._read(obj) for obj in objects)
        return [converted for converted in found if converted is not None]

    def replaced(self, objects: list[Converted], resource_version: str) -> None:
        self._state.replace(self._watched.kind, objects)
        self._listed.set()

    def applied(self, obj: W) -> None:
        converted = self._read(obj)
        if converted is not None:
            self._state.apply(*converted)

    def deleted(self, obj: W) -> None:
        uid, namespace, name, _ = identity_of(obj)
        known = Uid(uid or f"{namespace}/{name}")
        self._state.apply(Gone(self._watched.kind, known, namespace, name))

    def _read(self, obj: W) -> Converted | None:
        try:
            return self._watched.convert(obj)
        except Exception:
            _, namespace, name, _ = identity_of(obj)
            where = f"{namespace}/{name}".lstrip("/")
            log.exception("%s %s cannot be read", self._watched.kind.value, where)
            return None


class Watches:
    """All watches of one plane."""

    def __init__(
        self, context: SchedulingContext, state: ClusterState, turns: NodeTurns | None = None
    ) -> None:
        self._context = context
        self._state = state
        self._reflectors: dict[Kind, Reflector[Any]] = {}
        self._optional: set[Kind] = set()
        self._listed: dict[Kind, asyncio.Event] = {}
        self._troubles = Troubles(context.clock)
        self._groups: tuple[Resource, asyncio.Task[None]] | None = None
        self._kinds = _kinds(context.policy, turns)
        for watched in self._kinds:
            self._add(watched)
        self._listed[Kind.GROUP] = asyncio.Event()

    @staticmethod
    def kinds(policy: Policy) -> tuple[Kind, ...]:
        """Return the kinds without which there is no snapshot."""
        return (*(watched.kind for watched in _kinds(policy)), Kind.GROUP)

    @property
    def groups(self) -> Resource | None:
        """The resource of PodGroups, None while none are served."""
        return None if self._groups is None else self._groups[0]

    @property
    def condition_type(self) -> str:
        """The type of a group's condition under the served version."""
        resource = self.groups
        alpha = resource is not None and resource.version == "v1alpha2"
        return GROUP_SCHEDULED_ALPHA if alpha else GROUP_SCHEDULED

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watched in self._kinds:
                reflector = self._reflectors[watched.kind]
                group.create_task(reflector.run(), name=f"watch {watched.resource.qualified}")
            clock = self._context.clock
            group.create_task(persistent(self._absent, clock, log, "looking for kinds"))
            follow = partial(self._follow_groups, group)
            group.create_task(persistent(follow, clock, log, "looking for PodGroups"))

    async def synced(self) -> None:
        """Wait until every kind was listed, or is known not to be served."""
        for listed in self._listed.values():
            await listed.wait()

    @property
    def ready(self) -> bool:
        """Whether every kind was listed."""
        return all(listed.is_set() for listed in self._listed.values())

    def troubles(self) -> list[str]:
        """Return one line for each kind that cannot be read, but for those that may be absent."""
        return self._troubles.lines(
            reflector
            for kind, reflector in self._reflectors.items()
            if not (kind in self._optional and reflector.health is Health.NOT_SERVED)
        )

    def _add(self, watched: _Watched[Any]) -> Reflector[Any]:
        listed = self._listed.setdefault(watched.kind, asyncio.Event())

        def report(trouble: Exception) -> None:
            if not (watched.optional and isinstance(trouble, NotFound)):
                log.warning("%s", trouble)

        reflector: Reflector[Any] = Reflector(
            self._context.client,
            watched.resource,
            watched.type,
            _Sink(watched, self._state, listed),
            self._context.clock,
            report=report,
            restarted=lambda why: self._context.metrics.watch_restarts.labels(
                watched.resource.qualified, why
            ).inc(),
        )
        self._reflectors[watched.kind] = reflector
        if watched.optional:
            self._optional.add(watched.kind)
        return reflector

    async def _absent(self) -> None:
        """Count optional kinds that are not served as listed and empty."""
        while not all(self._listed[kind].is_set() for kind in self._optional):
            for kind in self._optional:
                listed = self._listed[kind]
                if self._reflectors[kind].health is Health.NOT_SERVED and not listed.is_set():
                    self._state.replace(kind, [])
                    listed.set()
            await self._context.clock.sleep(SECOND // 10)

    async def _follow_groups(self, group: asyncio.TaskGroup) -> None:
        """Watch PodGroups in the newest version that is served, and look for another one."""
        while True:
            try:
                resource = await pod_groups(self._context.client, self._context.clock)
            except ApiError as failure:
                log.warning("scheduling.k8s.io: %s", failure)
                await self._context.clock.sleep(SECOND)
                continue
            before = self.groups
            if resource != before or not self._listed[Kind.GROUP].is_set():
                await self._change_groups(group, resource)
            await self._context.clock.sleep(_LOOK_AGAIN)

    async def _change_groups(self, group: asyncio.TaskGroup, resource: Resource | None) -> None:
        if self._groups is not None:
            task = self._groups[1]
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self._groups = None
        if resource is None:
            log.info("no version of PodGroup is served: only plain pods are scheduled")
            self._context.group_version = ""
            self._reflectors.pop(Kind.GROUP, None)
            self._state.replace(Kind.GROUP, [])
            self._listed[Kind.GROUP].set()
            return
        log.info("PodGroups are read as %s", resource.api_version)
        self._context.group_version = resource.api_version
        convert = _group_converter(resource)
        reflector = self._add(_Watched(Kind.GROUP, resource, PodGroup, convert))
        self._groups = resource, group.create_task(reflector.run(), name="watch podgroups")


def _kinds(policy: Policy, turns: NodeTurns | None = None) -> Sequence[_Watched[Any]]:
    apps, core = ("apps", "v1"), ("", "v1")
    trees = policy.gates.composite_pod_group
    composite = _Watched(
        Kind.COMPOSITE, COMPOSITE_GROUPS, PodGroup, _composite_converter, optional=True
    )
    return (
        *((composite,) if trees else ()),
        *((_IDLE,) if policy.harm_order else ()),
        *((_PRIORITIES,) if policy.protection is not None or policy.max_min_runtime else ()),
        _Watched(Kind.POD, PODS, PodObject, _pod_converter(policy)),
        _Watched(Kind.NODE, NODES, NodeObject, _node_converter(turns)),
        _Watched(
            Kind.NAMESPACE, NAMESPACES, NamespaceObject, lambda each: (namespace_entry(each), None)
        ),
        _Watched(
            Kind.BUDGET,
            Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
            PodDisruptionBudget,
            lambda budget: (budget_row(budget), None),
            optional=True,
        ),
        _selecting(Kind.SERVICE, core, "services", SelectorOwner),
        _selecting(Kind.REPLICATION_CONTROLLER, core, "replicationcontrollers", SelectorOwner),
        _selecting(Kind.REPLICA_SET, apps, "replicasets", LabelSelectorOwner),
        _selecting(Kind.STATEFUL_SET, apps, "statefulsets", LabelSelectorOwner),
        *(
            _Watched(kind, resource, wire, _entry(convert), optional=True)
            for kind, resource, wire, convert in _TABLES
        ),
    )


_IDLE: Final = _Watched(
    Kind.IDLE,
    GPU_WORKLOADS,
    GpuWorkload,
    lambda found: (idle_entry(found), None),
    optional=True,
)


_PRIORITIES: Final = _Watched(
    Kind.PRIORITY_CLASS,
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False),
    PriorityClass,
    lambda found: (priority_class_entry(found), None),
)


def _entry(convert: Callable[[Any], Entry]) -> Callable[[Any], Converted]:
    return lambda obj: (convert(obj), None)


def _cluster_wide(group: str, plural: str, kind: str) -> Resource:
    return Resource(group, "v1", plural, kind, namespaced=False)


_STORAGE: Final = "storage.k8s.io"
_DEVICES: Final = "resource.k8s.io"
_TABLES: Final[tuple[tuple[Kind, Resource, type[Any], Callable[[Any], Entry]], ...]] = (
    (Kind.CLAIM, VOLUME_CLAIMS, PersistentVolumeClaim, claim_entry),
    (Kind.VOLUME, VOLUMES, PersistentVolume, volume_entry),
    (
        Kind.STORAGE_CLASS,
        _cluster_wide(_STORAGE, "storageclasses", "StorageClass"),
        StorageClass,
        storage_class_entry,
    ),
    (Kind.CSI_NODE, _cluster_wide(_STORAGE, "csinodes", "CSINode"), CsiNode, csi_node_entry),
    (
        Kind.CSI_DRIVER,
        _cluster_wide(_STORAGE, "csidrivers", "CSIDriver"),
        CsiDriver,
        csi_driver_entry,
    ),
    (
        Kind.CSI_CAPACITY,
        Resource(_STORAGE, "v1", "csistoragecapacities", "CSIStorageCapacity"),
        CsiStorageCapacity,
        capacity_entry,
    ),
    (
        Kind.ATTACHMENT,
        _cluster_wide(_STORAGE, "volumeattachments", "VolumeAttachment"),
        VolumeAttachment,
        attachment_entry,
    ),
    (Kind.RESOURCE_CLAIM, DEVICE_CLAIMS, ResourceClaim, resource_claim_entry),
    (
        Kind.RESOURCE_SLICE,
        _cluster_wide(_DEVICES, "resourceslices", "ResourceSlice"),
        ResourceSlice,
        resource_slice_entry,
    ),
    (
        Kind.DEVICE_CLASS,
        _cluster_wide(_DEVICES, "deviceclasses", "DeviceClass"),
        DeviceClass,
        device_class_entry,
    ),
)


def _selecting(kind: Kind, version: tuple[str, str], plural: str, wire: type[Any]) -> _Watched[Any]:
    resource = Resource(*version, plural, kind.value)
    return _Watched(
        kind, resource, wire, lambda owner: (selector_row(owner, kind), None), optional=True
    )


def _pod_converter(policy: Policy) -> Callable[[PodObject], Converted]:
    gates = policy.gates
    classes = PodClasses(
        PodGates(
            gates.node_allocatable_claims,
            gates.preemption_policy_label,
            gates.toleration_comparisons,
        )
    )

    def convert(pod: PodObject) -> Converted:
        row = pod_row(pod, classes)
        if row.node or row.finished:
            return row, None
        return row, _written(pod.status.conditions, POD_SCHEDULED, pod.metadata.generation)

    return convert


def _node_converter(turns: NodeTurns | None) -> Callable[[NodeObject], Converted]:
    def convert(node: NodeObject) -> Converted:
        row = node_row(node)
        if turns is not None:
            annotation = (node.metadata.annotations or {}).get(ANNOTATION, "")
            turns.seen(row.name, row.version, annotation)
        return row, None

    return convert


def _group_converter(resource: Resource) -> Callable[[PodGroup], Converted]:
    type = GROUP_SCHEDULED_ALPHA if resource.version == "v1alpha2" else GROUP_SCHEDULED

    def convert(group: PodGroup) -> Converted:
        conditions = group.status.conditions
        return group_row(group), _written(conditions, type, group.metadata.generation)

    return convert


def _composite_converter(group: PodGroup) -> Converted:
    conditions = group.status.conditions
    return composite_row(group), _written(
        conditions, COMPOSITE_SCHEDULED, group.metadata.generation
    )


def _written(conditions: list[Condition] | None, type: str, generation: int) -> Written:
    for each in conditions or ():
        if each.type == type:
            triple = (each.status, each.reason or "", each.message or "")
            return Written(triple, each.last_transition_time or "", generation)
    return Written(generation=generation)
