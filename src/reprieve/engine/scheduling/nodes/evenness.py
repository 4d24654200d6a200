"""Hard constraints of members on the numbers of pods in domains, as `covering` counts them.

Counted are spread constraints that all members have and match, and terms of anti-affinity that all
have against themselves, over domains of several nodes. A spread constraint allows a domain that
gets a member `maxSkew` more pods than the emptiest one has in the end: members can be placed in an
order in which each of them passes, the domain with the fewest pods first. There is one case for
each number that the emptiest domain may have; a term of anti-affinity allows one pod. Of several
constraints over domains of several nodes the first is counted. Source: specification 21.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.rows import PodClass, SpreadConstraint
from reprieve.engine.cluster.snapshot import Flag, Pending
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.placement.filters.spread import SpreadConstraintCounts, SpreadFilter
from reprieve.engine.placement.reasons import Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.covered import Evenness, Pattern
from reprieve.engine.scheduling.nodes.needs import MANY, Needs, room_of

__all__ = [
    "Even",
    "cases_of",
    "even_limits",
    "in_even_order",
    "passing",
    "room_for_members",
]

_CASES: Final = 32  # that are worked out


@dataclass(frozen=True, slots=True)
class Even:
    """One constraint. `cases`: least and most pods of a domain; each plan is allowed by one.

    `domain`: (nodes,), -1 where pods do not count. `held`: by domain, with all units there.
    `matched`: (parts,) whether the pods of units count. `constraint`: None for anti-affinity.
    """

    domain: I64
    held: Mapping[int, int]
    matched: Mask
    cases: Sequence[tuple[int, int]]
    constraint: SpreadConstraint | None

    @property
    def is_wide(self) -> bool:
        """Return whether a domain has several nodes."""
        return int((self.domain >= 0).sum()) > len(np.unique(self.domain[self.domain >= 0]))

    def on(self, nodes: I64, parts: Sequence[tuple[int, int, int]], case: int) -> Evenness:
        """Return it on these nodes; `parts`: place of the node, unit and place of each part."""
        least, most = self.cases[case]
        matched: list[dict[int, int]] = [{} for _ in nodes]
        for at, unit, part in parts:
            if self.matched[part]:
                matched[at][unit] = matched[at].get(unit, 0) + 1
        return Evenness(self.domain[nodes].tolist(), self.held, matched, least, most)


def cases_of(evens: Sequence[Even]) -> tuple[list[tuple[int, ...]], bool]:
    """Return which case of each constraint there may be, and whether there are more than these."""
    every = product(*(range(len(each.cases)) for each in evens))
    cases = list(islice(every, _CASES))
    return cases, next(every, None) is not None


def passing(simulation: Simulation, pending: Pending) -> Mask:
    """Return where a member may be placed, whatever spread constraints state: (nodes,)."""
    codes = simulation.codes(pending)
    passes: Mask = codes == 0
    others = [each for each in simulation.filters(pending) if not isinstance(each, SpreadFilter)]
    for node in np.flatnonzero(codes == int(Rejection.SPREAD_SKEW)).tolist():
        passes[node] = not any(each.code_at(node) for each in others)
    return passes


def even_limits(simulation: Simulation, needs: Needs, slots: I64, passes: Mask) -> list[Even]:
    """Return the constraints that are counted.

    Args:
        simulation: without all units.
        needs: of the members.
        slots: of the pods of all units.
        passes: (classes, nodes) which nodes accept a member of a class (`passing`).
    """
    found = [
        *_spread(simulation, needs, slots, passes),
        *_anti_affinity(simulation, needs, slots),
    ]
    wide = [each for each in found if each.is_wide]
    return [each for each in found if each not in wide[1:]]


def _spread(simulation: Simulation, needs: Needs, slots: I64, passes: Mask) -> Iterator[Even]:
    constraints: dict[SpreadConstraint, list[SpreadConstraintCounts]] = {}
    for pending in needs.classes:
        for each in simulation.filters(pending):
            if isinstance(each, SpreadFilter):
                for counts in each.constraints:
                    constraints.setdefault(counts.constraint, []).append(counts)
    for constraint, every in constraints.items():
        counts = every[0]
        matching = all(counts.matching[pending.labels] for pending in needs.classes)
        matching &= all(np.array_equal(each.eligible, counts.eligible) for each in every)
        if len(every) == len(needs.classes) and matching and counts.existing and counts.own:
            yield _of_spread(simulation, needs, constraint, counts, slots, passes)


def _of_spread(
    simulation: Simulation,
    needs: Needs,
    constraint: SpreadConstraint,
    counts: SpreadConstraintCounts,
    slots: I64,
    passes: Mask,
) -> Even:
    snapshot, existing = simulation.snapshot, counts.existing
    counted = counts.eligible & (counts.domain_of_node >= 0)
    domain = np.where(counted, counts.domain_of_node, -1).astype(np.int64)
    nodes = snapshot.pod_node[slots]
    matched = counts.matching[snapshot.pod_labels[slots]] & (domain[nodes] >= 0)
    matched &= (snapshot.pod_flags[slots] & Flag.DELETING) == 0
    held = counts.counts[:existing] + np.bincount(domain[nodes[matched]], minlength=existing)
    room = np.zeros(existing, np.int64)
    np.add.at(room, domain[counted], room_for_members(simulation, needs, passes)[counted])
    members = sum(needs.counts)
    emptiest = min(int((held + room).min()), (int(held.sum()) + members) // existing)
    if existing < constraint.min_domains:
        emptiest = 0
    # Where pods that run count few of them have to leave: the highest numbers come first.
    cases = [(least, least + constraint.max_skew) for least in range(emptiest, -1, -1)]
    return Even(domain, dict(enumerate(held.tolist())), matched, cases, constraint)


def _anti_affinity(simulation: Simulation, needs: Needs, slots: I64) -> Iterator[Even]:
    snapshot, selection = simulation.snapshot, selection_of(simulation)
    entries: list[PodClass | None] = [snapshot.classes[each.pod_class] for each in needs.classes]
    first = entries[0]
    for term in () if first is None else first.anti_affinity:
        matching = selection.pods_of_term(term)
        domain = selection.domains(term.topology_key).numbers.astype(np.int64)
        there = domain[domain >= 0]
        alike = all(entry is not None and term in entry.anti_affinity for entry in entries)
        own = all(matching[pending.labels] for pending in needs.classes)
        if len(there) == len(np.unique(there)) or not alike or not own:
            continue  # nodes alone are counted as capacity (`node_limits`)
        nodes = snapshot.pod_node[slots]
        matched = matching[snapshot.pod_labels[slots]] & (domain[nodes] >= 0)
        held = dict.fromkeys(np.unique(there).tolist(), 0)
        there_now = np.flatnonzero(matching[snapshot.pod_labels] & simulation.present)
        for node in [*snapshot.pod_node[there_now].tolist(), *nodes[matched].tolist()]:
            if domain[node] >= 0:
                held[int(domain[node])] += 1
        yield Even(domain, held, matched, [(0, 1)], None)


def room_for_members(simulation: Simulation, needs: Needs, passes: Mask) -> I64:
    """Return how many members each node fits at most: (nodes,)."""
    free, most = room_of(simulation, needs), np.zeros(passes.shape[1], np.int64)
    for row, amounts in enumerate(needs.amounts):
        asked = amounts > 0
        fit = np.full(len(most), MANY, np.int64)
        if asked.any():
            fit = np.floor_divide(free[:, asked], amounts[asked]).min(axis=1)
        most = np.maximum(most, np.where(passes[row], np.clip(fit, 0, MANY), 0))
    return most


def in_even_order(
    evens: Sequence[Evenness],
    of: Sequence[int],
    members: Sequence[Pattern],
    gone: frozenset[int],
) -> list[tuple[int, int]]:
    """Return each member with the place of its node, in the order in which they are placed.

    Each time one in the domains that have the fewest pods. `of`: the class of each member.
    `members`: of each class by node. `gone`: units that are evicted.
    """
    pods = []
    for even in evens:
        held = dict(even.held)
        for number, units in zip(even.domain, even.matched, strict=True):
            for unit in gone & units.keys():
                held[number] -= units[unit]
        pods.append(held)
    waiting: dict[int, list[int]] = {}
    for member, row in enumerate(of):
        waiting.setdefault(row, []).append(member)
    left = [
        (row, node)
        for node, pattern in enumerate(members)
        for row, count in enumerate(pattern)
        for _ in range(count)
    ]
    placed: list[tuple[int, int]] = []
    while left:

        def fewest(place: tuple[int, int]) -> tuple[tuple[int, ...], int]:
            row, node = place
            own = (held.get(even.domain[node], -1) for even, held in zip(evens, pods, strict=True))
            return tuple(own), waiting[row][0]

        row, node = min(left, key=fewest)
        left.remove((row, node))
        placed.append((waiting[row].pop(0), node))
        for even, held in zip(evens, pods, strict=True):
            if even.domain[node] >= 0:
                held[even.domain[node]] += 1
    return placed
