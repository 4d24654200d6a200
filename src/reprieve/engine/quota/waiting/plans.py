"""The places that victims were chosen for, by the workload that waits for them.

With profile `best` a plan is kept until its workload has its quota or is deleted; the oldest is
carried out first. Source: specification of topology-aware scheduling, section 9 (2).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from reprieve.engine.topology.model import TopologyAssignment
from reprieve.engine.topology.places import Placed
from reprieve.units.ids import Uid

__all__ = ["Plans", "Reserved"]

_Places: TypeAlias = Mapping[str, TopologyAssignment]
#: Keys of workloads without quota, and the places that a cycle kept free for each.
Reserved: TypeAlias = Sequence[tuple[str, Sequence[Placed]]]


@dataclass(frozen=True, slots=True)
class _Plan:
    number: int
    places: _Places
    reserved: Reserved = ()
    made: tuple[Uid, ...] = ()


_NONE = _Plan(0, {})


class Plans:
    """Places by pod set, by the key of a pending workload."""

    def __init__(self) -> None:
        self._known: dict[str, _Plan] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def note(
        self,
        key: str,
        places: _Places,
        reserved: Reserved = (),
        made: tuple[Uid, ...] = (),
    ) -> None:
        """Record the places that a workload's victims were chosen for, by pod set.

        `reserved`: what others kept for themselves, so that these victims were chosen. `made`: uids
        of the pods that other planes evict there once these victims have ended.
        """
        oldest = max((plan.number for plan in self._known.values()), default=0)
        known = self._known.get(key, _Plan(oldest + 1, places))
        self._known[key] = replace(known, places=places, reserved=reserved, made=made)

    def places(self, key: str) -> _Places:
        """Return the places that a pending workload's victims were chosen for; none are empty."""
        return self._known.get(key, _NONE).places

    def reserved(self, key: str) -> Reserved:
        """Return what others kept for themselves when its victims were chosen."""
        return self._known.get(key, _NONE).reserved

    def made(self, key: str) -> tuple[Uid, ...]:
        """Return the pods that other planes evict once its victims have ended."""
        return self._known.get(key, _NONE).made

    def number(self, key: str) -> int:
        """Return a number that is larger for younger plans, 0 without any."""
        return self._known.get(key, _NONE).number

    def forget(self, key: str) -> None:
        """Remove what is known of a workload."""
        self._known.pop(key, None)

    def keep(self, keys: Container[str]) -> None:
        """Remove what is known of all but these."""
        self._known = {key: each for key, each in self._known.items() if key in keys}
