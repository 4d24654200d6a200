"""How many pods that are to be placed together the domains of a topology fit.

The same counts from the leaves up that an assignment begins with (`counts`), read by domain: where
the most capacity is, what is short of it, and at which wider level the pods would fit.

Source: specification of topology-aware scheduling, sections 4.2 and 9 (1 and 7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reprieve.engine.topology.assign import Placing, counted, led
from reprieve.engine.topology.counts import Counts
from reprieve.engine.topology.model import PodsWanted
from reprieve.engine.topology.requests import Meant, TopologyRequestError, meaning
from reprieve.engine.topology.tree import Ints, Tree, Usage

__all__ = ["Capacity", "capacity"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of every domain for one pod set, or for workers and their leader.

    Attributes:
        tree: the domains.
        meant: what the pods request of them.
        need: how many slices of `meant.slicing.size` pods each.
        leaders: how many leaders, 0 or 1.
        counts: by level, from the widest.
        excluded: how many leaves have capacity for no pod, by what keeps it out.
    """

    tree: Tree
    meant: Meant
    need: int
    leaders: int
    counts: Sequence[Counts]
    excluded: Mapping[str, int]

    def slices(self, level: int) -> Ints:
        """Return how many slices each domain of a level fits (domains,) int64."""
        counts = self.counts[level]
        if not self.leaders:
            return counts.slices
        return np.where(counts.leader > 0, counts.slices_beside, 0)

    def room(self, level: int, domain: int) -> int:
        """Return how many slices one domain of a level fits."""
        return int(self.slices(level)[domain])

    def best(self, level: int) -> int | None:
        """Return the domain of a level with the most capacity, the first of equals."""
        slices = self.slices(level)
        return int(slices.argmax()) if len(slices) else None

    def levels(self) -> range:
        """Return the levels at which one domain is to have all pods, the wanted one first.

        Wider ones follow where they would do, too.
        """
        return range(self.meant.level, -1 if self.meant.climbs else self.meant.level - 1, -1)

    @property
    def suffices(self) -> bool:
        """Whether the pods fit: in one domain, or in several where that does."""
        spread = self.meant.climbs or not self.meant.required
        slices = [self.slices(level) for level in self.levels()]
        if any(len(each) and int(each.max()) >= self.need for each in slices):
            return True
        return spread and int(slices[-1].sum()) >= self.need

    def name(self, level: int, domain: int) -> str:
        """Return the values of a domain, from the widest level to its own."""
        leaf = domain
        for step in range(level, len(self.tree.levels) - 1):
            leaf = int(self.tree.starts[step][leaf])
        path = self.tree.paths[leaf]
        return (
            path[-1]
            if level == len(path) - 1 and self.tree.by_host
            else "/".join(path[: level + 1])
        )

    def wider(self) -> int | None:
        """Return the nearest level above the wanted one with a domain that fits all."""
        for level in range(self.meant.level - 1, -1, -1):
            slices = self.slices(level)
            if len(slices) and int(slices.max()) >= self.need:
                return level
        return None


def capacity(on: Placing, group: Sequence[PodsWanted]) -> Capacity | None:
    """Return the capacity for a group of pod sets, None where what they request means nothing."""
    workers, leader = led(group)
    try:
        meant = meaning(workers, on.tree.levels)
    except TopologyRequestError:
        return None
    leaves, counts = counted(on, workers, leader, Usage(on.tree), meant)
    need = workers.count // meant.slicing.size
    return Capacity(on.tree, meant, need, 0 if leader is None else 1, counts, leaves.excluded)
