"""Situations of devices that pods ask for by claims."""

from __future__ import annotations

from typing import Final

from tests.situations.asked import Situation, situation
from tests.situations.nodes import _THERE
from tests.whatif.plan_stories import Object, node, pod

_DRIVER: Final = "gpu.example.com"
# The first letter is a capital in plans.
_SENTENCE: Final = "o node that it accepts has the devices that its claims request free"


def _resource(kind: str, name: str, spec: Object, namespace: str = "") -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    api = "resource.k8s.io/v1"
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def _template(count: int) -> Object:
    exactly = {"deviceClassName": "gpu", "count": count}
    requests = [{"name": "gpu", "exactly": exactly}]
    spec = {"spec": {"devices": {"requests": requests}}}
    return _resource("ResourceClaimTemplate", f"of-{count}", spec, "team")


def _claiming(name: str, count: int, priority: str = "low") -> Object:
    made = pod(name, 1, priority)
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    claim = {"name": "gpus", "resourceClaimTemplateName": f"of-{count}"}
    return {**made, "spec": {**made["spec"], "resourceClaims": [claim]}}


def _cluster() -> tuple[Object, ...]:
    """Return one node with two devices."""
    selector = {"cel": {"expression": f'device.driver == "{_DRIVER}"'}}
    published = {
        "driver": _DRIVER,
        "nodeName": "gpu-0",
        "pool": {"name": "gpu-0", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d0"}, {"name": "d1"}],
    }
    return (
        *_THERE,
        node("gpu-0"),
        _resource("DeviceClass", "gpu", {"selectors": [selector]}),
        _resource("ResourceSlice", "gpu-0", published),
        _template(2),
        _template(4),
    )


@situation
def devices_of_claims_are_held_by_lower_priority() -> Situation:
    return Situation(
        _cluster(),
        [_claiming("mine", 2, "high")],
        [_SENTENCE, "simulateClaims"],
        [[_claiming("old", 2)]],
        never=["no work on them is of lower priority", "use a higher priority"],
    )


@situation
def claim_that_is_not_there() -> Situation:
    mine = _claiming("mine", 2)
    mine["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "my-gpu"}]
    return Situation(
        _cluster(),
        [mine],
        ['resourceclaim "my-gpu" not found', "Create that claim, or correct its name"],
    )


@situation
def more_devices_of_a_claim_than_any_node_has() -> Situation:
    return Situation(
        _cluster(),
        [_claiming("mine", 4)],
        [_SENTENCE],
        plan_expects=["NEVER FITS", "even on the empty cluster: 0 of 1 pod placed"],
        never=["no work on them is of lower priority", "use a higher priority"],
    )


@situation
def device_class_that_is_not_there() -> Situation:
    there = [each for each in _cluster() if each["kind"] != "DeviceClass"]
    return Situation(
        there,
        [_claiming("mine", 2)],
        ["device class gpu does not exist", "Create DeviceClass gpu, or correct"],
        plan_expects=["NEVER FITS"],
        never=["Wait until work", "simulateClaims"],
    )


@situation
def selector_of_a_claim_that_cannot_be_read() -> Situation:
    there = [each for each in _cluster() if each["kind"] != "DeviceClass"]
    selector = {"cel": {"expression": "device.driver ="}}
    there.append(_resource("DeviceClass", "gpu", {"selectors": [selector]}))
    return Situation(
        there,
        [_claiming("mine", 2)],
        ["class gpu: selector #0", "Correct"],
        plan_expects=["NEVER FITS"],
        never=["Wait until work", "simulateClaims"],
    )
