"""A wall clock that a step of the machine's clock does not carry away.

Ages are the difference of two instants, one of them often written by a process before this one, so
that they follow wall time. When wall time moves by more than `_APART` against monotonic time, the
clock continues as before for `_LONGEST`; a step that is undone within that time has no effect on
any age: no idle time, minimum runtime, TTL, hold or backoff. One that lasts longer is followed,
since it is most often a clock that was wrong and has been corrected. Slow corrections are always
followed.
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
        # While a step is not followed: how far ahead wall time is then, and since when.
        self._stepped: tuple[int, Nanos] | None = None
        self.stepped: Nanos | None = None
        self.steps = 0

    def monotonic(self) -> Nanos:
        return self._clock.monotonic()

    async def sleep(self, nanoseconds: int) -> None:
        await self._clock.sleep(nanoseconds)

    def wall(self) -> Nanos:
        now = self._clock.monotonic()
        wall = self._clock.wall()
        ahead = wall - now
        if abs(ahead - self._ahead) <= _APART:
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
                "clock for %s, and idle work is not preempted for a grace period",
                _by(ahead - self._ahead),
                format_duration(_LONGEST),
            )
        elif now - stepped[1] >= _LONGEST:
            by, self._ahead, self._stepped, self.stepped = ahead - self._ahead, ahead, None, now
            log.warning(
                "the operator measures ages by the wall clock again, %s from its former course",
                _by(by),
            )
            return wall
        return Nanos(now + self._ahead)


def _by(nanoseconds: int) -> str:
    return f"{'-' if nanoseconds < 0 else '+'}{format_duration(abs(nanoseconds))}"
