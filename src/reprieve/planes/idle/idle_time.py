"""How long work has been idle, as far as this process saw it.

`idleSince` is a wall instant; subtracting it from now relies on the wall clock and on no device
having been used in between. For an instant that this process finds, the time until then is believed
(a former process wrote it); from then on only time counts that passed by the monotonic clock while
polls came in. Where `idleSince` states more than that, it is set to what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.units.ids import GpuWorkloadKey

__all__ = ["IdleTime"]

#: Instants as close as this count as the same: the API keeps whole seconds.
_APART: Final = 5 * SECOND
_POLLS: Final = 3


@dataclass(slots=True)
class _Found:
    since: Nanos
    idle: int  # when it was found
    seen: int


class IdleTime:
    """Counts time by polls; `interval` is from one to the next."""

    def __init__(self, clock: Clock, interval: int) -> None:
        self._clock = clock
        self._longest = _POLLS * max(interval, 10 * SECOND)
        self._last: Nanos | None = None
        self._seen = 0
        self._found: dict[GpuWorkloadKey, _Found] = {}

    def polled(self) -> None:
        """Record a poll that has ended."""
        self._seen, self._last = self._now(), self._clock.monotonic()

    def since(self, key: GpuWorkloadKey, since: Nanos | None) -> Nanos | None:
        """Return since when a workload is idle that states it is since then."""
        if since is None:
            self._found.pop(key, None)
            return None
        wall, seen = self._clock.wall(), self._now()
        found = self._found.get(key)
        if found is None or abs(found.since - since) > _APART:
            self._found[key] = _Found(since, max(0, wall - since), seen)
            return since
        as_seen = Nanos(wall - found.idle - (seen - found.seen))
        if as_seen - since <= _APART:
            return since
        found.since = as_seen
        found.idle, found.seen = wall - as_seen, seen
        return as_seen

    def forget(self, key: GpuWorkloadKey) -> None:
        """Release a workload."""
        self._found.pop(key, None)

    def _now(self) -> int:
        if self._last is None:
            return self._seen
        return self._seen + min(self._clock.monotonic() - self._last, self._longest)
