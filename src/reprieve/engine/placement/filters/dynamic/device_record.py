"""What is written into a claim's status for the devices that it was given on a node.

Besides the devices themselves: an identity for each share of a shareable one, the nodes on which
the allocation is available, and the configuration that the drivers get. Source: specification 21.9.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

from reprieve.engine.cluster.devices import (
    AllocatedDevice,
    Allocation,
    DeviceConfiguration,
    ResourceClaimRow,
)
from reprieve.engine.cluster.rows import NodeTerm, Operator, Requirement
from reprieve.engine.placement.filters.dynamic.device_inventory import Inventory

__all__ = ["allocation_of"]


def allocation_of(
    inventory: Inventory, claim: ResourceClaimRow, results: tuple[AllocatedDevice, ...], node: str
) -> Allocation:
    """Return the allocation of a claim that gets these devices on the node of this name."""
    devices = tuple(
        replace(each, share=_share(claim, place, each)) if _shareable(inventory, each) else each
        for place, each in enumerate(results)
    )
    return Allocation(
        devices, _terms(inventory, devices, node), _configuration(inventory, claim, devices)
    )


def _shareable(inventory: Inventory, device: AllocatedDevice) -> bool:
    found = inventory.device(device.id)
    return found is not None and found.row.shareable


def _share(claim: ResourceClaimRow, place: int, device: AllocatedDevice) -> str:
    """Return an identity of the share, in the form of a UUID, the same at every decision."""
    text = "/".join((claim.uid, str(place), device.request, *device.id))
    digest = sha256(text.encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def _terms(
    inventory: Inventory, devices: Iterable[AllocatedDevice], node: str
) -> tuple[NodeTerm, ...] | None:
    """Return where an allocation is available: what all its devices have in common."""
    expressions: list[Requirement] = []
    fields: list[Requirement] = []
    for each in devices:
        found = inventory.device(each.id)
        if found is None or found.reach.node or found.row.binds_to_node:
            return (NodeTerm(fields=(Requirement("metadata.name", Operator.IN, (node,)),)),)
        for term in found.reach.terms or ():
            expressions += [e for e in term.expressions if e not in expressions]
            fields += [f for f in term.fields if f not in fields]
    if not expressions and not fields:
        return None
    return (NodeTerm(tuple(expressions), tuple(fields)),)


def _configuration(
    inventory: Inventory, claim: ResourceClaimRow, devices: Iterable[AllocatedDevice]
) -> tuple[tuple[str, DeviceConfiguration], ...]:
    """Return the configuration for the drivers: of the classes, then of the claim itself."""
    chosen = {each.request.partition("/")[0]: each.request for each in devices}
    of_class: dict[str, list[str]] = {}
    for request in claim.requests:
        for each in request.alternatives:
            name = f"{request.name}/{each.name}" if request.first_available else request.name
            if chosen.get(request.name) == name:
                of_class.setdefault(each.device_class, []).append(name)
    found = [
        ("FromClass", replace(configuration, requests=tuple(names)))
        for device_class, names in of_class.items()
        for configuration in inventory.classes[("", device_class)].configuration
    ]
    for configuration in claim.configuration:
        named = set(configuration.requests)
        if not named or named & chosen.keys() or named & set(chosen.values()):
            found.append(("FromClaim", configuration))
    everyone = [{request.name, chosen.get(request.name, "")} for request in claim.requests]
    return tuple(
        (source, replace(each, requests=()))
        if all(names & set(each.requests) for names in everyone)
        else (source, each)
        for source, each in found
    )
