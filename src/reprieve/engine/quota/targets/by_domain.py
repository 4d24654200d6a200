"""Chooses the victims of a workload with places by the domain that they free (profile `best`).

The search of the reference chooses candidates in their order until the pods fit somewhere, so that
its victims may stand in several domains, of which one alone would do. Here each domain of the
wanted level, and where wider ones do, too, of those, is looked at by itself:

1. its candidates in their order, then the others, until the workload has its quota and its places
2. those without whom it has them, too, are reprieved
3. of its candidates alone, sets of no more members that cost less are tried (`fewer_victims`)
4. of all domains the set is chosen that costs least (`victim_costs`), then the one with the fewest
   pods, then the narrower level, then the domain whose values come first

Domains that would have no capacity with all candidates evicted are left out; the others are tried
in the order of how few pods they lack. Effort is counted in placements, so that the answer depends
on no clock: the best set so far, and the reference's if none is cheaper, come back when it is used
up.

Source: specification of topology-aware scheduling, section 9 (1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.targets.candidates import Preemptor, Target
from reprieve.engine.quota.targets.cheapest import Cheapest, gap_of
from reprieve.engine.quota.targets.fewer_victims import Gains, sets_of
from reprieve.engine.quota.targets.permitted import Board, boards_of
from reprieve.engine.quota.targets.victim_costs import OFFSET, Costs
from reprieve.engine.topology.assign import groups_of
from reprieve.engine.topology.capacity import capacity
from reprieve.engine.topology.model import PodsWanted
from reprieve.engine.topology.places import Places
from reprieve.engine.topology.standing import PlaceSearch
from reprieve.engine.topology.tree import Tree

__all__ = ["targets_by_domain"]

PLACEMENTS: Final = 192  # of one search
_Price: TypeAlias = tuple[int, tuple[int, int, int], int]
Asked: TypeAlias = Mapping[str, Sequence[PodsWanted]]


def targets_by_domain(
    snapshot: Snapshot,
    who: Preemptor,
    requests: Mapping[int, int],
    need: frozenset[int],
    asked: Asked,
    found: Sequence[Target],
    now: Nanos,
    without: Collection[str] = (),
) -> Cheapest:
    """Return the cheapest targets for `requests`, those of the reference where none are cheaper.

    The gap is what they exceed one victim by, or two where it was tried that no single one does.

    Args:
        snapshot: what holds quota and places.
        who: the preemptor.
        requests: what it requests, by flavor-resource.
        need: those of which it lacks quota or places.
        asked: the pods that need places, by flavor.
        found: the reference's targets.
        now: the instant of the decision.
        without: keys of holders that are preempted for others already.
    """
    if snapshot.places is None or len(asked) != 1:
        return Cheapest(tuple(found), None)
    ((flavor, wanted),) = asked.items()
    search = _Search(snapshot, PlaceSearch(snapshot.places, asked), flavor, now, tuple(found))
    payers = {target.holder.queue for target in found}
    boards = []
    for board in boards_of(snapshot, who, requests, need, payers):
        free = [each for each in board.candidates if each.holder.key not in without]
        search.over(board, free, wanted)
        boards.append((board, free))
    return Cheapest(search.targets, search.gap(boards))


@dataclass(slots=True)
class _Search:
    """The cheapest targets so far, and how many placements are left to find cheaper ones."""

    snapshot: Snapshot
    places: PlaceSearch
    flavor: str
    now: Nanos
    targets: tuple[Target, ...]
    left: int = PLACEMENTS
    costs: Costs = field(init=False)
    price: _Price = field(init=False)

    def __post_init__(self) -> None:
        self.costs = Costs(self.snapshot, self.now)
        self.price = self._price(self.targets)

    def over(self, board: Board, free: Sequence[Target], wanted: Sequence[PodsWanted]) -> None:
        """Search cheaper targets among those that may be evicted in one attempt."""
        places = self.snapshot.places
        assert places is not None
        tree = places.trees[self.flavor]
        leaves = [_leaves(tree, self.flavor, each, places) for each in free]
        least = min((self._price([each]) for each in free), default=None)
        for level, domain in _domains(places, self.flavor, wanted, free):
            if self.left <= 0 or least is None or self.price <= least:
                return
            inside = [any(tree.ancestor(e, level) == domain for e in own) for own in leaves]
            order = [t for t, own in zip(free, inside, strict=True) if own]
            order += [t for t, own in zip(free, inside, strict=True) if not own]
            self._try(board, order)
            within = [t for t, own in zip(free, inside, strict=True) if own]
            self._try_fewer(board, within, wanted, level, domain)
        if self.left > 0 and least is not None and self.price > least:
            # Pods that no single domain has to have: the largest of the lowest priority.
            self._try(board, sorted(free, key=lambda e: (e.holder.priority, -_pods_of(e))))

    def gap(self, boards: Sequence[tuple[Board, Sequence[Target]]]) -> int | None:
        """Return by how many per cent the targets exceed the least cost at most."""
        paid = self.costs.total(self.targets)
        going = [each for each in self.targets if not each.holder.evicted]
        singles = [(board, each) for board, free in boards for each in free]
        least = min((self.costs.of(each.holder).lost for _, each in singles), default=0)
        fewest = 1
        if len(going) > 1 and len(going) == len(self.targets) and len(singles) <= self.left:
            fewest += not any(self._fits(board, [each]) for board, each in singles)
        return gap_of(paid, (least, fewest * OFFSET, 0), self.costs.by_work)

    def _try(self, board: Board, order: Sequence[Target]) -> None:
        """Choose the first candidates that suffice, without those that are not needed."""
        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            if self._fits(board, order[:middle]):
                high = middle
            else:
                low = middle + 1
        chosen = [*order[:low]]
        if not self._fits(board, chosen):
            return
        for target in reversed(chosen[:-1]):
            fewer = [each for each in chosen if each is not target]
            if self._fits(board, fewer):
                chosen = fewer
        self._accept(board, chosen)

    def _try_fewer(
        self,
        board: Board,
        inside: Sequence[Target],
        wanted: Sequence[PodsWanted],
        level: int,
        domain: int,
    ) -> None:
        """Choose a cheaper set of no more members that frees a domain for one pod set."""
        first, *more = wanted
        if more:
            return
        places = self.snapshot.places
        assert places is not None
        gains, top = Gains(places, self.flavor, first), self.price[0]
        lacks = gains.lacks(level, domain, first.count)
        able = [
            (gains.of(each, level, domain), place, each)
            for place, each in enumerate(inside)
            if each.holder.evicted or each.holder.priority <= top
        ]
        able.sort(key=lambda row: (-row[0], row[1]))
        for size in range(1, len(self.targets) + 1):
            found = sets_of([gain for gain, *_ in able], lacks, size)
            sets = [[able[position][2] for position in each] for each in found]
            for each in sorted(sets, key=self._price):
                if self.left <= 0 or self._price(each) >= self.price:
                    break
                if self._fits(board, each) and self._accept(board, each):
                    break

    def _accept(self, board: Board, chosen: Sequence[Target]) -> bool:
        """Use a set that suffices, if it costs less and its members may be evicted together."""
        price = self._price(chosen)
        if self.left < 0 or price >= self.price or not self._may_go(board, chosen):
            return False
        rank = {each.holder.key: place for place, each in enumerate(board.candidates)}
        self.targets = tuple(sorted(chosen, key=lambda each: rank[each.holder.key]))
        self.price = price
        return True

    def _fits(self, board: Board, gone: Sequence[Target]) -> bool:
        for target in gone:
            board.remove(target)
        fits = board.fits
        for target in gone:
            board.give_back(target)
        if not fits:
            return False
        self.left -= 1
        standing = self.places.begin()
        for target in gone:
            standing.remove(target.holder.placed)
        return standing.fits()

    @staticmethod
    def _may_go(board: Board, chosen: Sequence[Target]) -> bool:
        for target in chosen:
            board.remove(target)
        permitted = board.may_go(chosen)
        for target in chosen:
            board.give_back(target)
        return permitted

    def _price(self, targets: Sequence[Target]) -> _Price:
        pods = sum(_pods_of(target) for target in targets if not target.holder.evicted)
        return self.costs.top(targets), self.costs.total(targets).key, pods


def _pods_of(target: Target) -> int:
    return sum(placed.assignment.pods for _, placed in target.holder.placed)


def _leaves(tree: Tree, flavor: str, target: Target, places: Places) -> list[int]:
    """Return the leaves of a flavor's tree on which a candidate has pods."""
    return [
        tree.index[domain.values]
        for name, pods in target.holder.placed
        if name == flavor or (tree.by_host and places.trees[name].by_host)
        for domain in pods.assignment.domains
        if domain.values in tree.index
    ]


def _domains(
    places: Places, flavor: str, wanted: Sequence[PodsWanted], free: Sequence[Target]
) -> Iterator[tuple[int, int]]:
    """Yield (level, domain) where the first pods without places would fit without these."""
    emptier = places.copy()
    for target in free:
        emptier.change(target.holder.placed, -1)
    groups = groups_of(wanted)
    rooms = [(capacity(places.on(flavor), g), capacity(emptier.on(flavor), g)) for g in groups]
    for now, then in rooms:
        if now is None or then is None or now.suffices:
            continue
        for level in then.levels():
            slices, later = now.slices(level), then.slices(level)
            enough = np.flatnonzero(later >= then.need)
            lacks = then.need - slices[enough]
            for at in np.lexsort((enough, lacks)):
                yield level, int(enough[at])
