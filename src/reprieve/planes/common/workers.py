"""A bounded number of workers over dirty keys: one look at a key at a time, no waiting for others.

A key that becomes due while it is being looked at is looked at again afterwards. A look that fails
is logged and repeated later, after a fault of ours with a pause that grows with each one in a row;
it never stops the others, whatever it raised, unless the process lease is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.execution.fence import Deposed
from reprieve.kube.errors import ApiError
from reprieve.planes.common.dirty import DirtyKeys

__all__ = ["guarded", "look_at_each", "spawn"]

log: Final = logging.getLogger("reprieve.workers")

Key = TypeVar("Key", bound=str)

_BACK_OFF: Final = 5 * SECOND
_LONGEST: Final = 5 * MINUTE


async def guarded(work: Awaitable[None], reported: logging.Logger) -> None:
    """Do one task of many: its fault is not everybody's, but the loss of the lease is.

    Raises:
        Deposed: the fence is closed.
    """
    try:
        await work
    except (Deposed, asyncio.CancelledError):
        raise
    except Exception:
        reported.exception("a task failed")


def spawn(
    tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None], reported: logging.Logger
) -> None:
    """Do one task of many beside the others of the group, `guarded`."""
    task = tasks.create_task(guarded(work, reported))
    # A task that is cancelled before it begins never comes to its work.
    task.add_done_callback(lambda _: work.close())


async def look_at_each(
    due: DirtyKeys[Key],
    look: Callable[[Key], Awaitable[None]],
    clock: Clock,
    *,
    at_once: int = 16,
    reported: logging.Logger = log,
    named: Callable[[Key], str] = str,
) -> None:
    """Call `look` for every key that becomes due, until cancelled; `reported` has what failed.

    Raises:
        BaseExceptionGroup: with `Deposed` alone, when a look came upon the closed fence.
    """
    turns: _Turns[Key] = _Turns()
    faults: dict[Key, int] = {}  # in a row

    async def feed() -> None:
        while True:
            for key in await due.next():
                turns.add(key)

    async def work() -> None:
        while True:
            key = await turns.next_key()
            try:
                await look(key)
                faults.pop(key, None)
            except ApiError as failure:
                reported.warning("%s is retried later: %s", named(key), failure)
                due.add_at(key, Nanos(clock.wall() + _BACK_OFF))
            except Deposed:
                raise
            except Exception:
                reported.exception("%s is retried later after a fault of the operator", named(key))
                pause = min(_BACK_OFF << min(faults.get(key, 0), 16), _LONGEST)
                faults[key] = faults.get(key, 0) + 1
                due.add_at(key, Nanos(clock.wall() + pause))
            finally:
                turns.give_back(key)

    async with asyncio.TaskGroup() as group:
        group.create_task(feed())
        for _ in range(at_once):
            group.create_task(work())


class _Turns(Generic[Key]):
    """Keys that wait for a worker, in order of arrival, and those that have one."""

    def __init__(self) -> None:
        self._waiting: dict[Key, None] = {}  # each stands here once
        self._running: set[Key] = set()
        self._again: set[Key] = set()  # of those that are running
        # As many as there are waiting, so that one wakes one worker.
        self._arrived = asyncio.Semaphore(0)

    def add(self, key: Key) -> None:
        """Have a key wait for a worker, or for the end of the look at it."""
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = None
            self._arrived.release()

    async def next_key(self) -> Key:
        """Return the key that waits first, once there is one."""
        await self._arrived.acquire()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._running.add(key)
        return key

    def give_back(self, key: Key) -> None:
        """A look at a key is over; it waits again where it became due meanwhile."""
        self._running.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)
