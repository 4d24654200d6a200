"""Chooses the least costly victims of a preemption by quota where the profile is `best`.

The search of the reference comes first: whether any workload may be evicted, for which preemptor,
and on which flavors is decided by it alone. Among the sets that the same rules permit (`permitted`)
the cheapest one is chosen then; smaller is better, the first difference decides:

1. the highest effective priority among those that do not leave already
2. with `harmOrder`, the device-seconds that are lost; idle work loses none with `idleFirst`
3. the sum of (priority + 2**31): fewer first, then lower priorities
4. those that leave already, which cost nothing else
5. the order of candidates

Workloads of one ClusterQueue that hold the same are alike, and of those the cheapest are evicted.
So many of each kind are tried, the kinds that give most for their cost first (branch and bound):
what is still lacking costs at least as much as parts of the cheapest kinds. Effort is counted in
steps, so that the answer depends on no clock; the best set so far, and the victims of the reference
if none is cheaper, come back when it is used up. Source: specification of the quota plane, sections
6 and 7; KEP-5710, "Future extensions".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import available
from reprieve.engine.quota.targets.candidates import Preemptor, Target
from reprieve.engine.quota.targets.permitted import Board, boards_of
from reprieve.engine.quota.targets.victim_costs import NOTHING, OFFSET, Cost, Costs

__all__ = ["Cheapest", "cheapest_targets", "gap_of"]

STEPS: Final = 4_096  # of one search, over all attempts and priorities
_KINDS: Final = 48  # of workloads that one search looks at
_IMPOSSIBLE: Final = 2**200
_Piece: TypeAlias = tuple[float, int, int]  # cost of one, how many, cost of all


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The victims; `gap`: per cent by which they exceed the least cost at most, None: not known."""

    targets: tuple[Target, ...]
    gap: int | None


def cheapest_targets(
    snapshot: Snapshot,
    who: Preemptor,
    requests: Mapping[int, int],
    need: frozenset[int],
    found: Sequence[Target],
    now: Nanos,
    without: Collection[str] = (),
) -> Cheapest:
    """Return the cheapest targets for `requests`, those of the reference where none are cheaper.

    `found`: the reference's. `without`: keys of holders that are preempted for others already.
    """
    costs = Costs(snapshot, now)
    payers = {target.holder.queue for target in found}
    boards = [*boards_of(snapshot, who, requests, need, payers)]
    top = costs.top(found)
    levels = {costs.top([each]) for board in boards for each in board.candidates}
    left = _Steps(STEPS)
    known = True
    for level in sorted(each for each in levels if each <= top):
        best = _Best(list(found) if level == top else None, costs)
        least: list[tuple[int, int, int]] = []
        for board in boards:
            search = _Search(board, level, costs, without, left, best)
            least.append(search.run())
            known = known and not search.cut
        if best.targets is None:
            continue
        chosen = best.in_order(boards)
        if {each.holder.key for each in chosen} == {each.holder.key for each in found}:
            chosen = tuple(found)
        return Cheapest(chosen, 0 if known else gap_of(best.cost, min(least), costs.by_work))
    return Cheapest(tuple(found), None)


