"""The quality of service class of a pod, by its CPU and memory.

Other resources do not count: a pod that requests GPUs alone is BestEffort. Where the whole pod has
resources of its own (`spec.resources`), they count and those of its containers do not. Amounts of
zero count as absent. Source: `ComputePodQOS` of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubeworld.units.quantities import InvalidQuantity, parse_milli

__all__ = ["is_best_effort", "quality"]

_COUNTED: Final = ("cpu", "memory")


def quality(spec: Mapping[str, Any]) -> str:
    """Return the class of a pod with this spec, in which limits stand in for requests already."""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    limited = True
    for resources in _holders(spec):
        own = _amounts(resources, "limits")
        limited = limited and len(own) == len(_COUNTED)
        for total, amounts in ((limits, own), (requests, _amounts(resources, "requests"))):
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if limited and requests == limits else "Burstable"


def is_best_effort(spec: Mapping[str, Any]) -> bool:
    """Return whether a pod with this spec requests neither CPU nor memory."""
    return quality(spec) == "BestEffort"


def _holders(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the requirements that count: those of the whole pod, else of each container."""
    if spec.get("resources") is not None:
        yield spec["resources"]
        return
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or ():
            yield container.get("resources") or {}


def _amounts(resources: Mapping[str, Any], part: str) -> dict[str, int]:
    found = {}
    for name in _COUNTED:
        try:
            amount = parse_milli((resources.get(part) or {}).get(name, 0))
        except InvalidQuantity:
            continue
        if amount:
            found[name] = amount
    return found
