"""The one writer of statuses that a plane only has to name.

A plane requests a write (`ask`) with a wish, which states as much as is needed to work the status
out, and gives a pure function from wish to change. The rest is the same for all:

1. The newest wish for an object counts: one that is overtaken while it waits is not written.
2. An object is written by one worker at a time, so that an older wish never lands after a newer.
3. What the change is, is worked out right before it is sent, on what is known then; where nothing
   differs nothing is sent.
4. While the API server is away the change is worked out and tried again (`kube.retry`).
5. A deleted object is skipped. Any other failure is reported to the plane (`failed`), which knows
   whether it requests the write again by itself; what is no conflict stands in the log.
6. After a fault of ours the wish is tried again, unless a newer one came: in 5 s, then twice as
   late each time, 5 minutes at most (`workers`). Each is logged and counted. A caller that waits
   for the wish continues after the first. Of more than 4,096 wishes that are delayed so the oldest
   is dropped.
7. A dry run writes nothing.

Source: the design's "State that can be trusted" and "Bad input".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos
from reprieve.execution.fence import Deposed
from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Conflict, NotFound
from reprieve.kube.retry import AWAY, retried
from reprieve.planes.common.dirty import DirtyKeys
from reprieve.planes.common.workers import look_at_each

__all__ = ["StatusWriter"]

Key = TypeVar("Key", bound=str)
Wish = TypeVar("Wish")
Wire = TypeVar("Wire")

_MOST_DEFERRED: Final = 4_096


class StatusWriter(Generic[Key, Wish, Wire]):
    """Writes the statuses of the objects of one plane, named by any key.

    Args:
        client: whose writes are fenced, with the priority of statuses.
        clock: for pauses.
        change: what has to be written for a wish now, None for nothing.
        wire: the type of the answers.
        written: called with each answer.
        failed: called with a wish that could not be written.
        fault: called with each fault of ours by which a status was not written.
        reported: the log of the plane.
        at_once: how many objects are written at the same time.
        writes: whether anything is written now; not in a dry run.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        change: Callable[[Key, Wish], StatusChange | None],
        wire: type[Wire],
        written: Callable[[Key, Wish, Wire], None],
        failed: Callable[[Key, Wish], None],
        fault: Callable[[], None],
        reported: logging.Logger,
        at_once: int = 8,
        writes: Callable[[], bool],
    ) -> None:
        self._client = client
        self._clock = clock
        self._change = change
        self._wire = wire
        self._written = written
        self._failed = failed
        self._fault = fault
        self._log = reported
        self._at_once = at_once
        self._writes = writes
        self._wishes: dict[Key, Wish] = {}  # those that are not being written yet
        self._deferred: dict[Key, None] = {}  # those that a fault of ours left, the oldest first
        self._over: dict[Key, asyncio.Event] = {}
        self._due: DirtyKeys[Key] = DirtyKeys(clock)

    def ask(self, key: Key, wish: Wish, pause: int = 0) -> asyncio.Event:
        """Request a status, after that many nanoseconds; the event is set when that is over."""
        self._wishes[key] = wish
        if pause:
            self._due.add_at(key, Nanos(self._clock.wall() + pause))
        else:
            self._due.add(key)
        return self._over.setdefault(key, asyncio.Event())

    def wish(self, key: Key) -> Wish | None:
        """Return the wish that waits to be written, to be made part of the next one."""
        return self._wishes.get(key)

    def forget(self, key: Key) -> None:
        """Release a wish that is not being written yet."""
        self._wishes.pop(key, None)
        self._deferred.pop(key, None)

    async def run(self) -> None:
        """Write until cancelled.

        Raises:
            BaseExceptionGroup: with `Deposed` alone, when a write came upon the closed fence.
        """
        await look_at_each(
            self._due,
            self._write_wish,
            self._clock,
            at_once=self._at_once,
            reported=self._log,
            named=lambda key: f"the status of {key}",
        )

    async def _write_wish(self, key: Key) -> None:
        wish = self._wishes.pop(key, None)
        self._deferred.pop(key, None)
        deferred = False
        try:
            if wish is not None and self._writes():
                await self._write(key, wish)
        except (Deposed, ApiError):
            raise
        except Exception:
            self._fault()
            if wish is not None and key not in self._wishes:
                self._keep(key, wish)
                deferred = True
            raise
        finally:
            done = deferred or key not in self._wishes
            if done and (over := self._over.pop(key, None)) is not None:
                over.set()

    def _keep(self, key: Key, wish: Wish) -> None:
        """Keep a wish for the next look at its object, as the workers have that."""
        self._wishes[key] = wish
        self._deferred[key] = None
        if len(self._deferred) > _MOST_DEFERRED:
            self.forget(next(iter(self._deferred)))

    async def _write(self, key: Key, wish: Wish) -> None:
        async def once() -> None:
            change = self._change(key, wish)
            if change is not None:
                answer = await write_status(self._client, change, self._wire)
                self._written(key, wish, answer)

        try:
            await retried(once, self._client.transport.pause, AWAY)
        except NotFound:
            return
        except ApiError as failure:
            if not isinstance(failure, Conflict):
                self._log.warning("status of %s: %s", key, failure)
            self._failed(key, wish)
