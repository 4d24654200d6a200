"""Rows of dynamic resource allocation: what drivers publish, what claims request and got.

They are kept whole in `Snapshot.tables`, by namespace and name. Names of attributes and capacities
are as published, with or without a domain; a name without one belongs to the driver's domain.
Quantities are integers in thousandths of the base unit, since capacities may be fractions. Opaque
driver configuration is carried as JSON text. Source: specification of the scheduling plane, section
21.9; the resource.k8s.io/v1 API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from reprieve.engine.cluster.rows import Kind, NodeTerm, Taint, Toleration
from reprieve.units.ids import Uid

__all__ = [
    "EXTENDED_PREFIX",
    "MAX_CONSUMERS",
    "MAX_RESULTS",
    "AllocatedDevice",
    "Allocation",
    "AllocationMode",
    "Attribute",
    "AttributeType",
    "CapacityPolicy",
    "Constraint",
    "Consumer",
    "Counters",
    "Device",
    "DeviceCapacity",
    "DeviceClassRow",
    "DeviceConfiguration",
    "DeviceId",
    "DeviceRequest",
    "Reach",
    "Request",
    "ResourceClaimRow",
    "ResourceSliceRow",
    "extended_classes",
]

EXTENDED_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
MAX_CONSUMERS: Final = 256  # entries of status.reservedFor
MAX_RESULTS: Final = 32  # devices of one claim

DeviceId: TypeAlias = tuple[str, str, str]  # driver, pool, device
Counters: TypeAlias = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]  # counter set: amounts


class AttributeType(StrEnum):
    """The type that an attribute is published with."""

    BOOL = "bool"
    INT = "int"
    STRING = "string"
    VERSION = "version"


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value of one attribute; equal values of different types are different attributes."""

    type: AttributeType
    value: bool | int | str


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """How requests may consume a capacity: one of `values`, or from `minimum` on in steps."""

    default: int
    values: tuple[int, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """One capacity of a device, in thousandths."""

    value: int
    policy: CapacityPolicy | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """The nodes that have access: one by name, those that a selector matches, or all."""

    node: str = ""
    terms: tuple[NodeTerm, ...] | None = None
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a driver publishes. `reach` is set where the slice leaves it to its devices."""

    name: str
    attributes: tuple[tuple[str, Attribute], ...] = ()
    capacity: tuple[tuple[str, DeviceCapacity], ...] = ()
    taints: tuple[Taint, ...] = ()
    shareable: bool = False  # allowMultipleAllocations
    consumes: Counters = ()
    compatibility: tuple[tuple[str, frozenset[str]], ...] = ()  # counter set: its groups
    reach: Reach | None = None
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceSliceRow:
    """A ResourceSlice. `slices`: how many the pool has at this generation."""

    uid: Uid
    name: str
    version: int
    driver: str
    pool: str
    generation: int = 0
    slices: int = 1
    reach: Reach | None = None  # None: left to the devices
    devices: tuple[Device, ...] = ()
    counters: Counters = ()


@dataclass(frozen=True, slots=True)
class DeviceConfiguration:
    """Configuration for a driver, for some requests or (none named) all. `parameters`: JSON."""

    driver: str
    parameters: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceClassRow:
    """A DeviceClass. `extended_resource`: spec.extendedResourceName. `created`: Unix seconds."""

    uid: Uid
    name: str
    version: int
    selectors: tuple[str, ...] = ()
    configuration: tuple[DeviceConfiguration, ...] = ()
    extended_resource: str = ""
    created: int = 0


class AllocationMode(StrEnum):
    """How many devices a request wants."""

    EXACT_COUNT = "ExactCount"
    ALL = "All"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What one request, or one alternative of it, requests.

    `unsupported` names what no allocator here knows; the claim is then refused and it is named.
    """

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    mode: AllocationMode = AllocationMode.EXACT_COUNT
    count: int = 1
    admin: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()
    unsupported: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a claim: one form exactly, or the first of several that is available."""

    name: str
    alternatives: tuple[DeviceRequest, ...]
    first_available: bool = False


@dataclass(frozen=True, slots=True)
class Constraint:
    """All devices of the requests (none named: all) agree, or all differ, in an attribute."""

    attribute: str  # fully qualified
    distinct: bool = False
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One device of an allocation; `request` is `REQUEST` or `REQUEST/ALTERNATIVE`.

    `consumed`: amounts of a device that may be allocated several times; `share` distinguishes them.
    """

    request: str
    id: DeviceId
    admin: bool = False
    share: str = ""
    consumed: tuple[tuple[str, int], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """status.allocation. `terms` None: available on every node.

    `configuration`: (source FromClass or FromClaim, configuration), in the order of the API.
    """

    devices: tuple[AllocatedDevice, ...] = ()
    terms: tuple[NodeTerm, ...] | None = None
    configuration: tuple[tuple[str, DeviceConfiguration], ...] = ()


@dataclass(frozen=True, slots=True)
class Consumer:
    """An entry of status.reservedFor: a pod, or a pod group."""

    resource: str  # pods, podgroups
    name: str
    uid: Uid


@dataclass(frozen=True, slots=True)
class ResourceClaimRow:
    """A ResourceClaim.

    `in_flight`: the allocation is ours and not written yet; others wait until it is. `owner`: uid
    of the controlling pod. `extended`: made by a scheduler for extended resources of its owner.
    """

    uid: Uid
    namespace: str
    name: str
    version: int
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    configuration: tuple[DeviceConfiguration, ...] = ()
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()
    deleting: bool = False
    in_flight: bool = False
    owner: Uid | None = None
    extended: bool = False


def extended_classes(
    tables: Mapping[Kind, Mapping[tuple[str, str], Any]],
) -> Mapping[str, DeviceClassRow]:
    """Return the DeviceClass that stands for each extended resource.

    A resource that several classes name is the one's created last, then the first by name. Every
    class also stands for its implicit name.
    """
    classes: list[DeviceClassRow] = list(tables.get(Kind.DEVICE_CLASS, {}).values())
    found = {f"{EXTENDED_PREFIX}{each.name}": each for each in classes}
    classes.sort(key=lambda c: c.name, reverse=True)
    for each in sorted(classes, key=lambda c: c.created):
        if each.extended_resource:
            found[each.extended_resource] = each
    return found
