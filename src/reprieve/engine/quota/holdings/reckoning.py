"""Quota arithmetic for the proof: worked out from the configuration by the plain formulas.

    subtree(n)    = nominal(n) + sum over children of (subtree - kept)
    kept(n)       = max(0, subtree(n) - lendingLimit(n)), 0 without a limit
    potential(n)  = min(kept(n) + potential(parent), subtree(n) + borrowingLimit(n))
    used(cohort)  = sum over children of max(0, used - kept)
    available(n)  = max(0, kept - used) + min(available(parent), what n may still draw from it)

At a root, potential is the subtree's, and available what of it is not used.

Nothing of `tree` is used but the numbers by which it calls nodes and flavor-resources. Quotas of a
flavor-resource are worked out once, when a proof first requests them, and hold as long as the
configuration does. What a ClusterQueue uses is read from a snapshot; what its cohorts use is
compared with it by `understated`, and follows every change by the formula above.

Source: specification of the quota plane, sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from reprieve.engine.quota.holdings.amounts import UNLIMITED, WIDE, minus, plus, widened
from reprieve.engine.quota.holdings.tree import Tree
from reprieve.engine.quota.model import Configuration, FlavorResource, Quota, ResourceGroup

__all__ = ["Quotas", "Reckoning", "ShareKey", "Usage"]

ShareKey = tuple[int, float]

_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Quotas:
    """Quotas of one flavor-resource by node; `drawn` is the most that a node has from its parent.

    `potential` is the most that a node could use if no other work used anything.
    """

    subtree: list[int]
    kept: list[int]
    drawn: list[int]
    potential: list[int]


class Reckoning:
    """The nodes of a configuration, and their quotas as they are requested."""

    def __init__(self, configuration: Configuration, tree: Tree) -> None:
        """Record which node is above which; `tree` numbers the nodes."""
        self._tree = tree
        size = len(tree.names)
        self.parent = [-1] * size
        self.children: list[list[int]] = [[] for _ in range(size)]
        self.weight = [0.0] * size
        self._groups: list[tuple[ResourceGroup, ...]] = [()] * size
        above = [
            (tree.queues[name], queue.cohort, queue.groups, queue.weight)
            for name, queue in configuration.cluster_queues.items()
        ]
        above += [
            (tree.cohorts[name], cohort.parent, cohort.groups, cohort.weight)
            for name, cohort in configuration.cohorts.items()
        ]
        for node, parent, groups, weight in above:
            self._groups[node], self.weight[node] = groups, weight
            if parent:
                self.parent[node] = tree.cohorts[parent]
                self.children[tree.cohorts[parent]].append(node)
        #: By ClusterQueue, what `protection` found out about it and those above.
        self.digests: dict[int, str] = {}
        self._paths: dict[int, tuple[int, ...]] = {}
        self._own: list[Mapping[FlavorResource, Quota]] = []
        self._quotas: dict[int, Quotas] = {}
        self._lendable: dict[int, dict[str, int]] = {}
        self._declared: dict[int, tuple[int, ...]] = {}

    def path(self, node: int) -> tuple[int, ...]:
        """Return the node, its parent, and so on up to the root.

        Raises:
            ValueError: there is no root, as cohorts are in a cycle.
        """
        found = self._paths.get(node)
        if found is None:
            way, each = [node], self.parent[node]
            while each >= 0:
                if each in way:
                    raise ValueError(f"{self._tree.names[each]} is above itself")
                way.append(each)
                each = self.parent[each]
            found = self._paths[node] = tuple(way)
        return found

    def quotas(self, column: int) -> Quotas:
        """Return what all nodes have of one flavor-resource."""
        found = self._quotas.get(column)
        if found is None:
            found = self._quotas[column] = self._work_out(column)
        return found

    def declared(self, node: int) -> tuple[int, ...]:
        """Return the flavor-resources for which the node, or one below it, has a quota."""
        found = self._declared.get(node)
        if found is None:
            pairs = {pair for each in self._downward([node]) for pair in self._quotas_of(each)}
            found = self._declared[node] = tuple(sorted(map(self._tree.column, pairs)))
        return found

    def resource(self, column: int) -> str:
        """Return the resource of a flavor-resource."""
        return self._tree.flavor_resources[column].resource

    def lendable(self, cohort: int) -> Mapping[str, int]:
        """Return what could be used at a cohort of every resource, over all its tree's flavors."""
        found = self._lendable.get(cohort)
        if found is None:
            found = self._lendable[cohort] = {}
            for column in self.declared(self.path(cohort)[-1]):
                resource = self.resource(column)
                most = min(UNLIMITED, self.quotas(column).potential[cohort])
                found[resource] = plus(found.get(resource, 0), most)
        return found

    def _downward(self, start: Sequence[int]) -> list[int]:
        """Return the nodes and all below them, each after the one above it."""
        found = list(start)
        for node in found:
            found += self.children[node]
        return found

    def _quotas_of(self, node: int) -> Mapping[FlavorResource, Quota]:
        if not self._own:
            self._own = [
                {
                    FlavorResource(each.flavor, resource): quota
                    for group in groups
                    for each in group.flavors
                    for resource, quota in each.resources.items()
                }
                for groups in self._groups
            ]
        return self._own[node]

    def _work_out(self, column: int) -> Quotas:
        pair, size = self._tree.flavor_resources[column], len(self.parent)
        subtree, kept, drawn, potential = [0] * size, [0] * size, [WIDE] * size, [0] * size
        limit: list[int | None] = [None] * size

        nodes = self._downward([node for node, parent in enumerate(self.parent) if parent < 0])
        for node in reversed(nodes):
            quota = self._quotas_of(node).get(pair, Quota(0))
            total = quota.nominal
            for child in self.children[node]:
                total = plus(total, minus(subtree[child], kept[child]))
            subtree[node] = total
            if quota.lending_limit is not None:
                kept[node] = max(0, minus(total, quota.lending_limit))
            if quota.borrowing_limit is not None and self.parent[node] >= 0:
                limit[node] = quota.borrowing_limit
                drawn[node] = plus(minus(total, kept[node]), quota.borrowing_limit)
        for node in nodes:
            parent, allowed = self.parent[node], limit[node]
            potential[node] = subtree[node]
            if parent >= 0:
                potential[node] = plus(kept[node], potential[parent])
                if allowed is not None:
                    most = plus(subtree[node], allowed)
                    potential[node] = min(potential[node], most)
        return Quotas(
            *([widened(each) for each in row] for row in (subtree, kept, drawn, potential))
        )


