"""The loop that drives one machine: a set of dirty keys, timers, and retries.

A key is processed when something it depends on changed, when the machine requested it earlier, or
when the last run failed. Runs of one machine never overlap. A failing key waits longer each time
and stops no other key, nor any other machine.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Hashable, Iterable
from typing import Any, Final, Protocol

from kubelocal.machines.objects import Change, Object, StoreError
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND

__all__ = ["Machine", "Worker"]

_LOG = logging.getLogger(__name__)
_FIRST_RETRY: Final = SECOND // 200
_LAST_RETRY: Final = 30 * SECOND


class Machine(Protocol):
    """One imitated component."""

    name: str

    def concerns(self, change: Change, before: Object | None) -> Iterable[Hashable]:
        """Return the keys that have to be processed because of this change."""
        ...

    async def reconcile(self, key: Any) -> int | None:
        """Bring what belongs to this key a step nearer to what should be.

        Returns the nanoseconds after which it wants to look again, None for "when it changes".
        """
        ...


class Worker:
    """Drives one machine."""

    def __init__(self, machine: Machine, clock: Clock) -> None:
        self.machine = machine
        self._clock = clock
        self._dirty: dict[Hashable, None] = {}
        self._stirred = asyncio.Event()
        # (monotonic deadline, order, key); an entry counts only while `_due[key]` is its deadline.
        self._timers: list[tuple[int, int, Hashable]] = []
        self._due: dict[Hashable, int] = {}
        self._order = itertools.count()
        self._failures: dict[Hashable, int] = {}

    def notice(self, change: Change, before: Object | None) -> None:
        """Mark what this change concerns. Listener of the informer."""
        try:
            for key in self.machine.concerns(change, before):
                self.mark(key)
        except Exception:  # one object that cannot be read must not end the feed
            _LOG.exception("%s: %s of %s", self.machine.name, change.type, change.resource)

    def mark(self, key: Hashable) -> None:
        """Have this key processed soon."""
        self._dirty[key] = None
        self._stirred.set()

    async def run(self) -> None:
        """Look at dirty keys until cancelled."""
        while True:
            self._ring()
            if self._dirty:
                key = next(iter(self._dirty))
                del self._dirty[key]
                await self._reconcile(key)
                await asyncio.sleep(0)  # a look may end without ever having waited
            else:
                await self._idle()

    async def _reconcile(self, key: Hashable) -> None:
        self._due.pop(key, None)
        try:
            wait = await self.machine.reconcile(key)
        except Exception as problem:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            level = logging.DEBUG if isinstance(problem, StoreError) else logging.ERROR
            _LOG.log(level, "%s: %s: %r", self.machine.name, key, problem)
            wait = min(_LAST_RETRY, _FIRST_RETRY << min(failures - 1, 20))
        else:
            self._failures.pop(key, None)
        if wait is not None:
            deadline = self._clock.monotonic() + max(0, wait)
            self._due[key] = deadline
            heapq.heappush(self._timers, (deadline, next(self._order), key))

    def _ring(self) -> None:
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            deadline, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == deadline:
                del self._due[key]
                self._dirty[key] = None

    async def _idle(self) -> None:
        self._stirred.clear()
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stirred.wait())]
        if self._timers:
            rest = self._timers[0][0] - self._clock.monotonic()
            waits.append(asyncio.ensure_future(self._clock.sleep(rest)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
