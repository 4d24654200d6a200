"""Chooses the victims of a pod group or a tree: the whole cluster is one domain.

1. eligibility: the policy, then a preemption of ours that is still continuing;
2. potential victims: units of a lower priority;
3. the empty-state test: with all of them removed, the group is placed once; if it cannot be,
   nothing is evicted;
4. that placement is fixed and units are reprieved around it.

Source: specification, sections 7 and 13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Flag, Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Checkpoint, Simulation
from reprieve.engine.scheduling.least_cost.alternatives import Examined, least_harmful, set_harm
from reprieve.engine.scheduling.least_cost.cheapest_room import cheapest_units
from reprieve.engine.scheduling.least_cost.fewest import Proposal, without_nominations
from reprieve.engine.scheduling.least_cost.least_costly import (
    costs_less,
    found_exactly,
    least_costly,
)
from reprieve.engine.scheduling.least_cost.least_harm import least_harm
from reprieve.engine.scheduling.nodes.domains import GroupPlacing, domains_of
from reprieve.engine.scheduling.nodes.packing import smallest
from reprieve.engine.scheduling.nodes.placing import Choose
from reprieve.engine.scheduling.nodes.tree_placing import place_unit
from reprieve.engine.scheduling.outcome import Explanation, Preemption, Sentence, pods_of
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches, budget_matches
from reprieve.engine.scheduling.victims.cascade import homeless
from reprieve.engine.scheduling.victims.floors import NONE_WHOLE, torn_groups
from reprieve.engine.scheduling.victims.harm import lost_pods
from reprieve.engine.scheduling.victims.hierarchy import effective_priority, members_of
from reprieve.engine.scheduling.victims.priority_search import lowest_priority
from reprieve.engine.scheduling.victims.reach import Reach, own_priorities, reach_of
from reprieve.engine.scheduling.victims.reprieve import reprieve
from reprieve.engine.scheduling.victims.room import room_for, rough_room
from reprieve.engine.scheduling.victims.trackers import Members
from reprieve.engine.scheduling.victims.units import Units, potential_units
from reprieve.units.ids import Uid

__all__ = ["ongoing", "preempt_for_group", "select_victims"]

_PLACEMENTS: Final = 8  # that are compared where the least cost is not worked out
_NOBODY: Final = np.zeros(0, np.int64)
_NEVER: Final = (2**62,)  # more harm than anything


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
    full = simulation.checkpoint()
    lost = lost_pods(simulation)
    search = _Search(simulation, full, group, queued, policy, choose, group.priority, lost)
    if not len(search.potential):
        return Preemption(Code.UNRESOLVABLE, Explanation(Sentence.NO_VICTIMS_GROUP))
    try:
        placing = search.lowest() if policy.binary_search_priority else search.by_scores()
        if placing.failure is not None:
            exact = search.otherwise() if policy.best and not placing.error else None
            if exact is not None:
                return replace(exact, placements=search.runs)
            code = Code.ERROR if placing.error else Code.UNSCHEDULABLE
            return Preemption(code, placing.failure, placements=search.runs)
        found = least_harmful(simulation, search, placing, group, queued, policy)
        if policy.best:
            found = least_costly(search, found)
            if found.gap is None and len({pending.pod_class for pending in queued}) > 1:
                other = _with_alternatives(search, full)
                if other is not None and costs_less(search, other, found):
                    found = other
        return replace(found, placements=search.runs)
    finally:
        simulation.rollback(full)


def _with_alternatives(first: _Search, full: Checkpoint) -> Preemption | None:
    """Return victims of the lowest priorities, the best of several placements; None without any."""
    policy = replace(first.policy, max_placements=_PLACEMENTS)
    search = _Search(
        first.simulation,
        full,
        first.group,
        first.queued,
        policy,
        first.choose,
        first.group.priority,
        first.lost,
    )
    placing = search.lowest()
    if placing.failure is not None:
        return None
    return least_harmful(first.simulation, search, placing, first.group, first.queued, policy)


@dataclass(slots=True)
class _Search:
    """Tries placements without the units below a priority, and chooses victims for them.

    `full`: the state in which no pod was removed. `potential`: units that may be victims when no
    pod is spared. `by_harm`: the lost work counts. `runs`: placements tried.
    """

    simulation: Simulation
    full: Checkpoint
    group: GroupRow
    queued: Sequence[Pending]
    policy: Policy
    choose: Choose
    below: int
    lost: I64 | None
    by_harm: bool = True
    runs: int = 0
    budgets: BudgetMatches | None = None
    potential: Units = field(init=False)
    _levels: int = -1  # priorities to evict for enough capacity, -1: not computed yet
    _cheapest: tuple[I64, Units] | None = None  # the pods spared with it
    _units: Units | None = None
    _spared: I64 = field(default_factory=_NOBODY.copy)
    _empty: Checkpoint | None = None

    def __post_init__(self) -> None:
        """Determine which units may be victims."""
        self.potential = self.units(_NOBODY)

    def units(self, spared: I64, more: frozenset[int] = NONE_WHOLE) -> Units:
        """Return the units that may be victims; `more`: groups that are evicted as a whole, too."""
        present = self.full.present & self.simulation.evictable
        present[spared] = False
        snapshot = self.simulation.snapshot
        lost = self.lost if self.by_harm else None
        return potential_units(snapshot, present, self.below, self.policy, lost=lost, more=more)

    def lowest(self) -> GroupPlacing:
        """Place the preemptor without the units of the lowest priorities alone, from now on."""
        units = self.potential

        def limit(below: int) -> None:
            if below != self.below:
                self.below, self._units = below, None
                self.potential = units.only(units.priority < below)

        def place_below(below: int) -> GroupPlacing:
            limit(below)
            return self.by_scores()

        room, sure = room_for(self.simulation, self.full.used, self.queued)
        needed = self._levels = room.levels(units, self._wanted())
        found = lowest_priority(
            units.priority,
            place_below,
            max(0, needed - 1),
            room_is_all=sure and needed > 0 and not self._within_domains,
        )
        limit(found.priority + 1)
        return found.placing

    @property
    def _within_domains(self) -> bool:
        return self.group.composite or bool(self.group.topology_key)

    def _wanted(self) -> int:
        """Return how many pods have to find a node at least."""
        group = self.group
        if group.composite or group.min_count is None:
            return 1
        there = len(members_of(self.simulation.snapshot, group)) + len(self.simulation.simulated)
        return max(1, group.min_count - there)

    @property
    def weighs(self) -> bool:
        """Whether the victims' harm is more than their order: some lose work, or are idle."""
        lost = self.potential.lost
        return self.by_harm and lost is not None and bool(lost.any())

    def by_scores(self) -> GroupPlacing:
        """Place the preemptor by scores without any of the units."""
        self._without(_NOBODY)
        return self._placed(None, self.choose)

    def otherwise(self) -> Preemption | None:
        """Return victims for members that fit nowhere one after the other; None without any."""
        if self.group.composite or len(self.queued) < 2:
            return None
        every, wanted = self.queued, self._wanted()
        found = found_exactly(self, every)
        if found is None and wanted < len(every):
            few = smallest(self.simulation, every, wanted)
            found = found_exactly(self, [every[index] for index in few])
        return found

    def place(self, within: Mask | None, spared: I64) -> GroupPlacing:
        """Place the preemptor on these nodes, all where None; with `harmOrder` where least is lost.

        Where no work is spared, and it does not fit like that, by scores.
        """
        units = self._without(spared)
        if not self.weighs:
            return self._placed(within, self.choose)
        placing = self._placed(within, least_harm(units, self.choose))
        if placing.failure is not None and within is not None and not len(spared):
            return self._placed(within, self.choose)
        return placing

    def _placed(self, within: Mask | None, choose: Choose) -> GroupPlacing:
        simulation = self.simulation
        self.runs += 1
        placing = place_unit(simulation, self.group, self.queued, self.policy, choose, within)
        assert self._empty is not None
        simulation.rollback(self._empty)
        return placing

    def cheapest(self, spared: I64) -> I64:
        """Return these pods and all others that stay when the cheapest units are evicted."""
        if not self.weighs:
            return _NOBODY
        simulation = self.simulation
        units = self._units_without(spared)
        room = rough_room(simulation, self.full.used, self.queued)
        leaving = cheapest_units(units, room, len(self.queued))
        if leaving.all():
            return _NOBODY
        keep = units.slots_of(~leaving)
        if len(spared):
            keep = np.union1d(spared, keep)
        self._cheapest = (keep, units.only(leaving))
        return keep

    def examine(
        self, placing: GroupPlacing, spared: I64, in_turn: Sequence[Pending] = ()
    ) -> Examined:
        """Return the victims of a placement that was found with these pods spared.

        `in_turn`: the pods in the order of their placement, where that is not their own.
        """
        simulation, policy = self.simulation, self.policy
        units = self._without(spared)
        if not self.by_harm:
            units = replace(units, lost=None)
        members, budgets = self._members(placing, in_turn), self.matches()
        found = _reprieved(simulation, units, members, budgets, policy)
        whole = NONE_WHOLE
        while more := self._torn(found) - whole:
            whole |= more
            units = self.units(spared, whole)
            found = _reprieved(simulation, units, members, budgets, policy)
        harm = set_harm(simulation.snapshot, found, self.lost if self.by_harm else None)
        # A group that cannot be evicted whole because some of its pods are spared.
        return Examined(placing, found, _NEVER if self._torn(found) else harm)

    def empty(self) -> Units:
        """Bring the simulation into the state without all potential victims; return these."""
        return self._without(_NOBODY)

    def domains(self, placed: Mapping[Uid, str]) -> Sequence[Mask | None]:
        """Return the nodes of each domain of the group, those of `placed` first."""
        return domains_of(self.simulation, self.group, placed)

    def proposed(self, proposal: Proposal) -> Preemption | None:
        """Return the victims of a proposal, None where filters refuse it."""
        spared = self.potential.slots_of(~proposal.leaving)
        self._without(spared)
        in_turn = self.queued
        if proposal.order and not self.group.composite:
            in_turn = proposal.in_order(in_turn)
        queued = without_nominations(in_turn)
        choose = proposal.choose(self.choose)
        self.runs += 1
        placing = place_unit(self.simulation, self.group, queued, self.policy, choose)
        assert self._empty is not None
        self.simulation.rollback(self._empty)
        placed = sum(node >= 0 for node in placing.nodes)
        if placing.failure is not None or placed < len(proposal.nodes):
            return None
        examined = self.examine(placing, spared, in_turn)
        return None if examined.harm == _NEVER else examined.found

    def matches(self) -> BudgetMatches:
        """Return which pods are under which budgets."""
        if self.budgets is None:
            self.budgets = budget_matches(self.simulation)
        return self.budgets

    def reach(self, found: Preemption) -> Reach:
        """Return how far the victims reach."""
        return reach_of(self.simulation.snapshot, found, self.matches())

    def goes_least(self, examined: Examined) -> bool:
        """Return whether it is certain that no victims for the preemptor reach less far."""
        units = self.potential
        if examined.harm == _NEVER or examined.found.violating or not own_priorities(units):
            return False
        reach, levels = self.reach(examined.found), np.unique(units.priority)
        if reach.least(int(levels[0])):
            return True
        if self._levels < 0:
            room, _ = room_for(self.simulation, self.full.used, self.queued)
            self._levels = room.levels(units, self._wanted())
        return 0 < self._levels <= len(levels) and reach.least(int(levels[self._levels - 1]))

    def weighed(self, examined: Examined) -> Examined:
        """Return what was found without `by_harm` with the work that it loses."""
        if examined.harm == _NEVER:
            return examined
        harm = set_harm(self.simulation.snapshot, examined.found, self.lost)
        return replace(examined, harm=harm)

    def _torn(self, found: Preemption) -> frozenset[int]:
        if not self.policy.non_uniform_groups:
            return NONE_WHOLE
        return torn_groups(self.simulation.snapshot, self.policy, pods_of(found.victims))

    def homeless(self, examined: Examined) -> int:
        """Return how many pods of the victims would find no other node."""
        members = self._members(examined.placing)
        victims = examined.found.victims
        return homeless(self.simulation, self.full, members, victims, self.choose)

    def _members(self, placing: GroupPlacing, in_turn: Sequence[Pending] = ()) -> Members:
        return [
            (pending, node)
            for pending, node in zip(in_turn or self.queued, placing.nodes, strict=True)
            if node >= 0
        ]

    def _without(self, spared: I64) -> Units:
        """Bring the simulation into the state without the units, and return these."""
        if self._units is None or not np.array_equal(spared, self._spared):
            self.simulation.rollback(self.full)
            self._units = self._units_without(spared)
            self.simulation.remove(self._units.slots())
            self._empty = self.simulation.checkpoint()
            self._spared = spared
        return self._units

    def _units_without(self, spared: I64) -> Units:
        if not len(spared):
            return self.potential
        if self._cheapest is not None and self._cheapest[0] is spared:
            return self._cheapest[1]
        units = self.potential
        number = units.of_slot[spared]
        kept = np.bincount(number[number >= 0], minlength=len(units))
        if ((kept == 0) | (kept == units.size)).all():
            return units.only(kept == 0)
        return self.units(spared)


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
