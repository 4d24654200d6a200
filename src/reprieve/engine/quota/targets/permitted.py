"""Which sets of workloads a preemptor may evict together: the rules without the order.

Each candidate is one that the algorithm of the settings would consider. A set may be evicted if
there is an order in which each member is chosen by the rules, with all before it evicted:

* Classically, while its ClusterQueue and every cohort below the one that it shares with the
  preemptor use more than their own of something that is lacking. Usage only falls, so that the last
  member is looked for first: one that the rules permit after all others stays so when some of these
  stay. A set that may be evicted may therefore lose any member.
* With fair sharing ClusterQueues pay for whom the tournament named them, and no others. Within its
  nominal quota the preemptor compares nothing; else the inequality of the first strategy holds when
  the member is chosen, and its queue borrows. Members of the preemptor's own queue are chosen
  first, then those of the nearest cohorts, since these lower its share the most.

Source: specification of the quota plane, sections 6 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.shares import Shares
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import Column, Tree, add
from reprieve.engine.quota.model import Reason, Strategy
from reprieve.engine.quota.targets.candidates import Preemptor, Target
from reprieve.engine.quota.targets.classical import (
    attempts_of,
    candidates_of,
    fits,
    give_back,
    in_turn,
    subtract,
)
from reprieve.engine.quota.targets.fair import fair_candidates, is_within_nominal, sides_of

__all__ = ["Board", "boards_of"]


class _Rule(Protocol):
    """Whether a set of victims is permitted; usage is a copy to check that on."""

    def may_go(self, usage: dict[int, Column], targets: Sequence[Target]) -> bool: ...


@dataclass(slots=True)
class Board:
    """One attempt: what may be evicted, in the order of candidates, and usage the search changes.

    `borrow`: the preemptor may borrow. `usage`: in the columns that matter.
    """

    snapshot: Snapshot
    who: Preemptor
    amounts: Sequence[tuple[int, int]]
    borrow: bool
    candidates: Sequence[Target]
    usage: dict[int, Column]
    rule: _Rule

    def remove(self, target: Target) -> None:
        """Remove a candidate's usage."""
        subtract(self.snapshot.tree, self.usage, target.holder)

    def give_back(self, target: Target) -> None:
        """Undo `remove`."""
        give_back(self.snapshot.tree, self.usage, target.holder)

    @property
    def fits(self) -> bool:
        """Whether the preemptor fits now."""
        path = self.snapshot.tree.path[self.who.queue]
        return fits(self.snapshot.tree, self.usage, path, self.amounts, self.borrow)

    def may_go(self, targets: Sequence[Target]) -> bool:
        """Return whether these, which are all evicted, may be evicted together."""
        return self.rule.may_go({column: row[:] for column, row in self.usage.items()}, targets)


def boards_of(
    snapshot: Snapshot,
    who: Preemptor,
    requests: Mapping[int, int],
    need: frozenset[int],
    payers: Collection[int],
) -> Iterator[Board]:
    """Yield the attempts for `requests` by flavor-resource; `payers`: of fair sharing."""
    amounts = [(column, amount) for column, amount in requests.items() if amount]
    if snapshot.settings.fair_sharing is not None:
        fair = _FairRule(snapshot, who, amounts, need)
        pending = fair_candidates(snapshot, who, need)
        candidates = [
            Target(row[4], fair.reason(queue))
            for queue, rows in pending.items()
            if queue in payers
            for row in rows.left()
        ]
        usage = {column: row[:] for column, row in enumerate(snapshot.usage)}
        yield Board(snapshot, who, amounts, True, candidates, usage, fair)
        return
    found = candidates_of(snapshot, who, dict(amounts), need)
    for borrow in attempts_of(snapshot, who, found, need):
        tops: dict[str, int] = {}
        targets = []
        for row, source, _ in in_turn(snapshot, who, found, borrow):
            tops[row[4].key] = source.top
            targets.append(Target(row[4], source.reason_for(row)))
        columns = {*need, *(column for column, _ in amounts)}
        usage = {column: snapshot.usage[column][:] for column in columns}
        rule = _ClassicalRule(snapshot.tree, need, tops)
        yield Board(snapshot, who, amounts, borrow, targets, usage, rule)


