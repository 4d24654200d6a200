"""How soon what one owner makes again and again may be deleted once more.

Deleting what a controller makes again at once can repeat for ever. Deletions of what one owner has
are done in rounds: whatever was there when a round began is deleted at once, and what was made
since waits for the next one. Rounds begin one second after the first, then twice as long after each
other, five minutes at most; an owner that was left alone for ten minutes begins anew. In a round no
more than 64 objects are deleted, or as many as the owner had when it began, so that a clock that
differs from the API server's cannot undo it.

What is ended because of an eviction is not held up: each of those was decided, recorded, and
counted by the ledger of displacements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant

__all__ = ["DeletionPace"]

_FIRST: Final = SECOND
_LONGEST: Final = 5 * MINUTE
_QUIET: Final = 10 * MINUTE
_FEW: Final = 64
_KEPT: Final = 4_096


@dataclass(slots=True)
class _Round:
    """One owner's latest round: begun at these instants, by the wall and by the monotonic clock."""

    wall: Nanos
    begun: Nanos
    pause: int
    most: int
    deleted: int = 1


class DeletionPace:
    """Remembers the latest round of each owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By owner, the one whose round began first before the others.
        self._rounds: dict[str, _Round] = {}

    def count(self, owner: str, created: str, there: Callable[[], int] = lambda: 1) -> Nanos | None:
        """Count a deletion of what `owner` made at `created`; None where it may happen now.

        Otherwise return the wall instant to call again at, and count nothing. `there`: how many of
        what may be deleted the owner has now.
        """
        now = self._clock.monotonic()
        latest = self._rounds.get(owner)
        if latest is None or now - latest.begun > latest.pause + _QUIET:
            self._begin(owner, now, _FIRST, there())
            return None
        # Instants of the API server have no fractions: what came in the same second came after.
        made_again = bool(created) and parse_instant(created) + SECOND > latest.wall
        if not made_again and latest.deleted < latest.most:
            latest.deleted += 1
            return None
        left = latest.begun + latest.pause - now
        if left > 0:
            return Nanos(self._clock.wall() + left)
        self._begin(owner, now, min(2 * latest.pause, _LONGEST), there())
        return None

    def _begin(self, owner: str, now: Nanos, pause: int, there: int) -> None:
        self._rounds.pop(owner, None)
        if len(self._rounds) >= _KEPT:
            del self._rounds[next(iter(self._rounds))]
        self._rounds[owner] = _Round(self._clock.wall(), now, pause, max(_FEW, there))
