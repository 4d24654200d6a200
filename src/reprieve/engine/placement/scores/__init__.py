"""All scores of a pending pod, with their weights (specification 17.1)."""

from __future__ import annotations

from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Score, View

__all__ = ["compile_scores"]


def compile_scores(view: View, pending: Pending) -> tuple[tuple[Score, int], ...]:
    """Return the scores that have something to say, each with its weight."""
    raise NotImplementedError
