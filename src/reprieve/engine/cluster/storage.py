"""Rows of the objects that volumes are made of; sizes in bytes.

They are kept whole in `Snapshot.tables`, by namespace and name. A volume is named to its driver by
(driver, handle), so that one disk that several claims or attachments mean is counted once; in-tree
volumes carry the CSI driver that they were migrated to. Source: specification of the scheduling
plane, section 21.5; the storage.k8s.io/v1 and core/v1 API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from reprieve.engine.cluster.rows import Disk, Labels, NodeTerm, Selector, VolumeUse
from reprieve.units.ids import Uid

__all__ = [
    "MIGRATED",
    "NO_PROVISIONER",
    "READ_WRITE_ONCE_POD",
    "AttachmentRow",
    "CapacityRow",
    "ClaimRow",
    "CsiDriverRow",
    "CsiNodeRow",
    "StorageClassRow",
    "VolumeId",
    "VolumeRow",
    "claim_name",
    "disk_volume",
]

READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

# The CSI driver that each in-tree kind of volume is served by since its migration.
MIGRATED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "awsElasticBlockStore": "ebs.csi.aws.com",
        "azureDisk": "disk.csi.azure.com",
        "azureFile": "file.csi.azure.com",
        "cinder": "cinder.csi.openstack.org",
        "gcePersistentDisk": "pd.csi.storage.gke.io",
        "portworxVolume": "pxd.portworx.com",
        "vsphereVolume": "csi.vsphere.vmware.com",
    }
)

VolumeId = tuple[str, str]  # driver, handle


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A PersistentVolumeClaim.

    `volume`: spec.volumeName. `bind_completed`: the annotation of the volume controller stands.
    `selector` () when none is given. `owner`: uid of the controlling pod of an ephemeral claim.
    """

    uid: Uid
    namespace: str
    name: str
    version: int
    volume: str = ""
    bind_completed: bool = False
    lost: bool = False
    deleting: bool = False
    owner: Uid | None = None
    storage_class: str = ""
    request: int = 0
    block: bool = False  # volumeMode Block
    access_modes: tuple[str, ...] = ()
    attributes_class: str = ""
    selector: Selector = ()
    selected_node: str = ""

    @property
    def bound(self) -> bool:
        """Whether claim and volume are bound on both sides."""
        return bool(self.volume) and self.bind_completed


@dataclass(frozen=True, slots=True)
class VolumeRow:
    """A PersistentVolume. `claim`: (namespace, name, uid or empty text) of spec.claimRef.

    `node_affinity` None: reachable from every node. `driver` is empty for volumes of no CSI driver.
    """

    uid: Uid
    name: str
    version: int
    storage_class: str = ""
    available: bool = False  # phase Available
    deleting: bool = False
    claim: tuple[str, str, str] | None = None
    capacity: int = 0
    block: bool = False
    access_modes: tuple[str, ...] = ()
    attributes_class: str = ""
    labels: Labels = ()
    node_affinity: tuple[NodeTerm, ...] | None = None
    driver: str = ""
    handle: str = ""


@dataclass(frozen=True, slots=True)
class StorageClassRow:
    """A StorageClass. `allowed_topologies`: terms of which one must match; () allows all nodes."""

    uid: Uid
    name: str
    version: int
    provisioner: str = ""
    wait: bool = False  # volumeBindingMode WaitForFirstConsumer
    allowed_topologies: tuple[NodeTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class CsiNodeRow:
    """A CSINode: each driver of the node with its limit of volumes, None for no limit."""

    uid: Uid
    name: str
    version: int
    drivers: tuple[tuple[str, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CsiDriverRow:
    """A CSIDriver. `required`: preventPodSchedulingIfMissing."""

    uid: Uid
    name: str
    version: int
    storage_capacity: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """A CSIStorageCapacity. `nodes` None: reaches no node. Sizes None: not reported."""

    uid: Uid
    namespace: str
    name: str
    version: int
    storage_class: str
    nodes: Selector = None
    capacity: int | None = None
    maximum: int | None = None  # maximumVolumeSize


@dataclass(frozen=True, slots=True)
class AttachmentRow:
    """A VolumeAttachment: a PersistentVolume by name, or an in-line volume by its identity."""

    uid: Uid
    name: str
    version: int
    attacher: str
    node: str
    volume: str = ""
    inline: VolumeId | None = None


def claim_name(use: VolumeUse, pod: str) -> str:
    """Return the name of the claim that a pod of that name mounts.

    The claim of a generic ephemeral volume is named after the pod and the volume.
    """
    return f"{pod}-{use.claim}" if use.ephemeral else use.claim


def disk_volume(disk: Disk) -> VolumeId | None:
    """Return the CSI volume that an in-line disk is served as, None when there is none."""
    driver = MIGRATED.get(disk.kind)
    return None if driver is None else (driver, disk.identity[0])
