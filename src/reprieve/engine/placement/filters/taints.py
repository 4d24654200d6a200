"""Which taints a pod tolerates (specification 21.2); nodes are grouped by their list of taints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.rows import Taint, Toleration
from reprieve.engine.placement.filtering import View
from reprieve.engine.selectors import covers

__all__ = ["KEEPS_AWAY", "NO_EXECUTE", "NO_SCHEDULE", "TaintLists", "taints_of"]

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
KEEPS_AWAY: Final = frozenset((NO_SCHEDULE, NO_EXECUTE))


@dataclass(frozen=True, slots=True)
class TaintLists:
    """The distinct lists of taints, and which of them each node has."""

    lists: tuple[tuple[Taint, ...], ...]
    numbers: I32  # (nodes,)

    @property
    def any(self) -> bool:
        """Return whether some node is tainted."""
        return any(self.lists)

    def count(self, counts: Callable[[Taint], bool]) -> I64:
        """Return how many taints of each node `counts`: (nodes,)."""
        found = [sum(map(counts, taints)) for taints in self.lists]
        return np.array(found, np.int64)[self.numbers]

    def tolerated(self, tolerations: Iterable[Toleration]) -> Mask:
        """Return the nodes that do not keep a pod with these tolerations away: (nodes,)."""
        own = tuple(tolerations)
        against = self.count(
            lambda taint: taint.effect in KEEPS_AWAY and not any(covers(o, taint) for o in own)
        )
        return np.equal(against, 0)


def taints_of(view: View) -> TaintLists:
    """Return the taints of a view's nodes."""
    return TaintLists(*view.snapshot.node_facts.taints)
