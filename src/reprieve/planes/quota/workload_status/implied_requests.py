"""By what pods request a resource that their own containers do not name.

1. A LimitRange that gives a default.
2. A RuntimeClass whose overhead has it.
3. A claim of devices that `resources.deviceClassMappings` counts under its name.
4. A rule of `resources.transformations` that makes it of another resource.

Source: the API's rules for LimitRanges and overheads; specification of the quota plane, section
8.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from reprieve.api.kueue import Amounts, Container, PodSpec, Workload
from reprieve.engine.diagnosis.causes import Cause
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.quota.assigning.request_rules import NO_RULES, RequestRules
from reprieve.intake.quota_limits import LimitRange

__all__ = ["Implied", "with_implied_requests"]


@dataclass(frozen=True, slots=True)
class Implied:
    """What adds requests to pods of a namespace; `overheads` by RuntimeClass."""

    ranges: Iterable[LimitRange] = ()
    overheads: Mapping[str, Amounts] = field(default_factory=dict)
    rules: RequestRules = NO_RULES


def with_implied_requests(found: Diagnosis, workload: Workload, implied: Implied) -> Diagnosis:
    """Return the diagnosis with what requests the resources that no quota covers."""
    if found.cause is not Cause.NOT_COVERED:
        return found
    specs = [pod_set.template.spec for pod_set in workload.spec.pod_sets]
    texts = []
    for resource in found.values["resources"].split(", "):
        if any(_names(spec, resource) for spec in specs):
            continue
        text = next(_sources(specs, resource, implied), "")
        if text:
            texts.append(text)
    if not texts:
        return found
    return replace(found, values={**found.values, "implied_by": ", ".join(texts)})


def _sources(specs: list[PodSpec], resource: str, implied: Implied) -> Iterator[str]:
    for each in sorted(implied.ranges, key=lambda each: each.metadata.name):
        for item in each.spec.limits:
            given = (item.default_request or {}).get(resource) or (item.default or {}).get(resource)
            if item.type == "Container" and given is not None:
                yield f"LimitRange {each.metadata.name}, which gives {given} {resource}"
    for spec in specs:
        name = spec.runtime_class_name or ""
        overhead = (spec.overhead or implied.overheads.get(name) or {}).get(resource)
        if overhead is not None:
            yield f"RuntimeClass {name}, whose overhead is {overhead} {resource}"
    classes = [
        name for name, counted in implied.rules.device_classes.items() if counted == resource
    ]
    if classes and any(spec.resource_claims for spec in specs):
        yield (
            f"claims of DeviceClass {', '.join(sorted(classes))}, "
            f"which resources.deviceClassMappings counts as {resource}"
        )
    for asked, rule in sorted(implied.rules.transformations.items()):
        if resource in rule.outputs and any(_names(spec, asked) for spec in specs):
            yield f"{asked}, of which resources.transformations makes {resource}"


def _names(spec: PodSpec, resource: str) -> bool:
    """Return whether the pods' own containers, or the pods as a whole, request a resource."""
    parts: list[Container | PodSpec] = [
        spec,
        *(spec.init_containers or ()),
        *(spec.containers or ()),
    ]
    return any(
        resource in (amounts or {})
        for part in parts
        if part.resources is not None
        for amounts in (part.resources.requests, part.resources.limits)
    )
