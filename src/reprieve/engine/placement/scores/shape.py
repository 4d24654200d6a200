"""The broken line that turns a utilization into a score (specification 17.2, `shape`)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from reprieve.engine.cluster.arrays import I64

__all__ = ["shape_scores"]


def shape_scores(points: tuple[tuple[int, int], ...]) -> I64:
    """Return the score 0..100 of each utilization 0..100: (101,).

    `points`: (utilization 0..100, score 0..10), ascending. Constant before the first and after the
    last point; between two of them linear, truncated towards zero.
    """
    scores = np.full(101, points[-1][1] * 10, np.int64)
    scores[: points[0][0] + 1] = points[0][1] * 10
    for (x0, y0), (x1, y1) in pairwise(points):
        rise = (y1 - y0) * 10
        for utilization in range(x0 + 1, x1 + 1):
            part = abs(rise) * (utilization - x0) // (x1 - x0)
            scores[utilization] = y0 * 10 + (part if rise > 0 else -part)
    return scores
