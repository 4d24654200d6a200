"""Claims, volumes and the objects of storage.k8s.io into rows.

In-tree volumes and provisioners are identified by the CSI driver that serves them since their
migration. A size that cannot be read counts as 0, or as not reported. Source: specification 21.5;
core/v1 and storage.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kubeworld.units.quantities import InvalidQuantity, parse_quantity
from reprieve.api.core import ObjectMeta
from reprieve.api.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    TopologySelectorTerm,
    VolumeAttachment,
)
from reprieve.engine.cluster.limits import LIMIT
from reprieve.engine.cluster.rows import Entry, Kind, NodeTerm, Operator, Requirement
from reprieve.engine.cluster.storage import (
    MIGRATED,
    AttachmentRow,
    CapacityRow,
    ClaimRow,
    CsiDriverRow,
    CsiNodeRow,
    StorageClassRow,
    VolumeId,
    VolumeRow,
)
from reprieve.intake.cluster.metadata import uid_of, version_of
from reprieve.intake.cluster.selectors import label_selector, labels_of, node_terms
from reprieve.units.ids import Uid

__all__ = [
    "attachment_entry",
    "capacity_entry",
    "claim_entry",
    "csi_driver_entry",
    "csi_node_entry",
    "storage_class_entry",
    "volume_entry",
]

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_WAIT: Final = "WaitForFirstConsumer"

_PROVISIONERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kubernetes.io/aws-ebs": MIGRATED["awsElasticBlockStore"],
        "kubernetes.io/azure-disk": MIGRATED["azureDisk"],
        "kubernetes.io/azure-file": MIGRATED["azureFile"],
        "kubernetes.io/cinder": MIGRATED["cinder"],
        "kubernetes.io/gce-pd": MIGRATED["gcePersistentDisk"],
        "kubernetes.io/portworx-volume": MIGRATED["portworxVolume"],
        "kubernetes.io/vsphere-volume": MIGRATED["vsphereVolume"],
    }
)


def claim_entry(claim: PersistentVolumeClaim) -> Entry:
    """Return the row of a PersistentVolumeClaim."""
    metadata, spec = claim.metadata, claim.spec
    annotations = metadata.annotations or {}
    requests = (spec.resources.requests if spec.resources else None) or {}
    row = ClaimRow(
        uid=uid_of(metadata),
        namespace=metadata.namespace,
        name=metadata.name,
        version=version_of(metadata),
        volume=spec.volume_name or "",
        bind_completed=_BIND_COMPLETED in annotations,
        lost=claim.status.phase == "Lost",
        deleting=metadata.deletion_timestamp is not None,
        owner=controlling_pod(metadata),
        storage_class=annotations.get(_CLASS, spec.storage_class_name or ""),
        request=_size(requests.get("storage")) or 0,
        block=spec.volume_mode == "Block",
        access_modes=tuple(sorted(spec.access_modes or ())),
        attributes_class=spec.volume_attributes_class_name or "",
        selector=() if spec.selector is None else label_selector(spec.selector),
        selected_node=annotations.get(_SELECTED_NODE, ""),
    )
    return _entry(Kind.CLAIM, metadata, row)


def volume_entry(volume: PersistentVolume) -> Entry:
    """Return the row of a PersistentVolume."""
    metadata, spec = volume.metadata, volume.spec
    required = spec.node_affinity.required if spec.node_affinity else None
    reserved = spec.claim_ref
    driver, handle = _identity(spec) or ("", "")
    row = VolumeRow(
        uid=uid_of(metadata),
        name=metadata.name,
        version=version_of(metadata),
        storage_class=(metadata.annotations or {}).get(_CLASS, spec.storage_class_name or ""),
        available=volume.status.phase == "Available",
        deleting=metadata.deletion_timestamp is not None,
        claim=None if reserved is None else (reserved.namespace, reserved.name, reserved.uid),
        capacity=_size((spec.capacity or {}).get("storage")) or 0,
        block=spec.volume_mode == "Block",
        access_modes=tuple(sorted(spec.access_modes or ())),
        attributes_class=spec.volume_attributes_class_name or "",
        labels=labels_of(metadata.labels),
        node_affinity=None if required is None else node_terms(required.node_selector_terms),
        driver=driver,
        handle=handle,
    )
    return _entry(Kind.VOLUME, metadata, row)


def storage_class_entry(storage_class: StorageClass) -> Entry:
    """Return the row of a StorageClass."""
    metadata, provisioner = storage_class.metadata, storage_class.provisioner
    row = StorageClassRow(
        uid=uid_of(metadata),
        name=metadata.name,
        version=version_of(metadata),
        provisioner=_PROVISIONERS.get(provisioner, provisioner),
        wait=storage_class.volume_binding_mode == _WAIT,
        allowed_topologies=tuple(_topologies(storage_class.allowed_topologies or ())),
    )
    return _entry(Kind.STORAGE_CLASS, metadata, row)


def csi_node_entry(node: CsiNode) -> Entry:
    """Return the row of a CSINode."""
    drivers = (
        (each.name, None if each.allocatable is None else each.allocatable.count)
        for each in node.spec.drivers or ()
    )
    metadata = node.metadata
    row = CsiNodeRow(uid_of(metadata), metadata.name, version_of(metadata), tuple(sorted(drivers)))
    return _entry(Kind.CSI_NODE, metadata, row)


def csi_driver_entry(driver: CsiDriver) -> Entry:
    """Return the row of a CSIDriver."""
    metadata, spec = driver.metadata, driver.spec
    row = CsiDriverRow(
        uid_of(metadata),
        metadata.name,
        version_of(metadata),
        storage_capacity=bool(spec.storage_capacity),
        required=bool(spec.prevent_pod_scheduling_if_missing),
    )
    return _entry(Kind.CSI_DRIVER, metadata, row)


def capacity_entry(capacity: CsiStorageCapacity) -> Entry:
    """Return the row of a CSIStorageCapacity."""
    metadata = capacity.metadata
    row = CapacityRow(
        uid_of(metadata),
        metadata.namespace,
        metadata.name,
        version_of(metadata),
        capacity.storage_class_name,
        nodes=label_selector(capacity.node_topology),
        capacity=_size(capacity.capacity),
        maximum=_size(capacity.maximum_volume_size),
    )
    return _entry(Kind.CSI_CAPACITY, metadata, row)


def attachment_entry(attachment: VolumeAttachment) -> Entry:
    """Return the row of a VolumeAttachment."""
    metadata, spec = attachment.metadata, attachment.spec
    inline = spec.source.inline_volume_spec
    row = AttachmentRow(
        uid_of(metadata),
        metadata.name,
        version_of(metadata),
        spec.attacher,
        spec.node_name,
        spec.source.persistent_volume_name or "",
        None if inline is None else _identity(inline),
    )
    return _entry(Kind.ATTACHMENT, metadata, row)


def controlling_pod(metadata: ObjectMeta) -> Uid | None:
    """Return the uid of the pod that controls an object."""
    for reference in metadata.owner_references or ():
        if reference.controller and reference.kind == "Pod":
            return Uid(reference.uid)
    return None


def _entry(kind: Kind, metadata: ObjectMeta, row: object) -> Entry:
    return Entry(
        kind, uid_of(metadata), metadata.namespace, metadata.name, version_of(metadata), row
    )


def _size(text: str | int | float | None) -> int | None:
    try:
        return None if text is None else min(parse_quantity(text), LIMIT)
    except InvalidQuantity:
        return None


def _identity(spec: PersistentVolumeSpec) -> VolumeId | None:
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle
    if spec.gce_persistent_disk is not None:
        return MIGRATED["gcePersistentDisk"], spec.gce_persistent_disk.pd_name
    if spec.aws_elastic_block_store is not None:
        return MIGRATED["awsElasticBlockStore"], spec.aws_elastic_block_store.volume_id
    if spec.azure_disk is not None:
        return MIGRATED["azureDisk"], spec.azure_disk.disk_uri
    if spec.azure_file is not None:
        return MIGRATED["azureFile"], spec.azure_file.share_name
    if spec.cinder is not None:
        return MIGRATED["cinder"], spec.cinder.volume_id
    if spec.portworx_volume is not None:
        return MIGRATED["portworxVolume"], spec.portworx_volume.volume_id
    if spec.vsphere_volume is not None:
        return MIGRATED["vsphereVolume"], spec.vsphere_volume.volume_path
    return None


def _topologies(terms: Iterable[TopologySelectorTerm]) -> Iterable[NodeTerm]:
    for term in terms:
        yield NodeTerm(
            tuple(
                Requirement(each.key, Operator.IN, tuple(sorted(set(each.values or ()))))
                for each in term.match_label_expressions or ()
            )
        )
