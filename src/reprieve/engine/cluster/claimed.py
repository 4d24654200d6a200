"""How many devices of which class a claim stands for, and the resource name of a class.

1. An allocated claim holds the devices of its allocation, each of the class of its request.
2. An unallocated claim counts as its requests state: the count of each; of alternatives, the count
   of the first. How many devices `All` selects is not known before the allocation: none is counted.
3. Access for administration withholds no device from other claims: it is not counted.

A class has the name of the extended resource that it stands for, else its implicit one, so that a
device has one name however it was requested. Source: specification 21.9; resource.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reprieve.engine.cluster.devices import (
    EXTENDED_PREFIX,
    AllocatedDevice,
    Allocation,
    AllocationMode,
    DeviceClassRow,
    DeviceRequest,
    Request,
    ResourceClaimRow,
)
from reprieve.units.ids import Uid

__all__ = ["claimed_devices", "class_of", "devices_held", "named_devices", "resource_of"]


def claimed_devices(
    requests: Sequence[Request], allocation: Allocation | None = None
) -> dict[str, int]:
    """Return the number of devices by class, without zeros."""
    found: dict[str, int] = {}
    if allocation is not None:
        for device in allocation.devices:
            name = "" if device.admin else class_of(device, requests)
            if name:
                found[name] = found.get(name, 0) + 1
        return found
    for request in requests:
        first: DeviceRequest | None = next(iter(request.alternatives), None)
        if first is None or first.admin or first.mode is not AllocationMode.EXACT_COUNT:
            continue
        if first.device_class and first.count > 0:
            found[first.device_class] = found.get(first.device_class, 0) + first.count
    return found


def devices_held(claims: Iterable[ResourceClaimRow]) -> dict[Uid, int]:
    """Return how many devices are held by claims, by the uid of the pod or group that has them.

    A claim of several users counts for the first of them. One that a scheduler made for extended
    resources is left out: its pod requests these by name.
    """
    found: dict[Uid, int] = {}
    for claim in claims:
        if claim.allocation is None or claim.extended or not claim.reserved_for:
            continue
        holder = claim.reserved_for[0].uid
        count = sum(not device.admin for device in claim.allocation.devices)
        if count:
            found[holder] = found.get(holder, 0) + count
    return found


def class_of(device: AllocatedDevice, requests: Iterable[Request]) -> str:
    """Return the class that an allocated device was requested by, empty if that is not known."""
    name, _, alternative = device.request.partition("/")
    for request in requests:
        if request.name == name:
            for each in request.alternatives:
                if not alternative or each.name == alternative:
                    return each.device_class
    return ""


def resource_of(device_class: str, extended: Mapping[str, DeviceClassRow]) -> str:
    """Return the resource name of a class; `extended`: the class of each extended resource."""
    implicit = f"{EXTENDED_PREFIX}{device_class}"
    row = extended.get(implicit)
    name = "" if row is None else row.extended_resource
    return name if name and extended[name].name == device_class else implicit


def named_devices(
    classes: Mapping[str, int], extended: Mapping[str, DeviceClassRow]
) -> dict[str, int]:
    """Return numbers of devices by resource name in place of class."""
    found: dict[str, int] = {}
    for device_class, count in classes.items():
        name = resource_of(device_class, extended)
        found[name] = found.get(name, 0) + count
    return found
