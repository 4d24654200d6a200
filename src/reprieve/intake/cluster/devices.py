"""Claims, slices and classes of devices into rows.

Quantities become thousandths of their base unit. What a request states in a way that is not known
here is kept by name, so that the claim is refused and not misunderstood. Source: specification
21.9; resource.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubeworld.units.quantities import InvalidQuantity, parse_milli
from reprieve.api.core import NodeSelector
from reprieve.api.devices import (
    AllocationResult,
    CapacityRequestPolicy,
    ClaimConfiguration,
    Counter,
    DeviceClass,
    DeviceConstraint,
    DeviceSelector,
    ExactDeviceRequest,
    NamedDeviceRequest,
    PublishedAttribute,
    PublishedDevice,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from reprieve.engine.cluster.devices import (
    AllocatedDevice,
    Allocation,
    AllocationMode,
    Attribute,
    AttributeType,
    CapacityPolicy,
    Constraint,
    Consumer,
    Device,
    DeviceCapacity,
    DeviceClassRow,
    DeviceConfiguration,
    DeviceRequest,
    Reach,
    Request,
    ResourceClaimRow,
    ResourceSliceRow,
)
from reprieve.engine.cluster.rows import Entry, Kind, Taint
from reprieve.intake.cluster.metadata import created_of, uid_of, version_of
from reprieve.intake.cluster.pod_classes import toleration_row
from reprieve.intake.cluster.selectors import node_terms
from reprieve.intake.cluster.storage import controlling_pod
from reprieve.units.ids import Uid

__all__ = [
    "device_class_entry",
    "resource_claim_entry",
    "resource_slice_entry",
    "template_requests",
]

_EXTENDED: Final = "resource.kubernetes.io/extended-resource-claim"


def resource_claim_entry(claim: ResourceClaim) -> Entry:
    """Return the row of a ResourceClaim."""
    metadata, devices, status = claim.metadata, claim.spec.devices, claim.status
    allocation = status.allocation
    row = ResourceClaimRow(
        uid=uid_of(metadata),
        namespace=metadata.namespace,
        name=metadata.name,
        version=version_of(metadata),
        requests=tuple(map(_request, devices.requests or ())),
        constraints=tuple(c for each in devices.constraints or () for c in _constraints(each)),
        configuration=tuple(_configurations(devices.config)),
        allocation=None if allocation is None else _allocation(allocation),
        reserved_for=tuple(
            Consumer(each.resource, each.name, Uid(each.uid)) for each in status.reserved_for or ()
        ),
        deleting=metadata.deletion_timestamp is not None,
        owner=controlling_pod(metadata),
        extended=(metadata.annotations or {}).get(_EXTENDED) == "true",
    )
    return Entry(Kind.RESOURCE_CLAIM, row.uid, metadata.namespace, metadata.name, row.version, row)


def template_requests(template: ResourceClaimTemplate) -> tuple[Request, ...]:
    """Return what each claim that is made of a template requests."""
    return tuple(map(_request, template.spec.spec.devices.requests or ()))


def resource_slice_entry(published: ResourceSlice) -> Entry:
    """Return the row of a ResourceSlice."""
    metadata, spec = published.metadata, published.spec
    row = ResourceSliceRow(
        uid=uid_of(metadata),
        name=metadata.name,
        version=version_of(metadata),
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slices=spec.pool.resource_slice_count,
        reach=None
        if spec.per_device_node_selection
        else _reach(spec.node_name, spec.node_selector, spec.all_nodes) or Reach(),
        devices=tuple(_device(each) for each in spec.devices or ()),
        counters=tuple((each.name, _amounts(each.counters)) for each in spec.shared_counters or ()),
    )
    return Entry(Kind.RESOURCE_SLICE, row.uid, "", metadata.name, row.version, row)


def device_class_entry(device_class: DeviceClass) -> Entry:
    """Return the row of a DeviceClass."""
    metadata, spec = device_class.metadata, device_class.spec
    row = DeviceClassRow(
        uid=uid_of(metadata),
        name=metadata.name,
        version=version_of(metadata),
        selectors=_selectors(spec.selectors),
        configuration=tuple(_configurations(spec.config)),
        extended_resource=spec.extended_resource_name or "",
        created=created_of(metadata),
    )
    return Entry(Kind.DEVICE_CLASS, row.uid, "", metadata.name, row.version, row)


def _request(request: NamedDeviceRequest) -> Request:
    if request.first_available:
        alternatives = tuple(_alternative(each.name, each) for each in request.first_available)
        return Request(request.name, alternatives, first_available=True)
    return Request(request.name, (_alternative(request.name, request.exactly or request),))


def _alternative(name: str, asked: ExactDeviceRequest) -> DeviceRequest:
    unsupported = ""
    mode = AllocationMode.EXACT_COUNT
    try:
        mode = AllocationMode(asked.allocation_mode or mode)
    except ValueError:
        unsupported = f"allocationMode {asked.allocation_mode}"
    if any(each.cel is None for each in asked.selectors or ()):
        unsupported = "a selector without cel"
    return DeviceRequest(
        name=name,
        device_class=asked.device_class_name,
        selectors=_selectors(asked.selectors),
        mode=mode,
        count=1 if asked.count is None else asked.count,
        admin=bool(asked.admin_access),
        tolerations=tuple(map(toleration_row, asked.tolerations or ())),
        capacity=_milli_amounts((asked.capacity.requests if asked.capacity else None) or {}),
        unsupported=unsupported,
    )


def _selectors(selectors: Iterable[DeviceSelector] | None) -> tuple[str, ...]:
    return tuple(each.cel.expression for each in selectors or () if each.cel is not None)


def _constraints(constraint: DeviceConstraint) -> Iterable[Constraint]:
    requests = tuple(constraint.requests or ())
    if constraint.match_attribute is not None:
        yield Constraint(constraint.match_attribute, requests=requests)
    if constraint.distinct_attribute is not None:
        yield Constraint(constraint.distinct_attribute, distinct=True, requests=requests)


def _configurations(
    configurations: Iterable[ClaimConfiguration] | None,
) -> Iterable[DeviceConfiguration]:
    for each in configurations or ():
        if each.opaque is not None:
            parameters = bytes(each.opaque.parameters).decode()
            yield DeviceConfiguration(each.opaque.driver, parameters, tuple(each.requests or ()))


def _allocation(allocation: AllocationResult) -> Allocation:
    selector = allocation.node_selector
    devices = tuple(
        AllocatedDevice(
            each.request,
            (each.driver, each.pool, each.device),
            admin=bool(each.admin_access),
            share=each.share_id or "",
            consumed=_milli_amounts(each.consumed_capacity or {}),
            tolerations=tuple(map(toleration_row, each.tolerations or ())),
        )
        for each in allocation.devices.results or ()
    )
    terms = None if selector is None else node_terms(selector.node_selector_terms)
    return Allocation(devices, terms)


def _reach(
    node: str | None, selector: NodeSelector | None, everywhere: bool | None
) -> Reach | None:
    if node:
        return Reach(node=node)
    if selector is not None:
        return Reach(terms=node_terms(selector.node_selector_terms))
    return Reach(everywhere=True) if everywhere else None


def _device(published: PublishedDevice) -> Device:
    facts = published.basic or published
    return Device(
        name=published.name,
        attributes=tuple(
            (name, attribute)
            for name, each in sorted((facts.attributes or {}).items())
            if (attribute := _attribute(each)) is not None
        ),
        capacity=tuple(
            (name, DeviceCapacity(_milli(each.value), _policy(each.request_policy)))
            for name, each in sorted((facts.capacity or {}).items())
        ),
        taints=tuple(Taint(each.key, each.value, each.effect) for each in facts.taints or ()),
        shareable=bool(facts.allow_multiple_allocations),
        consumes=tuple(
            (each.counter_set, _amounts(each.counters)) for each in facts.consumes_counters or ()
        ),
        compatibility=tuple(
            (each.counter_set, frozenset(each.compatibility_groups))
            for each in facts.consumes_counters or ()
            if each.compatibility_groups
        ),
        reach=_reach(facts.node_name, facts.node_selector, facts.all_nodes),
        binds_to_node=bool(facts.binds_to_node),
        binding_conditions=tuple(facts.binding_conditions or ()),
        binding_failures=tuple(facts.binding_failure_conditions or ()),
    )


def _attribute(attribute: PublishedAttribute) -> Attribute | None:
    if attribute.bool_value is not None:
        return Attribute(AttributeType.BOOL, attribute.bool_value)
    if attribute.int_value is not None:
        return Attribute(AttributeType.INT, attribute.int_value)
    if attribute.string is not None:
        return Attribute(AttributeType.STRING, attribute.string)
    if attribute.version is not None:
        return Attribute(AttributeType.VERSION, attribute.version)
    return None


def _policy(policy: CapacityRequestPolicy | None) -> CapacityPolicy | None:
    if policy is None or policy.default is None:
        return None
    bounds = policy.valid_range
    return CapacityPolicy(
        default=_milli(policy.default),
        values=tuple(sorted(map(_milli, policy.valid_values or ()))),
        minimum=None if bounds is None else _milli(bounds.min),
        maximum=None if bounds is None or bounds.max is None else _milli(bounds.max),
        step=None if bounds is None or bounds.step is None else _milli(bounds.step),
    )


def _amounts(counters: Mapping[str, Counter] | None) -> tuple[tuple[str, int], ...]:
    return _milli_amounts({name: each.value for name, each in (counters or {}).items()})


def _milli_amounts(amounts: Mapping[str, str | int | float]) -> tuple[tuple[str, int], ...]:
    return tuple((name, _milli(amount)) for name, amount in sorted(amounts.items()))


def _milli(amount: str | int | float) -> int:
    try:
        return parse_milli(amount)
    except InvalidQuantity:
        return 0
