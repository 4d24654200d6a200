"""Which of two victim units is more important: the order in which units are reprieved.

More important first; the first difference decides (specification 7.5):
1. higher priority;
2. units of a composite group before those of a group, and these before plain pods;
3. with `harmOrder`, more work that would be lost; idle units lose less than nothing;
4. larger number of pods;
5. earlier start time, an unknown one counts as now;
6. smaller uid of the unit's first pod, so that the order is total.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import NO_START

__all__ = ["break_ties", "importance_order"]

_BITS: Final = 63


def importance_order(
    priority: I64,
    grouped: I64,
    size: I64,
    start: I64,
    uid: Callable[[int], str],
    lost: I64 | None = None,
) -> I64:
    """Return the indices of the units, most important first: (units,) int64.

    All arrays are (units,) int64; `grouped` is 1 for units of type group, 2 for a composite one.
    `uid(i)` is called for units that are equal in everything else. `lost`: device-seconds, None
    where they play no role.
    """
    count = len(priority)
    if count < 2:
        return np.arange(count, dtype=np.int64)
    known = start != NO_START
    latest = int(start[known].max()) if known.any() else 0
    seconds = np.where(known, start, latest + 1)
    # Ascending is descending importance.
    columns = (-priority, -grouped, *(() if lost is None else (-lost,)), -size, seconds)
    spans = [(int(column.min()), int(column.max())) for column in columns]
    widths = [(high - low).bit_length() for low, high in spans]
    if sum(widths) <= _BITS:
        packed = np.zeros(count, np.int64)
        for column, (low, _), width in zip(columns, spans, widths, strict=True):
            packed <<= width
            packed |= column - low
        order = np.argsort(packed)
        ranked = packed[order]
        same = ranked[1:] == ranked[:-1]
    else:
        order = np.lexsort(columns[::-1])
        same = np.ones(count - 1, np.bool_)
        for column in columns:
            same &= np.diff(column[order]) == 0
    if same.any():
        break_ties(order, same, uid)
    return order.astype(np.int64, copy=False)


def break_ties(order: I64, same: Mask, uid: Callable[[int], str]) -> None:
    """Sort in place what stands beside its equals; `same`: (units - 1,) equal to the next."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        run = order[first : last + 1].tolist()
        run.sort(key=uid)
        order[first : last + 1] = run
