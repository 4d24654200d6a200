"""When something that waits will start: instants that are known, and bounds from measured waits.

Of n independent waits the k-th shortest is at least the quantile q of all such waits unless k or
more of the n are below that quantile, and so with the probability that a binomial variable of n
trials of probability q is at most k - 1. The bound is the smallest such order statistic whose
probability is the confidence: nothing is supposed of how waits are distributed, but that they are
independent draws of one distribution. For the 90 % quantile with 95 % confidence 29 are needed, and
the bound is the longest of them.

A case that still waits is longer than all that ended: what it will be is not known. Of something
that has waited for a while already, only cases that waited longer than that are similar.

Source: order statistics and nonparametric tolerance limits (Wilks, 1941); no more is estimated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kubeworld.units.instants import Nanos

__all__ = ["CONFIDENCE", "FEWEST", "QUANTILE", "Basis", "Bound", "Case", "Estimate", "bound"]

QUANTILE: Final = 0.9
CONFIDENCE: Final = 0.95
#: So many cases a bound needs at least.
FEWEST: Final = 29
#: Of many cases the newest.
_MOST: Final = 1_000


class Basis(StrEnum):
    """What an estimate rests on; all but the last are instants that are known."""

    LEAVING = "VictimsLeave"
    PROTECTION = "ProtectionEnds"
    RUN_TIME = "DeclaredRunTime"
    MEASURED = "MeasuredWaits"


@dataclass(frozen=True, slots=True)
class Case:
    """How long similar work waited, in nanoseconds; where it is not `over`, so long until now."""

    created: Nanos
    wait: int
    over: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """`quantile` of similar waits are at most `wait` nanoseconds, with this confidence.

    `wait` is None where there are too few `cases`, or too many of them still wait.
    """

    wait: int | None
    cases: int
    quantile: float = QUANTILE
    confidence: float = CONFIDENCE


@dataclass(frozen=True, slots=True)
class Estimate:
    """When something starts at the latest; None as `at`: there is no estimate.

    Attributes:
        basis: what it rests on, None where there is none.
        at: the instant, if nothing that comes later is before it.
        holder: whose end that is, and the `field` that states how long it runs.
        measured: what measured waits state; None where they were not looked at.
        where: whose waits were measured, in words.
        why: why there is none, in words.
    """

    basis: Basis | None = None
    at: Nanos | None = None
    holder: str = ""
    field: str = ""
    measured: Bound | None = None
    where: str = ""
    why: str = ""


def bound(
    cases: Iterable[Case],
    waited: int = 0,
    *,
    quantile: float = QUANTILE,
    confidence: float = CONFIDENCE,
) -> Bound:
    """Return a bound on the waits of what has waited for `waited` nanoseconds already."""
    longer = sorted(
        (each for each in cases if each.wait > waited), key=lambda each: each.created, reverse=True
    )[:_MOST]
    place = _place(len(longer), quantile, confidence)
    ended = sorted(each.wait for each in longer if each.over)
    if place is None or place > len(ended):
        return Bound(None, len(longer), quantile, confidence)
    return Bound(ended[place - 1], len(longer), quantile, confidence)


def _place(size: int, quantile: float, confidence: float) -> int | None:
    """Return which of so many waits, counted from the shortest, bounds the quantile.

    None: not even the longest.
    """
    # How many of them are longer than the quantile: binomial, of 1 - quantile.
    chance = quantile**size
    missed, place = chance, size
    if missed > 1 - confidence:
        return None
    for longer in range(1, size):
        chance *= (size - longer + 1) / longer * (1 - quantile) / quantile
        missed += chance
        if missed > 1 - confidence:
            break
        place = size - longer
    return place
