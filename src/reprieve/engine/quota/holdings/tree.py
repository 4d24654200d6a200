"""The quota tree: ClusterQueues and cohorts, what they own, what their members may still use.

A `Tree` is the fixed part and is never changed; usage is kept beside it as columns, one list over
all nodes for each flavor-resource, so that a search can work on copies of the columns it touches.

    localQuota(n)      what n keeps from its parent: max(0, subtreeQuota - lendingLimit), 0 without
    subtreeQuota(n)    own nominal quota plus what the children lend
    usage(parent)      sum over children of max(0, usage - localQuota)
    available(n)       max(0, localQuota - usage) + what the parent has left for n

Source: specification of the quota plane, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reprieve.engine.quota.holdings.amounts import UNLIMITED, WIDE, minus, plus, widened
from reprieve.engine.quota.model import ClusterQueue, Cohort, FlavorResource, Quota, ResourceGroup

__all__ = ["Column", "Columns", "Tree", "add", "available", "borrowing_level", "exceeds", "remove"]

Column = list[int]
Columns = Sequence[Column] | Mapping[int, Column]  # usage by flavor-resource, each over all nodes


class Tree:
    """Nodes by index, ClusterQueues first. Quotas are `[flavor-resource][node]`.

    Attributes:
        names: of the nodes; a ClusterQueue and a cohort may share one.
        queues, cohorts: index by name.
        inactive: ClusterQueues that are left out of all decisions, with the reason.
        parent: index of the parent, -1 for a root.
        path: from the node itself up to its root.
        child_queues, child_cohorts: active children, by name.
        height: distance to the furthest leaf below.
        subtree, local, cap, potential: `cap` is `subtree - local + borrowingLimit`, `WIDE` without
            a limit: the most that a node may draw from its parent, less what it drew.
        defined: the flavor-resources in a node's subtreeQuota.
        lendable: by node, potential capacity of every resource over the root's flavor-resources.
    """

    def __init__(
        self,
        cluster_queues: Mapping[str, ClusterQueue],
        cohorts: Mapping[str, Cohort],
        inactive: Mapping[str, str] | None = None,
        used: Iterable[FlavorResource] = (),
    ) -> None:
        """Build the tree; `inactive` ClusterQueues are left out, `used` extends the columns."""
        queue_names = sorted(cluster_queues)
        cohort_names = sorted(
            {
                *cohorts,
                *(each.cohort for each in cluster_queues.values() if each.cohort),
                *(each.parent for each in cohorts.values() if each.parent),
            }
        )
        self.names = [*queue_names, *cohort_names]
        self.queues = {name: index for index, name in enumerate(queue_names)}
        self.cohorts = {name: len(queue_names) + k for k, name in enumerate(cohort_names)}
        above = [cluster_queues[name].cohort for name in queue_names]
        above += [cohorts[name].parent if name in cohorts else "" for name in cohort_names]
        self.parent = [self.cohorts[name] if name else -1 for name in above]
        self.weight = [cluster_queues[name].weight for name in queue_names]
        # An implicit cohort is a root, whose weight is never used; the reference shows it as 0.
        self.weight += [cohorts[name].weight if name in cohorts else 0.0 for name in cohort_names]
        self.inactive = dict(inactive or {})
        self.path = [self._path(node) for node in range(len(self.names))]
        for name, node in self.queues.items():
            if not self.path[node]:
                self.inactive.setdefault(name, "its cohort is in a cycle")
        self._children()
        quotas = [_quotas(cluster_queues[name].groups) for name in queue_names]
        quotas += [
            _quotas(cohorts[name].groups) if name in cohorts else {} for name in cohort_names
        ]
        known = {pair for own in quotas for pair in own} | set(used)
        self.flavor_resources: list[FlavorResource] = sorted(known)
        self.index = {pair: column for column, pair in enumerate(self.flavor_resources)}
        self._aggregate(quotas)

    def column(self, pair: FlavorResource) -> int:
        """Return the index of `pair`; one without any quota gets a column of zeros."""
        column = self.index.get(pair)
        if column is None:
            column = self.index[pair] = len(self.flavor_resources)
            self.flavor_resources.append(pair)
            zeros = [0] * len(self.names)
            self.nominal.append(zeros)
            self.subtree.append(zeros)
            self.local.append(zeros)
            self.cap.append([WIDE] * len(self.names))
            self.potential.append(zeros)
            self.borrowing_limit.append([None] * len(self.names))
        return column

    def cohort_path(self, node: int) -> str:
        """Return `/root/.../queue` of a ClusterQueue."""
        return "/" + "/".join(self.names[each] for each in reversed(self.path[node]))

    def root(self, node: int) -> int:
        """Return the root above `node`."""
        return self.path[node][-1]

    def is_queue(self, node: int) -> bool:
        """Distinguish a ClusterQueue from a cohort."""
        return node < len(self.queues)

    def _path(self, node: int) -> tuple[int, ...]:
        """Return node..root; nothing for one that hangs on a cycle."""
        path: list[int] = []
        while node >= 0:
            if node in path:
                return ()
            path.append(node)
            node = self.parent[node]
        return tuple(path)

    def _children(self) -> None:
        size = len(self.names)
        queues: list[list[int]] = [[] for _ in range(size)]
        cohorts: list[list[int]] = [[] for _ in range(size)]
        for node in range(size):
            parent = self.parent[node]
            if parent < 0 or not self.path[node]:
                continue
            if not self.is_queue(node):
                cohorts[parent].append(node)
            elif self.names[node] not in self.inactive:
                queues[parent].append(node)
        self.child_queues = [tuple(each) for each in queues]
        self.child_cohorts = [tuple(each) for each in cohorts]
        self.height = [0] * size
        for node in self._bottom_up():
            below = [self.height[child] + 1 for child in cohorts[node]]
            self.height[node] = max([1 if queues[node] or cohorts[node] else 0, *below])

    def _bottom_up(self) -> list[int]:
        nodes = [node for node, path in enumerate(self.path) if path]
        return sorted(nodes, key=lambda node: -len(self.path[node]))

    def _aggregate(self, quotas: list[dict[FlavorResource, Quota]]) -> None:
        size, columns = len(self.names), len(self.flavor_resources)
        defined: list[set[int]] = [set() for _ in range(size)]
        exact = [[0] * size for _ in range(columns)]
        self.nominal = [[0] * size for _ in range(columns)]
        self.local = [[0] * size for _ in range(columns)]
        self.cap = [[WIDE] * size for _ in range(columns)]
        self.borrowing_limit: list[list[int | None]] = [[None] * size for _ in range(columns)]
        lent = [[0] * size for _ in range(columns)]
        order = self._bottom_up()
        bottoms = [self.index[pair] for pair in self.flavor_resources]
        for node in order:
            own, parent = quotas[node], self.parent[node]
            defined[node].update(self.index[pair] for pair in own)
            for column in bottoms:
                quota = own.get(self.flavor_resources[column])
                nominal = quota.nominal if quota else 0
                subtree = exact[column][node] = plus(exact[column][node], nominal)
                self.nominal[column][node] = widened(nominal)
                local = 0
                if quota is not None and quota.lending_limit is not None:
                    local = max(0, minus(subtree, quota.lending_limit))
                lent[column][node] = local
                self.local[column][node] = widened(local)
                if parent >= 0:
                    exact[column][parent] = plus(exact[column][parent], minus(subtree, local))
                if quota is not None and quota.borrowing_limit is not None and parent >= 0:
                    self.borrowing_limit[column][node] = quota.borrowing_limit
                    cap = plus(minus(subtree, local), quota.borrowing_limit)
                    self.cap[column][node] = widened(cap)
            if parent >= 0:
                defined[parent] |= defined[node]
        self.subtree = [[widened(amount) for amount in column] for column in exact]
        self.defined = [tuple(sorted(each)) for each in defined]
        self._potential(exact, lent, order)

    def _potential(self, exact: list[Column], lent: list[Column], order: list[int]) -> None:
        potential = [[0] * len(self.names) for _ in self.flavor_resources]
        self.lendable: list[dict[str, int]] = [{} for _ in self.names]
        for node in reversed(order):
            parent = self.parent[node]
            for column, row in enumerate(potential):
                if parent < 0:
                    row[node] = exact[column][node]
                    continue
                row[node] = plus(lent[column][node], row[parent])
                limit = self.borrowing_limit[column][node]
                if limit is not None:
                    row[node] = min(row[node], plus(exact[column][node], limit))
            if not self.is_queue(node):
                lendable = self.lendable[node]
                for column in self.defined[self.root(node)]:
                    resource = self.flavor_resources[column].resource
                    lendable[resource] = plus(lendable.get(resource, 0), potential[column][node])
        self.potential = [
            [amount if amount < UNLIMITED else WIDE for amount in row] for row in potential
        ]


def _quotas(groups: Iterable[ResourceGroup]) -> dict[FlavorResource, Quota]:
    return {
        FlavorResource(flavor.flavor, resource): quota
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.resources.items()
    }


def add(local: Column, usage: Column, path: Sequence[int], amount: int) -> None:
    """Count `amount` of one flavor-resource at `path[0]` and, as far as it borrows, above."""
    for node in path:
        left = local[node] - usage[node]
        usage[node] += amount
        if left > 0:
            amount -= left
        if amount <= 0:
            return


def remove(local: Column, usage: Column, path: Sequence[int], amount: int) -> None:
    """Undo what `add` counted."""
    for node in path:
        stored = usage[node] - local[node]
        usage[node] -= amount
        if stored <= 0:
            return
        amount = min(amount, stored)


def available(tree: Tree, column: int, usage: Column, path: Sequence[int]) -> int:
    """Return what `path[0]` may still use of a flavor-resource; negative when over-admitted."""
    root = path[-1]
    left = tree.subtree[column][root] - usage[root]
    if len(path) > 1:
        local, cap = tree.local[column], tree.cap[column]
        for node in path[-2::-1]:
            own = local[node] - usage[node]
            left = min(left, cap[node]) + own if own >= 0 else min(left, cap[node] + own)
    return left


def borrowing_level(
    tree: Tree, column: int, usage: Column, queue: int, amount: int
) -> tuple[int, bool]:
    """Return the height of the lowest subtree that fits `amount`, and whether it may reclaim."""
    path = tree.path[queue]
    subtree, local = tree.subtree[column], tree.local[column]
    if len(path) == 1 or subtree[queue] >= usage[queue] + amount:
        return 0, len(path) > 1
    rest = amount - max(0, local[queue] - usage[queue])
    for node in path[1:]:
        if subtree[node] >= usage[node] + rest:
            return tree.height[node], tree.parent[node] >= 0
        rest -= max(0, local[node] - usage[node])
    return tree.height[path[-1]], False


def exceeds(tree: Tree, usage: Columns, node: int, columns: Iterable[int]) -> bool:
    """Return whether `node` uses more than its own in at least one of `columns`."""
    return any(usage[column][node] > tree.subtree[column][node] for column in columns)
