"""Partial admission: the smallest reduction of pod counts that fits.

With `delta = count - minCount` for each pod set and their sum D, step i of 0..D lowers each count
by `delta * i / D` (integer division). The smallest step that fits is found by binary search, which
assumes that what fits at a step fits at every later one.

Source: specification of the quota plane, section 5.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from reprieve.engine.quota.model import PodSet

__all__ = ["reduced", "reduction_steps"]

Found = TypeVar("Found")


def reduction_steps(pod_sets: Sequence[PodSet]) -> int:
    """Return by how many pods the counts may be lowered altogether."""
    return sum(_delta(each) for each in pod_sets)


def reduced(
    pod_sets: Sequence[PodSet], probe: Callable[[Sequence[int]], Found | None]
) -> Found | None:
    """Return what `probe` found for the largest counts that it accepts, None if there are none."""
    steps = reduction_steps(pod_sets)
    if not steps:
        return None
    best: tuple[int, Found] | None = None
    low, high = 0, steps + 1
    while low < high:
        middle = (low + high) // 2
        found = probe([each.count - _delta(each) * middle // steps for each in pod_sets])
        if found is None:
            low = middle + 1
        else:
            high, best = middle, (middle, found)
    return best[1] if best is not None and best[0] == low else None


def _delta(pod_set: PodSet) -> int:
    return 0 if pod_set.min_count is None else pod_set.count - pod_set.min_count
