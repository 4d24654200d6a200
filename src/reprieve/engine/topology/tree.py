"""The tree of a topology: its domains by level, and what its leaves have and use.

Domains of a level are numbered in the order of their level values, compared one after the other, so
that a number is also what decides ties, and the children of a domain are neighbours. With the host
name as the lowest level a leaf is known by that label alone: nodes that share it are one leaf,
whose allocatable is their sum and whose path, labels and taints are those of the first.

Source: specification of topology-aware scheduling, sections 2.1 to 2.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from reprieve.engine.quota.assigning.constraints import Taint
from reprieve.engine.topology.model import HOSTNAME, TopologyAssignment, TopologyNode

__all__ = ["Ints", "Marks", "Tree"]

Ints = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

#: Amounts are held within this, so that sums of a few of them stay within int64.
_MOST: Final = 2**61


class Tree:
    """The domains of one topology over the nodes of one flavor, with free amounts of the leaves.

    Attributes:
        name: that of the topology, for messages.
        levels: labels, from the widest to the narrowest.
        sizes: how many domains each level has.
        parents: by level but the first, the number of each domain's parent.
        starts: by level but the last, where each domain's children begin, and their end.
        index: the number of a leaf by its key.
        none: zeros, (leaves,) int64; never changed.
        free: by resource, allocatable less what is no usage of topologies (leaves,) int64.
    """

    def __init__(
        self,
        name: str,
        levels: Sequence[str],
        nodes: Iterable[TopologyNode],
        node_labels: Mapping[str, str] | None = None,
    ) -> None:
        """Build it of the nodes that count: ready, schedulable, with the labels that are requested.

        Args:
            name: the topology's.
            levels: its labels, from the widest to the narrowest.
            nodes: those of the cluster.
            node_labels: what a node must have to be of the flavor.
        """
        self.name = name
        self.levels = tuple(levels)
        self.by_host = self.levels[-1] == HOSTNAME
        wanted = (node_labels or {}).items()
        leaves: dict[tuple[str, ...], list[TopologyNode]] = {}
        paths: dict[tuple[str, ...], tuple[str, ...]] = {}
        for node in nodes:
            labels = node.labels
            if not node.ready or node.unschedulable or not wanted <= labels.items():
                continue
            path = tuple([labels[each] for each in self.levels if each in labels])
            if len(path) < len(self.levels):
                continue
            key = path[-1:] if self.by_host else path
            leaves.setdefault(key, []).append(node)
            paths.setdefault(key, path)
        order = sorted(leaves, key=paths.__getitem__)
        self.index = {key: number for number, key in enumerate(order)}
        self.leaf_of_node = {n.name: self.index[key] for key in order for n in leaves[key]}
        self.first = [leaves[key][0] for key in order]
        self.paths = [paths[key] for key in order]
        self._number_domains()
        self.none = np.zeros(len(order), dtype=np.int64)
        self.written = [(path[-1],) for path in self.paths] if self.by_host else self.paths
        self.free = _sums([leaves[key] for key in order])
        self._codes: dict[str, tuple[Ints, list[str | None]]] = {}
        kinds: dict[tuple[Taint, ...], list[int]] = {}
        for number, node in enumerate(self.first):
            kinds.setdefault(node.taints, []).append(number)
        self.taints = {taints: np.array(which) for taints, which in kinds.items()}

    def _number_domains(self) -> None:
        depth, count = len(self.levels), len(self.paths)
        self.sizes: list[int] = []
        self.parents: list[Ints] = []
        self.starts: list[Ints] = []
        # By leaf, whether it begins a domain of the level; the first of a wider one does, too.
        new = np.zeros(count, dtype=np.bool_)
        above = np.zeros(count, dtype=np.int64)
        for level in range(depth):
            values = [path[level] for path in self.paths]
            changes = [one != other for one, other in pairwise(values)]
            new[1:] |= np.array(changes, dtype=np.bool_)
            new[:1] = True
            if level == depth - 1:
                new[:] = True
            begins = np.flatnonzero(new)
            self.sizes.append(len(begins))
            if level:
                parents = above[begins]
                self.parents.append(parents)
                self.starts.append(np.searchsorted(parents, np.arange(self.sizes[level - 1] + 1)))
            else:
                self.parents.append(np.zeros(len(begins), dtype=np.int64))
            above = np.cumsum(new, dtype=np.int64) - 1

    def _add(
        self, into: dict[str, Ints], leaf: int, amounts: Mapping[str, int], times: int
    ) -> None:
        for resource, amount in amounts.items():
            column = into.get(resource)
            if column is None:
                column = into[resource] = np.zeros(len(self.paths), dtype=np.int64)
            value = int(column[leaf]) + amount * times
            column[leaf] = max(-_MOST, min(_MOST, value))

    def use_nodes(self, node: str, requests: Mapping[str, int], times: int = 1) -> None:
        """Add what a pod outside topologies uses of its node, and its place."""
        leaf = self.leaf_of_node.get(node)
        if leaf is not None:
            self._add(self.free, leaf, requests, -times)
            self._add(self.free, leaf, {"pods": 1}, -times)

    def usage(self) -> Usage:
        """Return usage of the leaves, none so far."""
        return Usage(self)

    def children(self, level: int, domain: int) -> range:
        """Return the domains of the next level that are in `domain` of `level`."""
        starts = self.starts[level]
        return range(int(starts[domain]), int(starts[domain + 1]))

    def span(self, level: int, domain: int) -> tuple[int, int]:
        """Return the first leaf of a domain and the one after its last."""
        begin, end = domain, domain + 1
        for step in range(level, len(self.levels) - 1):
            begin, end = int(self.starts[step][begin]), int(self.starts[step][end])
        return begin, end

    def ancestor(self, leaf: int, level: int) -> int:
        """Return the domain of `level` that has the leaf."""
        domain = leaf
        for step in range(len(self.levels) - 1, level, -1):
            domain = int(self.parents[step][domain])
        return domain

    def values(self, leaf: int) -> tuple[str, ...]:
        """Return what an assignment states of a leaf."""
        return self.written[leaf]

    def written_levels(self) -> tuple[str, ...]:
        """Return the levels that an assignment names."""
        return (HOSTNAME,) if self.by_host else self.levels

    def label(self, key: str) -> tuple[Ints, list[str | None]]:
        """Return a label of the leaves as numbers, and the values that the numbers mean."""
        known = self._codes.get(key)
        if known is None:
            values: dict[str | None, int] = {}
            codes = [values.setdefault(e.labels.get(key), len(values)) for e in self.first]
            known = self._codes[key] = (np.array(codes, dtype=np.int64), list(values))
        return known

    def having(self, key: str, holds: Callable[[str | None], bool]) -> Marks:
        """Return which leaves have a value of a label (None: none) for which `holds` is true."""
        codes, values = self.label(key)
        return np.array([holds(each) for each in values], dtype=np.bool_)[codes]


class Usage:
    """What pods with assignments use of the leaves: by resource (leaves,) int64."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.of: dict[str, Ints] = {}

    def copy(self) -> Usage:
        """Return a copy that changes by itself."""
        other = Usage(self.tree)
        other.of = {resource: column.copy() for resource, column in self.of.items()}
        return other

    def add_leaf(self, key: tuple[str, ...], amounts: Mapping[str, int], times: int = 1) -> None:
        """Add amounts to a leaf; a leaf that the tree does not have is left out."""
        leaf = self.tree.index.get(key)
        if leaf is not None:
            self.add_to(leaf, amounts, times)

    def add_to(self, leaf: int, amounts: Mapping[str, int], times: int = 1) -> None:
        """Add amounts to a leaf, by its number."""
        self.tree._add(self.of, leaf, amounts, times)

    def add(
        self, assignment: TopologyAssignment, requests: Mapping[str, int], times: int = 1
    ) -> None:
        """Add the pods of an assignment, `times` -1 removes them."""
        index = self.tree.index
        found = [(index[e.values], e.count) for e in assignment.domains if e.values in index]
        if not found:
            return
        leaves, counts = (np.array(each, dtype=np.int64) for each in zip(*found, strict=True))
        for resource, amount in (*requests.items(), ("pods", 1)):
            column = self.of.get(resource)
            if column is None:
                column = self.of[resource] = np.zeros(len(self.tree.paths), dtype=np.int64)
            most = _MOST // max(1, int(counts.max()))
            added = counts * max(-most, min(most, amount * times))
            np.add.at(column, leaves, added)
            np.clip(column, -_MOST, _MOST, out=column)


def _sums(leaves: Sequence[Sequence[TopologyNode]]) -> dict[str, Ints]:
    """Return what the nodes of each leaf offer together, by resource."""
    found: dict[str, list[int]] = {}
    for number, nodes in enumerate(leaves):
        for node in nodes:
            for resource, amount in node.allocatable.items():
                column = found.get(resource)
                if column is None:
                    column = found[resource] = [0] * len(leaves)
                value = column[number] + amount
                column[number] = (
                    value if -_MOST <= value <= _MOST else (_MOST if value > 0 else -_MOST)
                )
    return {resource: np.array(column, dtype=np.int64) for resource, column in found.items()}
