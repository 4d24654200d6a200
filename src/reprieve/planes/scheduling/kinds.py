"""The kinds that the scheduling plane reads, and how each object becomes a row.

Kinds of API groups that may be absent are optional. PodGroups are read in whichever version is
served, CompositePodGroups once their gate is on, GpuWorkloads and PriorityClasses once an option
requests them. Source: specification of the scheduling plane, section 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from reprieve.api.core import Namespace
from reprieve.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from reprieve.api.kaiwo import GpuWorkload
from reprieve.api.pod_groups import PodGroup
from reprieve.api.scheduling import (
    LabelSelectorOwner,
    NodeObject,
    PodDisruptionBudget,
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
from reprieve.engine.cluster.rows import Change, Entry, Kind
from reprieve.engine.placement.profile import Policy
from reprieve.execution.turns import ANNOTATION, NodeTurns
from reprieve.execution.writes.reserve import VOLUME_CLAIMS, VOLUMES
from reprieve.intake.cluster.devices import (
    device_class_entry,
    resource_claim_entry,
    resource_slice_entry,
)
from reprieve.intake.cluster.groups import composite_row, group_row
from reprieve.intake.cluster.idle import idle_entry
from reprieve.intake.cluster.nodes import node_row
from reprieve.intake.cluster.pod_classes import PodClasses, PodGates
from reprieve.intake.cluster.pods import pod_row
from reprieve.intake.cluster.policies import (
    budget_row,
    namespace_entry,
    priority_class_entry,
    selector_row,
)
from reprieve.intake.cluster.sharing import SharedNodes
from reprieve.intake.cluster.storage import (
    attachment_entry,
    capacity_entry,
    claim_entry,
    csi_driver_entry,
    csi_node_entry,
    storage_class_entry,
    volume_entry,
)
from reprieve.kube.resource import (
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_SLICES,
    GPU_WORKLOADS,
    NAMESPACES,
    NODES,
    PODS,
    Resource,
)
from reprieve.planes.scheduling.served import COMPOSITE_GROUPS
from reprieve.planes.scheduling.written import Written, written
from reprieve.wording.kube_scheduler import (
    COMPOSITE_SCHEDULED,
    GROUP_SCHEDULED,
    GROUP_SCHEDULED_ALPHA,
    POD_SCHEDULED,
)

__all__ = [
    "Converted",
    "Watched",
    "group_condition_type",
    "kinds",
    "pod_group_kind",
    "snapshot_kinds",
]

W = TypeVar("W")
Converted = tuple[Change, Written | None]


@dataclass(frozen=True, slots=True)
class Watched(Generic[W]):
    """One kind: where it is served, what is read of it, and what becomes of that.

    `optional`: it counts as empty while it is not served.
    """

    kind: Kind
    resource: Resource
    type: type[W]
    convert: Callable[[W], Converted]
    optional: bool = False


def kinds(
    policy: Policy, turns: NodeTurns | None = None, *, classes: bool = False
) -> Sequence[Watched[Any]]:
    """Return all kinds but PodGroups; `turns` gets the turns that stand on nodes.

    `classes`: PriorityClasses in any case.
    """
    apps, core = ("apps", "v1"), ("", "v1")
    trees = policy.gates.composite_pod_group
    composite = Watched(
        Kind.COMPOSITE, COMPOSITE_GROUPS, PodGroup, _composite_converter, optional=True
    )
    return (
        *((composite,) if trees else ()),
        *((_IDLE,) if policy.harm_order else ()),
        *((_PRIORITIES,) if classes or _reads_classes(policy) else ()),
        Watched(Kind.POD, PODS, PodObject, _pod_converter(policy)),
        Watched(Kind.NODE, NODES, NodeObject, _node_converter(turns)),
        Watched(Kind.NAMESPACE, NAMESPACES, Namespace, lambda each: (namespace_entry(each), None)),
        Watched(
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
            Watched(kind, resource, wire, _entry(convert), optional=True)
            for kind, resource, wire, convert in _TABLES
        ),
    )


def snapshot_kinds(policy: Policy, *, classes: bool = False) -> tuple[Kind, ...]:
    """Return the kinds without which there is no snapshot; `classes` as in `kinds`."""
    return (*(watched.kind for watched in kinds(policy, classes=classes)), Kind.GROUP)


def _reads_classes(policy: Policy) -> bool:
    return policy.protection is not None or policy.max_min_runtime > 0


_IDLE: Final = Watched(
    Kind.IDLE,
    GPU_WORKLOADS,
    GpuWorkload,
    lambda found: (idle_entry(found), None),
    optional=True,
)


_PRIORITIES: Final = Watched(
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
    (Kind.RESOURCE_SLICE, DEVICE_SLICES, ResourceSlice, resource_slice_entry),
    (Kind.DEVICE_CLASS, DEVICE_CLASSES, DeviceClass, device_class_entry),
)


def _selecting(kind: Kind, version: tuple[str, str], plural: str, wire: type[Any]) -> Watched[Any]:
    resource = Resource(*version, plural, kind.value)
    return Watched(
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
        return row, written(pod.status.conditions, POD_SCHEDULED, pod.metadata.generation)

    return convert


def _node_converter(turns: NodeTurns | None) -> Callable[[NodeObject], Converted]:
    shared = SharedNodes()

    def convert(node: NodeObject) -> Converted:
        row = node_row(node, shared)
        if turns is not None:
            annotation = (node.metadata.annotations or {}).get(ANNOTATION, "")
            turns.seen(row.name, row.version, annotation)
        return row, None

    return convert


def pod_group_kind(resource: Resource) -> Watched[PodGroup]:
    """Return PodGroups as they are served under this resource."""
    type = group_condition_type(resource)

    def convert(group: PodGroup) -> Converted:
        conditions = group.status.conditions
        return group_row(group), written(conditions, type, group.metadata.generation)

    return Watched(Kind.GROUP, resource, PodGroup, convert)


def group_condition_type(resource: Resource | None) -> str:
    """Return the type of a group's condition under a version, None for the newest one."""
    alpha = resource is not None and resource.version == "v1alpha2"
    return GROUP_SCHEDULED_ALPHA if alpha else GROUP_SCHEDULED


def _composite_converter(group: PodGroup) -> Converted:
    conditions = group.status.conditions
    return composite_row(group), written(conditions, COMPOSITE_SCHEDULED, group.metadata.generation)
