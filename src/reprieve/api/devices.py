"""What the scheduling plane reads of resource.k8s.io: claims, slices and classes of devices.

The shapes of v1 and v1beta2 are the same; in v1beta1 a request has the fields of `exactly` itself
and a device has a part `basic`, so that both forms are read. Structs are partial on purpose, as in
`core`; opaque parameters are kept as they were written.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from reprieve.api.core import NodeSelector, ObjectMeta, Struct
from reprieve.api.scheduling import Toleration

__all__ = [
    "AllocationResult",
    "CapacityRequestPolicy",
    "ClaimConfiguration",
    "DeviceClass",
    "ExactDeviceRequest",
    "NamedDeviceRequest",
    "PublishedAttribute",
    "PublishedDevice",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceSlice",
]

Amount: TypeAlias = str | int | float


class CelSelector(Struct, frozen=True):
    """An expression over one device."""

    expression: str = ""


class DeviceSelector(Struct, frozen=True):
    """A selector; there is one kind."""

    cel: CelSelector | None = None


class CapacityRequirements(Struct, frozen=True):
    """Amounts of capacity that every device of a request must have left."""

    requests: dict[str, Amount] | None = None


class ExactDeviceRequest(Struct, frozen=True):
    """What a request, or an alternative of one, requests."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[Toleration] | None = None
    capacity: CapacityRequirements | None = None


class NamedDeviceRequest(ExactDeviceRequest, frozen=True):
    """A request of a claim; versions before v1beta2 have what it requests beside its name."""

    exactly: ExactDeviceRequest | None = None
    first_available: list[ExactDeviceRequest] | None = None


class DeviceConstraint(Struct, frozen=True):
    """What devices must have in common, or not."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueConfiguration(Struct, frozen=True):
    """Parameters for a driver."""

    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class ClaimConfiguration(Struct, frozen=True):
    """Configuration of a claim, a class or an allocation."""

    requests: list[str] | None = None
    opaque: OpaqueConfiguration | None = None
    source: str | None = None


class DeviceClaim(Struct, frozen=True):
    """The requests of a claim and what holds between them."""

    requests: list[NamedDeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[ClaimConfiguration] | None = None


class ResourceClaimSpec(Struct, frozen=True):
    """What a claim requests."""

    devices: DeviceClaim = DeviceClaim()


class AllocatedResult(Struct, frozen=True):
    """A device of an allocation."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, Amount] | None = None
    tolerations: list[Toleration] | None = None


class DeviceAllocationResult(Struct, frozen=True):
    """The devices of an allocation, and the configuration that was valid then."""

    results: list[AllocatedResult] | None = None
    config: list[ClaimConfiguration] | None = None


class AllocationResult(Struct, frozen=True):
    """What a claim was given."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None


class ConsumerReference(Struct, frozen=True):
    """A user of a claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Struct, frozen=True):
    """Where a claim stands."""

    allocation: AllocationResult | None = None
    reserved_for: list[ConsumerReference] | None = None


class ResourceClaim(Struct, frozen=True):
    """A claim to devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class PublishedAttribute(Struct, frozen=True):
    """An attribute: one of the values is set."""

    bool_value: bool | None = msgspec.field(name="bool", default=None)
    int_value: int | None = msgspec.field(name="int", default=None)
    string: str | None = None
    version: str | None = None


class CapacityRange(Struct, frozen=True):
    """Amounts that may be consumed: from `min` on, in steps."""

    min: Amount = "0"
    max: Amount | None = None
    step: Amount | None = None


class CapacityRequestPolicy(Struct, frozen=True):
    """How a capacity may be consumed."""

    default: Amount | None = None
    valid_values: list[Amount] | None = None
    valid_range: CapacityRange | None = None


class PublishedCapacity(Struct, frozen=True):
    """A capacity of a device."""

    value: Amount = "0"
    request_policy: CapacityRequestPolicy | None = None


class ResourceClaimTemplateSpec(Struct, frozen=True):
    """The claims that are made of a template."""

    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Struct, frozen=True):
    """A template of the claims of single pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class Counter(Struct, frozen=True):
    """An amount of a counter."""

    value: Amount = "0"


class CounterConsumption(Struct, frozen=True):
    """What a device uses of a counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] | None = None
    compatibility_groups: list[str] | None = None


class PublishedTaint(Struct, frozen=True):
    """A taint of a device."""

    key: str = ""
    value: str = ""
    effect: str = ""


class PublishedDevice(Struct, frozen=True):
    """A device; `basic` holds all but the name in v1beta1."""

    name: str = ""
    basic: PublishedDevice | None = None
    attributes: dict[str, PublishedAttribute] | None = None
    capacity: dict[str, PublishedCapacity] | None = None
    taints: list[PublishedTaint] | None = None
    allow_multiple_allocations: bool | None = None
    consumes_counters: list[CounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class ResourcePool(Struct, frozen=True):
    """The pool that a slice belongs to."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class CounterSet(Struct, frozen=True):
    """Counters that devices of the pool share."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class ResourceSliceSpec(Struct, frozen=True):
    """Devices of a pool."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[PublishedDevice] | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(Struct, frozen=True):
    """A part of a pool of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceClassSpec(Struct, frozen=True):
    """What devices of a class have in common."""

    selectors: list[DeviceSelector] | None = None
    config: list[ClaimConfiguration] | None = None
    extended_resource_name: str | None = None


class DeviceClass(Struct, frozen=True):
    """A class of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
