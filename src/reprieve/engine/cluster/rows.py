"""What the engine knows of a cluster: one immutable row per object.

Rows hold facts only, in base units (milli-CPU, bytes, counts, seconds). What a pod's spec states is
defined in `pod_spec` and read from here as well; the columns of `Cluster` refer to it by number.
`version` orders the events of one object. Source: the design's "State that can be trusted";
specification of the scheduling plane, sections 2 and 21.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from reprieve.engine.cluster.pod_spec import (
    AffinityTerm,
    Disk,
    ExtendedRequest,
    HostPort,
    Labels,
    NodeTerm,
    Operator,
    PodClass,
    Requirement,
    Selector,
    SpreadConstraint,
    Toleration,
    VolumeUse,
    Weighted,
)
from reprieve.engine.value import value
from reprieve.units.ids import Uid

__all__ = [
    "COMPOSITE",
    "CPU",
    "MEMORY",
    "PODS",
    "STORAGE",
    "WITH_GROUP",
    "AffinityTerm",
    "BudgetRow",
    "Change",
    "Disk",
    "Entry",
    "ExtendedRequest",
    "Gone",
    "GroupRow",
    "HostPort",
    "Image",
    "Kind",
    "Labels",
    "NamespaceRow",
    "NodeRow",
    "NodeTerm",
    "NoticeRow",
    "Operator",
    "PodClass",
    "PodLabels",
    "PodRow",
    "PriorityClassRow",
    "Requirement",
    "Selector",
    "SelectorRow",
    "SpreadConstraint",
    "Taint",
    "Toleration",
    "VolumeUse",
    "Weighted",
]

PODS: Final = "pods"  # every pod requests one of them
CPU: Final = "cpu"  # milli-CPU
MEMORY: Final = "memory"  # bytes
STORAGE: Final = "ephemeral-storage"  # bytes
WITH_GROUP: Final = "with-group"  # what a pod states that is evicted only with all of its group
COMPOSITE: Final = "compositepodgroup:"  # what keys of composite groups begin with


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image on a node, under each of its names, and its size in bytes."""

    names: tuple[str, ...]
    size: int


@value
class PodRow:
    """A pod. `start`: Unix seconds of `status.startTime`; None counts as now.

    `claims`: (entry of spec.resourceClaims, name of the ResourceClaim), in order; the name is None
    where none is needed, and empty until the claim is made from its template. `owner`: kind and
    name of the controller, for the default spread selector.
    """

    uid: Uid
    namespace: str
    name: str
    version: int
    pod_class: PodClass
    labels: Labels = ()
    node: str = ""  # bound to
    nominated: str = ""
    priority: int = 0
    group: str = ""  # spec.schedulingGroup.podGroupName
    start: int | None = None
    created: int = 0  # Unix seconds
    deleting: bool = False
    preempted: bool = False  # deleting, and its first DisruptionTarget is the scheduler's (7.2)
    finished: bool = False  # Succeeded or Failed
    gates: tuple[str, ...] = ()
    claims: tuple[tuple[str, str | None], ...] = ()
    owner: tuple[str, str] = ("", "")
    gang: str = ""  # namespace/name of the gang of an older API (gang jobs, 1.2)
    gang_annotations: Labels = ()  # the annotations that state what that gang is
    released: tuple[str, ...] = ()  # the annotations that an earlier binding in a gang has left
    phase: str = ""  # of members of such gangs, as are the names of all their owners
    owners: tuple[str, ...] = ()
    workload: str = ""  # namespace/name of the Kueue Workload that it runs for
    checkpoint: int = 0  # Unix seconds of the last one, 0 where none was stated
    protection: str = ""  # PriorityClass that counts for it as a victim, if it is in no group
    disruption: str = ""  # WITH_GROUP: evicted only with all pods of its group
    # Seconds from its start for which it is no victim, if it is in no group: None where nothing is
    # stated, -1 for what cannot be read. The same in the rows below.
    min_runtime: int | None = None
    generation: int = 0
    controller: str = ""  # uid of the controller
    failed: int = 0  # Unix seconds at which a container ended badly for the last time
    stuck: bool = False  # a container cannot be started
    disrupted: str = ""  # the reason stated for its eviction
    # Seconds of notice that it requests before its eviction; 0: none stated, -1: unreadable.
    notice: int = 0
    speaks: bool = False  # it answers a notice for its unit
    save_cost: int = 0  # duration of a save in seconds, 0 where it states nothing
    # With which number its pod set begins; -1: what cannot be read.
    index_offset: int = 0


