"""Two kinds of scores: those that no pod changes, and those that a pod changes at its node only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.placement.filtering import Placed, Reach
from reprieve.engine.placement.profile import ScoreName

__all__ = ["NodeScore", "StaticScore", "as_is", "by_largest", "by_largest_reversed"]


def as_is(raw: I64) -> I64:
    """Return raw values that are scores already."""
    return raw


def by_largest(raw: I64) -> I64:
    """Return `100 * raw / max`; all 0 when the largest is 0."""
    largest = int(raw.max(initial=0))
    return raw * 100 // largest if largest else np.zeros_like(raw)


def by_largest_reversed(raw: I64) -> I64:
    """Return `100 - 100 * raw / max`; all 100 when the largest is 0."""
    return 100 - by_largest(raw)


class StaticScore:
    """Raw values that depend on nodes and the pod alone: (nodes,)."""

    def __init__(self, name: ScoreName, raw: I64, normalise: Callable[[I64], I64]) -> None:
        self.name = name
        self._raw = raw
        self._normalise = normalise

    def values(self, nodes: I64) -> I64:
        return self._normalise(self._raw[nodes])

    def add(self, pod: Placed) -> Reach:
        return Reach.NOTHING

    def remove(self, pod: Placed) -> Reach:
        return Reach.NOTHING


class NodeScore:
    """Values that each follow the pods of their own node, and need no normalisation.

    `everywhere` computes them for all nodes at once, `at` for one; both read the view's columns
    when they are called. Values are computed when they are queried, not when a pod is added or
    removed.
    """

    def __init__(
        self, name: ScoreName, everywhere: Callable[[], I64], at: Callable[[int], int]
    ) -> None:
        self.name = name
        self._at = at
        self._everywhere = everywhere
        self._values = everywhere()
        self._stale: set[int] = set()

    def values(self, nodes: I64) -> I64:
        if self._stale:
            if len(self._stale) * 16 > len(self._values):
                self._values = self._everywhere()
            else:
                for node in self._stale:
                    self._values[node] = self._at(node)
            self._stale.clear()
        return self._values[nodes]

    def add(self, pod: Placed) -> Reach:
        self._stale.add(pod.node)
        return Reach.NODE

    def remove(self, pod: Placed) -> Reach:
        self._stale.add(pod.node)
        return Reach.NODE
