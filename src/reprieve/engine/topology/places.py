"""The places of a snapshot: the trees of all flavors with topologies, and who uses their leaves.

`Grounds` are the nodes of a cluster, and the pods on them that no topology has placed; trees are
built of them once. `Places` add what is used by those who hold assignments, and change as these
are added and removed. Flavors whose leaves are host names share the nodes: whatever uses a host
through one of them is in use for all.

Source: specification of topology-aware scheduling, sections 2.2 to 2.4. The reference sees what
others over the same nodes were given in a cycle only in the next one; here it is seen at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reprieve.engine.quota.assigning.constraints import Toleration
from reprieve.engine.topology.assign import Placing, assign
from reprieve.engine.topology.model import (
    Outcome,
    PlacedPods,
    PodsWanted,
    Topology,
    TopologyGates,
    TopologyNode,
)
from reprieve.engine.topology.tree import Ints, Tree, Usage

__all__ = ["Grounds", "NodeUse", "Placed", "Places", "TasFlavor"]


#: What a workload holds: pods in the places of one flavor.
Placed = tuple[str, PlacedPods]


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A pod on a node that no topology has placed; `requests` without the pod itself."""

    node: str
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TasFlavor:
    """A flavor with a topology, as trees are built and pods are placed by it."""

    name: str
    topology: Topology
    node_labels: Mapping[str, str]
    tolerations: tuple[Toleration, ...]


class Grounds:
    """The nodes of a cluster, and the pods on them that no topology has placed."""

    def __init__(self, nodes: Sequence[TopologyNode], uses: Iterable[NodeUse] = ()) -> None:
        self._nodes = tuple(nodes)
        self._uses = tuple(uses)

    @property
    def nodes(self) -> tuple[TopologyNode, ...]:
        """Return the nodes, without any usage of them."""
        return self._nodes

    @property
    def uses(self) -> tuple[NodeUse, ...]:
        """Return the pods that no topology has placed."""
        return self._uses

    def tree(self, flavor: TasFlavor) -> Tree:
        """Return the tree of a flavor."""
        topology = flavor.topology
        tree = Tree(topology.name, topology.levels, self._nodes, flavor.node_labels)
        for each in self._uses:
            tree.use_nodes(each.node, each.requests)
        return tree


class Places:
    """The trees by flavor, and what of their leaves is in use."""

    def __init__(
        self,
        flavors: Mapping[str, TasFlavor],
        trees: Mapping[str, Tree],
        gates: TopologyGates,
        used: Mapping[str, Usage] | None = None,
        freed: tuple[tuple[NodeUse, int], ...] = (),
    ) -> None:
        self.flavors = flavors
        self.trees = trees
        self.gates = gates
        self._used = (
            {name: Usage(tree) for name, tree in trees.items()} if used is None else {**used}
        )
        self._freed = freed
        # Flavors that see each other's usage of a host.
        self._by_host = [
            name for name, tree in trees.items() if tree.by_host and gates.handle_overlapping
        ]

    def copy(self) -> Places:
        """Return a copy that changes by itself."""
        used = {name: usage.copy() for name, usage in self._used.items()}
        return Places(self.flavors, self.trees, self.gates, used, self._freed)

    def emptied(self) -> Places:
        """Return the same places as if no topology had placed any pod; those freed stay free."""
        found = Places(self.flavors, self.trees, self.gates)
        for use, times in self._freed:
            found.free((use,), times)
        return found

    def change(self, placed: Iterable[Placed], times: int) -> None:
        """Count what holds places, `times` 1, or count it no more, -1."""
        for flavor, pods in placed:
            tree = self.trees.get(flavor)
            if tree is None:
                continue
            for name in self._by_host if flavor in self._by_host else (flavor,):
                self._used[name].add(pods.assignment, pods.requests, times)

    def free(self, uses: Iterable[NodeUse], times: int = 1) -> None:
        """Remove pods that no topology has placed from their nodes; `times` -1: add them again."""
        known = tuple(uses)
        self._freed += tuple((each, times) for each in known)
        for each in known:
            amounts = {**each.requests, "pods": 1}
            for name, tree in self.trees.items():
                leaf = tree.leaf_of_node.get(each.node)
                if leaf is not None:
                    self._used[name].add_to(leaf, amounts, -times)

    def on(self, flavor: str) -> Placing:
        """Return what pods are placed on in a flavor."""
        row = self.flavors[flavor]
        return Placing(self.trees[flavor], (self._used[flavor],), row.tolerations, self.gates)

    def left(self, flavor: str, resources: Iterable[str]) -> dict[str, Ints]:
        """Return what the leaves of a flavor have left of resources (leaves,) int64."""
        tree, used = self.trees[flavor], self._used[flavor].of
        none = tree.none
        return {each: tree.free.get(each, none) - used.get(each, none) for each in resources}

    def assign(self, asked: Mapping[str, Sequence[PodsWanted]]) -> dict[str, Outcome]:
        """Return what the pod sets of one workload get, by requested flavor; nothing is changed.

        A pod set that gets nothing ends its flavor; those of other flavors are still placed, on
        what those before them leave of nodes that the flavors share.
        """
        if len(asked) == 1:
            ((flavor, wanted),) = asked.items()
            return assign(self.on(flavor), wanted)
        standing, found = self.copy(), dict[str, Outcome]()
        for flavor, wanted in asked.items():
            outcomes = assign(standing.on(flavor), wanted)
            found.update(outcomes)
            for each in wanted:
                outcome = outcomes.get(each.name)
                if outcome is not None and outcome.assignment is not None:
                    pods = PlacedPods(each.requests, outcome.assignment)
                    standing.change([(flavor, pods)], 1)
        return found

    def has_room(self, flavor: str, pods: PlacedPods, slots: bool = False) -> bool:
        """Return whether pods fit the leaves that they were assigned.

        As in the reference the number of pods that a node may have counts only with `slots`.
        """
        tree, used = self.trees[flavor], self._used[flavor].of
        requests = dict(pods.requests)
        if slots:
            requests["pods"] = requests.get("pods", 0) + 1
        for domain in pods.assignment.domains:
            leaf = tree.index.get(domain.values)
            if leaf is None:
                return False
            for resource, amount in requests.items():
                if amount <= 0:
                    continue
                column, chosen = tree.free.get(resource), used.get(resource)
                left = 0 if column is None else int(column[leaf])
                left -= 0 if chosen is None else int(chosen[leaf])
                if left < amount * domain.count:
                    return False
        return True