@value
class PodLabels:
    """Namespace and labels of a pod: all that other pods' selectors look at."""

    namespace: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node. `allocatable` in base units, `pods` included.

    `unready_since`: of a node that is not ready, when it ceased to be, Unix nanoseconds; None where
    no condition states whether it is.
    """

    uid: Uid
    name: str
    version: int
    allocatable: Mapping[str, int]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    images: tuple[Image, ...] = ()
    features: frozenset[str] = frozenset()
    ready: bool = True
    unready_since: int | None = None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A PodGroup, or a CompositePodGroup, whose members are groups that name it as their parent.

    `min_count`: of pods, or of child groups; None: the basic policy. `topology_key` empty:
    unconstrained.
    """

    uid: Uid
    namespace: str
    name: str
    version: int
    min_count: int | None = None
    all_or_nothing: bool = False  # disruptionMode all
    priority: int = 0
    preempts: bool = True  # its own preemptionPolicy is not Never
    topology_key: str = ""
    parent: str = ""
    claims: tuple[tuple[str, str | None], ...] = ()
    created: int = 0
    deleting: bool = False
    scheduled: bool = False  # PodGroupInitiallyScheduled is True
    composite: bool = False
    checkpoint: int = 0  # Unix seconds of the last one of all members, 0 where none was stated
    protection: str = ""  # PriorityClass that counts for it as a victim
    floor: int = 0  # pods of which fewer are of no use, -1 for one that cannot be read
    min_runtime: int | None = None
    notice: int = 0  # seconds of notice that its pods request before its eviction, as of a pod
    save_cost: int = 0

    @property
    def key(self) -> str:
        """What identifies it among groups: namespace/name, after `COMPOSITE` where it is one."""
        own = f"{self.namespace}/{self.name}"
        return COMPOSITE + own if self.composite else own

    @property
    def kind(self) -> Kind:
        """The kind of its object."""
        return Kind.COMPOSITE if self.composite else Kind.GROUP

    @property
    def parent_key(self) -> str:
        """The key of the composite group above it, empty for a root."""
        return f"{COMPOSITE}{self.namespace}/{self.parent}" if self.parent else ""


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A PodDisruptionBudget; a selector that is empty or cannot be read is None (7.6)."""

    uid: Uid
    namespace: str
    name: str
    version: int
    selector: Selector
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()  # names in status.disruptedPods


@dataclass(frozen=True, slots=True)
class SelectorRow:
    """A Service, ReplicaSet, StatefulSet or ReplicationController, for default spreading (21.6)."""

    uid: Uid
    kind: str
    namespace: str
    name: str
    version: int
    selector: Selector


class Kind(StrEnum):
    """Kinds of objects that make up the state.

    The first four are columns. Services, ReplicaSets, StatefulSets and ReplicationControllers
    share the table `SELECTOR`, under the name `KIND/NAME`. The rows of all others are kept whole,
    by namespace and name, because few decisions read them.
    """

    POD = "Pod"
    NODE = "Node"
    GROUP = "PodGroup"
    COMPOSITE = "CompositePodGroup"
    SERVICE = "Service"
    REPLICA_SET = "ReplicaSet"
    STATEFUL_SET = "StatefulSet"
    REPLICATION_CONTROLLER = "ReplicationController"
    NAMESPACE = "Namespace"
    SELECTOR = "Selector"
    BUDGET = "PodDisruptionBudget"
    CLAIM = "PersistentVolumeClaim"
    VOLUME = "PersistentVolume"
    STORAGE_CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    CSI_DRIVER = "CSIDriver"
    CSI_CAPACITY = "CSIStorageCapacity"
    ATTACHMENT = "VolumeAttachment"
    RESOURCE_CLAIM = "ResourceClaim"
    RESOURCE_SLICE = "ResourceSlice"
    DEVICE_CLASS = "DeviceClass"
    IDLE = "GpuWorkload"
    NOTICE = "Notice"
    PRIORITY_CLASS = "PriorityClass"


@dataclass(frozen=True, slots=True)
class IdleRow:
    """Work whose devices are idle: names of its pods, and Unix seconds of the last measurement."""

    uid: Uid
    namespace: str
    name: str
    version: int
    pods: tuple[str, ...]
    measured: int


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """A placed pod, by its name, that would get notice before an eviction.

    `time`: seconds of notice that it would be granted; `save`: seconds that its save lasts. Either
    is 0 where it is not known. `credit`: of its lineage, in thousandths.
    """

    uid: Uid
    namespace: str
    name: str
    version: int
    time: int
    save: int
    credit: int


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """A Namespace: its labels, and the minimum runtime of what runs in it."""

    labels: Mapping[str, str]
    min_runtime: int | None = None


@dataclass(frozen=True, slots=True)
class PriorityClassRow:
    """A PriorityClass: its value, and the minimum runtime of pods that name it.

    `delay`: nanoseconds that they wait before they preempt, None where it does not state.
    `notice_max`: maximum notice in seconds that they may get, None where it does not state.
    """

    value: int
    min_runtime: int | None = None
    delay: int | None = None
    notice_max: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a kind that is kept whole (`row`); `namespace` is empty for cluster-wide kinds."""

    kind: Kind
    uid: Uid
    namespace: str
    name: str
    version: int
    row: Any


@dataclass(frozen=True, slots=True)
class Gone:
    """An object was deleted; nothing happens when another uid has its name by now."""

    kind: Kind
    uid: Uid
    namespace: str
    name: str


Change: TypeAlias = PodRow | NodeRow | GroupRow | BudgetRow | SelectorRow | Entry | Gone
