"""A pod's volumes: the claims that it mounts, and in-line disks that cannot be everywhere.

All other kinds of volumes leave the choice of the node free. Source: specification 21.5.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.api.volumes import Volume
from reprieve.engine.cluster.rows import Disk, VolumeUse

__all__ = ["decides", "disks_of", "uses_of"]


def uses_of(volumes: Iterable[Volume] | None) -> tuple[VolumeUse, ...]:
    """Return the claims, in order; a generic ephemeral volume is known by its own name."""
    found: dict[VolumeUse, None] = {}
    for volume in volumes or ():
        if volume.persistent_volume_claim is not None:
            found[VolumeUse(volume.persistent_volume_claim.claim_name)] = None
        elif volume.ephemeral is not None:
            found[VolumeUse(volume.name, ephemeral=True)] = None
    return tuple(found)


def decides(volume: Volume) -> bool:
    """Return whether a volume may be one of those that the other functions here read."""
    # One expression: this is called for every volume of a cluster.
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.iscsi is not None
        or volume.rbd is not None
        or volume.azure_disk is not None
        or volume.azure_file is not None
        or volume.cinder is not None
        or volume.portworx_volume is not None
        or volume.vsphere_volume is not None
    )


def disks_of(volumes: Iterable[Volume] | None) -> tuple[Disk, ...]:
    """Return the in-line disks, sorted."""
    found = {disk for volume in volumes or () for disk in _disks(volume)}
    return tuple(sorted(found, key=lambda disk: (disk.kind, disk.identity, disk.shared)))


def _disks(volume: Volume) -> Iterable[Disk]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield Disk("gcePersistentDisk", (gce.pd_name,), gce.read_only)
    if (aws := volume.aws_elastic_block_store) is not None:
        yield Disk("awsElasticBlockStore", (aws.volume_id,))
    if (iscsi := volume.iscsi) is not None:
        yield Disk("iscsi", (iscsi.iqn,), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        for monitor in rbd.monitors or ():
            yield Disk("rbd", (monitor, rbd.pool, rbd.image), rbd.read_only)
    if volume.azure_disk is not None:
        yield Disk("azureDisk", (volume.azure_disk.disk_uri,), True)
    if volume.azure_file is not None:
        yield Disk("azureFile", (volume.azure_file.share_name,), True)
    if volume.cinder is not None:
        yield Disk("cinder", (volume.cinder.volume_id,), True)
    if volume.portworx_volume is not None:
        yield Disk("portworxVolume", (volume.portworx_volume.volume_id,), True)
    if volume.vsphere_volume is not None:
        yield Disk("vsphereVolume", (volume.vsphere_volume.volume_path,), True)
