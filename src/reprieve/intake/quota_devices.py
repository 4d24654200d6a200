"""Devices of claims as a pod set requests them, counted by the resource of their class.

Each pod has a claim of each template that it names, and each request of it counts what it states.
Access for administration counts nothing. What cannot be counted makes the Workload inadmissible, in
the words of the reference. Source: Kueue's KEP-2941 and its controller of Workloads;
resource.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from reprieve.api import field_errors as wrong
from reprieve.api.devices import ExactDeviceRequest, NamedDeviceRequest, ResourceClaimTemplate
from reprieve.api.kueue import PodSet
from reprieve.engine.quota.holdings.amounts import clamp

__all__ = ["Uncountable", "claimed_devices"]

_NAMED: Final = "DynamicResourceAllocation feature does not support use of resource claims"
_EXACT: Final = "ExactCount"
_ALL: Final = "All"


class Uncountable(ValueError):
    """Devices that cannot be counted; the text starts with a path below the pod's spec.

    `whole`: it has no path, as it is about all claims.
    """

    def __init__(self, text: str, *, whole: bool = False) -> None:
        super().__init__(text)
        self.whole = whole


def claimed_devices(
    pod_set: PodSet,
    templates: Mapping[str, ResourceClaimTemplate],
    classes: Mapping[str, str],
) -> dict[str, int]:
    """Return the devices that one pod requests by claims, per resource.

    `templates`: of the namespace, by name. `classes`: the resource of each class.

    Raises:
        Uncountable: a claim is named, a template is missing, or a form of request is not counted.
    """
    entries = pod_set.template.spec.resource_claims or ()
    if any(each.resource_claim_name for each in entries):
        raise Uncountable(_NAMED, whole=True)
    found: dict[str, int] = {}
    for index, entry in enumerate(entries):
        name = entry.resource_claim_template_name
        if not name:
            continue
        path = f"resourceClaims[{index}]"
        template = templates.get(name)
        if template is None:
            why = (
                f"failed to get claim spec for ResourceClaimTemplate {name} in podset "
                f'{pod_set.name}: ResourceClaimTemplate.resource.k8s.io "{name}" not found'
            )
            raise Uncountable(f"{path}: Internal error: {why}")
        requests = template.spec.spec.devices.requests or ()
        for device_class, count in _counts(requests, name, path, classes).items():
            resource = classes.get(device_class)
            if resource is None:
                where = f"{path}.resourceClaimTemplateName.deviceClassName"
                raise Uncountable(wrong.not_found(where, device_class))
            found[resource] = clamp(found.get(resource, 0) + count)
    return found


def _counts(
    requests: Sequence[NamedDeviceRequest], template: str, path: str, classes: Mapping[str, str]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for index, request in enumerate(requests):
        at = f"{path}.devices.requests[{index}]"
        if request.first_available:
            raise _refused(at, None, template, "FirstAvailable device selection is not supported")
        exactly = request.exactly
        if exactly is None:
            why = "Exactly must be set if FirstAvailable is nil"
            raise _refused(at, None, template, why)
        if exactly.admin_access:
            continue
        count = _count(exactly, f"{at}.exactly.allocationMode", template)
        if exactly.device_class_name:
            known = found.get(exactly.device_class_name, 0)
            found[exactly.device_class_name] = clamp(known + count)
    return found


def _count(exactly: ExactDeviceRequest, path: str, template: str) -> int:
    mode = exactly.allocation_mode or _EXACT
    if mode == _ALL:
        raise _refused(path, mode, template, "AllocationMode 'All' is not supported")
    if mode != _EXACT:
        raise _refused(path, mode, template, f"unsupported allocation mode: {mode}")
    return 1 if exactly.count is None else exactly.count


def _refused(path: str, value: str | None, template: str, why: str) -> Uncountable:
    return Uncountable(wrong.invalid(path, value, f"ResourceClaimTemplate {template}: {why}"))
