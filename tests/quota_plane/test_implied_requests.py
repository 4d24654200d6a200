"""What requests a resource that no quota covers is named, unless the pods' own containers do."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from reprieve.api.kueue import Workload
from reprieve.engine.diagnosis.causes import CAUSE, Cause
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.plan import Plane
from reprieve.engine.quota.assigning.request_rules import RequestRules, Transformation
from reprieve.intake.quota_limits import LimitRange
from reprieve.planes.quota.workload_status.implied_requests import Implied, with_implied_requests

GPU, CREDITS, MEMORY = "example.com/gpu", "example.com/credits", "memory"
ASKED_LIMIT = {"type": "Container", "defaultRequest": {MEMORY: "1Gi"}}
RANGE = {"metadata": {"name": "defaults"}, "spec": {"limits": [ASKED_LIMIT]}}
IMPLIED = Implied(
    ranges=[msgspec.convert(RANGE, LimitRange)],
    overheads={"kata": {"example.com/slots": "1"}},
    rules=RequestRules(
        transformations={GPU: Transformation({CREDITS: Fraction(2)})},
        device_classes={"gpu.example.com": "example.com/claimed"},
    ),
)


def told(spec: dict[str, Any], resource: str) -> str:
    """Return what requests a resource of pods like these."""
    given = {"spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": spec}}]}}
    workload = msgspec.convert(given, Workload)
    values = {CAUSE: Cause.NOT_COVERED, "resources": resource}
    found = Diagnosis(Plane.QUOTA, Reason.NO_FLAVOR_MATCHES, values)
    return with_implied_requests(found, workload, IMPLIED).values.get("implied_by", "")


def asks(**amounts: str) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": amounts}}]}


@pytest.mark.parametrize(
    ("spec", "resource", "text"),
    [
        (asks(), MEMORY, "LimitRange defaults, which gives 1Gi memory"),
        (asks(memory="2Gi"), MEMORY, ""),
        ({**asks(), "resources": {"requests": {MEMORY: "2Gi"}}}, MEMORY, ""),
        ({"initContainers": asks(memory="2Gi")["containers"], **asks()}, MEMORY, ""),
        (
            {"runtimeClassName": "kata", **asks()},
            "example.com/slots",
            "RuntimeClass kata, whose overhead is 1 example.com/slots",
        ),
        ({"runtimeClassName": "runc", **asks()}, "example.com/slots", ""),
        (
            {"resourceClaims": [{"name": "a"}], **asks()},
            "example.com/claimed",
            (
                "claims of DeviceClass gpu.example.com, which resources.deviceClassMappings "
                "counts as example.com/claimed"
            ),
        ),
        (asks(), "example.com/claimed", ""),
        (
            asks(**{GPU: "1"}),
            CREDITS,
            "example.com/gpu, of which resources.transformations makes example.com/credits",
        ),
        (asks(), CREDITS, ""),
    ],
)
def test_what_requests_a_resource_is_named(spec: dict[str, Any], resource: str, text: str) -> None:
    assert told(spec, resource) == text
