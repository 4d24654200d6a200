"""Chooses the least costly victims of a job where the profile is `best`.

The placements that were found already are compared first, each with the victims that the reprieve
leaves (`plan_cost`). Then other victims are searched for (`least_costly`): nodes and victims are
proposed together, members are placed there by all filters with exactly these victims removed, and
the reprieve decides which of them stay all the same. The cheapest choice is used, so that it is
never more than without the search. With budgets of mode `Require` a proposal that breaks one is no
choice. Source: KEP-5710, "Future extensions"; specification of gang jobs, 7.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Checkpoint, Simulation
from reprieve.engine.scheduling.gangs.job import Budgets, JobPolicy
from reprieve.engine.scheduling.least_cost.fewest import Proposal, without_nominations
from reprieve.engine.scheduling.least_cost.least_costly import least_costly
from reprieve.engine.scheduling.least_cost.plan_cost import plan_cost, weights_of
from reprieve.engine.scheduling.nodes.packing import place_otherwise
from reprieve.engine.scheduling.outcome import Explanation, Preemption, Sentence
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches
from reprieve.engine.scheduling.victims.reprieve import Reprieved, reprieve
from reprieve.engine.scheduling.victims.trackers import Members
from reprieve.engine.scheduling.victims.units import Units
from reprieve.units.ids import Uid

__all__ = ["Choice", "cheapest", "placed_exactly"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the members are placed, the possible victims then, and the victims.

    `gap`: as in `Preemption`.
    """

    placement: Members
    units: Units
    reprieved: Reprieved
    gap: int | None = None


def cheapest(
    simulation: Simulation,
    full: Checkpoint,
    candidates: Mask,
    matches: BudgetMatches,
    policy: JobPolicy,
    choices: Sequence[Choice],
) -> Choice:
    """Return the choice that costs least, one of these or another one for the same members.

    `full`: all possible victims are there. `candidates`: (nodes,) where members may be placed. The
    simulation is left in any state.
    """
    weights, snapshot = weights_of(simulation), simulation.snapshot
    members = [pending for pending, _ in choices[0].placement]
    units = choices[0].units
    search = _Search(simulation, full, members, candidates, matches, policy, units)
    found = [search.offered(choice) for choice in choices]
    costs = [plan_cost(snapshot, each, matches, weights) for each in found]
    best = least_costly(search, found[costs.index(min(costs))])
    choice = search.made[best.victims, best.nominated]
    return replace(choice, gap=best.gap)


def placed_exactly(
    simulation: Simulation, members: Sequence[Pending], candidates: Mask
) -> list[int] | None:
    """Return a node for each member by an exact search; the simulation is left as it was."""
    before = simulation.checkpoint()
    found = place_otherwise(simulation, members, 0, len(members), _first, candidates)
    simulation.rollback(before)
    return None if found is None else list(found.nodes)


def _first(simulation: Simulation, pending: Pending, nodes: I64) -> int:
    return int(nodes[0])


@dataclass(slots=True)
class _Search:
    """Tries proposals; `made`: what each set of victims was made from."""

    simulation: Simulation
    full: Checkpoint
    queued: Sequence[Pending]
    candidates: Mask
    budgets: BudgetMatches
    policy: JobPolicy
    units: Units
    made: dict[tuple[object, object], Choice] = field(default_factory=dict)

    def offered(self, choice: Choice) -> Preemption:
        """Return a choice as it is compared with others."""
        snapshot, reprieved = self.simulation.snapshot, choice.reprieved
        found = Preemption(
            Code.SUCCESS,
            Explanation(Sentence.FOUND_GROUP, (len(reprieved.victims),)),
            victims=choice.units.victims(reprieved.victims, reprieved.violating),
            nominated=tuple((p.row.uid, snapshot.nodes[node].name) for p, node in choice.placement),
            violating=int(reprieved.violating.sum()),
        )
        self.made[found.victims, found.nominated] = choice
        return found

    def empty(self) -> Units:
        """Bring the simulation into the state without all possible victims; return these."""
        self.simulation.rollback(self.full)
        self.simulation.remove(self.units.slots())
        return self.units

    def matches(self) -> BudgetMatches:
        """Return which pods are under which budgets."""
        return self.budgets

    def domains(self, placed: Mapping[Uid, str]) -> Sequence[Mask | None]:
        """Return the nodes where members may be placed."""
        return [self.candidates]

    def proposed(self, proposal: Proposal) -> Preemption | None:
        """Return the victims of a proposal, None where filters or budgets refuse it."""
        simulation = self.simulation
        units = self.units.only(proposal.leaving)
        simulation.rollback(self.full)
        simulation.remove(units.slots())
        placement = self._placed(proposal)
        if placement is None:
            return None
        reprieved = reprieve(
            simulation,
            units,
            placement,
            self.budgets,
            second_pass=simulation.policy.second_reprieve_pass,
        )
        if self.policy.budgets is Budgets.REQUIRE and reprieved.violating.any():
            return None
        return self.offered(Choice(placement, units, reprieved))

    def _placed(self, proposal: Proposal) -> Members | None:
        """Return where the members fit if all filters accept it; they are not in the simulation."""
        simulation = self.simulation
        before = simulation.checkpoint()
        waiting = list(zip(self.queued, without_nominations(self.queued), strict=True))
        while waiting:
            later = []
            for pending, free in waiting:
                node = proposal.nodes[pending.row.uid]
                if simulation.code_at(free, node):
                    later.append((pending, free))  # one may need another that comes later
                else:
                    simulation.place(free, node)
            if len(later) == len(waiting):
                break
            waiting = later
        simulation.rollback(before)
        if waiting:
            return None
        return [(pending, proposal.nodes[pending.row.uid]) for pending in self.queued]
