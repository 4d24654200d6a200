"""The watched topics, made again when the cluster changed, and their readers.

One task makes all watched pages, in rounds, at the pace that their making allows; a topic that
no reader watches costs nothing, and is forgotten when its differences are too old to be of use. A
stream holds a position and nothing else: it queries its topic for what it missed whenever there is
news.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.units.errors import ReprieveError
from reprieve.web.live.differences import State
from reprieve.web.live.pace import QUIET, Pace
from reprieve.web.live.topic import RING_AGE, Position, Topic
from reprieve.web.tables import NotFound, Page, Parameters, Viewer

__all__ = ["Cluster", "Key", "TooManyStreams", "Watching"]

log: Final = logging.getLogger(__name__)

#: Topics that no reader watches any more, kept for readers who come back.
_KEPT: Final = 32
_MOST_STREAMS: Final = 256
#: Of one viewer: more pages than any user reads, and few enough to leave capacity for others.
_MOST_OF_ONE: Final = 32
#: A comment is sent after so long a silence, so that nothing between here and there hangs up.
_BEAT: Final = 15 * SECOND
BEAT: Final = b": still here\n\n"


class TooManyStreams(ReprieveError):
    """As many streams are open as one server serves."""


class Cluster(Protocol):
    """What pages are made of."""

    @property
    def version(self) -> int:
        """Rises with each change."""
        ...

    async def changed(self, since: int) -> None:
        """Return once the version is another."""
        ...

    def page(self, key: Key, at: Nanos) -> Page:
        """Make a page.

        Raises:
            NotFound: there is no such page, or this viewer may not know that there is.
            InvalidParameter: a parameter cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Key:
    """A page with its parameters, as seen with a user's rights."""

    page: str
    parameters: tuple[tuple[str, tuple[str, ...]], ...]
    viewer: Viewer

    @classmethod
    def of(cls, page: str, parameters: Parameters, viewer: Viewer) -> Key:
        """Return the key of a topic; the order of the names of parameters does not matter."""
        return cls(page, tuple(sorted(parameters.items())), viewer)


