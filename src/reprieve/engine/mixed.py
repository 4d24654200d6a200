"""What the idle and the scheduling plane pass to each other where both evict for one demand.

The search is in `engine.scheduling.mixtures`. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.units.ids import Uid

__all__ = ["IdlePods", "Mixture"]


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
