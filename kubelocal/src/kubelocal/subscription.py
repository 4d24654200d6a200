"""Versions of objects, the events between them, and their watchers.

A subscription is one watcher's queue: everything after its first revision, in order, none lost and
none twice; one that falls too far behind is closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

__all__ = ["EventType", "Stored", "StoredEvent", "Subscription"]

# More than one turn of the event loop brings, and little enough to keep for many that are stuck.
BACKLOG_PER_WATCHER: Final = 20_000


class EventType(StrEnum):
    """What a watch states about an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of one object; `body` is its JSON in storage version, resourceVersion inside."""

    resource: str
    namespace: str
    name: str
    uid: str
    revision: int
    body: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]

    def decode(self) -> dict[str, Any]:
        """Return a fresh dictionary that the caller may change."""
        decoded: dict[str, Any] = orjson.loads(self.body)
        return decoded


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One write. `encoded` holds what watchers share: form of the answer -> bytes."""

    type: EventType
    revision: int
    object: Stored
    previous: Stored | None
    encoded: dict[Any, bytes] = field(default_factory=dict, compare=False)


class Subscription:
    """The events of one resource from a revision on, in order, none lost, none twice."""

    def __init__(self, replay: Iterable[StoredEvent], revision: int) -> None:
        self._backlog: deque[StoredEvent] = deque(replay)
        self._wake: asyncio.Future[None] | None = None
        self.ended = asyncio.Event()
        # The revision up to which everything has been handed out or is in the backlog.
        self.revision = revision
        self.bookmark_due = False

    def offer(self, event: StoredEvent) -> None:
        """Append; a watcher that is too far behind is closed, as the real server does."""
        if len(self._backlog) >= BACKLOG_PER_WATCHER:
            self.close()
        else:
            self._backlog.append(event)
            self.wake()

    def close(self) -> None:
        self.ended.set()
        self.wake()

    @property
    def closed(self) -> bool:
        return self.ended.is_set()

    @property
    def caught_up(self) -> bool:
        return not self._backlog

    def wake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def batch(self) -> list[StoredEvent]:
        """Return what has come since the last call; empty when closed or a bookmark is due."""
        if not self._backlog and not self.closed and not self.bookmark_due:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        events = list(self._backlog)
        self._backlog.clear()
        return events
