"""How many writes of little weight are sent: many while it is quiet, few while others have much.

What such a write costs the API server the others wait for, whatever the order in which they leave.
So there are so many at once, and then so many per second: the smaller number while writes that are
sent first come often, the larger one as soon as they do not. Nothing waits for ever: the smaller
number is never none. Where the burst is used up, the writes that a quarter of a second allows are
sent together, so that this process wakes once for all of it: waking for each costs about as much as
the write.
Source: the design's section "Processes and time".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MILLISECOND, SECOND

__all__ = ["Allowance", "WriteBudget"]

_ONE: Final = SECOND  # a write, in units of which `per second` gives one in each nanosecond
#: For how long those that may be sent are gathered.
_GATHERED: Final = SECOND // 4


@dataclass(frozen=True, slots=True)
class Allowance:
    """`burst` writes at once, then `quiet` or `busy` per second.

    Busy is when more than `many` writes that are sent first were made in a second.
    """

    burst: int
    quiet: int
    busy: int
    many: int


class WriteBudget:
    """One allowance; `passed` counts the writes of higher priority, so far."""

    def __init__(self, clock: Clock, passed: Callable[[], int], allowance: Allowance) -> None:
        self._clock = clock
        self._passed = passed
        self._allowance = allowance
        self._left = allowance.burst * _ONE
        self._filled = self._since = clock.monotonic()
        self._before = passed()
        self._busy = False
        self._first = asyncio.Lock()  # of those that wait for their turn, held by the next one

    @property
    def busy(self) -> bool:
        """Whether writes of higher priority come often."""
        now, passed = self._clock.monotonic(), self._passed()
        elapsed, count = now - self._since, passed - self._before
        if elapsed >= SECOND:
            self._busy = count * SECOND > self._allowance.many * elapsed
            self._since, self._before = now, passed
        elif count > self._allowance.many:
            self._busy = True
        return self._busy

    async def turn(self) -> None:
        """Wait until one more may be sent, and count it; in the order of arrival."""
        # One of them polls and the others wait for it: if all polled, each write would wake all.
        async with self._first:
            while wait := self._count():
                await self._clock.sleep(wait)

    def _count(self) -> int:
        """Count one write; return 0, or in how many nanoseconds to try again."""
        rate = self._allowance.busy if self.busy else self._allowance.quiet
        now = self._clock.monotonic()
        gained = (now - self._filled) * rate
        self._filled = now
        self._left = min(self._left + gained, self._allowance.burst * _ONE)
        if self._left >= _ONE:
            self._left -= _ONE
            return 0
        # No more is gathered than half of what fits: who wakes late would lose the rest.
        together = max(_ONE, min(_GATHERED * rate, self._allowance.burst * _ONE // 2))
        return max(MILLISECOND, (together - self._left) // rate)
