"""Since when harm budgets refuse a ClusterQueue its own nominal quota.

A budget may do so for a bounded time, counted from when it first did. That is forgotten once the
ClusterQueue was refused nothing for twice that time and an hour. What is known outlives a process:
`rows` is stored, and `load` takes over what another process knew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from reprieve.units.durations import HOUR
from reprieve.units.instants import Nanos

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

    def until(self, budget: str, queue: str, after: int, now: Nanos) -> Nanos:
        """Note a refusal, and return until when it lasts at most."""
        found = self._known(budget, queue, after, now)
        first = now if found is None else found.first
        self._refused[budget, queue] = Refused(budget, queue, first, now)
        if len(self._refused) > _MOST:
            del self._refused[min(self._refused, key=lambda key: self._refused[key].last)]
        return Nanos(first + after)

    def has_waited(self, budget: str, queue: str, after: int, now: Nanos) -> bool:
        """Return whether a ClusterQueue was refused for as long as is allowed."""
        found = self._known(budget, queue, after, now)
        return (now if found is None else found.first) + after <= now

    def _known(self, budget: str, queue: str, after: int, now: Nanos) -> Refused | None:
        found = self._refused.get((budget, queue))
        return None if found is None or now - found.last > 2 * after + HOUR else found

    def rows(self) -> list[Refused]:
        """Return all that is known."""
        return sorted(self._refused.values())

    def load(self, rows: Iterable[Refused]) -> None:
        """Take over what another process knew: the earlier first and the later last counts."""
        for row in rows:
            key = row.budget, row.queue
            known = self._refused.get(key, row)
            self._refused[key] = Refused(
                *key, min(known.first, row.first), max(known.last, row.last)
            )
