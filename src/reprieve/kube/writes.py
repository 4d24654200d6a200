"""The order in which writes leave this process: lease > intent > evict > status > event.

A bounded number of writes is in flight. When all places are in use, the next free one is given to
the waiting writer of the highest priority, among equals to the one that came first. One place is
kept for leases alone, so that no pile of slow writes can make this process lose its lease. While
anything else is on its way events are sent one at a time: what they cost the API server the others
wait for.
Source: the design's section "Processes and time".
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum

__all__ = ["Priority", "WriteGate"]


class Priority(IntEnum):
    """Priorities of writes; lower numbers before higher ones."""

    LEASE = 0
    INTENT = 1
    EVICT = 2
    STATUS = 3
    EVENT = 4


class WriteGate:
    """Passes a bounded number of writes at a time, by priority, then by arrival.

    Args:
        places: writes in flight that are not lease writes; at least 1.
    """

    def __init__(self, places: int = 16) -> None:
        if places < 1:
            raise ValueError("a gate needs at least one place")
        self._places = places
        self._free = places
        self._events = 0  # of the places that are in use
        self._lease_free = True
        self._passed = dict.fromkeys(Priority, 0)
        # All and only writers that wait, and cancelled ones not yet met: (priority, arrival, turn).
        self._waiting: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()

    @property
    def waiting(self) -> int:
        """Writers that wait for a place."""
        return sum(not turn.done() for _, _, turn in self._waiting)

    def passed_before(self, priority: Priority) -> int:
        """Return how many writes before this priority were passed; leases apart."""
        return sum(
            count for each, count in self._passed.items() if Priority.LEASE < each < priority
        )

    @asynccontextmanager
    async def turn(self, priority: Priority) -> AsyncIterator[None]:
        """Wait for a place and hold it for the duration of the block."""
        if priority is Priority.LEASE and self._lease_free:
            self._lease_free = False
            try:
                yield
            finally:
                self._lease_free = True
            return
        await self._acquire(priority)
        try:
            yield
        finally:
            self._release(priority)

    async def _acquire(self, priority: Priority) -> None:
        if not self._waiting and self._may_go(priority):
            self._enter(priority)
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._arrivals), turn))
        # Places can be free beside writers that were cancelled, or events that are held up.
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(priority)
            raise

    def _may_go(self, priority: Priority) -> bool:
        others = self._places - self._free - self._events
        held_up = priority is Priority.EVENT and self._events and others
        return bool(self._free) and not held_up

    def _enter(self, priority: Priority) -> None:
        self._free -= 1
        self._passed[priority] += 1
        self._events += priority is Priority.EVENT

    def _release(self, priority: Priority) -> None:
        self._free += 1
        self._events -= priority is Priority.EVENT
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            priority, _, turn = self._waiting[0]
            if turn.done():
                heapq.heappop(self._waiting)
            elif self._may_go(priority):
                heapq.heappop(self._waiting)
                self._enter(priority)
                turn.set_result(None)
            else:
                return
