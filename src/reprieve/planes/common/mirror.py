"""One reflector for each kind that the planes of a process read: listed, watched and decoded once.

Every plane follows the kinds that it needs, with a sink of its own; all that follow a kind are told
of each list and each event, in the order in which they came. What one of them fails at is nobody
else's: the others are told first. An object is decoded into the type of the one that reads most of
it (`_WIDER`); kinds of which two planes want types that have nothing to do with each other are read
once for each type.

Who comes later makes the kind be listed anew for all, which changes nothing for those who were
there, since a list replaces what is held. A kind that nobody follows any more is not read. Where
one alone follows a kind nothing stands between it and its reflector. Source: the design's "How data
flows".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, get_origin

from reprieve.api import core, kueue, scheduling
from reprieve.kube.reader import Reader
from reprieve.kube.reflector import Health, Reflector, Sink
from reprieve.kube.resource import Resource
from reprieve.units.clock import Clock

__all__ = ["WIDER", "Followed", "Mirror"]

log: Final = logging.getLogger("reprieve")

W = TypeVar("W")

#: Types that read more of the same objects under the same names: what needs the one can have the
#: other. `tests/controllers/test_mirror.py` compares them field by field.
WIDER: Final[Mapping[type, type]] = MappingProxyType(
    {
        core.Pod: scheduling.PodObject,
        core.Node: scheduling.NodeObject,
        core.KueueWorkload: kueue.Workload,
    }
)

_TURNS: Final = 8  # of the event loop, within which planes that begin together join


def _reads_all_of(wide: type, narrow: type) -> bool:
    if wide == narrow or WIDER.get(narrow) is wide:
        return True
    # Such as dict[str, Any], which is no class.
    plain = get_origin(wide) is None and get_origin(narrow) is None
    return plain and issubclass(wide, narrow)


class Followed(Generic[W]):
    """One kind as one plane follows it; it has what a `Reflector` shows of itself."""

    def __init__(
        self,
        mirror: Mirror,
        resource: Resource,
        type: type[W],
        sink: Sink[W],
        report: Callable[[Exception], None],
        restarted: Callable[[str], None],
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.type = type
        self.sink = sink
        self.report = report
        self.restarted = restarted
        self._mirror = mirror
        self._feed: _Feed | None = None

    @property
    def health(self) -> Health:
        """What its reflector is at."""
        return Health.STARTING if self._feed is None else self._feed.reflector.health

    @property
    def error(self) -> Exception | None:
        """What its reflector failed at, if it does."""
        return None if self._feed is None else self._feed.reflector.error

    @property
    def followed(self) -> bool:
        """Whether it is told of anything now."""
        return self._feed is not None

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        self._feed = self._mirror.join(self)
        try:
            await self._feed.over(self)
        finally:
            feed, self._feed = self._feed, None
            await self._mirror.leave(feed, self)


class Mirror:
    """All that the planes of one process read of the API server."""

    def __init__(self, client: Reader, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._feeds: list[_Feed] = []

    def follow(
        self,
        resource: Resource,
        type: type[W],
        sink: Sink[W],
        *,
        report: Callable[[Exception], None] = lambda error: None,
        restarted: Callable[[str], None] = lambda why: None,
    ) -> Followed[W]:
        """Return a kind to follow, not begun; the arguments are those of `Reflector`."""
        return Followed(self, resource, type, sink, report, restarted)

    def join(self, follower: Followed[Any]) -> _Feed:
        """Begin to tell a follower."""
        for feed in self._feeds:
            if feed.suits(follower):
                feed.add(follower)
                return feed
        feed = _Feed(self._client, self._clock, follower)
        self._feeds.append(feed)
        return feed

    async def leave(self, feed: _Feed, follower: Followed[Any]) -> None:
        """Tell a follower nothing any more; return once a kind without followers is not read."""
        if not feed.remove(follower):
            self._feeds.remove(feed)
            await feed.end()


class _Feed:
    """One reflector and who follows it."""

    def __init__(self, client: Reader, clock: Clock, first: Followed[Any]) -> None:
        self._client = client
        self._clock = clock
        self._followers = [first]
        self._ends: dict[int, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._start: asyncio.Handle | None = None
        self.reflector = self._made()  # runs a few turns later
        self._restart()

    def suits(self, follower: Followed[Any]) -> bool:
        """Whether it reads this kind, in a type that can be brought together with the others'."""
        first = self._followers[0]
        if first.resource != follower.resource:
            return False
        wide, new = self._type(), follower.type
        return _reads_all_of(wide, new) or _reads_all_of(new, wide)

    def add(self, follower: Followed[Any]) -> None:
        """Tell one more, from a new list on."""
        self._followers.append(follower)
        self._restart()

    def remove(self, follower: Followed[Any]) -> bool:
        """Tell one fewer; return whether anybody is left."""
        self._followers.remove(follower)
        self._ends.pop(id(follower), None)
        return bool(self._followers)

    async def end(self) -> None:
        """Read the kind no more."""
        task = self._task
        self._stop()
        if task is not None:
            await asyncio.wait((task,))

    async def over(self, follower: Followed[Any]) -> None:
        """Wait for the end of the reflector, which is a fault of ours that it could not bear."""
        end = self._ends[id(follower)] = asyncio.get_running_loop().create_future()
        await end

    def _type(self) -> type:
        wide = self._followers[0].type
        for each in self._followers[1:]:
            wide = each.type if _reads_all_of(each.type, wide) else wide
        return wide

    def _restart(self) -> None:
        """List anew with all who follow by then; planes that begin together cost one list."""
        self._stop()
        self._start = asyncio.get_running_loop().call_soon(self._soon, _TURNS)

    def _stop(self) -> None:
        if self._start is not None:
            self._start.cancel()
            self._start = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _soon(self, turns: int) -> None:
        if turns:
            self._start = asyncio.get_running_loop().call_soon(self._soon, turns - 1)
            return
        self._start = None
        self.reflector = self._made()
        name = f"watch {self.reflector.resource.qualified}"
        self._task = asyncio.create_task(self.reflector.run(), name=name)
        self._task.add_done_callback(self._ended)

    def _made(self) -> Reflector[Any]:
        followers = tuple(self._followers)

        def report(trouble: Exception) -> None:
            for each in followers:
                each.report(trouble)

        return Reflector(
            self._client,
            followers[0].resource,
            self._type(),
            _One(followers[0]) if len(followers) == 1 else _All(followers),
            self._clock,
            report=report,
            restarted=followers[0].restarted,
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task is not self._task:
            return
        fault = task.exception()
        for end in self._ends.values():
            if fault is not None and not end.done():
                end.set_exception(fault)


class _One:
    """Tells the only follower."""

    def __init__(self, follower: Followed[Any]) -> None:
        self._follower = follower
        self.received = follower.sink.received
        self.applied = follower.sink.applied
        self.deleted = follower.sink.deleted

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        self._follower.sink.replaced(objects, resource_version)
        self._follower.synced.set()


class _All:
    """Tells all followers; what one of them fails at is raised once all others were told."""

    def __init__(self, followers: Sequence[Followed[Any]]) -> None:
        self._followers = followers

    def received(self, objects: list[Any]) -> list[Any]:
        """Return one page: for each follower what it keeps of it, None where it failed."""
        page: list[list[Any] | None] = []
        for each in self._followers:
            try:
                page.append(each.sink.received(objects) if each.followed else [])
            except Exception:
                log.exception("a list of %s cannot be taken over", each.resource.qualified)
                page.append(None)
        return [page]

    def replaced(self, objects: list[list[list[Any] | None]], resource_version: str) -> None:
        failed: Exception | None = None
        for number, each in enumerate(self._followers):
            if not each.followed:
                continue
            parts = [page[number] for page in objects]
            try:
                kept = [part for part in parts if part is not None]
                if len(kept) < len(parts):
                    raise ValueError("a page of the list was not taken over")
                each.sink.replaced(list(chain.from_iterable(kept)), resource_version)
                each.synced.set()
            except Exception as fault:
                failed = fault
        if failed is not None:
            raise failed

    def applied(self, obj: Any) -> None:
        self._tell(lambda sink: sink.applied(obj))

    def deleted(self, obj: Any) -> None:
        self._tell(lambda sink: sink.deleted(obj))

    def _tell(self, tell: Callable[[Sink[Any]], None]) -> None:
        failed: Exception | None = None
        for each in self._followers:
            try:
                if each.followed:
                    tell(each.sink)
            except Exception as fault:
                failed = fault
        if failed is not None:
            raise failed
