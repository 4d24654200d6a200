"""What the idle and the scheduling plane pass to each other where both evict for one demand.

The search is in `engine.scheduling.mixtures`. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reprieve.units.ids import Uid

__all__ = ["BY_PRIORITY", "FAR_FEWER", "FEWER_IDLE", "IdlePods", "Mixture"]

#: Why idle work stays that holds more than what is evicted by priority.
FAR_FEWER: Final = "far fewer devices are evicted by priority"
#: Why idle work is evicted by its priority: fewer of it suffice then.
FEWER_IDLE: Final = "fewer of the idle pods are evicted by their priority"
#: Why a plan of idle work is refused whose demand is served by priority instead.
BY_PRIORITY: Final = (FAR_FEWER, FEWER_IDLE)


@dataclass(frozen=True, slots=True)
class IdlePods:
    """Idle work that is evicted as a whole, and its pods."""

    name: str
    pods: tuple[Uid, ...]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Idle units, by name, and pods evicted by priority; without both the demand is placed."""

    idle: tuple[str, ...]
    pods: frozenset[Uid]
    placement: tuple[tuple[Uid, str], ...]
