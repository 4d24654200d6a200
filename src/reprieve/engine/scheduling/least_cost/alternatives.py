"""Which placement victims are chosen for, when more than one is examined.

Examined are the best placement, then the other topology domains of the preemptor's constraint, the
best-scored first, then alternatives: those in which one more of the victims of the best so far may
not be evicted, the most important one first. `maxPlacements` bounds their number; with
`topologyPreemption` every feasible domain is examined all the same, and with `harmOrder` the
placement where least is lost, and one where the cheapest units free the capacity. For each all
victims are chosen, and the placement with the least harm is used; the first difference decides:

1. the rules by which a plain pod's node is chosen (specification 8.6), on whole victim sets;
2. with `cascadeAware`: fewest pods of victims that would find no other node without evicting;
3. the order of examination, which is that of the placement scores, then of the domains' names.

With `harmOrder` no plan is used that reaches further than what is found without the option
(`reach`). Where that cannot be decided from the victims alone, the placements are those that are
examined without the option, and the least harmful ones are compared with the best of these if they
reach no further.

Source: KEP-5710, "Future extensions"; specification 5.5, 7.4 and 8.6.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.scores.placements import FeasiblePlacement, placement_scores
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.domains import GroupPlacing, members_of
from reprieve.engine.scheduling.outcome import Preemption, UnitVictim, pods_of
from reprieve.engine.scheduling.victims.reach import Reach

__all__ = ["Examined", "Search", "least_harmful", "set_harm"]

_OFFSET: Final = 2**31
_NONE: Final = -(2**63)
_NOBODY: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Examined:
    """A placement with its victims; `harm` is smaller for the better one."""

    placing: GroupPlacing
    found: Preemption
    harm: tuple[int, ...]


class Search(Protocol):
    """How placements are tried, and victims chosen for one of them.

    `by_harm`: as `harmOrder` wants it, where that is on. `spared`: slots of pods that may not be
    victims. After a call the simulation is without all other potential victims and without the
    preemptor.
    """

    by_harm: bool

    @property
    def weighs(self) -> bool:
        """Whether victims matter besides the order: some lose work, or are idle."""
        ...

    def place(self, within: Mask | None, spared: I64) -> GroupPlacing:
        """Place the preemptor on these nodes, all where None."""
        ...

    def cheapest(self, spared: I64) -> I64:
        """Return these pods and all others that stay when the cheapest units are evicted.

        None at all where all units have to be evicted, or nothing states what is cheap.
        """
        ...

    def examine(self, placing: GroupPlacing, spared: I64) -> Examined:
        """Return the victims of a placement that was found with these pods spared."""
        ...

    def homeless(self, examined: Examined) -> int:
        """Return how many pods of the victims would find no other node."""
        ...

    def reach(self, found: Preemption) -> Reach:
        """Return how far the victims reach."""
        ...

    def goes_least(self, examined: Examined) -> bool:
        """Return whether it is certain that no victims for the preemptor reach less far."""
        ...

    def weighed(self, examined: Examined) -> Examined:
        """Return what was found without `by_harm` with the work that it loses."""
        ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """The preemptor; `first`: the best-scored placement."""

    simulation: Simulation
    search: Search
    first: GroupPlacing
    group: GroupRow
    queued: Sequence[Pending]
    policy: Policy


def least_harmful(
    simulation: Simulation,
    search: Search,
    first: GroupPlacing,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
) -> Preemption:
    """Return the victims of the placement that does the least harm; `first`: the best-scored."""
    asked = _Asked(simulation, search, first, group, queued, policy)
    if search.weighs:
        return _by_harm(asked).found
    return _best_of(asked, _with_others(asked, [search.examine(first, _NOBODY)])).found


def _by_harm(asked: _Asked) -> Examined:
    """Return the least harmful placement that reaches no further than those without `harmOrder`."""
    search, first = asked.search, asked.first
    placing = search.place(None, _NOBODY)
    if placing.failure is not None:
        placing = first
    least = search.examine(placing, _NOBODY)
    if search.goes_least(least):
        scored = [] if placing.nodes == first.nodes else [search.examine(first, _NOBODY)]
        return _best_of(
            asked, _with_others(asked, [*scored, least, *_cheapest(search)], len(scored))
        )
    search.by_harm = False
    without = _best_of(asked, _with_others(asked, [search.examine(first, _NOBODY)]))
    search.by_harm = True
    most, without = search.reach(without.found), search.weighed(without)

    def best_within(examined: Iterable[Examined]) -> Examined:
        within = [each for each in examined if search.reach(each.found).within(most)]
        return _best_of(asked, [*within, without])

    others = [*_cheapest(search)]
    if best_within([least]) is without and without.placing.nodes != placing.nodes:
        others.append(search.examine(without.placing, _NOBODY))
    return best_within([least, *others])


def _cheapest(search: Search) -> Iterator[Examined]:
    """Yield the placement where the cheapest units are evicted, if there is one."""
    cheapest = search.cheapest(_NOBODY)
    if len(cheapest):
        placing = search.place(None, cheapest)
        if placing.failure is None:
            yield search.examine(placing, cheapest)


def _with_others(asked: _Asked, examined: list[Examined], more: int = 0) -> list[Examined]:
    """Return these and what else is to be examined; `more`: so many do not count."""
    search, group, policy = asked.search, asked.group, asked.policy
    found = [*examined]
    constrained = bool(group.topology_key) and policy.gates.topology_aware
    if constrained and (policy.max_placements > 1 or policy.topology_preemption):
        others = _other_domains(asked.simulation, search, asked.first, group, asked.queued)
        limit = len(others) if policy.topology_preemption else policy.max_placements - 1
        found += [search.examine(placing, _NOBODY) for placing in others[:limit]]
    return found + _alternatives(search, found, policy.max_placements + more)


def _best_of(asked: _Asked, examined: Iterable[Examined]) -> Examined:
    """Return the one of least harm, of equals the first that was examined."""
    best = _Best(asked.search, asked.policy.cascade_aware)
    for each in examined:
        best.offer(each)
    assert best.held is not None, "something was examined"
    return best.held


@dataclass(slots=True)
class _Best:
    """The placement of least harm so far; where victims could run is checked only among equals."""

    search: Search
    cascade_aware: bool
    held: Examined | None = None
    homeless: int = -1  # of `held`, -1: not computed yet

    def offer(self, other: Examined) -> None:
        """Keep the other one if it does less harm."""
        if self.held is None or other.harm < self.held.harm:
            self.held, self.homeless = other, -1
        elif self.cascade_aware and other.harm == self.held.harm:
            if self.homeless < 0:
                self.homeless = self.search.homeless(self.held)
            if self.homeless and (left := self.search.homeless(other)) < self.homeless:
                self.held, self.homeless = other, left


def set_harm(snapshot: Snapshot, found: Preemption, lost: I64 | None = None) -> tuple[int, ...]:
    """Return what a victim set does, smaller is less; the first difference decides (8.6).

    1. pods that break a budget;
    2. priority of the first victim;
    3. device-seconds lost, where `lost` (slots,) is given;
    4. sum over the victims of (priority + 2**31);
    5. pods;
    6. the earliest start among the victims of the highest priority, later is less.

    Priorities are the pods' own, not those of their groups.
    """
    slots = pods_of(found.victims)
    if not len(slots):
        return (found.violating, _NONE, 0, 0, 0, _NONE)
    own = snapshot.pod_priority[slots]
    first = snapshot.pod_priority[list(found.victims[0].pods)]
    earliest = snapshot.pod_start[slots[own == own.max()]].min()
    total = int(own.sum()) + _OFFSET * len(slots)
    work = 0 if lost is None else int(np.clip(lost[slots], 0, None).sum())
    return (found.violating, int(first.max()), work, total, len(slots), -int(earliest))


def _other_domains(
    simulation: Simulation,
    search: Search,
    first: GroupPlacing,
    group: GroupRow,
    queued: Sequence[Pending],
) -> list[GroupPlacing]:
    """Return feasible placements in the domains that the best one is not in, best-scored first."""
    snapshot = simulation.snapshot
    if len(members_of(snapshot, group)):
        return []  # theirs is the only domain
    values = [node.labels.get(group.topology_key) for node in snapshot.nodes]
    chosen = {values[node] for node in first.nodes if node >= 0}
    found: list[tuple[FeasiblePlacement, GroupPlacing]] = []
    for value in sorted({value for value in values if value is not None} - chosen):
        within: Mask = np.array([each == value for each in values], np.bool_)
        placing = search.place(within, _NOBODY)
        if placing.failure is None:
            classes = tuple(
                pending.pod_class
                for pending, node in zip(queued, placing.nodes, strict=True)
                if node >= 0
            )
            nodes = np.flatnonzero(within)
            found.append((FeasiblePlacement(value, nodes, len(classes), classes), placing))
    scores = placement_scores(simulation, [each for each, _ in found])
    ranked = sorted(zip(scores, found, strict=True), key=lambda each: (-each[0], each[1][0].domain))
    return [placing for _, (_, placing) in ranked]


def _alternatives(search: Search, examined: Sequence[Examined], wanted: int) -> list[Examined]:
    """Examine alternatives while that many are wanted.

    Alternatives of the best placement so far come first, and those of one that did more harm once
    it has no more of them.
    """
    tried = len(examined)
    found: list[Examined] = []
    number = itertools.count()
    seen: set[frozenset[int]] = set()
    # Harm, age, pods spared, and the victims that were not spared yet.
    open_: list[tuple[tuple[int, ...], int, I64, list[UnitVictim]]] = []
    for each in examined:
        open_.append((each.harm, next(number), _NOBODY, list(each.found.victims)))
    heapq.heapify(open_)
    while tried < wanted and open_:
        _, _, spared, victims = open_[0]
        if not victims:
            heapq.heappop(open_)
            continue
        keep = np.union1d(spared, victims.pop(0).pods)
        if frozenset(keep.tolist()) in seen:
            continue
        seen.add(frozenset(keep.tolist()))
        for one in _tried(search, keep, wanted - tried):
            tried += 1
            if one is not None:
                heapq.heappush(open_, (one.harm, next(number), keep, list(one.found.victims)))
                found.append(one)
    return found


def _tried(search: Search, spared: I64, most: int) -> list[Examined | None]:
    """Return what comes of sparing these pods; None where the preemptor does not fit then."""
    found: list[Examined | None] = []
    cheapest = search.cheapest(spared)
    for keep in (spared, cheapest)[: most if len(cheapest) else 1]:
        placing = search.place(None, keep)
        found.append(search.examine(placing, keep) if placing.failure is None else None)
    return found
