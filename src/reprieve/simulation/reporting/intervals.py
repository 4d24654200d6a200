"""Means over runs, with intervals that state how far they can be trusted.

A run is a trace and a seed; what varies between runs is which jobs came, never chance in the
decisions. The interval is the 95 % percentile bootstrap of the mean, drawn with a fixed seed, so
that the same runs give the same figures. Differences between policies are computed run by run, as
all policies are given the same jobs, and their mean and interval likewise. Of fewer than three runs
there is no interval: two do not show how much runs vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["FEWEST_FOR_A_STAR", "Estimate", "difference", "estimate"]

_DRAWS: Final = 2_000
_FEWEST: Final = 3
#: Runs from which on an interval without 0 is marked: of fewer the bootstrap is too narrow.
FEWEST_FOR_A_STAR: Final = 6


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `runs` runs; `low` and `high` are None where there are too few."""

    mean: float
    runs: int
    low: float | None = None
    high: float | None = None


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of what the runs gave, with its interval."""
    mean = sum(values) / len(values)
    if len(values) < _FEWEST:
        return Estimate(mean, len(values))
    import numpy

    given = numpy.asarray(values, dtype=float)
    drawn = numpy.random.default_rng(0).integers(0, len(values), (_DRAWS, len(values)))
    low, high = numpy.percentile(given[drawn].mean(axis=1), [2.5, 97.5])
    return Estimate(mean, len(values), float(low), float(high))


def difference(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """Return the mean of the differences to the base, run by run."""
    return estimate([value - other for value, other in zip(values, base, strict=True)])
