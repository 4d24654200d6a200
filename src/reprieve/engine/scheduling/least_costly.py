"""Compares the victims found as kube-scheduler does with those of a search for the least cost.

The search counts no budgets first. Where its victims go beyond what budgets allow it is done once
more: pods under these budgets cost more than anything else, but for as many as each budget allows,
those chosen before first. On many nodes it is done like that at once. What costs least of all that
filters accept is taken (`plan_cost`).
Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import I64, Mask, Pending
from reprieve.engine.placement.simulation import Checkpoint, Simulation
from reprieve.engine.scheduling.budgets import BudgetMatches
from reprieve.engine.scheduling.domains import domains_of
from reprieve.engine.scheduling.fewest import Proposal, Proposals
from reprieve.engine.scheduling.outcome import Preemption
from reprieve.engine.scheduling.plan_cost import plan_cost, unit_costs
from reprieve.engine.scheduling.units import Units

__all__ = ["Search", "least_costly"]


class Search(Protocol):
    """How proposals are made and tried for one preemptor."""

    simulation: Simulation
    full: Checkpoint
    group: GroupRow
    queued: Sequence[Pending]
    lost: I64 | None

    def empty(self) -> Units:
        """Bring the simulation into the state without all potential victims; return these."""
        ...

    def matches(self) -> BudgetMatches:
        """Return which pods are under which budgets."""
        ...

    def proposed(self, proposal: Proposal) -> Preemption | None:
        """Return the victims of a proposal, None where filters refuse it."""
        ...


def least_costly(search: Search, found: Preemption) -> Preemption:
    """Return these victims, or others for the same members that cost less."""
    snapshot, budgets = search.simulation.snapshot, search.matches()
    placed = dict(found.nominated)
    members = [pending for pending in search.queued if pending.row.uid in placed]
    domains = domains_of(search.simulation, search.group, placed)
    least = plan_cost(snapshot, found, budgets, search.lost)
    units = search.empty()
    offered = Proposals(search.simulation, members, units, search.full.used, domains)
    limited = bool(budgets.limited[snapshot.pod_labels[units.slots()]].any())
    broken: I64 | None = None
    if limited and offered.large:
        broken = _beyond(units, np.zeros(len(units), np.bool_), budgets)
    while True:
        again: Mask | None = None
        for proposal in offered.at_cost(unit_costs(units, search.lost, broken)):
            if proposal.priority > least[0]:
                break
            other = search.proposed(proposal)
            if other is None:
                continue
            cost = plan_cost(snapshot, other, budgets, search.lost)
            if cost[2] and broken is None:
                again = proposal.leaving
            if cost < least:
                found, least = other, cost
            break
        if again is None:
            return found
        broken = _beyond(units, again, budgets)


def _beyond(units: Units, first: Mask, budgets: BudgetMatches) -> I64:
    """Return how many pods of each unit cost a budget, (units,): all but those that it allows.

    `first`: (units,) whose pods a budget allows before others.
    """
    snapshot = units.snapshot
    order = np.concatenate((np.flatnonzero(first), np.flatnonzero(~first)))
    slots, place = units.flat(order)
    labels = snapshot.pod_labels[slots]
    broken = np.zeros(len(units), np.int64)
    for budget, selected in zip(budgets.budgets, budgets.selected, strict=True):
        under = np.flatnonzero(np.isin(labels, selected))
        np.add.at(broken, order[place[under[max(0, budget.allowed) :]]], 1)
    return broken
