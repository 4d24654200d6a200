"""Who waits until something changes for a pod or a plan: thousands of polls, and a few plans.

A wait of a plan ends to the nanosecond. Polls share alarms, so that each costs one future.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND

__all__ = ["Waiters"]

_Future = asyncio.Future[None]
_NOBODY: Final[frozenset[_Future]] = frozenset()


class Waiters:
    """All that wait, by the name of what they wait for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, set[_Future]] = defaultdict(set)
        # Polls by the second at which they end, with the alarm of each second.
        self._late: dict[int, tuple[set[_Future], _Future]] = {}

    def number(self, name: str) -> int:
        """Return how many wait for a name."""
        return len(self._waiting.get(name, _NOBODY))

    @property
    def alarms(self) -> int:
        """How many alarms are set for polls."""
        return len(self._late)

    async def wait(self, name: str, nanoseconds: int) -> None:
        """Return when something has changed, or after so long."""
        changed = asyncio.get_running_loop().create_future()
        self._waiting[name].add(changed)
        pause = asyncio.ensure_future(self._clock.sleep(nanoseconds))
        try:
            await asyncio.wait((changed, pause), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Do not await its end: a cancellation of ours would look like that of the pause.
            pause.cancel()
            self._forget(name, changed)

    async def poll(self, name: str, nanoseconds: int) -> None:
        """Return when something has changed, or after so long and up to a second more."""
        due = (self._clock.monotonic() + nanoseconds) // SECOND + 1
        changed = asyncio.get_running_loop().create_future()
        late, alarm = self._late.get(due) or (None, None)
        if late is None or alarm is None:
            late, alarm = set(), asyncio.ensure_future(self._ring(due))
            self._late[due] = late, alarm
        late.add(changed)
        self._waiting[name].add(changed)
        try:
            await changed
        finally:
            late.discard(changed)
            if not late:
                self._late.pop(due, None)
                alarm.cancel()
            self._forget(name, changed)

    async def _ring(self, due: int) -> None:
        await self._clock.sleep(due * SECOND - self._clock.monotonic())
        late, _ = self._late.pop(due)
        for waiter in late:
            if not waiter.done():
                waiter.set_result(None)

    def wake(self, name: str) -> None:
        """Something has changed for a name."""
        for waiter in self._waiting.get(name, _NOBODY):
            if not waiter.done():
                waiter.set_result(None)

    def _forget(self, name: str, waiter: _Future) -> None:
        self._waiting[name].discard(waiter)
        if not self._waiting[name]:
            del self._waiting[name]
