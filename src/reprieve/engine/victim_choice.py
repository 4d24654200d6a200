"""How victims are chosen among those that the rules of a plane allow: profiles."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["VictimChoice"]


class VictimChoice(StrEnum):
    """A profile.

    `COMPATIBLE`: as the released programs do. `BEST`: the least costly victims that a search finds,
    and in the scheduling plane no victim where a search finds capacity that is free.
    """

    COMPATIBLE = "compatible"
    BEST = "best"