@dataclass(frozen=True, slots=True)
class _ClassicalRule:
    """`tops`: of each candidate, the cohort that its queue shares with the preemptor's."""

    tree: Tree
    need: frozenset[int]
    tops: Mapping[str, int]

    def may_go(self, usage: dict[int, Column], targets: Sequence[Target]) -> bool:
        return _in_some_order(self.tree, usage, targets, self._rightly)

    def _rightly(self, usage: Mapping[int, Column], holder: Holder) -> bool:
        for node in self.tree.path[holder.queue]:
            if node == self.tops[holder.key]:
                break
            if not any(usage[c][node] > self.tree.subtree[c][node] for c in self.need):
                return False
        return True


@dataclass(slots=True)
class _FairRule:
    """The first strategy, and whether the preemptor is spared its comparison (`within`)."""

    snapshot: Snapshot
    who: Preemptor
    amounts: Sequence[tuple[int, int]]
    need: frozenset[int]
    within: bool = False
    final: bool = False

    def __post_init__(self) -> None:
        settings, tree = self.snapshot.settings, self.snapshot.tree
        usage = {column: row[:] for column, row in enumerate(self.snapshot.usage)}
        self._count(usage)
        self.within = is_within_nominal(settings, tree, usage, self.who.queue, self.need)
        self.final = settings.strategies[0] is Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE

    def reason(self, queue: int) -> Reason:
        """Return why a candidate of this ClusterQueue is evicted."""
        if queue == self.who.queue:
            return Reason.IN_CLUSTER_QUEUE
        return Reason.IN_COHORT_RECLAMATION if self.within else Reason.IN_COHORT_FAIR_SHARING

    def may_go(self, usage: dict[int, Column], targets: Sequence[Target]) -> bool:
        self._count(usage)
        tree, path = self.snapshot.tree, self.snapshot.tree.path[self.who.queue]
        by_distance: dict[int, list[Target]] = {}
        for target in targets:
            theirs = tree.path[target.holder.queue]
            common = next(at for at, node in enumerate(path) if node in theirs)
            by_distance.setdefault(common, []).append(target)
        by_distance.pop(0, None)  # the preemptor's own queue pays without a comparison
        return all(
            _in_some_order(tree, usage, by_distance[common], self._rightly)
            for common in sorted(by_distance, reverse=True)
        )

    def _rightly(self, usage: Mapping[int, Column], holder: Holder) -> bool:
        tree = self.snapshot.tree
        path, theirs = tree.path[self.who.queue], tree.path[holder.queue]
        shares = Shares(tree, list(usage.values()))
        if not all(shares.of(node)[0] for node in theirs if node not in path):
            return False
        if self.within:
            return True
        mine, other = sides_of(path, theirs)
        new = shares.of(mine)[1]
        if self.final:
            return new <= shares.without(other, theirs, holder.held)
        return new < shares.of(other)[1]

    def _count(self, usage: Mapping[int, Column]) -> None:
        """Count what the preemptor requests in its queue."""
        tree = self.snapshot.tree
        for column, amount in self.amounts:
            add(tree.local[column], usage[column], tree.path[self.who.queue], amount)


def _in_some_order(
    tree: Tree,
    usage: dict[int, Column],
    targets: Sequence[Target],
    rightly: Callable[[Mapping[int, Column], Holder], bool],
) -> bool:
    """Reprieve the last possible victim, then the one before, until none is evicted or may be."""
    left = [target.holder for target in targets]
    while left:
        stuck = []
        for holder in left:
            give_back(tree, usage, holder)
            if not rightly(usage, holder):
                subtract(tree, usage, holder)
                stuck.append(holder)
        if len(stuck) == len(left):
            return False
        left = stuck
    return True
