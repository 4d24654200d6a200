"""Which LimitRange has pods request a resource that their own containers do not name.

Source: the API's rules for LimitRanges; specification of the quota plane, section 8.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reprieve.api.kueue import Container, PodSpec, Workload
from reprieve.engine.diagnosis.causes import Cause
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.intake.quota_limits import LimitRange

__all__ = ["with_limit_ranges"]


def with_limit_ranges(
    found: Diagnosis, workload: Workload, ranges: Iterable[LimitRange]
) -> Diagnosis:
    """Return the diagnosis with the LimitRange that requests what no quota covers."""
    if found.cause is not Cause.NOT_COVERED:
        return found
    named = sorted(ranges, key=lambda each: each.metadata.name)
    texts = []
    for resource in found.values["resources"].split(", "):
        text = _asked_by(workload, named, resource)
        if text:
            texts.append(text)
    if not texts:
        return found
    return replace(found, values={**found.values, "limit_range": ", ".join(texts)})


def _asked_by(workload: Workload, ranges: Iterable[LimitRange], resource: str) -> str:
    containers = [
        container
        for pod_set in workload.spec.pod_sets
        for container in _containers(pod_set.template.spec)
    ]
    if any(_names(each, resource) for each in containers):
        return ""
    for each in ranges:
        for item in each.spec.limits:
            amount = (item.default_request or {}).get(resource) or (item.default or {}).get(
                resource
            )
            if item.type == "Container" and amount is not None:
                return f"LimitRange {each.metadata.name}, which gives {amount} {resource}"
    return ""


def _containers(spec: PodSpec) -> list[Container]:
    return [*(spec.init_containers or ()), *(spec.containers or ())]


def _names(container: Container, resource: str) -> bool:
    resources = container.resources
    return resources is not None and (
        resource in (resources.requests or {}) or resource in (resources.limits or {})
    )
