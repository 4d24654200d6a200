"""Chooses the least costly victims for members that were placed without all potential victims.

The lowest priority up to which units have to be evicted is found first, then the cheapest of these
units (`covering`), counting the resources that members request, what they allow of one another on a
node (`node_limits`), and the nodes that accept each member while all potential victims are removed.
The result is only a proposal: the members are placed by all filters with exactly these units
removed, and the reprieve decides which of them stay all the same. With a topology constraint each
domain is worked out for itself.

On more than 64 nodes units for equal members are chosen by what slots cost (`frontier`), and those
for members of several classes on the nodes that are cheapest for the largest ones. What comes of it
is compared with the victims found as kube-scheduler does, so that it is never worse. Source:
KEP-5710, "Future extensions"; specification 7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.least_cost.claimed_room import claims_of
from reprieve.engine.scheduling.least_cost.frontier import Slots, cheapest_nodes, wide
from reprieve.engine.scheduling.least_cost.node_limits import node_limits
from reprieve.engine.scheduling.least_cost.plan_cost import UnitCosts
from reprieve.engine.scheduling.nodes.covering import Cover, Instance, cover
from reprieve.engine.scheduling.nodes.packing import Needs, assigned, room_of
from reprieve.engine.scheduling.nodes.placing import Choose
from reprieve.engine.scheduling.victims.units import Units
from reprieve.units.ids import Uid

__all__ = ["Proposal", "Proposals", "without_nominations"]

_DOMAINS: Final = 64  # of a topology constraint that are worked out
_NODES: Final = 64  # on which units are chosen exactly
_NONE: Final = 2**62


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
            place = nodes.searchsorted(node).item()  # in ascending order
            there = place < len(nodes) and nodes.item(place) == node
            return node if there else otherwise(simulation, pending, nodes)

        return chosen


def without_nominations(queued: Sequence[Pending]) -> Sequence[Pending]:
    """Return the pods as if none were nominated: they are placed where they are proposed."""
    if not any(pending.row.nominated for pending in queued):
        return queued
    return [replace(each, row=replace(each.row, nominated="")) for each in queued]


def in_rounds(needs: Needs, nodes: Sequence[int], members: Sequence[Sequence[int]]) -> list[int]:
    """Return the node of each member, in their order each on the one that has fewest so far.

    `members`: for how many of each class each of these nodes has capacity, at least as many as
    there are. Spread constraints look at the members that came before.
    """
    left: list[Counter[int]] = [Counter() for _ in needs.classes]
    for node, pattern in zip(nodes, members, strict=True):
        for row, count in enumerate(pattern):
            left[row][node] += count
    placed: Counter[int] = Counter()
    found = []
    for row in needs.of:
        node = min((each for each, n in left[row].items() if n), key=lambda e: (placed[e], e))
        left[row][node] -= 1
        placed[node] += 1
        found.append(node)
    return found


class Proposals:
    """What is free with all units there, and what each unit frees where, for members of a group.

    The simulation is without all units when it is made. `used`: (nodes, resources) with all units
    there. `parts`: the slots of all units, and each one's unit. `domains`: (nodes,) each, None for
    all nodes. `large`: too many nodes for exact choices.
    """

    def __init__(
        self,
        simulation: Simulation,
        members: Sequence[Pending],
        units: Units,
        parts: tuple[I64, I64],
        used: I64,
        domains: Sequence[Mask | None],
    ) -> None:
        """Count the resources that members request."""
        snapshot = units.snapshot
        self.members, self.units = members, units
        self.needs = needs = Needs(simulation, members, partial(claims_of, simulation))
        free = room_of(simulation, needs, used)
        passes = np.array([simulation.codes(pending) == 0 for pending in needs.classes])
        self.domains = [
            passes if domain is None else passes & domain for domain in domains[:_DOMAINS]
        ]
        self.large = int(passes.any(axis=0).sum()) > _NODES
        total = np.array(needs.counts, np.int64) @ needs.amounts
        # A resource of which every node has enough for all members decides nothing.
        scarce = (free < total).any(axis=0)
        self.amounts = needs.amounts[:, scarce]
        self.free = free[:, scarce]
        self.total = total[scarce]
        slots, self.unit_of = parts
        self.node_of = snapshot.pod_node[slots].astype(np.int64)
        self.frees = snapshot.pod_requests.take(slots, axis=0)[:, needs.columns[scarce]]
        self.least: I64 | None = None  # (nodes,) members that each has to have
        self.limits = limits = node_limits(simulation, needs, slots, passes)
        if limits is not None:
            self.amounts = np.hstack((self.amounts, limits.amounts))
            self.frees = np.hstack((self.frees, limits.frees))
            self.total = np.array(needs.counts, np.int64) @ self.amounts
        self.costs = np.zeros(len(units), np.int64)
        self.more = len(domains) > _DOMAINS  # than are worked out
        # The lowest priority that is enough, and what its units cost at least, -1: not known.
        self.bound = (-_NONE, -1)

    def at_cost(self, costs: UnitCosts) -> Iterator[Proposal]:
        """Yield the proposal of each domain, the least costly first."""
        self.costs = costs.cost
        found, bounding = [], list[Proposal]()
        for number, passes in enumerate(self.domains):
            for proposal, bounds_it in self._proposed(passes):
                found.append((proposal.priority, proposal.cost, number, proposal))
                if bounds_it:
                    bounding.append(proposal)
        if bounding:
            lowest = min(each.priority for each in bounding)
            bounds = [each.least for each in bounding if each.priority == lowest]
            self.bound = lowest, -1 if self.more else min(bounds)
        for _, _, _, proposal in sorted(found, key=lambda each: each[:3]):
            yield proposal

    def _solved(self, passes: Mask) -> Proposal | None:
        """Return the cheapest units of the lowest priority for which members fit, if any do."""
        useful = np.flatnonzero(passes.any(axis=0))
        if not len(useful):
            return None
        if len(useful) <= _NODES or not (self.amounts > 0).any():
            return self._exact(useful, passes, sure=True)
        if len(self.needs.classes) == 1:
            return self._wide(passes[0])
        largest = int((self.amounts / np.maximum(self.total, 1)).max(axis=1).argmax())
        nodes = cheapest_nodes(self._slots(largest, passes[largest]), _NODES)
        return self._exact(nodes, passes, sure=False) if len(nodes) else None

    def _proposed(self, passes: Mask) -> Iterator[tuple[Proposal, bool]]:
        """Yield proposals on these nodes, and whether each one's bound is one of all plans there.

        Of several cases, one of which holds for each plan, all bounds are yielded.
        """
        if self.limits is None:
            proposal = self._solved(passes)
            if proposal is not None:
                yield proposal, True
            return
        resources = self.free
        for case in self.limits.cases:
            self.free, self.least = np.hstack((resources, case.free)), case.least
            try:
                proposal = self._solved(passes)
            finally:
                self.free, self.least = resources, None
            if proposal is not None:
                yield proposal, case.bounds

    def _slots(self, row: int, passes: Mask) -> Slots:
        """Return the capacity for the members of one class."""
        asked = np.flatnonzero(self.amounts[row] > 0)
        return Slots(
            need=self.amounts[row, asked],
            count=self.needs.counts[row],
            free=self.free[:, asked],
            passes=passes,
            unit=self.unit_of,
            node=self.node_of,
            frees=np.asfortranarray(self.frees[:, asked]),
            cost=self.costs,
            priority=self.units.priority,
        )

    def _wide(self, passes: Mask) -> Proposal | None:
        found = wide(self._slots(0, passes))
        if found is None:
            return None
        uids = (pending.row.uid for pending in self.members)
        return Proposal(
            found.leaving,
            dict(zip(uids, found.nodes, strict=True)),
            found.priority,
            found.cost,
            found.bound,
        )

    def _exact(self, chosen: I64, passes: Mask, *, sure: bool) -> Proposal | None:
        """Return the proposal on these nodes; `sure`: they are all that could be of use."""
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
        if self.limits is not None:
            at = in_rounds(self.needs, chosen.tolist(), found.members)
        uids = (pending.row.uid for pending in self.members)
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
        costs: list[int] = self.costs.tolist()
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
                cost=costs,
                least=() if self.least is None else self.least[nodes].tolist(),
            )
        )
