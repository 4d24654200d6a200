"""Which placement victims are chosen for, when more than one is examined.

Examined are the best placement, then the other topology domains of the preemptor's constraint, the
best-scored first, then alternatives: the best placement so far without the node whose victims
matter most. `maxPlacements` bounds their number; with `topologyPreemption` every feasible domain is
examined all the same. Each gets its victims in full, and the placement with the least harm is
taken; the first difference decides:

1. the rules by which a plain pod's node is chosen (specification 8.6), on whole victim sets;
2. with `cascadeAware`: fewest pods of victims that would find no other node without evicting;
3. the order of examination, which is that of the placement scores, then of the domains' names.

Source: KEP-5710, "Future extensions"; specification 5.5, 7.4 and 8.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Mask, Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.scores.placements import FeasiblePlacement, placement_scores
from reprieve.engine.placement.simulation import Checkpoint, Simulation
from reprieve.engine.scheduling.cascade import homeless
from reprieve.engine.scheduling.domains import GroupPlacing, members_of
from reprieve.engine.scheduling.outcome import Preemption
from reprieve.engine.scheduling.placing import Choose
from reprieve.engine.scheduling.priority_search import EmptyState, Place
from reprieve.engine.scheduling.trackers import Members

__all__ = ["least_harmful", "set_harm"]

_OFFSET = 2**31
_NONE = -(2**63)


@dataclass(frozen=True, slots=True)
class _Examined:
    """A placement with its victims; `harm` is smaller for the better one."""

    members: Members
    found: Preemption
    harm: tuple[int, ...]


@dataclass(slots=True)
class _Examination:
    """Placements examined so far, and how one more is."""

    simulation: Simulation
    queued: Sequence[Pending]
    empty: EmptyState
    reprieved: Callable[[Members], Preemption]
    cascade: Callable[[Members, Preemption], int]
    examined: list[_Examined]

    def add(self, placing: GroupPlacing) -> _Examined:
        members = [
            (pending, node)
            for pending, node in zip(self.queued, placing.nodes, strict=True)
            if node >= 0
        ]
        found = self.reprieved(members)
        harm = (*set_harm(self.simulation.snapshot, found), self.cascade(members, found))
        one = _Examined(members, found, harm)
        self.examined.append(one)
        return one


def least_harmful(
    simulation: Simulation,
    full: Checkpoint,
    empty: EmptyState,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
    place: Place,
    reprieved: Callable[[Members], Preemption],
) -> Preemption:
    """Return the victims of the placement that does the least harm; the simulation stays empty.

    `full`: the state in which nobody was taken out. `empty`: the best placement, with the units out
    that are out of the simulation now. `reprieved`: the victims for members on their nodes.
    """
    wanted = policy.max_placements
    compared = wanted > 1 or policy.topology_preemption

    def cascade(members: Members, found: Preemption) -> int:
        if not (policy.cascade_aware and compared):
            return 0
        return homeless(simulation, full, members, found.victims, choose)

    examination = _Examination(simulation, queued, empty, reprieved, cascade, [])
    examination.add(empty.placing)
    runs = empty.runs
    if group.topology_key and compared:
        others = list(_other_domains(simulation, empty, group, queued, place))
        runs += len(others)
        limit = len(others) if policy.topology_preemption else wanted - 1
        for placing in others[:limit]:
            examination.add(placing)
    runs += _climb(examination, wanted, place)
    best = min(examination.examined, key=lambda each: each.harm)
    return replace(best.found, placements=runs)


def set_harm(snapshot: Snapshot, found: Preemption) -> tuple[int, ...]:
    """Return what a victim set does, smaller is less; the first difference decides (8.6).

    1. pods that break a budget;
    2. priority of the first victim;
    3. sum over the victims of (priority + 2**31);
    4. pods;
    5. the earliest start among the victims of the highest priority, later is less.

    Priorities are the pods' own, not those of their groups.
    """
    slots = np.array([slot for unit in found.victims for slot in unit.pods], np.int64)
    if not len(slots):
        return (found.violating, _NONE, 0, 0, _NONE)
    own = snapshot.pod_priority[slots]
    first = snapshot.pod_priority[list(found.victims[0].pods)]
    earliest = snapshot.pod_start[slots[own == own.max()]].min()
    total = int(own.sum()) + _OFFSET * len(slots)
    return (found.violating, int(first.max()), total, len(slots), -int(earliest))


def _other_domains(
    simulation: Simulation,
    empty: EmptyState,
    group: GroupRow,
    queued: Sequence[Pending],
    place: Place,
) -> Iterator[GroupPlacing]:
    """Yield feasible placements in the domains that the best one is not in, best-scored first."""
    snapshot = simulation.snapshot
    if len(members_of(snapshot, group)):
        return  # theirs is the only domain
    values = [node.labels.get(group.topology_key) for node in snapshot.nodes]
    taken = {values[node] for node in empty.placing.nodes if node >= 0}
    found: list[tuple[FeasiblePlacement, GroupPlacing]] = []
    for value in sorted({value for value in values if value is not None} - taken):
        within: Mask = np.array([each == value for each in values], np.bool_)
        placing = place(within)
        simulation.rollback(empty.state)
        if placing.failure is None:
            classes = tuple(
                pending.pod_class
                for pending, node in zip(queued, placing.nodes, strict=True)
                if node >= 0
            )
            nodes = np.flatnonzero(within)
            found.append((FeasiblePlacement(value, nodes, len(classes), classes), placing))
    scores = placement_scores(simulation, [each for each, _ in found])
    ranked = sorted(zip(scores, found, strict=True), key=lambda each: (-each[0], each[1][0].domain))
    for _, (_, placing) in ranked:
        yield placing


def _climb(examination: _Examination, wanted: int, place: Place) -> int:
    """Examine alternatives while that many are wanted; return how many placements were tried."""
    simulation = examination.simulation
    runs = 0
    best = min(examination.examined, key=lambda each: each.harm)
    excluded: Mask = np.zeros(len(simulation.snapshot.nodes), np.bool_)
    without = _worst_nodes(simulation.snapshot, best)
    while len(examination.examined) < wanted and without:
        within = ~excluded
        within[without.pop(0)] = False
        placing = place(within)
        simulation.rollback(examination.empty.state)
        runs += 1
        if placing.failure is not None:
            continue
        other = examination.add(placing)
        if other.harm < best.harm:
            best, excluded = other, ~within
            without = _worst_nodes(simulation.snapshot, best)
    return runs


def _worst_nodes(snapshot: Snapshot, examined: _Examined) -> list[int]:
    """Return the members' nodes with victims, those first whose victims matter most."""
    harm: dict[int, tuple[int, int]] = {}
    nodes = {node for _, node in examined.members}
    for unit in examined.found.victims:
        for slot in unit.pods:
            node = int(snapshot.pod_node[slot])
            if node in nodes:
                highest, count = harm.get(node, (unit.priority, 0))
                harm[node] = (max(highest, unit.priority), count + 1)
    return sorted(harm, key=lambda node: (-harm[node][0], -harm[node][1], node))
