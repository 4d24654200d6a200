"""Victims that could not be evicted in any try, and so are left alone for a while.

A webhook, a policy or a missing right may refuse the eviction of one object and of no other. If
every plan tried it again, its preemptor would keep waiting although other victims can be evicted.
So a victim that was refused in all tries of a plan is protected from all preemptors for two
minutes, twice as long after each further plan, and at most an hour; a victim that is evicted after
all is forgotten. The newest 10,000 are remembered. Source: the design's "Intent log and executor".
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.durations import HOUR, MINUTE
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.questions import Hold, Rule
from reprieve.execution.unanswered import Unanswered
from reprieve.units.ids import Uid

__all__ = ["NotEvictable"]

_FIRST: Final = 2 * MINUTE
_LONGEST: Final = HOUR
_MOST_DOUBLED: Final = 5
_MOST: Final = 10_000


class NotEvictable:
    """Remembers by uid, across plans. Instants are wall time."""

    def __init__(self) -> None:
        self._known: dict[Uid, tuple[int, Nanos]] = {}  # times, and until when
        self.unanswered = Unanswered()

    def refused(self, uid: str, now: Nanos) -> Nanos:
        """Record that all tries to evict an object were refused; return until when it stays."""
        times, _ = self._known.pop(Uid(uid), (0, now))
        until = Nanos(now + min(_FIRST << min(times, _MOST_DOUBLED), _LONGEST))
        self._known[Uid(uid)] = times + 1, until
        while len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
        return until

    def forget(self, uid: str) -> None:
        """An object was evicted, or deleted."""
        self._known.pop(Uid(uid), None)
        self.unanswered.evicted(uid)

    def held(self, now: Nanos) -> dict[Uid, Hold]:
        """Return who is left alone at an instant."""
        return {
            uid: Hold(until, Rule.REFUSED)
            for uid, (_, until) in self._known.items()
            # Later than that was written before the clock was set back, and holds no work.
            if now < until <= now + _LONGEST
        }

    def __contains__(self, uid: str) -> bool:
        """Whether an object was refused before and not evicted since."""
        return uid in self._known

    def __len__(self) -> int:
        return len(self._known)