class Usage:
    """What nodes use, in a copy of a snapshot's columns that grows as they are changed."""

    def __init__(self, reckoning: Reckoning, columns: Sequence[list[int]]) -> None:
        """Begin with the columns, which are not changed."""
        self._reckoning = reckoning
        self._columns = columns
        self._changed: dict[int, list[int]] = {}

    def of(self, column: int) -> Sequence[int]:
        """Return what each node uses of a flavor-resource."""
        found = self._changed.get(column)
        if found is not None:
            return found
        if column < len(self._columns):
            return self._columns[column]
        # None of it was used when the columns were copied.
        return self._changed.setdefault(column, [0] * len(self._reckoning.parent))

    def change(self, column: int, amounts: Mapping[int, int]) -> None:
        """Add to the usage of nodes, or subtract what is negative, and to that of those above."""
        row = self._changed.get(column)
        if row is None:
            row = self._changed[column] = list(self.of(column))
        kept, parents = self._reckoning.quotas(column).kept, self._reckoning.parent
        while amounts:
            above: dict[int, int] = {}
            for node, amount in amounts.items():
                used, keeps, parent = row[node], kept[node], parents[node]
                row[node] = then = used + amount
                drawn = (then - keeps if then > keeps else 0) - (
                    used - keeps if used > keeps else 0
                )
                if drawn and parent >= 0:
                    above[parent] = above.get(parent, 0) + drawn
            amounts = above

    def trail(self, column: int, nodes: Sequence[int], amount: int) -> list[int]:
        """Return by how much more these nodes, each below the next, would use with an amount more.

        The last number is what is left for the node above them.
        """
        row, kept = self.of(column), self._reckoning.quotas(column).kept
        found = [amount]
        for node in nodes:
            used, keeps = row[node], kept[node]
            then = used + amount
            amount = (then - keeps if then > keeps else 0) - (used - keeps if used > keeps else 0)
            found.append(amount)
        return found

    def available(self, queue: int, column: int) -> int:
        """Return what a ClusterQueue may still use of a flavor-resource."""
        quotas, row = self._reckoning.quotas(column), self.of(column)
        path = self._reckoning.path(queue)
        left = quotas.subtree[path[-1]] - row[path[-1]]
        for node in reversed(path[:-1]):
            from_above = max(0, row[node] - quotas.kept[node])
            left = min(left, quotas.drawn[node] - from_above)
            left += max(0, quotas.kept[node] - row[node])
        return left

    def exceeds(self, node: int, columns: Iterable[int]) -> bool:
        """Return whether a node uses more than its own of one of the flavor-resources."""
        return any(self.of(c)[node] > self._reckoning.quotas(c).subtree[node] for c in columns)

    def understated(self, cohorts: Iterable[int], columns: Iterable[int]) -> list[int]:
        """Return the cohorts that are stated to use less than what their members draw from them."""
        found = []
        for column in columns:
            row, kept = self.of(column), self._reckoning.quotas(column).kept
            for cohort in cohorts:
                children = self._reckoning.children[cohort]
                if row[cohort] < sum([row[c] - kept[c] for c in children if row[c] > kept[c]]):
                    found.append(cohort)
        return found

    def share(self, node: int, less: Mapping[int, int] = _NOTHING) -> ShareKey:
        """Return the dominant resource share of a node that used so much less, as they compare.

        Operations on floats are in the order of the specification (3.5), since decisions follow
        from the last bit: borrowed * 1000.0 / lendable, then by the weight.
        """
        reckoning = self._reckoning
        parent = reckoning.parent[node]
        if parent < 0:
            return 0, 0.0
        borrowed: dict[str, int] = {}
        for column in reckoning.declared(node):
            used = self.of(column)[node] - less.get(column, 0)
            over = used - reckoning.quotas(column).subtree[node]
            if over > 0:
                resource = reckoning.resource(column)
                borrowed[resource] = borrowed.get(resource, 0) + over
        lendable = reckoning.lendable(parent)
        ratio = max(
            (n * 1000.0 / lendable[name] for name, n in borrowed.items() if lendable[name] > 0),
            default=0.0,
        )
        weight = reckoning.weight[node]
        if ratio and not weight:
            return 1, ratio
        return 0, ratio / weight if ratio else 0.0