@dataclass(slots=True)
class _Watched:
    topic: Topic
    made_of: int  # the cluster's version
    made: Nanos  # monotonic
    left: Nanos  # when the last stream or request was there, monotonic
    streams: int = 0
    ended: str = ""  # why it can be shown no more
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Watching:
    """All topics of one server.

    Args:
        cluster: makes the pages.
        clock: for pauses and for the time that pages are made at.
        epoch: draws the epoch of a topic.
    """

    def __init__(self, cluster: Cluster, clock: Clock, epoch: Callable[[], str]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._epoch = epoch
        self._pace = Pace()
        self._topics: dict[Key, _Watched] = {}
        self._arrived = asyncio.Event()
        self.streams = 0
        self._of_viewer: Counter[str] = Counter()

    @property
    def topics(self) -> int:
        """How many topics are held."""
        return len(self._topics)

    def snapshot(self, key: Key) -> bytes:
        """Return a page as a JSON document, with the position from which a stream continues.

        Raises:
            NotFound: as `Cluster.page`.
            InvalidParameter: as `Cluster.page`.
        """
        return self._asked(key).snapshot()

    def state(self, key: Key) -> State:
        """Return a page as it is shown.

        Raises:
            NotFound: as `Cluster.page`.
            InvalidParameter: as `Cluster.page`.
        """
        return self._asked(key).state

    async def stream(
        self, key: Key, position: Position | None, viewer: str = ""
    ) -> AsyncGenerator[bytes]:
        """Yield events, until the page can be shown no more; comments when nothing happens.

        `viewer`: the name of who watches.

        The first event is made before the first wait, so that what is refused is refused at once.

        Raises:
            NotFound: as `Cluster.page`.
            InvalidParameter: as `Cluster.page`.
            TooManyStreams: some must end first.
        """
        if self.streams >= _MOST_STREAMS:
            raise TooManyStreams(
                f"{_MOST_STREAMS} streams are open, as many as one server serves: close some pages"
            )
        if self._of_viewer[viewer] >= _MOST_OF_ONE:
            raise TooManyStreams(
                f"{_MOST_OF_ONE} pages of yours are open, as many as a viewer may have: close some"
            )
        watched = self._present(key)
        watched.streams += 1
        self.streams += 1
        self._of_viewer[viewer] += 1
        self._arrived.set()
        try:
            while not watched.ended:
                watched.news.clear()
                events = watched.topic.after(position)
                position = watched.topic.position
                yield events or BEAT
                if watched.topic.position == position and not watched.ended:
                    await self._news(watched)
            raise NotFound(watched.ended)
        finally:
            watched.streams -= 1
            self.streams -= 1
            self._of_viewer[viewer] -= 1
            if not self._of_viewer[viewer]:
                del self._of_viewer[viewer]
            watched.left = self._clock.monotonic()

    async def run(self) -> None:
        """Make the watched pages again when the cluster changed, until cancelled."""
        while True:
            if not any(watched.streams for watched in self._topics.values()):
                self._arrived.clear()
                await self._arrived.wait()
            version = self._cluster.version
            oldest = min(
                (each.made_of for each in self._topics.values() if each.streams), default=version
            )
            if oldest == version:
                await self._change(version)
            await self._clock.sleep(self._pace.pause)
            await self._round()
            self._forget()

    async def _round(self) -> None:
        cost = 0
        for key, watched in list(self._topics.items()):
            if watched.streams and not watched.ended and self._stale(watched):
                start = self._clock.monotonic()
                self._make(key, watched)
                cost += self._clock.monotonic() - start
                # Streams and requests have their turn between two pages.
                await asyncio.sleep(0)
        self._pace.took(cost)

    def _asked(self, key: Key) -> Topic:
        watched = self._present(key)
        watched.left = self._clock.monotonic()
        return watched.topic

    def _present(self, key: Key) -> _Watched:
        """Return the topic; up to date, where it is not watched and nothing makes it again."""
        watched = self._topics.get(key)
        if watched is not None and not watched.ended:
            if not watched.streams and self._stale(watched):
                self._make(key, watched, first=True)
            return watched
        version, wall = self._cluster.version, self._clock.wall()
        topic = Topic(key.page, self._epoch(), self._cluster.page(key, wall), wall)
        now = self._clock.monotonic()
        watched = self._topics[key] = _Watched(topic, version, now, now)
        self._forget()
        return watched

    def _make(self, key: Key, watched: _Watched, *, first: bool = False) -> None:
        version, wall = self._cluster.version, self._clock.wall()
        try:
            page = self._cluster.page(key, wall)
        except NotFound as error:
            if first:
                del self._topics[key]
                raise
            watched.ended = str(error)
            watched.news.set()
            return
        except Exception:
            if first:
                raise
            log.exception("the page %s could not be rendered", key.page)
            watched.made_of, watched.made = version, self._clock.monotonic()
            return
        watched.made_of, watched.made = version, self._clock.monotonic()
        if watched.topic.show(page, wall, watched.made):
            watched.news.set()

    def _stale(self, watched: _Watched) -> bool:
        if watched.made_of != self._cluster.version:
            return True
        return self._clock.monotonic() - watched.made >= QUIET

    async def _news(self, watched: _Watched) -> None:
        """Return at the next news, or when it is time to report that the stream is alive."""
        await _within(watched.news.wait(), _BEAT)

    async def _change(self, version: int) -> None:
        """Return at the next change, or after a while, since windows of time move."""
        await _within(self._cluster.changed(version), QUIET)

    def _forget(self) -> None:
        now = self._clock.monotonic()
        idle = sorted(
            (each.left, index, key)
            for index, (key, each) in enumerate(self._topics.items())
            if not each.streams
        )
        for place, (left, _, key) in enumerate(idle):
            if self._topics[key].ended or now - left > RING_AGE or place < len(idle) - _KEPT:
                del self._topics[key]


async def _within(waiting: Awaitable[object], nanoseconds: int) -> None:
    """Return when that is over, or after so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(nanoseconds / SECOND):
            await waiting
