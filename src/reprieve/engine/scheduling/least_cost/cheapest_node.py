"""Chooses the node, and the units on it, where a plain pod costs least.

On each node where the pod fits with all potential victims removed, the lowest priority up to which
units have to be evicted is found, then the cheapest of these units by the resources that the pod
requests, the devices that it claims and what budgets allow, exactly. Of many nodes those are worked
out whose victims are the least by kube-scheduler's rules. The best few are tried with all filters
and the reprieve, with no other victims, and the cheapest of them and of the victims found before is
used (`plan_cost`). Source: KEP-5710, "Future extensions"; specification 8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.least_cost.allowances import Allowances, allowances
from reprieve.engine.scheduling.least_cost.claimed_room import claimed_room, claims_of
from reprieve.engine.scheduling.least_cost.plan_cost import (
    UnitCosts,
    gap_of,
    plan_cost,
    unit_costs,
    weights_of,
)
from reprieve.engine.scheduling.nodes.covered import Budgets, Instance
from reprieve.engine.scheduling.nodes.covering import Effort, cover
from reprieve.engine.scheduling.nodes.needs import Needs, room_of
from reprieve.engine.scheduling.outcome import Preemption
from reprieve.engine.scheduling.victims.budget_matches import budget_matches
from reprieve.engine.scheduling.victims.node_by_node import Candidates

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
    limits = allowances(units, parts, budgets)
    under = None if limits is None else limits.pods(len(units))
    costs = unit_costs(units, parts, lost, under=under)
    room = _room(simulation, pending, candidates, parts[0])
    proposals, sure = _proposals(room, candidates, costs, limits)
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
    known = bool(proposals) and sure and len(candidates) <= _NODES
    bound = proposals[0][:2] if known else (0, -1)
    return replace(found, gap=gap_of(least, *bound, costs))


@dataclass(frozen=True, slots=True)
class _Room:
    """Capacity for the pod: `need` (amounts,), `free` (nodes, amounts) with all units there.

    `frees`: (parts, amounts) what each pod of a unit frees on its node.
    """

    need: I64
    free: I64
    frees: I64


def _room(simulation: Simulation, pending: Pending, candidates: Candidates, slots: I64) -> _Room:
    """Return the capacity for a pod; `slots`: of the pods of all units."""
    snapshot = simulation.snapshot
    needs = Needs(simulation, [pending], partial(claims_of, simulation))
    need, free = needs.amounts[0], room_of(simulation, needs)
    frees = snapshot.pod_requests.take(slots, axis=0)[:, needs.columns]
    for each in claimed_room(simulation, needs, slots):
        held = np.zeros(len(free), np.int64)
        np.add.at(held, snapshot.pod_node[slots], each.frees)
        need = np.append(need, each.amounts)
        free = np.column_stack((free, each.most - held))
        frees = np.column_stack((frees, each.frees))
    return _Room(need, free, frees)


def _proposals(
    room: _Room, candidates: Candidates, costs: UnitCosts, limits: Allowances | None
) -> tuple[list[tuple[int, int, int, Mask]], bool]:
    """Return priority, cost, node and units, (units,), of what costs least on each node.

    The last value: nothing costs less.
    """
    units = candidates.units
    slots, unit_of = units.flat(np.arange(len(units)))
    node_of = units.snapshot.pod_node[slots]
    prices = costs.cost.tolist()
    found, sure = [], True
    for node in _worth_it(candidates):
        parts = np.flatnonzero(node_of == node)
        frees: dict[int, tuple[int, ...]] = {}
        for unit, own in zip(unit_of[parts].tolist(), room.frees[parts].tolist(), strict=True):
            had = frees.get(unit, (0,) * len(own))
            frees[unit] = tuple(a + b for a, b in zip(had, own, strict=True))
        for level in sorted({units.priority.item(unit) for unit in frees}):
            below = {u: own for u, own in frees.items() if units.priority.item(u) <= level}
            instance = Instance(
                [tuple(room.free[node].tolist())],
                [tuple(room.need.tolist())],
                (1,),
                [[True]],
                [below],
                prices,
                None if limits is None else _budgets(limits, below, costs.beyond),
            )
            effort = Effort()
            cheapest = cover(instance, effort)
            sure &= not effort.cut
            if cheapest is not None:
                found.append((level, cheapest.cost, node, sorted(cheapest.units)))
                break
    proposals = []
    for level, cost, node, chosen in sorted(found):
        leaving = np.zeros(len(units), np.bool_)
        leaving[chosen] = True
        proposals.append((level, cost, node, leaving))
    return proposals, sure


def _budgets(limits: Allowances, units: Collection[int], beyond: int) -> Budgets | None:
    """Return what budgets allow of these units, which may have pods on other nodes, too."""
    parts = np.flatnonzero(np.isin(limits.unit, list(units)))
    going = limits.under[parts].sum(axis=0)  # the pods on other nodes too
    chosen: list[int] = np.flatnonzero(going > limits.allowed).tolist()
    limits = replace(limits, chosen=(), cost=beyond)
    while chosen and not limits.can_count(chosen):
        # The one that allows most is the least likely to be exceeded.
        chosen.remove(max(chosen, key=lambda each: int(limits.allowed[each])))
    limits = replace(limits, chosen=tuple(chosen))
    return limits.on(1, [(0, int(limits.unit[part]), part) for part in parts.tolist()])


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
