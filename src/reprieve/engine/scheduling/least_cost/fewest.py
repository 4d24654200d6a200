"""Chooses the least costly victims for members that were placed without all potential victims.

The lowest priority up to which units have to be evicted is found first, then the cheapest of these
units (`covering`), counting the resources that members request, what they allow of one another on a
node (`node_limits`), and the nodes that accept each member while all potential victims are removed.
The result is only a proposal: the members are placed by all filters with exactly these units
removed, and the reprieve decides which of them stay all the same. With a topology constraint each
domain is worked out for itself, and with hard constraints on the numbers of pods in domains each
case (`evenness`).

On more than 64 nodes units for equal members are chosen by what slots cost (`frontier`), and those
for members of several classes on the nodes that are cheapest for the largest ones. What comes of it
is compared with the victims found as kube-scheduler does, so that it is never worse. Source:
KEP-5710, "Future extensions"; specification 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.least_cost.allowances import Allowances
from reprieve.engine.scheduling.least_cost.claimed_room import claims_of
from reprieve.engine.scheduling.least_cost.frontier import Slots, cheapest_nodes, wide
from reprieve.engine.scheduling.least_cost.node_limits import node_limits
from reprieve.engine.scheduling.least_cost.plan_cost import UnitCosts
from reprieve.engine.scheduling.nodes.covered import Cover, Evenness, Instance
from reprieve.engine.scheduling.nodes.covering import CELLS, Effort, cover
from reprieve.engine.scheduling.nodes.evenness import (
    cases_of,
    even_limits,
    in_even_order,
    passing,
)
from reprieve.engine.scheduling.nodes.needs import Needs, room_of
from reprieve.engine.scheduling.nodes.packing import assigned
from reprieve.engine.scheduling.nodes.placing import Choose
from reprieve.engine.scheduling.victims.units import Units
from reprieve.units.ids import Uid

__all__ = ["Proposal", "Proposals", "without_nominations"]

_DOMAINS: Final = 64  # of a topology constraint that are worked out
_NODES: Final = 64  # on which units are chosen exactly
_CELLS: Final = 1 << 27  # of tables of all cases together
_NONE: Final = 2**62


@dataclass(frozen=True, slots=True)
class Proposal:
    """Units to evict, (units,), and the node of each member.

    `priority`: no units of lower priorities are enough. `least`: and none of these units that cost
    less, -1 where that is not known. `order`: in which members pass one after the other, where it
    matters.
    """

    leaving: Mask
    nodes: Mapping[Uid, int]
    priority: int
    cost: int
    least: int
    order: tuple[Uid, ...] = ()

    def choose(self, otherwise: Choose) -> Choose:
        """Return a way to choose the nodes of the proposal, `otherwise` where one is refused."""

        def chosen(simulation: Simulation, pending: Pending, nodes: I64) -> int:
            node = self.nodes.get(pending.row.uid, -1)
            place = nodes.searchsorted(node).item()  # in ascending order
            there = place < len(nodes) and nodes.item(place) == node
            return node if there else otherwise(simulation, pending, nodes)

        return chosen

    def in_order(self, queued: Sequence[Pending]) -> list[Pending]:
        """Return pods in the order in which they pass one after the other."""
        rank = {uid: place for place, uid in enumerate(self.order)}
        return sorted(queued, key=lambda pending: rank.get(pending.row.uid, len(rank)))


def without_nominations(queued: Sequence[Pending]) -> Sequence[Pending]:
    """Return the pods as if none were nominated: they are placed where they are proposed."""
    if not any(pending.row.nominated for pending in queued):
        return queued
    return [replace(each, row=replace(each.row, nominated="")) for each in queued]


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
        passes = np.array([passing(simulation, pending) for pending in needs.classes])
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
        self.evens = [] if self.large else even_limits(simulation, needs, slots, passes)
        counted = [each.constraint for each in self.evens]
        self.limits = limits = node_limits(simulation, needs, slots, passes, counted)
        if limits is not None:
            self.amounts = np.hstack((self.amounts, limits.amounts))
            self.frees = np.hstack((self.frees, limits.frees))
            self.total = np.array(needs.counts, np.int64) @ self.amounts
        self.costs = np.zeros(len(units), np.int64)
        self.allowances: Allowances | None = None
        self.more = len(domains) > _DOMAINS  # than are worked out
        self.left = _CELLS  # of tables, for all that is worked out
        self.lowest = _NONE  # priority of the cases worked out so far: others may be no higher
        # The lowest priority that is enough, and what its units cost at least, -1: not known.
        self.bound = (-_NONE, -1)

    def at_cost(self, costs: UnitCosts, allowances: Allowances | None = None) -> Iterator[Proposal]:
        """Yield the proposal of each domain, the least costly first.

        `allowances`: of the budgets that count, where units are chosen exactly.
        """
        self.costs, self.allowances = costs.cost, allowances
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

    def _solved(self, passes: Mask, case: tuple[int, ...] = ()) -> Proposal | None:
        """Return the cheapest units of the lowest priority for which members fit, if any do.

        `case`: of each constraint on the numbers of pods in domains.
        """
        useful = np.flatnonzero(passes.any(axis=0))
        if not len(useful):
            return None
        for even in self.evens:
            # What leaves any node of a domain counts.
            useful = np.union1d(useful, self.node_of[even.matched])
        if len(useful) <= _NODES or not (self.amounts > 0).any():
            return self._exact(useful, passes, case, sure=True)
        if len(self.needs.classes) == 1 and not self.evens:
            return self._wide(passes[0])
        largest = int((self.amounts / np.maximum(self.total, 1)).max(axis=1).argmax())
        nodes = cheapest_nodes(self._slots(largest, passes[largest]), _NODES)
        return self._exact(nodes, passes, case, sure=False) if len(nodes) else None

    def _proposed(self, passes: Mask) -> Iterator[tuple[Proposal, bool]]:
        """Yield proposals on these nodes, and whether each one's bound is one of all plans there.

        Of several cases, one of which holds for each plan, all bounds are yielded.
        """
        cases, more = cases_of(self.evens)
        resources = self.free
        self.lowest = _NONE
        for limit in (None,) if self.limits is None else self.limits.cases:
            if limit is not None:
                self.free = np.hstack((resources, limit.free))
            try:
                found = [self._solved(passes, case) for case in cases]
            finally:
                self.free = resources
            for proposal in found:
                if proposal is not None:
                    yield (
                        replace(proposal, least=-1) if more else proposal,
                        limit is None or limit.bounds,
                    )

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

    def _exact(
        self, chosen: I64, passes: Mask, case: tuple[int, ...], *, sure: bool
    ) -> Proposal | None:
        """Return the proposal on these nodes; `sure`: they are all that could be of use."""
        levels = np.unique(self.units.priority[self.units.priority <= self.lowest]).tolist()
        low, high = 0, len(levels) - 1
        if self.left <= 0:
            self.more = True
            return None
        effort = self._effort()
        if self._covered(chosen, passes, levels[high], case, effort, priced=False) is None:
            self.more |= effort.cut
            return None
        while low < high:
            middle = (low + high) // 2
            effort = self._effort()
            if self._covered(chosen, passes, levels[middle], case, effort, priced=False) is None:
                low, sure = middle + 1, sure and not effort.cut
            else:
                high = middle
        found = self._covered(chosen, passes, levels[low], case, self._effort(), priced=True)
        if found is None:
            return None
        self.lowest = levels[low]
        leaving = np.zeros(len(self.units), np.bool_)
        leaving[list(found.units)] = True
        at = assigned(self.needs, chosen.tolist(), found.members)
        uids = [pending.row.uid for pending in self.members]
        order: list[Uid] = []
        if self.evens:
            evens = self._even(chosen, levels[low], case)
            turn = in_even_order(evens, self.needs.of, found.members, found.units)
            order = [uids[member] for member, _ in turn]
            for member, place in turn:
                at[member] = int(chosen[place])
        return Proposal(
            leaving,
            dict(zip(uids, at, strict=True)),
            levels[low],
            found.cost,
            found.bound if sure else -1,
            tuple(order),
        )

    def _covered(
        self,
        nodes: I64,
        passes: Mask,
        level: int,
        case: tuple[int, ...],
        effort: Effort,
        *,
        priced: bool,
    ) -> Cover | None:
        """Return the cheapest units up to a priority; not `priced`: any that are enough."""
        parts = self._parts(nodes, level)
        free = self.free[nodes]
        frees: list[dict[int, tuple[int, ...]]] = [{} for _ in nodes]
        # Where pods that leave make a domain emptier not all of them may.
        priced = priced or any(even.matched.any() for even in self.evens)
        those = [part for _, _, part in parts]
        if priced:
            for (at, unit, _), own in zip(parts, self.frees[those].tolist(), strict=True):
                had = frees[at].get(unit, (0,) * len(own))
                frees[at][unit] = tuple(a + b for a, b in zip(had, own, strict=True))
        else:
            free = free.copy()
            np.add.at(free, [at for at, _, _ in parts], self.frees[those])
        limits = self.allowances if priced else None
        before = effort.cells
        found = cover(
            Instance(
                free=[tuple(row) for row in free.tolist()],
                needs=[tuple(row) for row in self.amounts.tolist()],
                counts=self.needs.counts,
                allowed=passes[:, nodes].T.tolist(),
                frees=frees,
                cost=self.costs.tolist(),
                budgets=None if limits is None else limits.on(len(nodes), parts),
                even=[each.on(nodes, parts, at) for each, at in zip(self.evens, case, strict=True)],
            ),
            effort,
        )
        self.left -= before - effort.cells
        return found

    def _effort(self) -> Effort:
        return Effort(max(0, min(CELLS, self.left)))

    def _parts(self, nodes: I64, level: int) -> list[tuple[int, int, int]]:
        """Return the place of the node, the unit and the place of each part up to a priority."""
        place = np.full(len(self.free), -1, np.int64)
        place[nodes] = np.arange(len(nodes))
        at = place[self.node_of]
        there = np.flatnonzero((at >= 0) & (self.units.priority[self.unit_of] <= level))
        found = at[there].tolist(), self.unit_of[there].tolist(), there.tolist()
        return list(zip(*found, strict=True))

    def _even(self, nodes: I64, level: int, case: tuple[int, ...]) -> list[Evenness]:
        parts = self._parts(nodes, level)
        return [each.on(nodes, parts, at) for each, at in zip(self.evens, case, strict=True)]
