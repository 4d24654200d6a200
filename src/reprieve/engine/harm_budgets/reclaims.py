"""Since when harm budgets refuse a ClusterQueue its own nominal quota.

A budget may do so for a bounded time, counted from when any budget first did: budgets that refuse
one after the other do not add up. That is forgotten once the ClusterQueue was refused nothing for
twice that time and an hour. What is known outlives a process:
`rows` is stored, and `load` restores what another process knew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos

__all__ = ["Reclaims", "Refused"]

_MOST: Final = 10_000


class Refused(NamedTuple):
    """A budget refused a ClusterQueue its own quota, for the first and for the last time."""

    budget: str
    queue: str
    first: Nanos
    last: Nanos


class Reclaims:
    """Folds refusals; `after`: for how long a budget may refuse, in nanoseconds."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str], Refused] = {}
        self._by_queue: dict[str, set[str]] = {}  # budgets

    def until(self, budget: str, queue: str, after: int, now: Nanos) -> Nanos:
        """Note a refusal, and return until when it lasts at most."""
        first = self._first(queue, after, now)
        self._keep(Refused(budget, queue, first, now))
        if len(self._refused) > _MOST:
            oldest = min(self._refused, key=lambda key: self._refused[key].last)
            del self._refused[oldest]
            self._by_queue[oldest[1]].discard(oldest[0])
        return Nanos(first + after)

    def has_waited(self, queue: str, after: int, now: Nanos) -> bool:
        """Return whether a ClusterQueue was refused for as long as is allowed."""
        return self._first(queue, after, now) + after <= now

    def _first(self, queue: str, after: int, now: Nanos) -> Nanos:
        rows = (self._refused[budget, queue] for budget in self._by_queue.get(queue, ()))
        return min((row.first for row in rows if now - row.last <= 2 * after + HOUR), default=now)

    def _keep(self, row: Refused) -> None:
        self._refused[row.budget, row.queue] = row
        self._by_queue.setdefault(row.queue, set()).add(row.budget)

    def rows(self) -> list[Refused]:
        """Return all that is known."""
        return sorted(self._refused.values())

    def load(self, rows: Iterable[Refused]) -> None:
        """Adopt what another process knew: the earlier first and the later last counts."""
        for row in rows:
            key = row.budget, row.queue
            known = self._refused.get(key, row)
            self._keep(Refused(*key, min(known.first, row.first), max(known.last, row.last)))
