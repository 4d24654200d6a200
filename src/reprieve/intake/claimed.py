"""GPUs that are held or requested by claims, under the names that resources have.

Which classes stand for GPUs: those whose extended resource is a vendor's, those that a vendor
names, and of an allocated device that of its request where a vendor names its driver. Source:
resource.k8s.io/v1; `engine.cluster.claimed` states what of a claim counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reprieve.engine.cluster.claimed import claimed_devices, class_of, named_devices, resource_of
from reprieve.engine.cluster.devices import Allocation, DeviceClassRow, Request
from reprieve.engine.idle.resources import is_gpu
from reprieve.engine.idle.vendors import Vendor

__all__ = ["claimed_gpus"]


def claimed_gpus(
    requests: Sequence[Request],
    allocation: Allocation | None,
    extended: Mapping[str, DeviceClassRow],
    vendors: Sequence[Vendor],
) -> dict[str, int]:
    """Return the GPUs of one claim, per resource name; without an allocation what it requests."""
    drivers = {
        class_of(device, requests): device.id[0]
        for device in (() if allocation is None else allocation.devices)
    }
    classes = {
        name: count
        for name, count in claimed_devices(requests, allocation).items()
        if is_gpu(resource_of(name, extended), vendors)
        or any(vendor.selects(name) or vendor.selects(drivers.get(name, "")) for vendor in vendors)
    }
    return named_devices(classes, extended)
