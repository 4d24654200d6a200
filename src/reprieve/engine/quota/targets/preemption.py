"""Target search: the algorithm that the settings choose, and the oracle built on it.

The oracle answers, for a single flavor-resource, whether preemption could free enough and whether
the workload would still borrow then. It looks at that flavor-resource only, so the mode it leads to
does not promise that a search for the whole workload finds targets.

Source: specification of the quota plane, sections 5.3, 6 and 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from reprieve.engine.pace import UNHURRIED, Pace
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import borrowing_level
from reprieve.engine.quota.targets.candidates import Preemptor
from reprieve.engine.quota.targets.classical import Found, classical_targets
from reprieve.engine.quota.targets.fair import fair_targets
from reprieve.engine.topology.standing import PlaceSearch

__all__ = ["Oracle", "Possibility", "SearchOracle", "find_targets", "nobody"]


class Possibility(StrEnum):
    """What preemption could do for one flavor-resource."""

    NO_CANDIDATES = "NoCandidates"
    PREEMPT = "Preempt"
    RECLAIM = "Reclaim"


class Oracle(Protocol):
    """Answers for one flavor-resource: the possibility, and the borrowing level afterwards."""

    def __call__(self, column: int, amount: int) -> tuple[Possibility, int]: ...


def nobody(column: int, amount: int) -> tuple[Possibility, int]:
    """Answer that no workload is preempted: an oracle that searches nothing."""
    return Possibility.NO_CANDIDATES, 0


def find_targets(
    snapshot: Snapshot,
    who: Preemptor,
    requests: Mapping[int, int],
    need: frozenset[int],
    places: PlaceSearch | None = None,
) -> Found | None:
    """Return the victims for `requests`, None when none may be or it would not help.

    Amounts are by flavor-resource; `need` are those that do not fit without preemption; `places`
    states whether pods get places, None where they request none.
    """
    wanted = {column: amount for column, amount in requests.items() if amount}
    if snapshot.settings.fair_sharing is not None:
        return fair_targets(snapshot, who, wanted, need, places)
    return classical_targets(snapshot, who, wanted, need, places)


class SearchOracle:
    """The oracle that runs the search on a snapshot, which must not change meanwhile."""

    def __init__(self, snapshot: Snapshot, who: Preemptor, pace: Pace = UNHURRIED) -> None:
        self._snapshot = snapshot
        self._who = who
        self._pace = pace
        # Who requests one flavor-resource only is answered and served by one search.
        self._searches: dict[object, Found | None] = {}

    def __call__(self, column: int, amount: int) -> tuple[Possibility, int]:
        """Return what preemption could do for `amount` of one flavor-resource."""
        snapshot, queue = self._snapshot, self._who.queue
        found = self.targets({column: amount}, frozenset((column,)))
        usage = snapshot.usage[column] if found is None else found.usage[column]
        level, _ = borrowing_level(snapshot.tree, column, usage, queue, amount)
        if found is None:
            return Possibility.NO_CANDIDATES, level
        if any(target.holder.queue == queue for target in found.targets):
            return Possibility.PREEMPT, level
        return Possibility.RECLAIM, level

    def targets(
        self,
        requests: Mapping[int, int],
        need: frozenset[int],
        places: PlaceSearch | None = None,
    ) -> Found | None:
        """Return what `find_targets` returns."""
        if places is not None:
            self._pace.check()
            return find_targets(self._snapshot, self._who, requests, need, places)
        asked = (*requests.items(), need)
        if asked not in self._searches:
            self._pace.check()
            self._searches[asked] = find_targets(self._snapshot, self._who, requests, need)
        return self._searches[asked]
