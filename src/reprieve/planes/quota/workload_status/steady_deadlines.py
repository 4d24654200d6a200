"""Deadlines of Workloads, counted by the monotonic clock from when they were first observed.

A deadline is a wall instant that is computed from an instant in a status. If the wall clock is set
to another time, every deadline of the plane could pass at once, and end all work that has one. How
much time was left when this process first observed a deadline holds whatever the wall clock does
since; only a new process has nothing but the wall clock.

Source: the design's "State that can be trusted".
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos

__all__ = ["SteadyDeadlines"]

_MOST: Final = 200_000  # of which those observed last are known


class SteadyDeadlines:
    """Remembers, for each object and kind of deadline, when it passes by the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[Nanos, int]] = {}

    def passed(self, uid: str, kind: str, until: Nanos) -> bool:
        """Return whether the deadline of an object has passed."""
        return self._end(uid, kind, until) <= self._clock.monotonic()

    def wall(self, uid: str, kind: str, until: Nanos) -> Nanos:
        """Return the wall instant, by the clock as it is now, at which a deadline passes."""
        left = self._end(uid, kind, until) - self._clock.monotonic()
        return Nanos(self._clock.wall() + max(left, 0))

    def _end(self, uid: str, kind: str, until: Nanos) -> int:
        known = self._known.get((uid, kind))
        if known is None or known[0] != until:
            left = until - self._clock.wall()
            self._known.pop((uid, kind), None)
            known = self._known[uid, kind] = until, self._clock.monotonic() + left
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return known[1]
