"""Places a whole group: once over all nodes, or once per topology domain, the best one taken.

A group with a topology constraint is placed within one domain of its key. Members that are placed
already fix it: theirs is the only one that is examined. Among feasible domains the best-scored
wins, the smallest name among equals. Source: specification 5.3, 5.5 and 17.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import I64, Mask, Pending, Snapshot
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.scores.placements import FeasiblePlacement, best_placement
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Diagnosis, Explanation, Sentence
from reprieve.engine.scheduling.placing import Choose, Placing, place_members

__all__ = ["GroupPlacing", "members_of", "place_group"]


@dataclass(frozen=True, slots=True)
class GroupPlacing:
    """Where the queued pods went; they are in the simulation when `failure` is None.

    `nodes`, `diagnoses`: as in `Placing`, of the placement that was taken or else the first one.
    `error`: the failure is an error, so that no preemption is examined. `placements`: how many were
    examined with success and without.
    """

    nodes: tuple[int, ...]
    diagnoses: tuple[Diagnosis | None, ...]
    failure: Explanation | None
    error: bool = False
    placements: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class _Domain:
    name: str
    nodes: Mask | None  # None for all


def members_of(snapshot: Snapshot, group: GroupRow) -> I64:
    """Return the slots of the group's placed pods, assumed ones included."""
    index = snapshot.group_index.get(f"{group.namespace}/{group.name}", -1)
    if index < 0:
        return np.zeros(0, np.int64)
    return np.flatnonzero((snapshot.pod_group == index) & (snapshot.pod_node >= 0))


def place_group(
    simulation: Simulation,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
) -> GroupPlacing:
    """Place the queued pods of a group, which must not be empty."""
    slots = members_of(simulation.snapshot, group)
    slots = slots[simulation.present[slots]]
    simulated = [
        placed
        for placed in simulation.simulated
        if placed.pending is not None
        and placed.pending.row.group == group.name
        and placed.pending.row.namespace == group.namespace
    ]
    scheduled = len(slots) + len(simulated)
    minimum = 1 if group.min_count is None else group.min_count
    if not policy.gates.topology_aware:
        placing, placed = place_members(simulation, queued, scheduled, minimum, choose)
        failure = _failure(placing)
        if failure is not None or placing.error:
            _undo(simulation, placed)
        return GroupPlacing(placing.nodes, placing.diagnoses, failure, placing.error)
    domains = _domains(simulation.snapshot, group, slots, simulated)
    if isinstance(domains, Explanation):
        nothing: tuple[None, ...] = (None,) * len(queued)
        return GroupPlacing((-1,) * len(queued), nothing, domains, _is_error(domains))
    return _best(simulation, queued, domains, scheduled, minimum, choose)


def _best(
    simulation: Simulation,
    queued: Sequence[Pending],
    domains: Sequence[_Domain],
    scheduled: int,
    minimum: int,
    choose: Choose,
) -> GroupPlacing:
    first: Placing | None = None
    feasible: dict[str, tuple[_Domain, Placing]] = {}
    for domain in domains:
        placing, placed = place_members(
            simulation, queued, scheduled, minimum, choose, domain.nodes
        )
        first = placing if first is None else first
        fits = placing.failure is None and not placing.error
        if fits and len(domains) == 1:
            return GroupPlacing(
                placing.nodes, placing.diagnoses, _failure(placing), placements=(1, 0)
            )
        _undo(simulation, placed)
        if fits:
            feasible[domain.name] = (domain, placing)
    assert first is not None
    if not feasible:
        inner = () if first.failure is None else (first.failure,)
        placements = Explanation(Sentence.PLACEMENTS, (len(domains),), inner)
        failure = Explanation(Sentence.GROUP_UNSCHEDULABLE, (), (placements,))
        return GroupPlacing(first.nodes, first.diagnoses, failure, first.error, (0, len(domains)))
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
    counts = (len(feasible), len(domains) - len(feasible))
    return GroupPlacing(placing.nodes, placing.diagnoses, _failure(placing), placements=counts)


def _failure(placing: Placing) -> Explanation | None:
    if placing.failure is None:
        return None if placing.placed else Explanation(Sentence.GROUP_UNSCHEDULABLE)
    if placing.waiting:
        return Explanation(Sentence.GROUP_UNSCHEDULABLE, (), (placing.failure,))
    return placing.failure


def _is_error(explanation: Explanation) -> bool:
    # Two domains are what users made, and no fault of the scheduler's (specification, section 18).
    return explanation.sentence not in (Sentence.GROUP_UNSCHEDULABLE, Sentence.MORE_DOMAINS)


def _undo(simulation: Simulation, placed: Sequence[Placed]) -> None:
    for pod in reversed(placed):
        simulation.unplace(pod)


def _indices(snapshot: Snapshot, domain: _Domain) -> I64:
    if domain.nodes is None:
        return np.arange(len(snapshot.nodes), dtype=np.int64)
    return np.flatnonzero(domain.nodes)


def _domains(
    snapshot: Snapshot, group: GroupRow, slots: I64, simulated: Sequence[Placed]
) -> list[_Domain] | Explanation:
    key = group.topology_key
    if not key:
        return [_Domain("", None)]
    gone = _without_node(snapshot, group)
    if gone:
        return Explanation(Sentence.NO_NODE_OF_POD, (gone,))
    values = [node.labels.get(key) for node in snapshot.nodes]
    names = sorted({value for value in values if value is not None})
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
        return Explanation(Sentence.GROUP_UNSCHEDULABLE, (), (Explanation(Sentence.NO_PLACEMENTS),))
    return [_Domain(name, np.array([v == name for v in values], np.bool_)) for name in names]


def _without_node(snapshot: Snapshot, group: GroupRow) -> str:
    """Return the first member by name whose node is not there any more."""
    index = snapshot.group_index.get(f"{group.namespace}/{group.name}", -1)
    slots = np.flatnonzero((snapshot.pod_group == index) & (snapshot.pod_node < 0))
    held = [snapshot.pod_keys[slot] for slot in slots.tolist() if snapshot.pod_uids[slot]]
    return min(held, default="") if index >= 0 else ""