def gap_of(paid: Cost, bound: tuple[int, int, int], by_work: bool) -> int | None:
    """Return by how much a cost may exceed a bound, in per cent; the bound is of the level."""
    if by_work:
        return None if not bound[0] else -(-(paid.lost - bound[0]) * 100 // bound[0])
    least = -(-bound[1] // OFFSET)
    return None if not least else max(0, -(-(paid.priority // OFFSET - least) * 100 // least))


@dataclass(slots=True)
class _Steps:
    left: int


@dataclass(slots=True)
class _Best:
    """The cheapest set of one level so far."""

    targets: list[Target] | None
    costs: Costs
    cost: Cost = NOTHING

    def __post_init__(self) -> None:
        self.cost = NOTHING if self.targets is None else self.costs.total(self.targets)

    def offer(self, targets: list[Target], cost: Cost) -> None:
        self.targets, self.cost = targets, cost

    def beaten_by(self, key: tuple[int, int, int]) -> bool:
        return self.targets is None or key < self.cost.key

    def in_order(self, boards: Sequence[Board]) -> tuple[Target, ...]:
        """Return the targets in the order of candidates."""
        assert self.targets is not None
        rank = {
            each.holder.key: place
            for board in reversed(boards)
            for place, each in enumerate(board.candidates)
        }
        return tuple(sorted(self.targets, key=lambda each: rank.get(each.holder.key, len(rank))))


@dataclass(slots=True)
class _Kind:
    """Workloads of one ClusterQueue that hold the same, the cheapest first."""

    targets: list[Target]
    costs: list[Cost]
    held: dict[int, int]


@dataclass(slots=True)
class _Search:
    """Branch and bound over how many of each kind are evicted; `cut`: not all was tried."""

    board: Board
    level: int
    costs: Costs
    without: Collection[str]
    steps: _Steps
    best: _Best
    cut: bool = False
    kinds: list[_Kind] = field(default_factory=list)
    chosen: list[Target] = field(default_factory=list)
    pieces: dict[tuple[int, int], tuple[list[_Piece], list[_Piece]]] = field(default_factory=dict)

    def run(self) -> tuple[int, int, int]:
        """Look for cheaper targets; return what any cost at least in this attempt."""
        self.kinds = self._kinds()
        whole = [target for kind in self.kinds for target in kind.targets]
        for target in whole:
            self.board.remove(target)
        enough = self.board.fits
        for target in whole:
            self.board.give_back(target)
        if not enough:
            return _IMPOSSIBLE, 0, 0
        self.kinds.sort(key=self._price)
        least = self._bound(0)
        if len(self.kinds) > _KINDS:
            self.kinds, self.cut, self.pieces = self.kinds[:_KINDS], True, {}
        self._from(0, NOTHING)
        return least

    def _kinds(self) -> list[_Kind]:
        kinds: dict[tuple[int, tuple[tuple[int, int], ...]], _Kind] = {}
        usage, costs = self.board.usage, self.costs
        chosen = [
            target
            for target in self.board.candidates
            if target.holder.key not in self.without
            and (target.holder.evicted or target.holder.priority <= self.level)
        ]
        for target in sorted(chosen, key=lambda each: costs.of(each.holder).key):
            held = tuple(pair for pair in target.holder.held if pair[0] in usage)
            kind = kinds.setdefault((target.holder.queue, held), _Kind([], [], dict(held)))
            kind.targets.append(target)
            kind.costs.append(costs.of(target.holder))
        return list(kinds.values())

    def _lacking(self) -> list[tuple[int, int]]:
        """Return what is lacking now, by flavor-resource."""
        board, tree = self.board, self.board.snapshot.tree
        path = tree.path[board.who.queue]
        found = [
            (column, amount - max(0, available(tree, column, board.usage[column], path)))
            for column, amount in board.amounts
        ]
        return [pair for pair in found if pair[1] > 0]

    def _price(self, kind: _Kind) -> tuple[float, ...]:
        """Return what of a kind the part costs that is lacking, of what it gives most of."""
        lacking = self._lacking() or [(c, 1) for c, _ in self.board.amounts]
        part = max(min(1.0, kind.held.get(column, 0) / amount) for column, amount in lacking)
        cost = kind.costs[0]
        share = part or 1e-9
        return cost.lost / share, cost.priority / share, cost.leaving / share

    def _bound(self, first: int) -> tuple[int, int, int]:
        """Return what is still lacking costs at least with kinds from `first` on.

        Never more than each of its parts: lost work and priorities are bounded by themselves.
        """
        lost = priority = 0
        for column, amount in self._lacking():
            by_lost, by_priority = self._pieces_from(first, column)
            lost = max(lost, _cover(by_lost, amount))
            priority = max(priority, _cover(by_priority, amount))
        return lost, priority, 0

    def _pieces_from(self, first: int, column: int) -> tuple[list[_Piece], list[_Piece]]:
        """Return what kinds from `first` on give of a flavor-resource, the cheapest parts first."""
        known = self.pieces.get((first, column))
        if known is None:
            each = [
                (cost, held)
                for kind in self.kinds[first:]
                if (held := kind.held.get(column))
                for cost in kind.costs
            ]
            known = self.pieces[first, column] = (
                sorted((cost.lost / held, held, cost.lost) for cost, held in each),
                sorted((cost.priority / held, held, cost.priority) for cost, held in each),
            )
        return known

    def _from(self, first: int, cost: Cost) -> None:
        """Try all numbers of the kinds from `first` on, without those chosen before."""
        self.steps.left -= 1
        if self.steps.left < 0:
            self.cut = True
            return
        if self.board.fits:
            # More of them would be more than are needed.
            cheaper = self.best.beaten_by(cost.key)
            if cheaper and self._irreducible() and self.board.may_go(self.chosen):
                self.best.offer(list(self.chosen), cost)
            return
        if first == len(self.kinds):
            return
        bound = self._bound(first)
        if not self.best.beaten_by((cost.lost + bound[0], cost.priority + bound[1], cost.leaving)):
            return
        kind, used, costs = self.kinds[first], 0, [cost]
        for target, own in zip(kind.targets, kind.costs, strict=True):
            if self.board.fits:
                break
            self.board.remove(target)
            self.chosen.append(target)
            costs.append(costs[-1] + own)
            used += 1
        while True:
            self._from(first + 1, costs[used])
            if not used or self.steps.left < 0:
                break
            used -= 1
            self.board.give_back(self.chosen.pop())
        while used:
            used -= 1
            self.board.give_back(self.chosen.pop())

    def _irreducible(self) -> bool:
        """Return whether none of the victims could stay."""
        tried: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        for target in self.chosen:
            alike = target.holder.queue, target.holder.held
            if alike in tried:
                continue
            tried.add(alike)
            self.board.give_back(target)
            fits = self.board.fits
            self.board.remove(target)
            if fits:
                return False
        return True


def _cover(pieces: Sequence[_Piece], amount: int) -> int:
    """Return what so much costs at least, in parts of workloads too."""
    total = 0.0
    for _, held, cost in pieces:
        if held >= amount:
            return int(total + cost * amount / held)
        total += cost
        amount -= held
    return _IMPOSSIBLE
