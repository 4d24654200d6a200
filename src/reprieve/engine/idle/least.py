"""Fewer devices of idle work for one demand than the oldest idle ones hold.

1. `fewest`, where planes decide together (`Policy.fewest`): tried are the smallest first, each unit
   alone, and the best set so far without one of its victims, whose pods may then be placed anew.
   The set with the fewest GPUs wins, that found first among equals; none of its units can be
   reprieved.
2. `least`, where the profile is `best`: what the oldest idle ones and `fewest` come to is the
   start. Then sets of units are tried in the order of their devices, fewest first, then fewer
   units, then oldest idle; the first with which the demand fits is the answer, as all with fewer
   devices were tried in vain. Of units that free the same on the same nodes the oldest are chosen
   first. No set has fewer devices than what is lacking.

Effort is counted in sets, so that the answer depends on no clock; when it is used up the bound is
what was tried so far. Work that is idle computes nothing, so that nothing is lost by the choice of
victims. Source: the design's "Irreducible" and "Where the planes meet".
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reprieve.engine.idle.model import Workload
from reprieve.engine.idle.placement import LIMIT
from reprieve.engine.idle.search import Search
from reprieve.units.ids import GpuWorkloadKey

__all__ = ["Least", "Smaller", "fewest", "least"]

#: How many sets `fewest` tries for one demand.
_MOST: Final = 64

_TRIED: Final = 128  # sets
_LISTED: Final = 4_096  # sets, tried or too small


@dataclass(frozen=True, slots=True)
class Smaller:
    """A search that has found less, and which victims it could reprieve."""

    search: Search
    spare: list[Workload]


@dataclass(frozen=True, slots=True)
class Least:
    """The set with the fewest devices that was found, and which victims its search could reprieve.

    `other`: None where it is the one that was there. `gap`: per cent by which its devices exceed
    the fewest possible at most, None where no bound is known.
    """

    other: Smaller | None
    gap: int | None


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


def least(found: Search, idle: Sequence[Workload], begin: Callable[[], Search]) -> Least:
    """Return the fewest; `found`: a search that fits, without those that it could reprieve.

    `idle`: units that may be evicted, oldest idle first; `begin` makes a search for the same
    demand.
    """
    other = fewest(found, idle, begin)
    most = found.gpus if other is None else other.search.gpus
    lower = _lacking(begin())
    sure = _complete(found)
    if most <= lower:
        return Least(other, 0)
    units = [unit for unit in idle if unit.root.uid not in found.chosen and _gives(found, unit)]
    for devices, chosen in _sets(units, most):
        if chosen is None:
            return Least(other, _gap(most, max(lower, devices) if sure else lower))
        if devices < lower:
            continue
        search = begin()
        if search.collect([units[index] for index in chosen]):
            spare = search.spare()
            search.reprieve(spare)
            return Least(Smaller(search, spare), _gap(search.gpus, devices if sure else lower))
    return Least(other, _gap(most, most if sure else lower))


def _sets(units: Sequence[Workload], most: int) -> list[tuple[int, tuple[int, ...] | None]]:
    """Return sets of units, as indices, with fewer devices than `most`, the fewest first.

    The last one is None, with the devices from which on nothing was listed, if it was too much.
    """
    order = sorted(range(len(units)), key=lambda index: (_devices(units[index]), index))
    sizes = [_devices(units[index]) for index in order]
    before = _alike_before([units[index] for index in order])
    heap: list[tuple[int, int, tuple[int, ...]]] = []
    if order:
        heapq.heappush(heap, (sizes[0], 1, (0,)))
    found: list[tuple[int, tuple[int, ...] | None]] = []
    listed = tried = 0
    while heap:
        devices, count, places = heapq.heappop(heap)
        if devices >= most:
            break
        listed += 1
        if listed > _LISTED or tried >= _TRIED:
            found.append((devices, None))
            break
        chosen = set(places)
        if all(before[place] < 0 or before[place] in chosen for place in places):
            tried += 1
            found.append((devices, tuple(sorted(order[place] for place in places))))
        last = places[-1]
        if last + 1 < len(order):
            following = sizes[last + 1]
            heapq.heappush(heap, (devices + following, count + 1, (*places, last + 1)))
            moved = (*places[:-1], last + 1)
            heapq.heappush(heap, (devices - sizes[last] + following, count, moved))
    return found


def _alike_before(units: Sequence[Workload]) -> list[int]:
    """Return for each unit the one before it that frees the same on the same nodes, or -1."""
    last: dict[object, int] = {}
    found = []
    for place, unit in enumerate(units):
        pods = sorted((pod.node or "", tuple(sorted(pod.amounts.items()))) for pod in unit.pods)
        key = tuple(pods), tuple(sorted(unit.gpus.items()))
        found.append(last.get(key, -1))
        last[key] = place
    return found


def _lacking(search: Search) -> int:
    """Return how many devices are lacking at least, whatever nodes they are on."""
    if not search.pods:
        have = search.sum
    else:
        have = {
            name: sum(max(0, amounts.get(name, 0)) for amounts in search.before.values())
            for name in search.need
        }
    return sum(max(0, count - have.get(name, 0)) for name, count in search.need.items())


def _complete(search: Search) -> bool:
    """Whether a search for a placement that finds none has tried all."""
    return not search.pods or len(search.before) ** len(search.pods) <= LIMIT


def _gives(search: Search, unit: Workload) -> bool:
    return any(unit.gpus.get(name, 0) > 0 for name in search.need)


def _devices(unit: Workload) -> int:
    return sum(unit.gpus.values())


def _gap(devices: int, bound: int) -> int:
    """Return by how much these devices exceed a bound, in per cent."""
    return max(0, -(-(devices - bound) * 100 // max(1, bound)))
