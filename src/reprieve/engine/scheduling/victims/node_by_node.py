"""Victims for one pod, tried on one node after the other with whole filters.

The slow and literal form of `node_sweep`, for pods whose filters cannot be derived from a few
counters (required affinity, volume limits, spread over many domains). Pods of a group that run on
other nodes leave the counters, and free no capacity there that the pod could use. Source:
specification 8.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.reasons import Reason
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Explanation, Sentence
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches
from reprieve.engine.scheduling.victims.budgets import violating_pods
from reprieve.engine.scheduling.victims.units import Units

__all__ = ["NO_VICTIMS", "Candidates", "Statuses", "each_node", "joined"]

NO_VICTIMS: Final = Explanation(Sentence.NO_VICTIMS_POD)

_NONE: Final = np.zeros(0, np.int64)

Statuses: TypeAlias = dict[int, tuple[Reason | Explanation, ...]]  # by node


@dataclass(frozen=True, slots=True)
class Candidates:
    """Nodes where the pod fits, in scan order, and for each the units that are evicted.

    `nodes`: (candidates,). The victims of the i-th are `unit[edges[i] : edges[i + 1]]`, most
    important first, and `violating` has as many entries: pods of each that break a budget.
    `statuses`: why other nodes that were examined are none.
    """

    units: Units
    nodes: I64
    edges: I64  # (candidates + 1,)
    unit: I64
    violating: I64
    statuses: Callable[[], Statuses]

    def __len__(self) -> int:
        return len(self.nodes)

    def victims(self, candidate: int) -> tuple[I64, I64]:
        """Return the units of one candidate and how many pods of each break a budget."""
        part = slice(int(self.edges[candidate]), int(self.edges[candidate + 1]))
        return self.unit[part], self.violating[part]


def joined(first: Candidates, second: Candidates) -> Candidates:
    """Return the candidates of both, in scan order; no node is in both."""
    order = np.argsort(np.concatenate((first.nodes, second.nodes)))
    parts = [
        *(first.victims(candidate) for candidate in range(len(first))),
        *(second.victims(candidate) for candidate in range(len(second))),
    ]
    chosen = [parts[index] for index in order.tolist()]
    return Candidates(
        first.units,
        np.concatenate((first.nodes, second.nodes))[order],
        np.cumsum([0, *(len(units) for units, _ in chosen)]),
        np.concatenate([_NONE, *(units for units, _ in chosen)]),
        np.concatenate([_NONE, *(violating for _, violating in chosen)]),
        lambda: {**first.statuses(), **second.statuses()},
    )


def each_node(
    simulation: Simulation, pending: Pending, units: Units, budgets: BudgetMatches, nodes: Mask
) -> Candidates:
    """Return the candidates among `nodes` (nodes,); the simulation is left as it was."""
    on_node = _on_each(units, nodes)
    found: list[tuple[int, I64, I64]] = []
    statuses: Statuses = {}
    for node in np.flatnonzero(nodes).tolist():
        if node not in on_node:
            statuses[node] = (NO_VICTIMS,)
            continue
        own = units.ordered(on_node[node])
        victims = _one_node(simulation, pending, units, own, budgets, node, statuses)
        if victims is not None:
            found.append((node, *victims))
    return Candidates(
        units,
        np.array([node for node, _, _ in found], np.int64),
        np.cumsum([0, *(len(victims) for _, victims, _ in found)]),
        np.concatenate([_NONE, *(victims for _, victims, _ in found)]),
        np.concatenate([_NONE, *(violating for _, _, violating in found)]),
        lambda: statuses,
    )


def _on_each(units: Units, nodes: Mask) -> dict[int, I64]:
    """Return the units that have a pod on each of these nodes, where there are any."""
    slots = units.slots()
    slots = slots[nodes[units.snapshot.pod_node[slots]]]
    count = max(1, len(units))
    packed = units.snapshot.pod_node[slots].astype(np.int64) * count + units.of_slot[slots]
    where, own = np.divmod(np.unique(packed), count)
    found, starts = np.unique(where, return_index=True)
    return dict(zip(found.tolist(), np.split(own, starts[1:]), strict=True)) if len(found) else {}


def _one_node(
    simulation: Simulation,
    pending: Pending,
    units: Units,
    order: I64,
    budgets: BudgetMatches,
    node: int,
    statuses: Statuses,
) -> tuple[I64, I64] | None:
    before = simulation.checkpoint()
    try:
        slots, _ = units.flat(order)
        simulation.remove(slots)
        if simulation.code_at(pending, node):
            statuses[node] = simulation.status_at(pending, node).reasons
            return None
        violating = violating_pods(units, order, budgets)
        gone = np.zeros(len(order), np.bool_)
        turns = np.concatenate((np.flatnonzero(violating > 0), np.flatnonzero(violating == 0)))
        for place in turns.tolist():
            pods = units.pods(int(order[place]))
            simulation.restore(pods)
            if simulation.code_at(pending, node):
                simulation.remove(pods)
                gone[place] = True
        if not gone.any():
            name = simulation.snapshot.nodes[node].name
            statuses[node] = (Explanation(Sentence.EXPECTED_VICTIM, (name,)),)
            return None
        return order[gone], violating[gone]
    finally:
        simulation.rollback(before)
