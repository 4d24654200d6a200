"""Places a whole tree of groups: the children one after the other, each seeing those before it.

A pod group of the tree is placed as it would be alone, inside the placement of its parent. A
composite group reaches its minimum when that many of its children have reached theirs; a child that
has not is left out and does not end the loop by itself. What fits beyond the minimum is placed too.
Nothing is tried twice: an earlier child keeps its nodes when a later one fails. Source:
specification 5.5 and 13; KEP-6012, "Recursive Scheduling Cycle Execution".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprieve.engine.cluster.arrays import Mask
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.domains import GroupPlacing, place_group, place_in_domain
from reprieve.engine.scheduling.nodes.placing import Choose, Placing, unreachable
from reprieve.engine.scheduling.outcome import Diagnosis, Explanation, GroupStatus, Sentence
from reprieve.engine.scheduling.victims.hierarchy import leaf_groups

__all__ = ["in_placement_order", "place_unit", "statuses_below"]


def in_placement_order(
    snapshot: Snapshot, group: GroupRow, queued: Sequence[Pending]
) -> list[Pending]:
    """Return the pods of a tree group after group; those of groups that are not in it are out."""
    found: list[Pending] = []
    by_leaf = _by_leaf(snapshot, group, queued)
    for leaf in leaf_groups(snapshot, group):
        found += by_leaf[leaf]
    return found


def place_unit(
    simulation: Simulation,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
    within: Mask | None = None,
) -> GroupPlacing:
    """Place the queued pods of a group or a tree; those of a tree are in placement order.

    `within`: (nodes,) that may be used, None for all.
    """
    if not group.composite:
        return place_group(simulation, group, queued, policy, choose, within=within)
    snapshot = simulation.snapshot
    tree = _Tree(simulation, policy, choose, _by_leaf(snapshot, group, queued))
    root = snapshot.group_index[group.key]
    found = tree.place(root, within)
    failure = found.failure
    if failure is None and not any(node >= 0 for node in found.nodes):
        failure = Explanation(Sentence.GROUP_UNSCHEDULABLE)
    tried = {each.key: each.failure for each in found.parts}
    return GroupPlacing(
        found.nodes,
        found.diagnoses,
        failure,
        found.error,
        found.placements,
        tuple(_statuses(snapshot, root, {**tried, group.key: failure}, None)),
    )


def statuses_below(
    snapshot: Snapshot, group: GroupRow, failure: Explanation
) -> tuple[GroupStatus, ...]:
    """Return the same failure for every group of a tree; nothing for a group that is none."""
    if not group.composite:
        return ()
    return tuple(_statuses(snapshot, snapshot.group_index[group.key], {}, failure))


@dataclass(frozen=True, slots=True)
class _Tree:
    simulation: Simulation
    policy: Policy
    choose: Choose
    by_leaf: dict[int, list[Pending]]

    def place(self, group: int, within: Mask | None) -> GroupPlacing:
        snapshot = self.simulation.snapshot
        row = snapshot.group_rows[group]
        assert row is not None, "only groups that are there are in a tree"
        if not row.composite:
            return place_group(
                self.simulation,
                row,
                self.by_leaf[group],
                self.policy,
                self.choose,
                within=within,
                part=True,
            )
        queued = self.below(group)
        parent = row

        def attempt(nodes: Mask | None, scheduled: int) -> Placing:
            del scheduled  # children count here, not pods
            return self.children(group, parent, nodes)

        return place_in_domain(
            self.simulation, row, queued, self.policy, attempt, within=within, part=True
        )

    def children(self, group: int, row: GroupRow, within: Mask | None) -> Placing:
        minimum = 1 if row.min_count is None else row.min_count
        children = self.simulation.snapshot.trees.children.get(group, ())
        scheduled, remaining = 0, len(children)
        used: list[int] = []
        fitting: list[int] = []
        diagnoses: list[Diagnosis | None] = []
        parts: list[GroupStatus] = []
        failure: Explanation | None = None
        error = False
        hopeless = remaining < minimum
        if hopeless:
            failure = unreachable(minimum, scheduled, remaining)
        for child in children:
            if failure is not None or error:
                untried = len(self.below(child))
                fitting += [-1] * untried
                diagnoses += [None] * untried
                continue
            found = self.place(child, within)
            nodes, remaining = found.nodes, remaining - 1
            fitting += nodes
            diagnoses += found.diagnoses
            parts += [GroupStatus(self._key(child), found.failure), *found.parts]
            if found.error:
                error = True
                if found.failure is not None:
                    failure = Explanation(Sentence.CHILD_FAILED, (), (found.failure,))
                continue
            scheduled += found.failure is None
            used += nodes if found.failure is None else [-1] * len(nodes)
            if scheduled + remaining < minimum:
                failure = unreachable(minimum, scheduled, remaining)
        placed = fitting if failure is not None or error else used
        return Placing(tuple(placed), tuple(diagnoses), failure, hopeless, error, tuple(parts))

    def below(self, group: int) -> list[Pending]:
        leaves = self.simulation.snapshot.trees.leaves(group)
        return [pending for leaf in leaves for pending in self.by_leaf[leaf]]

    def _key(self, group: int) -> str:
        return self.simulation.snapshot.group_keys[group]


def _by_leaf(
    snapshot: Snapshot, group: GroupRow, queued: Sequence[Pending]
) -> dict[int, list[Pending]]:
    found: dict[int, list[Pending]] = {leaf: [] for leaf in leaf_groups(snapshot, group)}
    for pending in queued:
        leaf = snapshot.group_index.get(f"{pending.row.namespace}/{pending.row.group}", -1)
        if leaf in found:
            found[leaf].append(pending)
    return found


def _statuses(
    snapshot: Snapshot,
    group: int,
    tried: dict[str, Explanation | None],
    above: Explanation | None,
) -> list[GroupStatus]:
    """Return the status of every group of a tree: its own, or its parent's where that one failed.

    A group that was not tried, or fits in a parent that does not, has its parent's failure.
    """
    key = snapshot.group_keys[group]
    own = tried.get(key)
    failure = above if own is None else own
    found = [GroupStatus(key, failure)]
    for child in snapshot.trees.children.get(group, ()):
        found += _statuses(snapshot, child, tried, failure)
    return found
