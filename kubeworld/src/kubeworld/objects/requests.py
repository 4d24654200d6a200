"""What a pod requests, as integers: cpu in milli-CPU, the rest in base units.

Source: the effective request of the API (`pod_sum`), with what the whole pod requests in place of
its containers' cpu, memory and huge pages, and its overhead. A limit without a request counts as
the request, as the API server's defaulting has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeworld.objects.pod_sum import ALWAYS, pod_level, pod_sum
from kubeworld.units.quantities import InvalidQuantity, parse_milli, parse_quantity

__all__ = [
    "amounts",
    "asked",
    "container_requests",
    "milli_amounts",
    "pod_amounts",
    "pod_requests",
]


def pod_requests(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return the effective request per resource name; zero amounts are left out."""
    milli = pod_amounts(pod["spec"])
    return {
        name: amount if name == "cpu" else -(-amount // 1_000)
        for name, amount in milli.items()
        if amount > 0
    }


def pod_amounts(spec: Mapping[str, Any], part: str = "requests") -> dict[str, int]:
    """Return what a pod requests, or what it is limited to, in thousandths of base units.

    Args:
        spec: of the pod.
        part: "requests", where limits stand in for those that are missing, or "limits".
    """
    total = pod_sum(
        [asked(each, part) for each in spec.get("containers") or ()],
        [
            (each.get("restartPolicy") == ALWAYS, asked(each, part))
            for each in spec.get("initContainers") or ()
        ],
        pod_level(asked(spec, part)),
    )
    for name, amount in milli_amounts(spec.get("overhead")).items():
        if part == "requests" or name in total:  # what has no limit gets none by its overhead
            total[name] = total.get(name, 0) + amount
    return total


def asked(holder: Mapping[str, Any], part: str = "requests") -> dict[str, int]:
    """Return what one container or the pod level requests, in thousandths of base units."""
    resources = holder.get("resources") or {}
    limits = milli_amounts(resources.get("limits"))
    return limits if part == "limits" else {**limits, **milli_amounts(resources.get("requests"))}


def container_requests(container: Mapping[str, Any]) -> dict[str, int]:
    """Return what one container requests, in the units of `pod_requests`."""
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Return cpu in milli-CPU and the rest in base units; what is no quantity is left out."""
    found = {}
    for name, text in (quantities or {}).items():
        try:
            found[name] = parse_milli(text) if name == "cpu" else parse_quantity(text)
        except InvalidQuantity:
            continue
    return found


def milli_amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Return thousandths of base units per resource name; what is no quantity is left out."""
    found = {}
    for name, text in (quantities or {}).items():
        try:
            found[name] = parse_milli(text)
        except InvalidQuantity:
            continue
    return found
