"""Chooses the victims of a pod group: the whole cluster is one domain.

1. eligibility: the policy, then a preemption of ours that is still going on;
2. potential victims: units of a lower priority;
3. the empty-state test: with all of them gone, the group is placed once; if it cannot be, nothing
   is evicted;
4. that placement is fixed and units are reprieved around it.

Source: specification, section 7.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Flag, Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.budgets import budget_matches
from reprieve.engine.scheduling.domains import GroupPlacing, place_group
from reprieve.engine.scheduling.hierarchy import effective_priority
from reprieve.engine.scheduling.outcome import Explanation, Preemption, Sentence
from reprieve.engine.scheduling.placing import Choose
from reprieve.engine.scheduling.reprieve import reprieve
from reprieve.engine.scheduling.trackers import Members
from reprieve.engine.scheduling.units import Units, potential_units

__all__ = ["ongoing", "preempt_for_group", "select_victims"]


def preempt_for_group(
    simulation: Simulation,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
    failed: GroupPlacing,
) -> Preemption:
    """Return the victims of a group that could not be placed; the simulation is left as it was.

    `failed`: how the placement ended; it is a PodGroupPostFilter plugin like others (`plugins`).
    """
    del failed
    snapshot = simulation.snapshot
    if not _may_preempt(snapshot, group, queued, policy):
        return Preemption(
            Code.UNSCHEDULABLE,
            Explanation(Sentence.NOT_ELIGIBLE_POLICY),
            evaluated=False,
            keep_nominations=True,
        )
    if ongoing(simulation, queued, group.priority, policy):
        return Preemption(
            Code.SUCCESS,
            Explanation(Sentence.ONGOING),
            nominated=tuple((p.row.uid, p.row.nominated) for p in queued if p.row.nominated),
            evaluated=False,
            keep_nominations=True,
        )
    return select_victims(simulation, group, queued, policy, choose)


def select_victims(
    simulation: Simulation,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
) -> Preemption:
    """Return the victims of a group that may preempt; the simulation is left as it was."""
    snapshot = simulation.snapshot
    units = potential_units(
        snapshot,
        simulation.present & simulation.evictable,
        group.priority,
        policy,
    )
    if not len(units):
        return Preemption(Code.UNRESOLVABLE, Explanation(Sentence.NO_VICTIMS_GROUP))
    before = simulation.checkpoint()
    try:
        simulation.remove(units.slots())
        empty = simulation.checkpoint()
        placing = place_group(simulation, group, queued, policy, choose)
        if placing.failure is not None:
            code = Code.ERROR if placing.error else Code.UNSCHEDULABLE
            return Preemption(code, placing.failure)
        members = [
            (pending, node)
            for pending, node in zip(queued, placing.nodes, strict=True)
            if node >= 0
        ]
        simulation.rollback(empty)
        return _reprieved(simulation, units, members, policy)
    finally:
        simulation.rollback(before)


def _reprieved(
    simulation: Simulation, units: Units, members: Members, policy: Policy
) -> Preemption:
    snapshot = simulation.snapshot
    found = reprieve(
        simulation,
        units,
        members,
        budget_matches(simulation),
        second_pass=policy.second_reprieve_pass,
    )
    victims = units.victims(found.victims, found.violating)
    pods = sum(len(victim.pods) for victim in victims)
    return Preemption(
        Code.SUCCESS,
        Explanation(Sentence.FOUND_GROUP, (pods,)),
        victims=victims,
        nominated=tuple((pending.row.uid, snapshot.nodes[node].name) for pending, node in members),
        violating=int(found.violating.sum()),
        group_disruptions=int((units.grouped[found.victims] > 0).sum()),
        reprieved=tuple(found.kept.items()),
        refused=tuple((int(units.first[u]), str(name)) for u, name in found.refused.items()),
    )


def _may_preempt(
    snapshot: Snapshot, group: GroupRow, queued: Sequence[Pending], policy: Policy
) -> bool:
    if policy.gates.pod_group_preemption_policy:
        return group.preempts
    entries = (snapshot.classes[pending.pod_class] for pending in queued)
    return all(entry is not None and entry.preempts for entry in entries)


def ongoing(
    simulation: Simulation, queued: Sequence[Pending], priority: int, policy: Policy
) -> bool:
    """Return whether a victim of lower priority is still ending on a nominated node (7.1).

    A victim that may no longer be counted on (`evictable`) is not waited for.
    """
    snapshot = simulation.snapshot
    nominated = {snapshot.node_index.get(pending.row.nominated, -1) for pending in queued} - {-1}
    if not nominated:
        return False
    ending = (snapshot.pod_flags & Flag.PREEMPTED > 0) & (snapshot.pod_node >= 0)
    ending &= simulation.evictable
    slots = np.flatnonzero(ending)
    there = np.isin(snapshot.pod_node[slots], list(nominated))
    lower = effective_priority(snapshot, policy)[slots] < priority
    return bool((there & lower).any())
