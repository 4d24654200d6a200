"""Which taints a pod tolerates (specification 21.2); nodes are grouped by their list of taints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.rows import Operator, Requirement, Taint, Toleration
from reprieve.engine.cluster.snapshot import I32, I64, Mask
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.selection import requirement_holds

__all__ = ["KEEPS_AWAY", "NO_EXECUTE", "NO_SCHEDULE", "TaintLists", "covers", "taints_of"]

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
KEEPS_AWAY: Final = frozenset((NO_SCHEDULE, NO_EXECUTE))


def covers(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration covers a taint.

    `Gt` and `Lt` compare the taint's value with the toleration's, both integers; while their gate
    is off no toleration has them.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    if toleration.operator in (Operator.GT, Operator.LT):
        bound = Requirement(taint.key, Operator(toleration.operator), (toleration.value,))
        return requirement_holds(bound, taint.value)
    return toleration.operator == "Exists"


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
