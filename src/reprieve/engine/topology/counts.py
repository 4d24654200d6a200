"""How many pods, slices and leaders each domain can have, from the leaves up.

Source: specification of topology-aware scheduling, section 4.2 (phase 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reprieve.engine.topology.leaves import Leaves
from reprieve.engine.topology.tree import Ints, Tree

__all__ = ["Counts", "Slicing", "roll_up"]


@dataclass(frozen=True, slots=True)
class Slicing:
    """Slices of `size` pods in one domain of `level`; `inner` are finer ones: size by level."""

    level: int
    size: int
    inner: Mapping[int, int]


@dataclass(slots=True)
class Counts:
    """What the domains of one level can have, each (domains,) int64.

    `pods` and `slices` without the leader; `pods_beside` and `slices_beside` where the leader is in
    the same domain.
    """

    pods: Ints
    pods_beside: Ints
    slices: Ints
    slices_beside: Ints
    leader: Ints
    affinity: Ints

    def copy(self) -> Counts:
        """Return a copy that changes by itself."""
        return Counts(
            self.pods.copy(),
            self.pods_beside.copy(),
            self.slices.copy(),
            self.slices_beside.copy(),
            self.leader.copy(),
            self.affinity,
        )


def of_leaves(tree: Tree, leaves: Leaves, slicing: Slicing) -> Counts:
    """Return the counts of the lowest level."""
    none = tree.none
    at = slicing.level == len(tree.levels) - 1
    slices, beside = none, none
    if at:
        slices, beside = leaves.pods, leaves.beside
        if slicing.size > 1:
            slices, beside = slices // slicing.size, beside // slicing.size
    return Counts(leaves.pods, leaves.beside, slices, beside, leaves.leader, leaves.affinity)


def roll_up(tree: Tree, leaves: Leaves, slicing: Slicing, leaders: int) -> list[Counts]:
    """Return the counts by level, from the widest to the leaves."""
    found = [of_leaves(tree, leaves, slicing)]
    weighed = leaves.affinity is not tree.none
    for level in range(len(tree.levels) - 2, -1, -1):
        found.insert(0, above(tree, level, found[0], slicing, leaders, slicing.inner, weighed))
    return found


def above(
    tree: Tree,
    level: int,
    below: Counts,
    slicing: Slicing,
    leaders: int,
    inner: Mapping[int, int],
    weighed: bool = True,
) -> Counts:
    """Return the counts of `level` from those of the next one, `below`.

    `weighed` states that there may be any affinity.
    """
    begins = tree.starts[level][:-1]
    pods, pods_beside = below.pods, below.pods_beside
    inner_size = inner.get(level + 1, 1)
    if inner_size > 1:
        pods, pods_beside = pods - pods % inner_size, pods_beside - pods_beside % inner_size
    if not len(begins):
        none = np.zeros(0, dtype=np.int64)
        return Counts(none, none, none, none, none, none)
    total = np.add.reduceat(pods, begins)
    none = np.zeros(len(begins), dtype=np.int64)
    # Zeros, and columns that are the same, are not summed again.
    slices = none
    if level < slicing.level:
        slices = total if below.slices is pods else np.add.reduceat(below.slices, begins)
    affinity = none
    if weighed:
        affinity = np.add.reduceat(below.affinity, begins)
    if leaders:
        leader = np.maximum.reduceat(below.leader, begins)
        beside = _less_least(total, pods - pods_beside, below.leader, begins)
        slices_beside = _less_least(
            slices, below.slices - below.slices_beside, below.leader, begins
        )
    else:
        leader, beside, slices_beside = none, total, slices
    if level == slicing.level:
        slices, slices_beside = total, beside
        if slicing.size > 1:
            slices, slices_beside = total // slicing.size, beside // slicing.size
    return Counts(total, beside, slices, slices_beside, leader, affinity)


def _less_least(total: Ints, loss: Ints, leader: Ints, begins: Sequence[int] | Ints) -> Ints:
    """Return totals less the least loss of a child that can have the leader, 0 where none can."""
    never = np.iinfo(np.int64).max
    least = np.minimum.reduceat(np.where(leader > 0, loss, never), begins)
    return np.where(least == never, 0, total - np.minimum(least, total))
