"""Where a workload stands among others: its shape, and its place in their order.

Both are worked out once for each version of a workload. Each shape is kept once, so that alike
ones are mostly the same object.
"""

from __future__ import annotations

from typing import Final

from reprieve.engine.quota.heads import Shape, shape
from reprieve.engine.quota.holdings.holders import effective_priority
from reprieve.engine.quota.model import Settings, Workload
from reprieve.engine.quota.waiting.pending import Row
from reprieve.engine.quota.waiting.queueing import place_of

__all__ = ["Places"]

_FEW_SHAPES: Final = 1_000


class Places:
    """Shapes and places of pending workloads under the settings of a configuration."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[str, tuple[Workload, Row, Shape]] = {}
        self._shapes: dict[Shape, Shape] = {}

    def of(self, workload: Workload) -> tuple[Row, Shape]:
        """Return the place of a workload in the order of its ClusterQueue, and its shape."""
        known = self._known.get(workload.key)
        if known is None or known[0] is not workload:
            found = self.shape_of(workload)
            if len(self._shapes) > 2 * len(self._known) + _FEW_SHAPES:
                self._shapes.clear()
            found = self._shapes.setdefault(found, found)
            known = (workload, place_of(workload, self._settings), found)
            self._known[workload.key] = known
        return known[1], known[2]

    def row(self, workload: Workload) -> Row:
        """Return the place of a workload in the order of its ClusterQueue."""
        return self.of(workload)[0]

    def shape(self, workload: Workload) -> Shape:
        """Return the shape of a pending workload."""
        return self.of(workload)[1]

    def shape_of(self, workload: Workload) -> Shape:
        """Return the shape of a workload, pending or not."""
        known = self._known.get(workload.key)
        if known is not None and known[0] is workload:
            return known[2]
        return shape(workload, effective_priority(workload, self._settings))

    def forget(self, key: str) -> None:
        """Forget a workload; one that is not known changes nothing."""
        self._known.pop(key, None)
