"""Chooses the node, and the units on it, where a plain pod costs least.

On each node where the pod fits with all potential victims removed, the lowest priority up to which
units have to be evicted is found, then the cheapest of these units by the resources that the pod
requests, exactly. Of many nodes those are worked out whose victims are the least by
kube-scheduler's rules. The best few are tried with all filters and the reprieve, with no other
victims, and the cheapest of them and of the victims found before is used (`plan_cost`). Source:
KEP-5710, "Future extensions"; specification 8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.least_cost.plan_cost import (
    UnitCosts,
    gap_of,
    plan_cost,
    unit_costs,
    weights_of,
)
from reprieve.engine.scheduling.nodes.covering import Instance, cover
from reprieve.engine.scheduling.nodes.packing import needs_of, room_of
from reprieve.engine.scheduling.outcome import Preemption
from reprieve.engine.scheduling.victims.budgets import BudgetMatches, budget_matches
from reprieve.engine.scheduling.victims.node_by_node import Candidates
from reprieve.engine.scheduling.victims.units import Units

__all__ = ["OnNode", "least_costly_node"]

#: Returns the victims on one node when only evictable pods may be victims.
OnNode: TypeAlias = Callable[[int], Preemption]

_NODES: Final = 64  # that are worked out
_TRIED: Final = 4  # with all filters


def least_costly_node(
    simulation: Simulation,
    pending: Pending,
    candidates: Candidates,
    found: Preemption,
    on_node: OnNode,
) -> Preemption:
    """Return these victims, or others on any of the candidates that cost less."""
    units, snapshot = candidates.units, simulation.snapshot
    budgets, lost = budget_matches(simulation), weights_of(simulation)
    least = plan_cost(snapshot, found, budgets, lost)
    before = simulation.evictable
    parts = units.flat(np.arange(len(units)))
    costs = unit_costs(units, parts, lost, _never_allowed(units, parts, budgets))
    proposals = _proposals(simulation, pending, candidates, costs)
    for priority, _, node, leaving in proposals[:_TRIED]:
        if priority > least[0]:
            break
        gone = np.zeros(len(before), np.bool_)
        gone[units.slots_of(leaving)] = True
        simulation.evictable = before & gone
        other = on_node(node)
        simulation.evictable = before
        if other.code is Code.SUCCESS and other.victims:
            cost = plan_cost(snapshot, other, budgets, lost)
            if cost < least:
                found, least = other, cost
    if costs.budgets:
        # A bound holds whatever budgets state, and those that do not count them are fewer pods.
        costs = unit_costs(units, parts, lost)
        proposals = _proposals(simulation, pending, candidates, costs)
    known = bool(proposals) and len(candidates) <= _NODES
    bound = proposals[0][:2] if known else (0, -1)
    return replace(found, gap=gap_of(least, *bound, costs))


def _proposals(
    simulation: Simulation, pending: Pending, candidates: Candidates, costs: UnitCosts
) -> list[tuple[int, int, int, Mask]]:
    """Return priority, cost, node and units, (units,), of what costs least on each node."""
    units, snapshot = candidates.units, simulation.snapshot
    needs = needs_of(simulation, [pending])
    free = room_of(simulation, needs)
    need = tuple(needs.amounts[0].tolist())
    prices = costs.cost.tolist()
    found = []
    for node in _worth_it(candidates):
        slots = np.flatnonzero((units.of_slot >= 0) & (snapshot.pod_node == node))
        frees: dict[int, tuple[int, ...]] = {}
        amounts = snapshot.pod_requests[slots][:, needs.columns].tolist()
        for unit, own in zip(units.of_slot[slots].tolist(), amounts, strict=True):
            had = frees.get(unit, (0,) * len(own))
            frees[unit] = tuple(a + b for a, b in zip(had, own, strict=True))
        for level in sorted({units.priority.item(unit) for unit in frees}):
            below = {u: own for u, own in frees.items() if units.priority.item(u) <= level}
            here = tuple(free[node].tolist())
            cheapest = cover(Instance([here], [need], (1,), [[True]], [below], prices))
            if cheapest is not None:
                found.append((level, cheapest.cost, node, sorted(cheapest.units)))
                break
    proposals = []
    for level, cost, node, chosen in sorted(found):
        leaving = np.zeros(len(units), np.bool_)
        leaving[chosen] = True
        proposals.append((level, cost, node, leaving))
    return proposals


def _worth_it(candidates: Candidates) -> list[int]:
    """Return the nodes that are worked out: all, or those of the least victims, in order."""
    nodes = candidates.nodes
    if len(nodes) > _NODES:
        units, edges = candidates.units, candidates.edges
        flat, starts = candidates.unit[: edges[-1]], edges[:-1]
        keys = (
            np.add.reduceat(units.size[flat], starts),
            np.maximum.reduceat(units.priority[flat], starts),
        )
        nodes = nodes[np.sort(np.lexsort(keys)[:_NODES])]
    chosen: list[int] = nodes.tolist()
    return chosen


def _never_allowed(units: Units, parts: tuple[I64, I64], budgets: BudgetMatches) -> I64:
    """Return how many pods of each unit are under a budget that allows no disruption: (units,)."""
    slots, place = parts
    labels = units.snapshot.pod_labels[slots]
    found = np.zeros(len(units), np.int64)
    for budget, selected in zip(budgets.budgets, budgets.selected, strict=True):
        if budget.allowed <= 0:
            np.add.at(found, place[np.isin(labels, selected)], 1)
    return found
