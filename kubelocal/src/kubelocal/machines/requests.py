"""What a pod asks for and what a node has, as integers: cpu in milli-CPU, the rest in base units.

Source: the effective request of the API: the sum over containers and restartable init containers,
at least what an init container needs beside those started before it, plus the pod's overhead. A
limit without a request counts as the request, as the API server's defaulting has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kubelocal.machines.objects import Object
from kubeworld.units.quantities import InvalidQuantity, parse_milli, parse_quantity

__all__ = ["amounts", "container_requests", "pod_requests"]


def pod_requests(pod: Object) -> dict[str, int]:
    """Return the effective request per resource name; zero amounts are left out."""
    spec = pod["spec"]
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        need = Counter(container_requests(container))
        if container.get("restartPolicy") == "Always":
            sidecars += need
            peak |= sidecars
        else:
            peak |= sidecars + need
    total = Counter(sidecars)
    for container in spec.get("containers") or ():
        total += Counter(container_requests(container))
    total |= peak
    total += Counter(amounts(spec.get("overhead")))
    return {name: amount for name, amount in total.items() if amount > 0}


def container_requests(container: Mapping[str, Any]) -> dict[str, int]:
    """Return what one container asks for."""
    resources = container.get("resources") or {}
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the amounts per resource name; what is not a quantity is left out."""
    found = {}
    for name, text in (quantities or {}).items():
        try:
            found[name] = parse_milli(text) if name == "cpu" else parse_quantity(text)
        except InvalidQuantity:
            continue
    return found
