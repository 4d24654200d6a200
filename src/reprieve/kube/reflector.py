"""Keeps a sink equal to what the API server holds of one kind.

1. List in pages, hand everything over as one batch, remember the list's resourceVersion.
2. Watch from there, with bookmarks. A watch that ends is resumed from the last version seen.
3. 410 (the version is forgotten): list again, not older than the last version seen. One list at
   the start and one per 410; nothing else makes this lister list, but a list that fails is retried.
4. 403: reported once with the rule to add and tried again as below, since a server that has just
   started refuses everything until it has read its roles. 404 (the kind is not served): likewise,
   slowly; what is held stays until the kind is back and listed again.
5. Everything else: jittered exponential backoff, which starts over once a watch has delivered.
6. A fault of ours about one event is logged, and the events after it are read all the same; one
   about a list is logged, and it is listed again.

Source: client-go's Reflector; the design's section "State that can be trusted".
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable
from contextlib import aclosing
from random import Random
from typing import Any, Final, Generic, Protocol, TypeVar

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.kube.decoding import Shape, WatchEvent
from reprieve.kube.errors import (
    ApiError,
    Expired,
    Forbidden,
    NotFound,
    ServerError,
    Unauthorized,
    Undecodable,
    Unreachable,
)
from reprieve.kube.objects import version_number
from reprieve.kube.reader import PAGE_SIZE, Reader
from reprieve.kube.resource import Resource
from reprieve.units.errors import UsageError

__all__ = ["Health", "Reflector", "Sink"]

log: Final = logging.getLogger("reprieve.kube")

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_BACKOFF_FIRST: Final = 800 * MILLISECOND
_BACKOFF_MOST: Final = 30 * SECOND
_NOT_SERVED_PAUSE: Final = 5 * SECOND
_WATCH_SECONDS: Final = (300, 600)
_TURN: Final = 10 * MILLISECOND  # of work on one watch before others have their turn
_TOGETHER: Final = 16  # objects of a list that are decoded and handed over at once


class Sink(Protocol[T_contra]):
    """The follower of every change, on the event loop."""

    def received(self, objects: list[Any]) -> list[Any]:
        """Return what is to be kept of a part of a page until the list is complete."""
        ...

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        """Hold exactly `objects`, all that `received` returned: the state at `resource_version`."""
        ...

    def applied(self, obj: T_contra) -> None:
        """Hold this object in place of its older version."""
        ...

    def deleted(self, obj: T_contra) -> None:
        """Release this object; it comes as it was last."""
        ...


class Health(enum.StrEnum):
    """What a reflector is at."""

    STARTING = "Starting"
    WATCHING = "Watching"
    FORBIDDEN = "Forbidden"
    NOT_SERVED = "NotServed"
    UNREACHABLE = "Unreachable"
    FAILING = "Failing"


class Reflector(Generic[T]):
    """Lists and watches one kind for one sink.

    Args:
        client: for the API server.
        resource: the kind.
        type: what objects are decoded into.
        sink: called for every change.
        clock: for pauses.
        jitter: spreads pauses and watch lengths; seeded in tests.
        namespace: empty for all.
        label_selector: as the API has it.
        field_selector: as the API has it.
        report: called once for each distinct trouble, and for objects that cannot be decoded.
        restarted: called with the reason whenever listing or watching starts anew: `ended` (by the
            server, as all watches are after a while), `expired` or the name of the error.
    """

    def __init__(
        self,
        client: Reader,
        resource: Resource,
        type: Shape[T],
        sink: Sink[T],
        clock: Clock,
        *,
        jitter: Random | None = None,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
        report: Callable[[Exception], None] = lambda error: None,
        restarted: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.health = Health.STARTING
        self.error: Exception | None = None
        self._client = client
        self._type = type
        self._sink = sink
        self._clock = clock
        self._jitter = jitter or Random()
        self._scope: dict[str, Any] = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
            "skipped": report,
        }
        self._page_size = page_size
        self._report = report
        self._restarted = restarted
        self._version = ""  # of the last list, event or bookmark; empty before the first list
        self._listed = False  # False: the next thing to do is a list
        self._failures = 0  # in a row
        self._reported = ""  # the trouble reported last; empty once all is well again

    @property
    def resource_version(self) -> str:
        """The last version seen; empty before the first list."""
        return self._version

    async def run(self) -> None:
        """Keep the sink up to date until cancelled."""
        while True:
            try:
                if not self._listed:
                    await self._list()
                await self._watch()
                self._restarted("ended")
            except Expired:
                self._restarted("expired")
                self._listed = False
                if self._failures:
                    await self._clock.sleep(self._backoff())
                self._failures += 1
            except (ApiError, UsageError) as error:
                self._restarted(type(error).__name__)
                await self._clock.sleep(self._trouble(error))
            except Exception as fault:
                log.exception(
                    "an event of the watch of %s is skipped: it cannot be read",
                    self.resource.qualified,
                )
                self._restarted("fault")
                self.error, self.health, self._listed = fault, Health.FAILING, False
                await self._clock.sleep(self._backoff())

    async def _list(self) -> None:
        objects, version = await self._pages(self._version, self._page_size)
        self._sink.replaced(objects, version)
        self._version = version
        self._listed = True
        self.synced.set()

    async def _pages(self, not_older_than: str, page_size: int) -> tuple[list[Any], str]:
        objects: list[Any] = []
        version = ""
        try:
            async for page in self._client.list_pages(
                self.resource,
                self._type,
                resource_version=not_older_than,
                page_size=page_size,
                together=_TOGETHER,
                **self._scope,
            ):
                objects += self._sink.received(page.items)
                # Later pages repeat the first one's version.
                version = version or page.resource_version
        except Expired:
            if not page_size:
                raise
            # The list outlived its continue token: everything at once cannot.
            return await self._pages(not_older_than, 0)
        except ServerError as error:
            if not not_older_than or not _too_large(error):
                raise
            # The server's storage was restored to an earlier state (from a backup).
            return await self._pages("", page_size)
        return objects, version

    async def _watch(self) -> None:
        """Watch until the server ends it."""
        start = self._clock.monotonic()
        delivered, worked = False, 0
        events = self._client.watch(
            self.resource,
            self._type,
            resource_version=self._version,
            timeout_seconds=self._jitter.randint(*_WATCH_SECONDS),
            opened=self._well,
            **self._scope,
        )
        try:
            async with aclosing(events):
                async for event in events:
                    delivered = True
                    began = self._clock.monotonic()
                    self._apply(event)
                    worked += self._clock.monotonic() - began
                    if worked >= _TURN:
                        # What is buffered is read without a pause: others have their turn. Never
                        # sooner, since what is read already should be decided on together.
                        await asyncio.sleep(0)
                        worked = 0
        finally:
            if self.health is Health.WATCHING and self._clock.monotonic() - start >= SECOND:
                # It was open for a while, although nothing happened.
                self._failures = 0
        if not delivered and self._clock.monotonic() - start < SECOND:
            # A server that ends watches at once would otherwise be queried without a pause.
            await self._clock.sleep(self._backoff())
        else:
            self._failures = 0

    def _apply(self, event: WatchEvent[T]) -> None:
        self._failures = 0
        seen, now = version_number(self._version), version_number(event.resource_version)
        if event.object is not None and 0 <= now <= seen:
            return
        try:
            if event.type in ("ADDED", "MODIFIED") and event.object is not None:
                self._sink.applied(event.object)
            elif event.type == "DELETED" and event.object is not None:
                self._sink.deleted(event.object)
        except Exception:
            about = "an event of %s at version %s was not applied"
            log.exception(about, self.resource.qualified, event.resource_version)
        if event.resource_version:
            self._version = event.resource_version

    def _well(self) -> None:
        self.health = Health.WATCHING
        self.error = None
        self._reported = ""

    def _trouble(self, error: ApiError | UsageError) -> int:
        """Note and report the trouble; return the nanoseconds to wait."""
        self.error = error
        match error:
            case Forbidden() | Unauthorized():
                self.health, pause = Health.FORBIDDEN, self._backoff()
            case NotFound():
                self.health, pause = Health.NOT_SERVED, self._spread(_NOT_SERVED_PAUSE)
                self._listed = False
            case Unreachable():
                self.health, pause = Health.UNREACHABLE, self._backoff()
            case Undecodable():
                # Not one object but the answer itself: only a new list can help.
                self.health, pause = Health.FAILING, self._backoff()
                self._listed = False
            case _:
                self.health, pause = Health.FAILING, self._backoff()
        if isinstance(error, ApiError) and error.retry_after is not None:
            pause = max(pause, self._spread(int(error.retry_after * SECOND)))
        key = f"{self.health}: {getattr(error, 'rule', None) or ''}"
        if key != self._reported:
            self._reported = key
            self._report(error)
        return pause

    def _backoff(self) -> int:
        pause = min(_BACKOFF_FIRST << min(self._failures, 16), _BACKOFF_MOST)
        self._failures += 1
        return self._spread(pause)

    def _spread(self, pause: int) -> int:
        return pause + int(pause * self._jitter.random() / 2)


def _too_large(error: ServerError) -> bool:
    causes = error.details.get("causes")
    if isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "ResourceVersionTooLarge"
        for cause in causes
    ):
        return True
    return "Too large resource version" in error.message
