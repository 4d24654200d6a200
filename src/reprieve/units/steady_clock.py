"""A wall clock that a step of the machine's clock does not carry away.

Ages are the difference of two instants, most of them written by the API server or by a process
before this one, so that they follow wall time. The course is how far wall time is ahead of
monotonic time.

1. It is kept as long as the machine's clock is on it, within `_APART`. Slow corrections are
   followed.
2. It is kept as long as the API server's clock is on it, by the date of its answers: objects are
   dated by that. A clock that is wrong for good has no effect on any age: no idle time, minimum
   runtime, TTL, hold or backoff.
3. Where both have left it, or the API server's is not known, the clock continues as before for
   `_LONGEST`; a step that is undone within that time has no effect. One that lasts longer is
   followed, since it is most often a clock that was wrong and has been corrected: the machine's,
   or the API server's where they differ.
4. A process begins on the API server's course where that differs from its machine's.
"""

from __future__ import annotations

import logging
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND, format_duration
from kubeworld.units.instants import Nanos

__all__ = ["SteadyClock"]

log: Final = logging.getLogger("reprieve.clock")

_APART: Final = 10 * SECOND
_LONGEST: Final = 2 * MINUTE


class SteadyClock:
    """Another clock without its steps; `stepped` is when it saw the last one, monotonic."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = clock.wall() - clock.monotonic()
        self._server: int | None = None  # how far the API server's clock is ahead
        # While a step is not followed: how far ahead wall time is then, and since when.
        self._stepped: tuple[int, Nanos] | None = None
        self.stepped: Nanos | None = None
        self.steps = 0

    def monotonic(self) -> Nanos:
        return self._clock.monotonic()

    async def sleep(self, nanoseconds: int) -> None:
        await self._clock.sleep(nanoseconds)

    def server_at(self, instant: Nanos) -> None:
        """Record that the clock of the API server shows this instant now."""
        now, first = self._clock.monotonic(), self._server is None
        self._server = instant - now
        if first and self._stepped is None and not self._is_on_course(self._server):
            by = self._ahead - self._server
            self._ahead = self._server
            self._stepped = self._clock.wall() - now, now
            log.warning(
                "the wall clock of this machine is %s from that of the API server; the operator "
                "measures ages by the latter",
                _by(by),
            )

    def wall(self) -> Nanos:
        now = self._clock.monotonic()
        wall = self._clock.wall()
        ahead = wall - now
        if self._is_on_course(ahead):
            if self._stepped is not None:
                self._stepped, self.stepped = None, now
                log.warning(
                    "the wall clock returned to its former course; the operator measures ages "
                    "by it again"
                )
            self._ahead = ahead
            return wall
        stepped = self._stepped
        if stepped is None or abs(ahead - stepped[0]) > _APART:
            self._stepped, self.stepped = (ahead, now), now
            self.steps += 1
            log.warning(
                "the wall clock was stepped by %s; the operator measures ages by the monotonic "
                "clock for %s, and longer as the API server's clock was not stepped, and idle "
                "work is not preempted for a grace period",
                _by(ahead - self._ahead),
                format_duration(_LONGEST),
            )
        elif self._server is not None and self._is_on_course(self._server):
            self._stepped = stepped[0], now
        elif now - stepped[1] >= _LONGEST:
            return self._followed(now, ahead)
        return Nanos(now + self._ahead)

    def _followed(self, now: Nanos, ahead: int) -> Nanos:
        """Return the time by the course that is followed from now on."""
        server = self._server
        if server is not None and abs(server - ahead) > _APART:
            ahead = server
        by, self._ahead, self._stepped, self.stepped = ahead - self._ahead, ahead, None, now
        log.warning(
            "the operator measures ages by the wall clock again, %s from its former course",
            _by(by),
        )
        return Nanos(now + ahead)

    def _is_on_course(self, ahead: int) -> bool:
        return abs(ahead - self._ahead) <= _APART


def _by(nanoseconds: int) -> str:
    return f"{'-' if nanoseconds < 0 else '+'}{format_duration(abs(nanoseconds))}"
