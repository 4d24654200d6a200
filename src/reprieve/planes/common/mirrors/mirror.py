"""One reflector for each kind that the planes of a process read: listed, watched and decoded once.

Every plane follows the kinds that it needs, with a sink of its own; all followers of a kind receive
each list and each event, in the order in which they came. What one of them fails at does not
concern the others: they receive it first. In which form each gets its objects, and which forms can
be read together, is in `forms`.

A later follower makes the kind be listed anew for all, which changes nothing for the earlier ones,
since a list replaces what is held. A kind without followers is not read any more. If a kind has a
single follower, nothing stands between it and its reflector. Source: the design's "How data flows".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from kubeworld.units.clock import Clock
from reprieve.kube.reader import Reader
from reprieve.kube.reflector import Health, Reflector, Sink
from reprieve.kube.resource import Resource
from reprieve.planes.common.mirrors.forms import Form, read_for

__all__ = ["Followed", "Mirror"]

log: Final = logging.getLogger("reprieve")

W = TypeVar("W")

_TURNS: Final = 8  # of the event loop, within which planes that begin together join


class Followed(Generic[W]):
    """One kind as one plane follows it; it has what a `Reflector` shows of itself."""

    def __init__(
        self,
        mirror: Mirror,
        resource: Resource,
        form: Form[W],
        sink: Sink[W],
        report: Callable[[Exception], None],
        restarted: Callable[[str], None],
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.form = form
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
        """Whether it follows anything now."""
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
        whole: Callable[[W], bool] | None = None,
        report: Callable[[Exception], None] = lambda error: None,
        restarted: Callable[[str], None] = lambda why: None,
    ) -> Followed[W]:
        """Return a kind to follow, not begun; the arguments are those of `Reflector`.

        `whole` states which objects the sink gets as JSON has them, in place of the struct.
        """
        return Followed(self, resource, Form(type, whole), sink, report, restarted)

    def join(self, follower: Followed[Any]) -> _Feed:
        """Begin to notify a follower."""
        for feed in self._feeds:
            if feed.suits(follower):
                feed.add(follower)
                return feed
        feed = _Feed(self._client, self._clock, follower)
        self._feeds.append(feed)
        return feed

    async def leave(self, feed: _Feed, follower: Followed[Any]) -> None:
        """Stop notifying a follower; return once a kind without followers is not read."""
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
        return self.reflector.resource == follower.resource and all(
            each.form.goes_with(follower.form) for each in self._followers
        )

    def add(self, follower: Followed[Any]) -> None:
        """Notify one more follower, from a new list on."""
        self._followers.append(follower)
        self._restart()

    def remove(self, follower: Followed[Any]) -> bool:
        """Notify one follower fewer; return whether any is left."""
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
            read_for([each.form for each in followers]),
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
    """Notifies the only follower."""

    def __init__(self, follower: Followed[Any]) -> None:
        self._follower = follower
        self._of = follower.form.of
        self.received = follower.sink.received
        self.applied = follower.sink.applied
        self.deleted = follower.sink.deleted
        if follower.form.whole is not None:
            self.received = lambda objects: follower.sink.received([*map(self._of, objects)])
            self.applied = lambda obj: follower.sink.applied(self._of(obj))
            self.deleted = lambda obj: follower.sink.deleted(self._of(obj))

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        self._follower.sink.replaced(objects, resource_version)
        self._follower.synced.set()


class _All:
    """Notifies all followers; what one of them fails at is raised once all others were notified."""

    def __init__(self, followers: Sequence[Followed[Any]]) -> None:
        self._followers = followers

    def received(self, objects: list[Any]) -> list[Any]:
        """Return one page: for each follower what it keeps of it, None where it failed."""
        page: list[list[Any] | None] = []
        for each in self._followers:
            try:
                page.append(self._kept(each, objects) if each.followed else [])
            except Exception:
                log.exception("a list of %s is skipped: it cannot be read", each.resource.qualified)
                page.append(None)
        return [page]

    def _kept(self, follower: Followed[Any], objects: list[Any]) -> list[Any]:
        return follower.sink.received([*map(follower.form.of, objects)])

    def replaced(self, objects: list[list[list[Any] | None]], resource_version: str) -> None:
        failed: Exception | None = None
        for number, each in enumerate(self._followers):
            if not each.followed:
                continue
            parts = [page[number] for page in objects]
            try:
                kept = [part for part in parts if part is not None]
                if len(kept) < len(parts):
                    raise ValueError("a page of the list was not applied")
                each.sink.replaced(list(chain.from_iterable(kept)), resource_version)
                each.synced.set()
            except Exception as fault:
                failed = fault
        if failed is not None:
            raise failed

    def applied(self, obj: Any) -> None:
        self._for_each_follower(lambda sink, form: sink.applied(form.of(obj)))

    def deleted(self, obj: Any) -> None:
        self._for_each_follower(lambda sink, form: sink.deleted(form.of(obj)))

    def _for_each_follower(self, report: Callable[[Sink[Any], Form[Any]], None]) -> None:
        failed: Exception | None = None
        for each in self._followers:
            try:
                if each.followed:
                    report(each.sink, each.form)
            except Exception as fault:
                failed = fault
        if failed is not None:
            raise failed
