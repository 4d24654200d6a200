"""Small builders of slices, device classes and claims; names serve as uids."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from reprieve.engine.cluster.devices import (
    AllocatedDevice,
    Allocation,
    AllocationMode,
    Attribute,
    AttributeType,
    Constraint,
    Consumer,
    Device,
    DeviceCapacity,
    DeviceClassRow,
    DeviceRequest,
    Reach,
    Request,
    ResourceClaimRow,
    ResourceSliceRow,
)
from reprieve.engine.cluster.rows import Entry, Kind, NodeTerm, Operator, Requirement
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.reservations import reservations_of
from reprieve.units.ids import Uid
from tests.engine.builders import pending_of

DRIVER = "gpu.example.com"

_versions = itertools.count(1)


def attribute(value: bool | int | str) -> Attribute:
    """An attribute; a text `v1.2.3` is the version 1.2.3."""
    if isinstance(value, bool):
        return Attribute(AttributeType.BOOL, value)
    if isinstance(value, int):
        return Attribute(AttributeType.INT, value)
    if value[:1] == "v" and value[1:2].isdigit():
        return Attribute(AttributeType.VERSION, value[1:])
    return Attribute(AttributeType.STRING, value)


def device(
    name: str,
    *,
    capacity: Mapping[str, int | DeviceCapacity] | None = None,
    **facts: Any,
) -> Device:
    """A device; what is not a field of the row is an attribute. Capacities in whole units."""
    own = {key: facts.pop(key) for key in list(facts) if key in Device.__dataclass_fields__}
    amounts = {
        key: DeviceCapacity(1000 * amount) if isinstance(amount, int) else amount
        for key, amount in (capacity or {}).items()
    }
    return Device(
        name,
        attributes=tuple((key, attribute(value)) for key, value in sorted(facts.items())),
        capacity=tuple(sorted(amounts.items())),
        **own,
    )


def gpus(count: int, **facts: Any) -> list[Device]:
    """Devices `gpu-0`, `gpu-1`, ..."""
    return [device(f"gpu-{number}", **facts) for number in range(count)]


def published(
    node: str = "n1",
    devices: Iterable[Device] = (),
    *,
    name: str = "",
    pool: str = "",
    driver: str = DRIVER,
    **facts: Any,
) -> Entry:
    """A ResourceSlice of a node; `reach` takes its place. The pool is named after the node."""
    name = name or f"slice-{driver}-{pool or node}"
    facts.setdefault("reach", Reach(node=node))
    row = ResourceSliceRow(
        Uid(name), name, next(_versions), driver, pool or node, devices=tuple(devices), **facts
    )
    return Entry(Kind.RESOURCE_SLICE, row.uid, "", name, row.version, row)


def device_class(name: str = "gpu", *selectors: str, **facts: Any) -> Entry:
    """A DeviceClass."""
    row = DeviceClassRow(Uid(f"class-{name}"), name, next(_versions), selectors, **facts)
    return Entry(Kind.DEVICE_CLASS, row.uid, "", name, row.version, row)


def asks(name: str = "r", count: int = 1, *selectors: str, **facts: Any) -> Request:
    """A request for so many devices of the class `gpu`; count 0 means all."""
    return Request(name, (alternative(name, count, *selectors, **facts),))


def alternative(name: str, count: int = 1, *selectors: str, **facts: Any) -> DeviceRequest:
    """One of several forms of a request."""
    mode = AllocationMode.EXACT_COUNT if count else AllocationMode.ALL
    facts.setdefault("device_class", "gpu")
    return DeviceRequest(name, selectors=selectors, mode=mode, count=count or 1, **facts)


def first_of(name: str, *alternatives: DeviceRequest) -> Request:
    """A request that the first possible alternative fulfils."""
    return Request(name, alternatives, first_available=True)


def same(name: str, *requests: str) -> Constraint:
    """matchAttribute."""
    return Constraint(f"{DRIVER}/{name}", requests=requests)


def distinct(name: str, *requests: str) -> Constraint:
    """distinctAttribute."""
    return Constraint(f"{DRIVER}/{name}", distinct=True, requests=requests)


def resource_claim(
    name: str,
    *requests: Request,
    constraints: Iterable[Constraint] = (),
    namespace: str = "default",
    got: Iterable[tuple[str, str]] | None = None,
    users: Iterable[str] = (),
    only: str = "",
    **facts: Any,
) -> Entry:
    """A ResourceClaim; `got`: (pool, device) that it has, `only`: on that node alone.

    `users`: names of pods that it is reserved for.
    """
    if got is not None:
        devices = tuple(AllocatedDevice("r", (DRIVER, *each)) for each in got)
        field = Requirement("metadata.name", Operator.IN, (only,))
        facts["allocation"] = Allocation(devices, (NodeTerm(fields=(field,)),) if only else None)
    row = ResourceClaimRow(
        Uid(f"claim-{name}"),
        namespace,
        name,
        next(_versions),
        requests,
        tuple(constraints),
        reserved_for=tuple(Consumer("pods", user, Uid(f"pod-{user}")) for user in users),
        **facts,
    )
    return Entry(Kind.RESOURCE_CLAIM, row.uid, namespace, name, row.version, row)


def claims(*names: str) -> tuple[tuple[str, str | None], ...]:
    """The entries of a pod that uses these claims."""
    return tuple((f"entry-{name}", name) for name in names)


def taken(simulation: Simulation, name: str = "p", node: int = 0) -> dict[str, list[str]]:
    """The devices that each claim gets when the pod is placed, as POOL/DEVICE, request in front.

    The simulation is as before afterwards.
    """
    pending = pending_of(simulation.snapshot, name)
    pod = simulation.place(pending, node)
    made = reservations_of(simulation, pending.row.uid).claims
    simulation.unplace(pod)
    return {
        each.name: [f"{d.request}={d.id[1]}/{d.id[2]}" for d in each.allocation.devices]
        for each in made
        if each.allocation is not None
    }
