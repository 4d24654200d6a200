"""What the scheduling plane reads of the volumes of a pod."""

from __future__ import annotations

from typing import Any

import msgspec

from reprieve.api.core import (
    Struct,
)

__all__ = ["Volume"]


class ClaimSource(Struct, frozen=True):
    """The claim of a volume."""

    claim_name: str = ""


class GcePersistentDisk(Struct, frozen=True):
    """A disk of Google's."""

    pd_name: str = ""
    read_only: bool = False


class VolumeById(Struct, frozen=True):
    """A disk that has a `volumeID`: of Amazon's, Cinder's, Portworx's."""

    volume_id: str = msgspec.field(name="volumeID", default="")
    read_only: bool = False


class Iscsi(Struct, frozen=True):
    """An iSCSI target."""

    iqn: str = ""
    read_only: bool = False


class Rbd(Struct, frozen=True):
    """A Ceph block device."""

    monitors: list[str] | None = None
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class AzureDisk(Struct, frozen=True):
    """A disk of Azure's."""

    disk_uri: str = msgspec.field(name="diskURI", default="")


class AzureFile(Struct, frozen=True):
    """A share of Azure's."""

    share_name: str = ""


class VsphereVolume(Struct, frozen=True):
    """A disk of vSphere's."""

    volume_path: str = ""


class ImageSource(Struct, frozen=True):
    """An image that is mounted."""

    reference: str = ""


class Volume(Struct, frozen=True):
    """A volume of a pod, for the kinds that decide where it may run."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: VolumeById | None = None
    iscsi: Iscsi | None = None
    rbd: Rbd | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: VolumeById | None = None
    portworx_volume: VolumeById | None = None
    vsphere_volume: VsphereVolume | None = None
    image: ImageSource | None = None
