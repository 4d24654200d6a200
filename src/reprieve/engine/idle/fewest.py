"""Fewer victims than the oldest idle ones, where planes decide together (`Policy.fewest`).

Tried are: the smallest first, each unit alone, and the best set so far without one of its victims,
whose pods may then be placed anew. The set with the fewest GPUs wins, that found first among
equals; none of its units can be reprieved. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reprieve.engine.idle.model import Workload
from reprieve.engine.idle.search import Search
from reprieve.units.ids import GpuWorkloadKey

__all__ = ["Smaller", "fewest"]

#: How many sets are tried for one demand.
_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class Smaller:
    """A search that has found less, and which victims it could reprieve."""

    search: Search
    spare: list[Workload]


def fewest(found: Search, idle: Sequence[Workload], begin: Callable[[], Search]) -> Smaller | None:
    """Return a set with fewer GPUs than `found` holds, None where none was found.

    `idle`: units that may be evicted, oldest idle first; `begin` makes a search for the same
    demand.
    """
    best: Smaller | None = None
    left = _MOST

    def least() -> int:
        return found.gpus if best is None else best.search.gpus

    def better(units: Sequence[Workload]) -> bool:
        nonlocal best, left
        left -= 1
        search = begin()
        if not search.collect(units):
            return False
        spare = search.spare()
        search.reprieve(spare)
        if not search.victims or search.gpus >= least():
            return False
        best = Smaller(search, spare)
        return True

    smallest = sorted(idle, key=_smallest_first)
    better(smallest)
    for unit in smallest:
        if left <= 0 or _gpus(unit) >= least() or better([unit]):
            break
    fewer = True
    while fewer:
        victims = (found if best is None else best.search).victims
        fewer = any(left > 0 and better(rest) for rest in _without_one(victims))
    return best


def _without_one(victims: Sequence[Workload]) -> Iterator[list[Workload]]:
    """Yield the victims without one of them, the largest of them first."""
    for out in sorted(victims, key=_smallest_first, reverse=True) if len(victims) > 1 else ():
        yield [each for each in victims if each is not out]


def _gpus(unit: Workload) -> int:
    return sum(unit.gpus.values())


def _smallest_first(unit: Workload) -> tuple[int, int, GpuWorkloadKey]:
    """Order: 1. fewest GPUs; 2. start of the idle stretch; 3. namespace/name."""
    since = unit.status.idle_since
    return (_gpus(unit), 0 if since is None else since, unit.key)
