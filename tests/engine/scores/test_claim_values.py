"""VolumeBinding and DynamicResources, by hand (specification 17.2). Sizes in GiB."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.engine.cluster.devices import (
    Device,
    DeviceClassRow,
    DeviceRequest,
    Reach,
    Request,
    ResourceClaimRow,
    ResourceSliceRow,
)
from reprieve.engine.cluster.rows import Entry, Kind
from reprieve.engine.placement.profile import ScoreName
from reprieve.units.ids import Uid
from tests.engine.builders import node, pod
from tests.engine.scores.scoring import score_of, scored
from tests.engine.volumes.storage import (
    GIB,
    ZONE,
    capacity,
    claim,
    csi_driver,
    storage_class,
    uses,
    volume,
)

VOLUMES, DEVICES = ScoreName.VOLUME_BINDING, ScoreName.DYNAMIC_RESOURCES

# VolumeBinding: shape(requested * 100 / capacity), mean over classes, rounded.


def wanted(name: str, size: int, kind: str = "sc") -> Entry:
    return claim(name, storage_class=kind, request=size * GIB)


def local(name: str, size: int, kind: str = "sc", on: str = "n1") -> Entry:
    return volume(name, on=on, storage_class=kind, capacity=size * GIB)


def reported(zone: str, size: int, largest: int | None = None) -> Entry:
    most = None if largest is None else largest * GIB
    return capacity(f"room-{zone}", zone=zone, capacity=size * GIB, maximum=most)


RISING = ((0, 0), (100, 10))

VOLUME_CASES = [
    ("10 of 40 is 25 %: 100 - 25", [wanted("c", 10), local("v", 40)], {}, 75),
    ("10 of 30 is 33 %", [wanted("c", 10), local("v", 30)], {}, 67),
    ("all of it", [wanted("c", 40), local("v", 40)], {}, 0),
    ("a rising shape", [wanted("c", 10), local("v", 40)], {"volume_shape": RISING}, 25),
    ("the smallest that is large enough serves: 10 of 20",
     [wanted("c", 10), local("v", 40), local("w", 20), local("x", 5)], {}, 50),
    ("claims of one class are summed: 10 + 20 of 20 + 40",
     [wanted("c", 10), wanted("d", 20), local("v", 40), local("w", 20)], {}, 50),
    ("classes count alike: 75 and 50, mean 62.5 rounds to 63",
     [wanted("c", 10), wanted("d", 10, "other"), local("v", 40), local("w", 20, "other"),
      storage_class("other")], {}, 63),
    ("reported capacity: 30 of 100", [wanted("c", 30), reported("a", 100)], {}, 70),
    ("a volume that exists counts before what could be made: 10 of 40",
     [wanted("c", 10), local("v", 40), reported("a", 100)], {}, 75),
    ("only those that exist count if there is one: c 10 of 40, d is left out",
     [wanted("c", 10), wanted("d", 30, "other"), local("v", 40), storage_class("other"),
      csi_driver(storage_capacity=True),
      capacity("o", zone="a", storage_class="other", capacity=40 * GIB)], {}, 75),
    ("one volume of 50 may be made though 40 are reported: over is shape(100)",
     [wanted("c", 50), reported("a", 40, largest=50)], {}, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "profile", "expected"),
    [case[1:] for case in VOLUME_CASES],
    ids=[case[0] for case in VOLUME_CASES],
)
def test_volume_binding(rows: list[Entry], profile: dict[str, Any], expected: int) -> None:
    claims = [each.name for each in rows if each.kind is Kind.CLAIM]
    found = scored(
        VOLUMES,
        node("n1", labels={ZONE: "a"}),
        storage_class(),
        csi_driver(storage_capacity=True),
        rows,
        pod("new", volumes=uses(*claims)),
        **profile,
    )
    assert found == {"n1": expected}


def test_volume_binding_has_nothing_to_say_about_bound_claims() -> None:
    rows = [
        node("n1"),
        claim("c", volume="v"),
        volume("v", claim=("default", "c", "pvc-c")),
        pod("new", volumes=uses("c")),
    ]
    assert score_of(VOLUMES, rows) is None
    assert score_of(VOLUMES, node("n1"), pod("new")) is None


# DynamicResources: 8 - i for the chosen alternative number i, 100 * s / max.


def device_class(kind: str) -> Entry:
    row = DeviceClassRow(Uid(kind), kind, 1, (f'device.driver == "{kind}.example.com"',))
    return Entry(Kind.DEVICE_CLASS, row.uid, "", kind, 1, row)


def devices(on: str, kind: str, count: int = 1) -> Entry:
    name = f"{on}-{kind}"
    row = ResourceSliceRow(
        Uid(name),
        name,
        1,
        f"{kind}.example.com",
        on,
        reach=Reach(node=on),
        devices=tuple(Device(f"d{number}") for number in range(count)),
    )
    return Entry(Kind.RESOURCE_SLICE, row.uid, "", name, 1, row)


def asking(*requests: Request) -> Entry:
    row = ResourceClaimRow(Uid("claim"), "default", "claim", 1, requests)
    return Entry(Kind.RESOURCE_CLAIM, row.uid, "default", "claim", 1, row)


def first_of(name: str, *kinds: str) -> Request:
    return Request(name, tuple(DeviceRequest(kind, kind) for kind in kinds), first_available=True)


KINDS = ("big", "mid", "small")
NODES = (
    [node("n0"), node("n1"), node("n2")],
    [device_class(kind) for kind in KINDS],
    [
        devices("n0", "big", 2),
        devices("n1", "mid", 2),
        devices("n2", "small"),
        devices("n2", "big"),
    ],
)
WANTS = pod("new", claims=(("gpu", "claim"),))

DEVICE_CASES = [
    # 8, 7, 8
    ("first and second", (first_of("r", "big", "mid"),), {"n0": 100, "n1": 87, "n2": 100}),
    # 6, 7, 8
    ("third", (first_of("r", "small", "mid", "big"),), {"n0": 75, "n1": 87, "n2": 100}),
    # 8 + 8, 7 + 7, 8 + 6
    ("two requests are summed",
     (first_of("r", *KINDS), first_of("s", *KINDS)), {"n0": 100, "n1": 87, "n2": 87}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("requests", "expected"),
    [case[1:] for case in DEVICE_CASES],
    ids=[case[0] for case in DEVICE_CASES],
)
def test_dynamic_resources(requests: tuple[Request, ...], expected: dict[str, int]) -> None:
    assert scored(DEVICES, *NODES, asking(*requests), WANTS) == expected


def test_devices_are_normalised_over_the_nodes_that_passed() -> None:
    rows = (*NODES, asking(first_of("r", "small", "mid", "big")), WANTS)
    # 6 and 7
    assert scored(DEVICES, *rows, nodes=("n0", "n1")) == {"n0": 85, "n1": 100}


def test_dynamic_resources_has_nothing_to_say_without_alternatives() -> None:
    exact = Request("r", (DeviceRequest("r", "big"),))
    assert score_of(DEVICES, *NODES, asking(exact), WANTS) is None
    assert score_of(DEVICES, *NODES, pod("new")) is None
