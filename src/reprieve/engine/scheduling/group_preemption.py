"""Chooses the victims of a pod group or a tree: the whole cluster is one domain.

1. eligibility: the policy, then a preemption of ours that is still going on;
2. potential victims: units of a lower priority;
3. the empty-state test: with all of them gone, the group is placed once; if it cannot be, nothing
   is evicted;
4. that placement is fixed and units are reprieved around it.

Source: specification, sections 7 and 13.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Flag, Mask, Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Checkpoint, Simulation
from reprieve.engine.scheduling.alternatives import least_harmful
from reprieve.engine.scheduling.budgets import BudgetMatches, budget_matches
from reprieve.engine.scheduling.domains import GroupPlacing
from reprieve.engine.scheduling.hierarchy import effective_priority
from reprieve.engine.scheduling.outcome import Explanation, Preemption, Sentence
from reprieve.engine.scheduling.placing import Choose
from reprieve.engine.scheduling.priority_search import empty_state, lowest_empty_state
from reprieve.engine.scheduling.reprieve import reprieve
from reprieve.engine.scheduling.trackers import Members
from reprieve.engine.scheduling.tree_placing import place_unit
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
    before = simulation.checkpoint()
    units = _potential(simulation, before, group.priority, policy)
    if not len(units):
        return Preemption(Code.UNRESOLVABLE, Explanation(Sentence.NO_VICTIMS_GROUP))

    def place(within: Mask | None) -> GroupPlacing:
        return place_unit(simulation, group, queued, policy, choose, within)

    try:
        search = lowest_empty_state if policy.binary_search_priority else empty_state
        empty = search(simulation, units, place)
        if empty.placing.failure is not None:
            code = Code.ERROR if empty.placing.error else Code.UNSCHEDULABLE
            return Preemption(code, empty.placing.failure, placements=empty.runs)
        if empty.priority is not None:
            units = _potential(simulation, before, empty.priority + 1, policy)
        budgets = budget_matches(simulation)

        def reprieved(members: Members) -> Preemption:
            return _reprieved(simulation, units, members, budgets, policy)

        return least_harmful(
            simulation, before, empty, group, queued, policy, choose, place, reprieved
        )
    finally:
        simulation.rollback(before)


def _potential(simulation: Simulation, full: Checkpoint, below: int, policy: Policy) -> Units:
    present = full.present & simulation.evictable
    return potential_units(simulation.snapshot, present, below, policy)


def _reprieved(
    simulation: Simulation,
    units: Units,
    members: Members,
    budgets: BudgetMatches,
    policy: Policy,
) -> Preemption:
    snapshot = simulation.snapshot
    found = reprieve(
        simulation,
        units,
        members,
        budgets,
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
