"""A level-triggered queue of keys: what has to be looked at now, and what at a later instant.

A key is handed out once however often it was added; a later deadline never replaces an earlier one
that is still to come. Deadlines are kept on the monotonic clock, so that a wall clock that is set
back delays nothing. A deadline that is over is looked at a moment later, so that a rule that finds
a key due again and again leaves the process to others.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Final, Generic, TypeVar

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MILLISECOND
from kubeworld.units.instants import Nanos

__all__ = ["DirtyKeys"]

Key = TypeVar("Key", bound=str)
_MOMENT: Final = 10 * MILLISECOND


class DirtyKeys(Generic[Key]):
    """Keys to look at; one consumer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Key, None] = {}
        self._deadlines: dict[Key, Nanos] = {}
        # Entries whose deadline is no longer the one in _deadlines are skipped when they come up.
        self._heap: list[tuple[Nanos, Key]] = []
        self._wake = asyncio.Event()
        # Wakes the consumer at the earliest deadline, or before.
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = Nanos(0)

    def add(self, key: Key) -> None:
        """Request a look at `key` now."""
        self._due[key] = None
        self._wake.set()

    def add_at(self, key: Key, wall: Nanos) -> None:
        """Request a look at `key` at the wall instant `wall`, or earlier if already requested."""
        monotonic = self._clock.monotonic()
        ahead = wall - self._clock.wall()
        deadline = Nanos(monotonic + (ahead if ahead > 0 else _MOMENT))
        held = self._deadlines.get(key)
        if held is not None and monotonic < held <= deadline:
            return
        self._deadlines[key] = deadline
        heapq.heappush(self._heap, (deadline, key))
        self._wake.set()

    def discard(self, key: Key) -> None:
        """Forget `key`."""
        self._due.pop(key, None)
        self._deadlines.pop(key, None)

    async def next(self) -> list[Key]:
        """Wait until something is due and return all of it, in order of arrival."""
        while True:
            now = self._clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                deadline, key = heapq.heappop(self._heap)
                if self._deadlines.get(key) == deadline:
                    del self._deadlines[key]
                    self._due[key] = None
            if self._due:
                keys = list(self._due)
                self._due.clear()
                return keys
            self._wake.clear()
            if self._heap:
                self._set_alarm(self._heap[0][0])
            try:
                await self._wake.wait()
            except asyncio.CancelledError:
                if self._alarm is not None:
                    self._alarm.cancel()
                raise

    def _set_alarm(self, instant: Nanos) -> None:
        """Wake at the instant; an alarm that rings earlier sets the next one."""
        if self._alarm is not None and not self._alarm.done():
            if self._alarm_at <= instant:
                return
            self._alarm.cancel()
        self._alarm_at = instant
        self._alarm = asyncio.create_task(self._ring(instant))

    async def _ring(self, instant: Nanos) -> None:
        await self._clock.sleep(max(0, instant - self._clock.monotonic()))
        self._wake.set()
