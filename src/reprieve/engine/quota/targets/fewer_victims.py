"""Which sets of candidates may free one domain, before any of them is tried.

How many more pods a leaf fits with a candidate evicted is at most what the candidate uses there of
the resource that the leaf is short of, in pods, rounded up. Sets whose members do not add up to
what the domain lacks are left out, so that few of those that cost less have to be tried at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from reprieve.engine.quota.targets.candidates import Target
from reprieve.engine.topology.model import PodsWanted
from reprieve.engine.topology.places import Places
from reprieve.engine.topology.tree import Tree

__all__ = ["Gains", "sets_of"]

_STEPS: Final = 4_096  # of one search for sets


class Gains:
    """How many more pods of one pod set the leaves of a flavor fit at most without candidates."""

    def __init__(self, places: Places, flavor: str, wanted: PodsWanted) -> None:
        self._tree: Tree = places.trees[flavor]
        self._flavor = flavor
        self._hosts = {name for name, tree in places.trees.items() if tree.by_host}
        asked = {**wanted.requests, "pods": wanted.requests.get("pods", 0) + 1}
        self._asked = {name: amount for name, amount in asked.items() if amount > 0}
        left = places.left(flavor, self._asked)
        counts = np.stack([left[name] // each for name, each in self._asked.items()])
        names = [*self._asked]
        self._fit = np.maximum(counts.min(axis=0), 0)
        self._short = [names[number] for number in counts.argmin(axis=0).tolist()]

    def lacks(self, level: int, domain: int, need: int) -> int:
        """Return how many pods a domain lacks of `need`."""
        begin, end = self._tree.span(level, domain)
        return need - int(self._fit[begin:end].sum())

    def of(self, target: Target, level: int, domain: int) -> int:
        """Return how many more pods a domain fits at most without a candidate."""
        begin, end = self._tree.span(level, domain)
        freed: dict[int, dict[str, int]] = {}
        for name, pods in target.holder.placed:
            if name != self._flavor and not (self._tree.by_host and name in self._hosts):
                continue
            for each in pods.assignment.domains:
                leaf = self._tree.index.get(each.values, -1)
                if begin <= leaf < end:
                    amounts = freed.setdefault(leaf, {})
                    short = self._short[leaf]
                    per_pod = pods.requests.get(short, 0) + (short == "pods")
                    amounts[short] = amounts.get(short, 0) + per_pod * each.count
        return sum(self._more(leaf, amounts) for leaf, amounts in freed.items())

    def _more(self, leaf: int, amounts: Mapping[str, int]) -> int:
        short = self._short[leaf]
        return -(-amounts[short] // self._asked[short])


def sets_of(gains: Sequence[int], lacks: int, size: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of `size` positions whose gains add up to `lacks`, in bounded effort.

    `gains` fall from the first to the last.
    """
    sums = [0, *accumulate(gains)]
    steps = _STEPS

    def more(begin: int, left: int, missing: int) -> Iterator[tuple[int, ...]]:
        nonlocal steps
        if not left:
            if missing <= 0:
                yield ()
            return
        for position in range(begin, len(gains) - left + 1):
            steps -= 1
            if steps < 0 or sums[position + left] - sums[position] < missing:
                return
            for rest in more(position + 1, left - 1, missing - gains[position]):
                yield (position, *rest)

    yield from more(0, size, lacks)
