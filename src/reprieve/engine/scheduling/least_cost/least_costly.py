"""Compares the victims found as kube-scheduler does with those of a search for the least cost.

The search counts no budgets first. Where its victims exceed what budgets allow it is done once
more with these budgets (`allowances`), until no others are exceeded. Where there are too many cases
pods under budgets cost more than anything else, but for as many as each budget allows, those
chosen before first. On many nodes it is done like that at once. The cheapest result that filters
accept is used (`plan_cost`).
Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.simulation import Checkpoint, Simulation
from reprieve.engine.scheduling.least_cost.allowances import allowances
from reprieve.engine.scheduling.least_cost.fewest import Proposal, Proposals
from reprieve.engine.scheduling.least_cost.plan_cost import (
    gap_of,
    plan_cost,
    unit_costs,
    weights_of,
)
from reprieve.engine.scheduling.outcome import Preemption
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches
from reprieve.engine.scheduling.victims.units import Units, stable_order
from reprieve.units.ids import Uid

__all__ = ["Search", "costs_less", "found_exactly", "least_costly"]

_NEVER: Final = 1 << 62  # a priority above all


class Search(Protocol):
    """How proposals are made and tried for one preemptor."""

    simulation: Simulation
    full: Checkpoint
    queued: Sequence[Pending]

    def empty(self) -> Units:
        """Bring the simulation into the state without all potential victims; return these."""
        ...

    def matches(self) -> BudgetMatches:
        """Return which pods are under which budgets."""
        ...

    def domains(self, placed: Mapping[Uid, str]) -> Sequence[Mask | None]:
        """Return the nodes of each domain to place members in, those of `placed` first."""
        ...

    def proposed(self, proposal: Proposal) -> Preemption | None:
        """Return the victims of a proposal, None where filters refuse it."""
        ...


def least_costly(search: Search, found: Preemption) -> Preemption:
    """Return these victims, or others for the same members that cost less."""
    placed = dict(found.nominated)
    members = [pending for pending in search.queued if pending.row.uid in placed]
    best = _searched(search, members, found)
    assert best is not None, "at least those that were found"
    return best


def found_exactly(search: Search, members: Sequence[Pending]) -> Preemption | None:
    """Return the least costly victims for members that fit nowhere one after the other, if any."""
    return _searched(search, members, None)


def _searched(
    search: Search, members: Sequence[Pending], found: Preemption | None
) -> Preemption | None:
    """Return the least costly victims; `found`: those to which they are compared."""
    snapshot, budgets = search.simulation.snapshot, search.matches()
    weights = weights_of(search.simulation)
    domains = search.domains({} if found is None else dict(found.nominated))
    least = (_NEVER,) if found is None else plan_cost(snapshot, found, budgets, weights)
    units = search.empty()
    parts = units.flat(np.arange(len(units)))
    offered = Proposals(search.simulation, members, units, parts, search.full.used, domains)
    limits, broken = None, None
    if budgets.limited[snapshot.pod_labels[parts[0]]].any():
        if offered.large:
            broken = _beyond(units, parts, np.zeros(len(units), np.bool_), budgets)
        else:
            limits = allowances(units, parts, budgets)
    under = None if limits is None else limits.pods(len(units))
    counted = costs = unit_costs(units, parts, weights, broken, under)
    bound = offered.bound
    while True:
        again: Mask | None = None
        exact = limits if broken is None else None
        for proposal in offered.at_cost(costs, exact):
            if proposal.priority > least[0]:
                break
            other = search.proposed(proposal)
            if other is None:
                continue
            cost = plan_cost(snapshot, other, budgets, weights)
            if cost[2] and broken is None:
                again = proposal.leaving
            if cost < least:
                found, least = other, cost
            break
        if broken is None:
            bound = offered.bound  # it holds whatever other budgets state
        more = [] if again is None or limits is None else limits.exceeded(again)
        if again is None or limits is None or not more:
            return None if found is None else replace(found, gap=gap_of(least, *bound, counted))
        if limits.can_count(more):
            limits = replace(limits, chosen=(*limits.chosen, *more), cost=costs.beyond)
        else:
            broken = _beyond(units, parts, again, budgets)
            costs = unit_costs(units, parts, weights, broken)


def costs_less(search: Search, other: Preemption, found: Preemption) -> bool:
    """Return whether other victims cost less than those found, for no fewer members."""
    if len(other.nominated) < len(found.nominated):
        return False
    snapshot, budgets = search.simulation.snapshot, search.matches()
    weights = weights_of(search.simulation)
    cost = plan_cost(snapshot, other, budgets, weights)
    return cost < plan_cost(snapshot, found, budgets, weights)


def _beyond(units: Units, parts: tuple[I64, I64], first: Mask, budgets: BudgetMatches) -> I64:
    """Return how many pods of each unit cost a budget, (units,): all but those that it allows.

    `parts`: the slots of all units, and each one's unit. `first`: (units,) whose pods a budget
    allows before others. A pod counts for the first of its budgets.
    """
    slots, place = parts
    labels = units.snapshot.pod_labels[slots]
    hit = np.flatnonzero(budgets.limited[labels])
    budget = budgets.first[labels[hit]]
    order = stable_order(2 * budget + ~first[place[hit]], 2 * len(budgets.budgets))
    hit, budget = hit[order], budget[order]
    rank = np.arange(len(hit)) - np.searchsorted(budget, budget)
    allowed = np.array([each.allowed for each in budgets.budgets], np.int64)
    over = place[hit[rank >= allowed[budget]]]
    return np.bincount(over, minlength=len(units)).astype(np.int64)
