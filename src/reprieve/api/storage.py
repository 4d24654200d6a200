"""What the scheduling plane reads of claims, volumes and the objects of storage.k8s.io.

Structs are partial on purpose, as in `core`: unknown fields are skipped, and none of these objects
is ever written back whole. Field names follow the API (camel case in JSON).
"""

from __future__ import annotations

from typing import TypeAlias

from reprieve.api.core import NodeSelector, ObjectMeta, Struct
from reprieve.api.scheduling import Amounts, LabelSelector
from reprieve.api.volumes import AzureDisk, AzureFile, GcePersistentDisk, VolumeById, VsphereVolume

__all__ = [
    "CsiDriver",
    "CsiNode",
    "CsiStorageCapacity",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeSpec",
    "StorageClass",
    "TopologySelectorTerm",
    "VolumeAttachment",
]

Amount: TypeAlias = str | int | float


class VolumeResources(Struct, frozen=True):
    """What a claim requests."""

    requests: Amounts | None = None


class PersistentVolumeClaimSpec(Struct, frozen=True):
    """The kind of volume that is requested, and the one that was given."""

    access_modes: list[str] | None = None
    resources: VolumeResources | None = None
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str | None = None


class PhaseStatus(Struct, frozen=True):
    """Where a claim or volume stands."""

    phase: str = ""


class PersistentVolumeClaim(Struct, frozen=True):
    """A claim to a volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PhaseStatus = PhaseStatus()


class CsiSource(Struct, frozen=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class ObjectReference(Struct, frozen=True):
    """The claim that a volume is reserved for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Struct, frozen=True):
    """The nodes that a volume can be reached from."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct, frozen=True):
    """A volume; of its sources those that a CSI driver serves."""

    access_modes: list[str] | None = None
    capacity: Amounts | None = None
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    csi: CsiSource | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: VolumeById | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: VolumeById | None = None
    portworx_volume: VolumeById | None = None
    vsphere_volume: VsphereVolume | None = None


class PersistentVolume(Struct, frozen=True):
    """A volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PhaseStatus = PhaseStatus()


class TopologySelectorExpression(Struct, frozen=True):
    """A label and the values that it may have."""

    key: str = ""
    values: list[str] | None = None


class TopologySelectorTerm(Struct, frozen=True):
    """Expressions that must all hold."""

    match_label_expressions: list[TopologySelectorExpression] | None = None


class StorageClass(Struct, frozen=True):
    """How volumes are made."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] | None = None


class VolumeNodeResources(Struct, frozen=True):
    """How many volumes of a driver a node accepts."""

    count: int | None = None


class CsiNodeDriver(Struct, frozen=True):
    """A driver that is installed on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CsiNodeSpec(Struct, frozen=True):
    """The drivers of a node."""

    drivers: list[CsiNodeDriver] | None = None


class CsiNode(Struct, frozen=True):
    """The drivers of the node of that name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(Struct, frozen=True):
    """What a driver wants of the scheduler."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CsiDriver(Struct, frozen=True):
    """A CSI driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiDriverSpec = CsiDriverSpec()


class CsiStorageCapacity(Struct, frozen=True):
    """What a driver has left for a class in a part of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Amount | None = None
    maximum_volume_size: Amount | None = None


class AttachedSource(Struct, frozen=True):
    """What is attached: a volume by name, or an in-line one."""

    persistent_volume_name: str | None = None
    inline_volume_spec: PersistentVolumeSpec | None = None


class VolumeAttachmentSpec(Struct, frozen=True):
    """Who attaches what to which node."""

    attacher: str = ""
    node_name: str = ""
    source: AttachedSource = AttachedSource()


class VolumeAttachment(Struct, frozen=True):
    """A volume that is or will be attached to a node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
