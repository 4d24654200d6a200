"""Picks the nodes on which the least costly victims are searched for: all, unless too many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reprieve.engine.cluster.snapshot import I64, Mask

__all__ = ["promising"]

MOST = 64


def promising(
    amounts: I64,
    counts: Sequence[int],
    free: I64,
    passes: Mask,
    parts: tuple[I64, I64, I64],
    units: tuple[I64, I64],
) -> tuple[I64, bool]:
    """Return the nodes to search on, and whether these are all that could be of use."""
    useful = np.flatnonzero(passes.any(axis=0))
    return useful[: MOST if len(useful) <= MOST else 0], len(useful) <= MOST
