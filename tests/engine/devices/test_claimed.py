"""How many devices a claim stands for, under which name, and which of a node are free."""

from __future__ import annotations

import pytest

from reprieve.engine.cluster.claimed import claimed_devices, named_devices
from reprieve.engine.cluster.devices import (
    AllocatedDevice,
    Allocation,
    AllocationMode,
    Device,
    DeviceClassRow,
    DeviceRequest,
    Reach,
    Request,
    ResourceSliceRow,
    extended_classes,
)
from reprieve.engine.cluster.rows import Kind, Taint
from reprieve.engine.placement.free_devices import DevicesOfNodes
from reprieve.units.ids import Uid


def exactly(name: str, device_class: str, count: int = 1, **facts: object) -> Request:
    asked = DeviceRequest(name, device_class, count=count, **facts)  # type: ignore[arg-type]
    return Request(name, (asked,))


def given(*devices: tuple[str, str], admin: bool = False) -> Allocation:
    """Return an allocation of (request, device)."""
    return Allocation(
        tuple(AllocatedDevice(request, ("d", "p", name), admin=admin) for request, name in devices)
    )


@pytest.mark.parametrize(
    ("requests", "counted"),
    [
        ([exactly("a", "gpu", 2), exactly("b", "gpu"), exactly("c", "nic")], {"gpu": 3, "nic": 1}),
        ([exactly("a", "gpu", admin=True)], {}),
        ([exactly("a", "gpu", mode=AllocationMode.ALL)], {}),
        ([exactly("a", "")], {}),
        (
            [
                Request(
                    "a", (DeviceRequest("x", "large", count=1), DeviceRequest("y", "small")), True
                )
            ],
            {"large": 1},
        ),
    ],
    ids=["counts", "administration", "all", "no class", "alternatives"],
)
def test_what_a_claim_asks_for(requests: list[Request], counted: dict[str, int]) -> None:
    assert claimed_devices(requests) == counted


def test_an_allocation_counts_in_place_of_what_was_asked_for() -> None:
    several = Request("a", (DeviceRequest("x", "large"), DeviceRequest("y", "small")), True)
    everything = exactly("b", "gpu", mode=AllocationMode.ALL)
    found = given(("a/y", "1"), ("a/y", "2"), ("b", "3"), ("gone", "4"))
    assert claimed_devices([several, everything], found) == {"small": 2, "gpu": 1}
    assert claimed_devices([everything], given(("b", "3"), admin=True)) == {}


def row(name: str, extended: str = "", created: int = 0, driver: str = "") -> DeviceClassRow:
    selectors = (f"device.driver == '{driver or name}'",)
    return DeviceClassRow(Uid(name), name, 1, selectors, (), extended, created)


def classes(*rows: DeviceClassRow) -> dict[str, DeviceClassRow]:
    return dict(extended_classes({Kind.DEVICE_CLASS: {("", each.name): each for each in rows}}))


def test_a_class_has_the_name_of_the_extended_resource_that_it_stands_for() -> None:
    extended = classes(row("old", "acme/gpu"), row("new", "acme/gpu", created=5), row("plain"))
    assert named_devices({"old": 1, "new": 2, "plain": 3, "unknown": 4}, extended) == {
        "deviceclass.resource.kubernetes.io/old": 1,
        "acme/gpu": 2,
        "deviceclass.resource.kubernetes.io/plain": 3,
        "deviceclass.resource.kubernetes.io/unknown": 4,
    }


def slice_of(node: str, *devices: Device, driver: str = "gpu") -> ResourceSliceRow:
    reach = Reach(node=node) if node else Reach(everywhere=True)
    return ResourceSliceRow(
        Uid(f"{node}-{driver}"), f"{node}-{driver}", 1, driver, node, reach=reach, devices=devices
    )


GPU = "deviceclass.resource.kubernetes.io/gpu"


def test_a_device_is_free_that_no_claim_has() -> None:
    slices = [
        slice_of("n1", Device("0"), Device("1"), Device("2")),
        slice_of("n2", Device("0")),
        slice_of("n2", Device("0"), driver="nic"),
        slice_of("", Device("0")),
    ]
    found = DevicesOfNodes(slices, classes(row("gpu")))
    assert found.free("n1", {("gpu", "n1", "1")}) == {GPU: 2}
    assert found.free("n2", ()) == {GPU: 1}
    assert found.free("n3", ()) == {}


@pytest.mark.parametrize(
    "device",
    [
        Device("0", taints=(Taint("broken", "", "NoSchedule"),)),
        Device("0", shareable=True),
        Device("0", consumes=(("memory", (("bytes", 1),)),)),
    ],
    ids=["tainted", "shareable", "a partition"],
)
def test_a_device_that_does_not_stand_for_itself_is_not_free(device: Device) -> None:
    assert DevicesOfNodes([slice_of("n1", device)], classes(row("gpu"))).free("n1", ()) == {}


@pytest.mark.parametrize("text", ["device.driver ==", "device.attributes['gpu'].none == 1"])
def test_a_class_whose_selector_has_no_value_selects_nothing(text: str) -> None:
    broken = DeviceClassRow(Uid("gpu"), "gpu", 1, (text,))
    assert DevicesOfNodes([slice_of("n1", Device("0"))], classes(broken)).free("n1", ()) == {}
