"""Bindings that other schedulers of ours have announced (`--shared-nodes`), until they are seen.

A pod that another scheduler is binding is counted on its node from the announcement on, also one
that is not known yet. That a pod was here and has ended is remembered for longer than an
announcement counts, so that a late one does not wait for a pod that never comes. Source:
`reprieve.execution.turns`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import PodRow
from reprieve.units.ids import Uid

__all__ = ["Announced"]

#: Longer than an announced binding counts.
_REMEMBERED: Final = 2 * MINUTE


class Announced:
    """Pods that others bind. `disturb`: what was decided before may be wrong now."""

    def __init__(self, cluster: Cluster, clock: Clock, disturb: Callable[[], None]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._disturb = disturb
        self._nodes: dict[Uid, str] = {}  # of pods that others bind
        self._left: dict[Uid, int] = {}  # pods that have ended, and when, oldest first

    def claimed(self, uid: Uid, node: str, row: PodRow | None) -> None:
        """The pod is being bound to the node; `row` is None until it is known."""
        self._nodes[uid] = node
        self._disturb()
        if row is not None:
            self.seen(row)

    def seen(self, row: PodRow) -> None:
        """A pod came or changed: if announced, count it on its node until it is there."""
        node = self._nodes.get(row.uid)
        if node is None:
            return
        if row.node or row.finished:
            del self._nodes[row.uid]
        elif row.uid not in self._cluster.overlay.assumed:
            self._cluster.assume(row.uid, node, self._clock.monotonic() + MINUTE)
            self._disturb()

    def gone(self, uid: Uid) -> None:
        """The pod was deleted."""
        self._nodes.pop(uid, None)
        now = self._clock.monotonic()
        self._left[uid] = now
        while True:
            oldest = next(iter(self._left))
            if now - self._left[oldest] < _REMEMBERED:
                return
            del self._left[oldest]

    def left(self, uid: Uid) -> bool:
        """Whether the pod was created and deleted."""
        return uid in self._left
