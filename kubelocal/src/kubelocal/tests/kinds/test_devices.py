"""Claims for devices, and slices of them."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.tests.kinds.objects import Object, refusal, stored, update_refusal

FIELD = "spec.devices.requests[0]"


def claim(*requests: Object) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": list(requests)}},
    }


def exactly(**more: Any) -> Object:
    return {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", **more}}


def device_slice(*devices: str, **more: Any) -> Object:
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": name} for name in devices],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {**spec, **more},
    }


def test_a_request_is_for_one_device_unless_it_says_more() -> None:
    request = stored(claim(exactly()))["spec"]["devices"]["requests"][0]["exactly"]
    assert (request["allocationMode"], request["count"]) == ("ExactCount", 1)


@pytest.mark.parametrize(
    ("wrong", "texts"),
    [
        (
            claim({"name": "gpu"}),
            [f"{FIELD}: Required value: exactly one of `exactly`, `firstAvailable` is required"],
        ),
        (claim(exactly(deviceClassName="")), [f"{FIELD}.exactly.deviceClassName: Required value"]),
        (
            claim(exactly(allocationMode="Some")),
            [
                (
                    f'{FIELD}.exactly.allocationMode: Unsupported value: "Some": supported values: '
                    '"All", "ExactCount"'
                )
            ],
        ),
        (
            claim(exactly(count=-1)),
            [f"{FIELD}.exactly.count: Invalid value: -1: must be greater than zero"],
        ),
        (
            claim(exactly(), exactly()),
            ['spec.devices.requests[1].name: Duplicate value: "gpu"'],
        ),
        (
            device_slice("a", "a"),
            ['spec.devices[1].name: Duplicate value: "a"'],
        ),
        (
            device_slice(allNodes=True),
            [
                (
                    'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, '
                    "`nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but "
                    "multiple fields are set"
                )
            ],
        ),
    ],
)
def test_what_cannot_be_is_refused(wrong: Object, texts: list[str]) -> None:
    assert refusal(wrong) == texts


def test_a_claim_and_the_place_of_a_slice_are_fixed() -> None:
    (text,) = update_refusal(claim(exactly(count=2)), claim(exactly()))
    assert text.endswith("field is immutable")
    assert update_refusal(device_slice("a", nodeName="m"), device_slice("b")) == [
        'spec.nodeName: Invalid value: "m": field is immutable'
    ]
