"""Places a whole group: once over all nodes, or once per topology domain, the best one kept.

A group with a topology constraint is placed within one domain of its key. Members that are placed
already fix it: theirs is the only one that is examined. Among feasible domains the best-scored
wins, the smallest name among equals. In a tree the domains of a child lie inside the placement of
its parent. Where victims are chosen by `best`, a group that does not fit in its own order is placed
in others (`packing`). Source: specification 5.3, 5.5 and 17.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.scores.placements import FeasiblePlacement, best_placement
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.packing import place_otherwise
from reprieve.engine.scheduling.nodes.placing import Choose, Placing, place_members
from reprieve.engine.scheduling.outcome import Diagnosis, Explanation, GroupStatus, Sentence
from reprieve.engine.scheduling.victims.hierarchy import leaf_groups, members_of
from reprieve.units.ids import Uid

__all__ = [
    "GroupPlacing",
    "TryNodes",
    "domains_of",
    "members_of",
    "place_group",
    "place_in_domain",
]

#: Places the pods on these nodes, all where None; what is placed stays in the simulation.
TryNodes: TypeAlias = Callable[[Mask | None, int], Placing]


@dataclass(frozen=True, slots=True)
class GroupPlacing:
    """Where the queued pods are placed; they are in the simulation when `failure` is None.

    `nodes`, `diagnoses`: as in `Placing`, of the placement that was chosen or else the first one.
    `error`: the failure is an error, so that no preemption is examined. `placements`: how many were
    examined with success and without. `parts`: the groups of a tree that were tried in it.
    `elsewhere`: of each placement after the first, when none does, why its first pod has no node.
    """

    nodes: tuple[int, ...]
    diagnoses: tuple[Diagnosis | None, ...]
    failure: Explanation | None
    error: bool = False
    placements: tuple[int, int] = (0, 0)
    parts: tuple[GroupStatus, ...] = ()
    elsewhere: tuple[Diagnosis, ...] = ()


@dataclass(frozen=True, slots=True)
class _Domain:
    name: str
    nodes: Mask | None  # None for all


def place_group(
    simulation: Simulation,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
    *,
    within: Mask | None = None,
    part: bool = False,
) -> GroupPlacing:
    """Place the queued pods of a pod group; there are some, unless it is a `part` of a tree."""
    minimum = 1 if group.min_count is None else group.min_count

    def attempt(nodes: Mask | None, scheduled: int) -> Placing:
        before = len(simulation.simulated)
        placing = place_members(simulation, queued, scheduled, minimum, choose, nodes)[0]
        if placing.failure is None or placing.error or not policy.best:
            return placing
        _undo(simulation, before)
        found = place_otherwise(simulation, queued, scheduled, minimum, choose, nodes)
        return placing if found is None else found

    return place_in_domain(simulation, group, queued, policy, attempt, within=within, part=part)


def domains_of(
    simulation: Simulation, group: GroupRow, placed: Mapping[Uid, str]
) -> list[Mask | None]:
    """Return the nodes of each domain that a group may be placed in, those of `placed` first.

    `placed`: the name of a node by member, of a placement that was found. Without a constraint it
    is all nodes, None.
    """
    key = group.topology_key
    if not key or not simulation.policy.gates.topology_aware:
        return [None]
    snapshot = simulation.snapshot
    values = np.array([node.labels.get(key, "") for node in snapshot.nodes])
    own = {str(values[snapshot.node_index[node]]) for node in placed.values()}
    others = set(values.tolist()) - own - {""}
    if len(members_of(snapshot, group)) or _simulated(simulation, group):
        others = set()  # theirs is the only domain
    return [values == value for value in [*sorted(own), *sorted(others)]]


def place_in_domain(
    simulation: Simulation,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    attempt: TryNodes,
    *,
    within: Mask | None = None,
    part: bool = False,
) -> GroupPlacing:
    """Place pods by `attempt`, which gets how many of the group's have a node already.

    `within`: (nodes,) of the parent's placement, None for all. `part`: the group is one of a tree,
    where it is no failure that nothing was left to place.
    """
    slots = members_of(simulation.snapshot, group)
    slots = slots[simulation.present[slots]]
    simulated = _simulated(simulation, group)
    scheduled = len(slots) + len(simulated)
    if not policy.gates.topology_aware:
        before = len(simulation.simulated)
        placing = attempt(within, scheduled)
        failure = _failure(placing, part)
        if failure is not None or placing.error:
            _undo(simulation, before)
        return GroupPlacing(
            placing.nodes, placing.diagnoses, failure, placing.error, parts=placing.parts
        )
    domains = _domains(simulation.snapshot, group, slots, simulated, within)
    if isinstance(domains, Explanation):
        nothing: tuple[None, ...] = (None,) * len(queued)
        return GroupPlacing((-1,) * len(queued), nothing, domains, _is_error(domains))
    return _best(simulation, queued, domains, scheduled, attempt, part)


def _simulated(simulation: Simulation, group: GroupRow) -> list[Placed]:
    """Return the pods of the group that were placed in this session."""
    if not simulation.simulated:
        return []
    keys = simulation.snapshot.group_keys
    leaves = {keys[leaf] for leaf in leaf_groups(simulation.snapshot, group)}
    return [
        placed
        for placed in simulation.simulated
        if placed.pending is not None
        and placed.pending.row.group
        and f"{placed.pending.row.namespace}/{placed.pending.row.group}" in leaves
    ]


def _best(
    simulation: Simulation,
    queued: Sequence[Pending],
    domains: Sequence[_Domain],
    scheduled: int,
    attempt: TryNodes,
    part: bool,
) -> GroupPlacing:
    first: Placing | None = None
    feasible: dict[str, tuple[_Domain, Placing]] = {}
    before = len(simulation.simulated)
    elsewhere: list[Diagnosis] = []
    for domain in domains:
        placing = attempt(domain.nodes, scheduled)
        if first is None:
            first = placing
        else:
            elsewhere += [each for each in placing.diagnoses if each is not None][:1]
        fits = placing.failure is None and not placing.error
        if fits and len(domains) == 1:
            return _used(placing, (1, 0), part)
        _undo(simulation, before)
        if placing.error and placing.failure is not None:
            return GroupPlacing(
                placing.nodes, placing.diagnoses, placing.failure, True, parts=placing.parts
            )
        if fits:
            feasible[domain.name] = (domain, placing)
    assert first is not None
    if not feasible:
        return _nowhere(first, len(domains), elsewhere)
    chosen = next(iter(feasible.values()))
    if len(feasible) > 1:
        best = best_placement(
            simulation,
            [
                FeasiblePlacement(
                    domain.name,
                    _indices(simulation.snapshot, domain),
                    scheduled + placing.placed,
                    tuple(
                        pending.pod_class
                        for pending, node in zip(queued, placing.nodes, strict=True)
                        if node >= 0
                    ),
                )
                for domain, placing in feasible.values()
            ],
        )
        chosen = feasible[best.domain]
    _, placing = chosen
    for pending, node in zip(queued, placing.nodes, strict=True):
        if node >= 0:
            simulation.place(pending, node)
    return _used(placing, (len(feasible), len(domains) - len(feasible)), part)


def _nowhere(first: Placing, domains: int, elsewhere: Sequence[Diagnosis]) -> GroupPlacing:
    """Return that no domain fits the group, as the first one states it."""
    inner = () if first.failure is None else (first.failure,)
    placements = Explanation(Sentence.PLACEMENTS, (domains,), inner)
    failure = Explanation(Sentence.GROUP_UNSCHEDULABLE, (), (placements,))
    return GroupPlacing(
        first.nodes,
        first.diagnoses,
        failure,
        first.error,
        (0, domains),
        first.parts,
        tuple(elsewhere),
    )


def _used(placing: Placing, placements: tuple[int, int], part: bool) -> GroupPlacing:
    return GroupPlacing(
        placing.nodes,
        placing.diagnoses,
        _failure(placing, part),
        placements=placements,
        parts=placing.parts,
    )


def _failure(placing: Placing, part: bool) -> Explanation | None:
    if placing.failure is None:
        placed = part or placing.placed
        return None if placed else Explanation(Sentence.GROUP_UNSCHEDULABLE)
    if placing.waiting:
        return Explanation(Sentence.GROUP_UNSCHEDULABLE, (), (placing.failure,))
    return placing.failure


def _is_error(explanation: Explanation) -> bool:
    # Two domains are what users made, and no fault of the scheduler's (specification, section 18).
    return explanation.sentence not in (Sentence.NO_PLACEMENTS, Sentence.MORE_DOMAINS)


def _undo(simulation: Simulation, before: int) -> None:
    """Remove all pods but the first `before` that were placed."""
    while len(simulation.simulated) > before:
        simulation.unplace(simulation.simulated[-1])


def _indices(snapshot: Snapshot, domain: _Domain) -> I64:
    if domain.nodes is None:
        return np.arange(len(snapshot.nodes), dtype=np.int64)
    return np.flatnonzero(domain.nodes)


def _domains(
    snapshot: Snapshot,
    group: GroupRow,
    slots: I64,
    simulated: Sequence[Placed],
    within: Mask | None,
) -> list[_Domain] | Explanation:
    key = group.topology_key
    if not key:
        return [_Domain("", within)]
    gone = _without_node(snapshot, group)
    if gone:
        return Explanation(Sentence.NO_NODE_OF_POD, (gone,))
    values = [node.labels.get(key) for node in snapshot.nodes]
    inside = np.ones(len(values), np.bool_) if within is None else within
    here = {value for value, there in zip(values, inside.tolist(), strict=True) if there}
    names = sorted(value for value in here if value is not None)
    where = [(snapshot.pod_keys[slot], int(snapshot.pod_node[slot])) for slot in slots.tolist()]
    for pod in simulated:
        assert pod.pending is not None
        where.append((f"{pod.pending.row.namespace}/{pod.pending.row.name}", pod.node))
    fixed: set[str] = set()
    for pod_key, node in sorted(where):
        value = values[node]
        if value is None:
            return Explanation(Sentence.NO_DOMAIN, (pod_key,))
        fixed.add(value)
    if len(fixed) > 1:
        return Explanation(Sentence.MORE_DOMAINS, tuple(sorted(fixed)[:2]))
    if fixed:
        names = sorted(fixed)
    if not names:
        return Explanation(Sentence.NO_PLACEMENTS)
    return [
        _Domain(name, inside & np.array([v == name for v in values], np.bool_)) for name in names
    ]


def _without_node(snapshot: Snapshot, group: GroupRow) -> str:
    """Return the first member by name whose node is not there any more."""
    there = np.isin(snapshot.pod_group, leaf_groups(snapshot, group))
    slots = np.flatnonzero(there & (snapshot.pod_node < 0))
    held = [snapshot.pod_keys[slot] for slot in slots.tolist() if snapshot.pod_uids[slot]]
    return min(held, default="")
