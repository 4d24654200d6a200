"""How many GPUs a pod and a workload hold.

Per pod and resource name: sum over the containers of max(request, limit), then the maximum with
each init container's; zeros are dropped. Per workload: the sum over the owned pods, finished ones
included; without a pod the last value stays. Source: specification of the idle plane, section 8
with its recommended handling of the reference's quirks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reprieve.engine.idle.vendors import AMD, Vendor

__all__ = [
    "DEFAULT_VENDORS",
    "ContainerRow",
    "add",
    "is_gpu",
    "pod_gpus",
    "workload_gpus",
]

DEFAULT_VENDORS: Final = (AMD,)


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """What one container asks for, in base units per resource name."""

    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


def is_gpu(name: str, vendors: Sequence[Vendor] = DEFAULT_VENDORS) -> bool:
    """Return whether the resource name counts as a GPU of one of the vendors."""
    return "/" in name and any(vendor.owns(name) for vendor in vendors)


def pod_gpus(
    containers: Iterable[ContainerRow],
    init_containers: Iterable[ContainerRow] = (),
    vendors: Sequence[Vendor] = DEFAULT_VENDORS,
) -> dict[str, int]:
    """Return count per GPU resource name, in name order, without zeros."""
    totals: dict[str, int] = {}
    for container in containers:
        for name, count in _asked(container, vendors).items():
            totals[name] = totals.get(name, 0) + count
    for container in init_containers:
        for name, count in _asked(container, vendors).items():
            totals[name] = max(totals.get(name, 0), count)
    return {name: totals[name] for name in sorted(totals) if totals[name] > 0}


def workload_gpus(pods: Sequence[Mapping[str, int]], last: Mapping[str, int]) -> dict[str, int]:
    """Return the total over the owned pods; `last` when there is none."""
    return add(*pods) if pods else dict(last)


def add(*amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the sum per resource name, in name order."""
    total: dict[str, int] = {}
    for amount in amounts:
        for name, count in amount.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))


def _asked(container: ContainerRow, vendors: Sequence[Vendor]) -> dict[str, int]:
    return {
        name: max(container.requests.get(name, 0), container.limits.get(name, 0))
        for name in {*container.requests, *container.limits}
        if is_gpu(name, vendors)
    }
