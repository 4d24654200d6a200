"""Which resources are GPUs, and how many a workload holds.

Per workload: the sum over the owned pods, finished ones
included; without a pod the last value stays. Source: specification of the idle plane, section 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from reprieve.engine.idle.vendors import AMD, Vendor

__all__ = [
    "DEFAULT_VENDORS",
    "add",
    "is_gpu",
    "workload_gpus",
]

DEFAULT_VENDORS: Final = (AMD,)


def is_gpu(name: str, vendors: Sequence[Vendor] = DEFAULT_VENDORS) -> bool:
    """Return whether the resource name counts as a GPU of one of the vendors."""
    return "/" in name and any(vendor.owns(name) for vendor in vendors)


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
