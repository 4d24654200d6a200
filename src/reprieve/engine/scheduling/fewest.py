"""Chooses the least costly victims for members that were placed with all potential victims gone.

The lowest priority up to which units have to be evicted is found first, then the cheapest of these
units (`covering`), counting the resources that members ask for and the nodes that take each member
while all potential victims are gone. The result is only a proposal: the members are placed by all
filters with exactly these units gone, and the reprieve decides who of them stays all the same. With
a topology constraint each domain is worked out for itself.

On too many nodes nothing is searched (`frontier`). What comes of it is compared with the victims
found as kube-scheduler does, so that it is never worse. Source: KEP-5710, "Future extensions";
specification 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from reprieve.engine.cluster.snapshot import I64, Mask, Pending
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.covering import Cover, Instance, cover
from reprieve.engine.scheduling.frontier import promising
from reprieve.engine.scheduling.packing import Needs, assigned, room_of
from reprieve.engine.scheduling.placing import Choose
from reprieve.engine.scheduling.plan_cost import UnitCosts
from reprieve.engine.scheduling.units import Units
from reprieve.units.ids import Uid

__all__ = ["Proposal", "proposals", "without_nominations"]

_DOMAINS: Final = 64  # of a topology constraint that are worked out


@dataclass(frozen=True, slots=True)
class Proposal:
    """Units to evict, (units,), and the node of each member.

    `priority`: no units of lower priorities are enough. `least`: and none of these units that cost
    less, -1 where that is not known. `whole`: the proposal was worked out on all nodes.
    """

    leaving: Mask
    nodes: Mapping[Uid, int]
    priority: int
    cost: int
    least: int

    def choose(self, otherwise: Choose) -> Choose:
        """Return a way to choose the nodes of the proposal, `otherwise` where one is refused."""

        def chosen(simulation: Simulation, pending: Pending, nodes: I64) -> int:
            node = self.nodes.get(pending.row.uid, -1)
            return node if node in nodes else otherwise(simulation, pending, nodes)

        return chosen


def without_nominations(queued: Sequence[Pending]) -> Sequence[Pending]:
    """Return the pods as if none were nominated: they are placed where they are proposed."""
    if not any(pending.row.nominated for pending in queued):
        return queued
    return [replace(each, row=replace(each.row, nominated="")) for each in queued]


def proposals(
    simulation: Simulation,
    members: Sequence[Pending],
    units: Units,
    costs: UnitCosts,
    used: I64,
    domains: Sequence[Mask | None],
) -> Iterator[Proposal]:
    """Yield the proposal of each domain, the least costly first.

    The simulation is without all units. `members`: those that are to be placed. `used`: (nodes,
    resources) with all units there. `domains`: (nodes,) each, None for all nodes.
    """
    needs = Needs(simulation, members)
    passes = np.array([simulation.codes(pending) == 0 for pending in needs.classes])
    problem = _Problem(needs, units, costs, room_of(simulation, needs, used))
    found = []
    for number, domain in enumerate(domains[:_DOMAINS]):
        proposal = problem.solved(passes if domain is None else passes & domain, members)
        if proposal is not None:
            found.append((proposal.priority, proposal.cost, number, proposal))
    for _, _, _, proposal in sorted(found, key=lambda each: each[:3]):
        yield proposal


class _Problem:
    """What is free with all units there, and what each unit frees where."""

    def __init__(self, needs: Needs, units: Units, costs: UnitCosts, free: I64) -> None:
        snapshot = units.snapshot
        self.needs, self.units, self.costs = needs, units, costs
        total = np.array(needs.counts, np.int64) @ needs.amounts
        # A resource of which every node has enough for all members decides nothing.
        scarce = (free < total).any(axis=0)
        self.amounts = needs.amounts[:, scarce]
        self.free = free[:, scarce]
        self.total = total[scarce]
        slots, place = units.flat(np.arange(len(units)))
        requests = snapshot.pod_requests.take(slots, axis=0)[:, needs.columns[scarce]]
        self.unit_of = place
        self.node_of = snapshot.pod_node[slots].astype(np.int64)
        self.frees = requests

    def solved(self, passes: Mask, members: Sequence[Pending]) -> Proposal | None:
        """Return the cheapest units of the lowest priority for which members fit, if any do."""
        chosen, sure = promising(
            self.amounts,
            self.needs.counts,
            self.free,
            passes,
            (self.unit_of, self.node_of, self.frees),
            (self.units.priority, np.array(self.costs.cost, np.int64)),
        )
        if not len(chosen):
            return None
        levels = np.unique(self.units.priority).tolist()
        low, high = 0, len(levels) - 1
        if self._covered(chosen, passes, levels[high], priced=False) is None:
            return None
        while low < high:
            middle = (low + high) // 2
            if self._covered(chosen, passes, levels[middle], priced=False) is None:
                low = middle + 1
            else:
                high = middle
        found = self._covered(chosen, passes, levels[low], priced=True)
        if found is None:
            return None
        leaving = np.zeros(len(self.units), np.bool_)
        leaving[list(found.units)] = True
        at = assigned(self.needs, chosen.tolist(), found.members)
        uids = (pending.row.uid for pending in members)
        return Proposal(
            leaving,
            dict(zip(uids, at, strict=True)),
            levels[low],
            found.cost,
            found.bound if sure else -1,
        )

    def _covered(self, nodes: I64, passes: Mask, level: int, *, priced: bool) -> Cover | None:
        """Return the cheapest units up to a priority; not `priced`: any that are enough."""
        place = np.full(len(self.free), -1, np.int64)
        place[nodes] = np.arange(len(nodes))
        at = place[self.node_of]
        there = (at >= 0) & (self.units.priority[self.unit_of] <= level)
        free = self.free[nodes]
        frees: list[dict[int, tuple[int, ...]]] = [{} for _ in nodes]
        if priced:
            rows = zip(
                self.unit_of[there].tolist(),
                at[there].tolist(),
                self.frees[there].tolist(),
                strict=True,
            )
            for unit, node, amounts in rows:
                had = frees[node].get(unit)
                own = amounts if had is None else [a + b for a, b in zip(had, amounts, strict=True)]
                frees[node][unit] = tuple(own)
        else:
            free = free.copy()
            np.add.at(free, at[there], self.frees[there])
        return cover(
            Instance(
                free=[tuple(row) for row in free.tolist()],
                needs=[tuple(row) for row in self.amounts.tolist()],
                counts=self.needs.counts,
                allowed=passes[:, nodes].T.tolist(),
                frees=frees,
                cost=self.costs.cost,
            )
        )
