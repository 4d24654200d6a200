"""Versioned objects, their history and their place on disk.

The store knows no kinds: an object is encoded JSON under (resource, namespace, name), with the few
values that selectors request. One counter numbers all writes, as etcd's revision does, and is the
object's `resourceVersion`. Reads are answered from memory. With a file, all writes of a turn of the
event loop, and of the turns after it while more come, are written to SQLite in one synchronous
transaction; `durable` returns when that is done. Watchers are notified only afterwards, and a
handler that answers a client reads with `published_object` and `range_at(published)`, so that no
client sees a write that a crash could undo; `get` and `range` are for the next write. What the disk
refuses is undone in memory too; when it was full, writes are accepted again as soon as there is
space.

History is kept per resource, bounded; a reader that requests more gets `Compacted` (HTTP 410).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from kubelocal.disk import Disk, DiskError, DiskFull, Row
from kubelocal.subscription import EventType, Stored, StoredEvent, Subscription

__all__ = [
    "Compacted",
    "EventType",
    "Store",
    "StoreFailed",
    "Stored",
    "StoredEvent",
    "Subscription",
    "TooLarge",
]

HISTORY_PER_RESOURCE: Final = 10_000
# So many of the last events keep their encoded forms, for the watchers that are not behind.
SHARED_EVENTS: Final = 256
# Turns of the event loop for which a transaction waits while more writes come.
LONGEST_GATHERING: Final = 8
# Bytes of a request to etcd, as it accepts them by default, and of a message to it; the words
# around an object use some of them. What lies between is refused by etcd, what is above by its
# client.
REQUEST_LIMIT: Final = 1_572_864
MESSAGE_LIMIT: Final = 2_097_152
_WORDS_AROUND: Final = 126


class Compacted(Exception):
    """The requested history is compacted; `oldest` is the first revision that can be resumed."""

    def __init__(self, oldest: int) -> None:
        super().__init__(oldest)
        self.oldest = oldest


class StoreFailed(Exception):
    """The disk refused the transaction that a write was part of; nothing of it was stored."""


class TooLarge(Exception):
    """The object is larger than etcd accepts; the text is that of a server in front of one."""


@dataclass(slots=True)
class _Shelf:
    """One resource: objects, their keys in order, history and watchers."""

    objects: dict[tuple[str, str], Stored] = field(default_factory=dict)
    keys: list[tuple[str, str]] = field(default_factory=list)
    history: deque[StoredEvent] = field(default_factory=deque)
    # Events up to and including this revision are no longer in `history`.
    compacted: int = 0
    watchers: set[Subscription] = field(default_factory=set)


class Store:
    """All objects of the embedded cluster.

    `fields_of(resource, object)` gives the values that field selectors may request; objects are as
    large as `request_limit` allows, in bytes.
    """

    def __init__(
        self,
        fields_of: Callable[[str, dict[str, Any]], Mapping[str, str]],
        path: Path | None = None,
        request_limit: int = REQUEST_LIMIT,
    ) -> None:
        self._request_limit = request_limit
        self.revision = 1
        self._fields_of = fields_of
        self._shelves: defaultdict[str, _Shelf] = defaultdict(_Shelf)
        self._per_namespace: defaultdict[str, int] = defaultdict(int)
        self._batch: asyncio.Future[None] | None = None
        self._unpublished: list[StoredEvent] = []
        self._failure: Exception | None = None
        self._compacted = 0
        self._disk = Disk(path) if path is not None else None
        if self._disk is not None:
            self._load(self._disk)

    # Reading

    def get(self, resource: str, namespace: str, name: str) -> Stored | None:
        shelf = self._shelves.get(resource)
        return shelf.objects.get((namespace, name)) if shelf else None

    def published_object(self, resource: str, namespace: str, name: str) -> Stored | None:
        """Return the object as it is on disk."""
        for event in self._unpublished:
            if (event.object.resource, event.object.namespace, event.object.name) == (
                resource,
                namespace,
                name,
            ):
                return event.previous
        return self.get(resource, namespace, name)

    def range(
        self, resource: str, namespace: str | None, after: tuple[str, str] | None = None
    ) -> Iterator[Stored]:
        """Yield the objects in order of namespace and name, those behind `after` only."""
        shelf = self._shelves.get(resource)
        if shelf is None:
            return
        for key in _slice(shelf.keys, namespace, after):
            yield shelf.objects[key]

    def range_at(
        self,
        resource: str,
        namespace: str | None,
        revision: int,
        after: tuple[str, str] | None = None,
    ) -> Iterator[Stored]:
        """Yield what `range` would have yielded at an earlier `revision`.

        Raises:
            Compacted: the writes since then are no longer known.
        """
        shelf = self._shelves[resource]
        oldest = max(shelf.compacted, self._compacted)
        if revision < oldest:
            raise Compacted(oldest)
        undone: dict[tuple[str, str], Stored | None] = {}
        for event in reversed(shelf.history):
            if event.revision <= revision:
                break
            undone[event.object.namespace, event.object.name] = event.previous
        if not undone:
            yield from self.range(resource, namespace, after)
            return
        gone = [key for key in undone if key not in shelf.objects]
        for key in _slice(sorted([*shelf.keys, *gone]), namespace, after):
            then = undone[key] if key in undone else shelf.objects[key]
            if then is not None:
                yield then

    def count(self, resource: str) -> int:
        shelf = self._shelves.get(resource)
        return len(shelf.objects) if shelf else 0

    def resources(self) -> list[str]:
        return [name for name, shelf in self._shelves.items() if shelf.objects]

    def objects_in(self, namespace: str) -> int:
        """Return how many objects of all resources are in `namespace`."""
        return self._per_namespace.get(namespace, 0)

    # Writing

    def put(self, resource: str, obj: dict[str, Any]) -> Stored:
        """Store `obj`, give it the next resourceVersion (also in place) and return it encoded.

        Raises:
            TooLarge: etcd would not accept it.
        """
        self._check()
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        metadata["resourceVersion"] = str(self.revision + 1)
        stored = self._encode(resource, namespace, name, self.revision + 1, obj)
        self._check_size(len(stored.body))
        self.revision += 1
        shelf = self._shelves[resource]
        previous = shelf.objects.get((namespace, name))
        self._place(shelf, stored)
        kind = EventType.ADDED if previous is None else EventType.MODIFIED
        self._note(StoredEvent(kind, self.revision, stored, previous))
        return stored

    def remove(self, resource: str, obj: dict[str, Any]) -> Stored:
        """Remove the object; `obj` is its last state, which watchers get with a new version."""
        self._check()
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        self.revision += 1
        metadata["resourceVersion"] = str(self.revision)
        stored = self._encode(resource, namespace, name, self.revision, obj)
        shelf = self._shelves[resource]
        previous = shelf.objects[namespace, name]
        self._displace(shelf, previous)
        self._note(StoredEvent(EventType.DELETED, self.revision, stored, previous))
        return stored

    async def durable(self) -> None:
        """Return when everything written so far is on disk and sent to watchers.

        Raises:
            StoreFailed: the disk refused.
        """
        if self._batch is not None:
            await asyncio.shield(self._batch)

    # Watching

    def subscribe(self, resource: str, revision: int) -> Subscription:
        """Return the events after `revision`.

        Raises:
            Compacted: some of them are no longer known.
        """
        shelf = self._shelves[resource]
        oldest = max(shelf.compacted, self._compacted)
        if revision < oldest:
            raise Compacted(oldest)
        replay: deque[StoredEvent] = deque()
        # Unpublished events are offered when they are durable.
        published = self.published
        for event in reversed(shelf.history):
            if event.revision <= revision:
                break
            if event.revision <= published:
                replay.appendleft(event)
        subscription = Subscription(replay, max(revision, published))
        shelf.watchers.add(subscription)
        return subscription

    @property
    def published(self) -> int:
        """The last revision that watchers have got."""
        return self._unpublished[0].revision - 1 if self._unpublished else self.revision

    def unsubscribe(self, resource: str, subscription: Subscription) -> None:
        self._shelves[resource].watchers.discard(subscription)

    def subscriptions(self) -> list[Subscription]:
        return [watcher for shelf in self._shelves.values() for watcher in shelf.watchers]

    def compact(self) -> None:
        """Forget all history: watches and pages of the past get `Compacted`."""
        if self._unpublished:
            self._flush()
        self._compacted = self.revision
        for shelf in self._shelves.values():
            shelf.history.clear()

    def compact_to(self, revision: int) -> None:
        """Forget the history up to a revision that watchers have got."""
        revision = min(revision, self.published)
        self._compacted = max(self._compacted, revision)
        for shelf in self._shelves.values():
            while shelf.history and shelf.history[0].revision <= revision:
                shelf.history.popleft()

    def end_watches(self) -> None:
        for watcher in self.subscriptions():
            watcher.close()

    def close(self) -> None:
        """Write what is pending and close the file; watchers end, writes are refused."""
        if self._unpublished:
            self._flush()
        self.end_watches()
        self._failure = self._failure or StoreFailed("the store is closed")
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    # Inside

    def _check(self) -> None:
        if self._failure is not None:
            raise StoreFailed(str(self._failure))

    def _check_size(self, size: int) -> None:
        request = size + _WORDS_AROUND
        if request <= self._request_limit:
            return
        if request <= MESSAGE_LIMIT:
            raise TooLarge("etcdserver: request is too large")
        raise TooLarge(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max "
            f"({request} vs. {MESSAGE_LIMIT})"
        )

    def _encode(
        self, resource: str, namespace: str, name: str, revision: int, obj: dict[str, Any]
    ) -> Stored:
        metadata = obj["metadata"]
        return Stored(
            resource,
            namespace,
            name,
            metadata.get("uid", ""),
            revision,
            orjson.dumps(obj),
            metadata.get("labels") or {},
            self._fields_of(resource, obj),
        )

    def _place(self, shelf: _Shelf, stored: Stored) -> None:
        key = (stored.namespace, stored.name)
        if key not in shelf.objects:
            insort(shelf.keys, key)
            self._per_namespace[stored.namespace] += 1
        shelf.objects[key] = stored

    def _note(self, event: StoredEvent) -> None:
        shelf = self._shelves[event.object.resource]
        shelf.history.append(event)
        if len(shelf.history) > SHARED_EVENTS:
            shelf.history[-SHARED_EVENTS - 1].encoded.clear()
        if len(shelf.history) > HISTORY_PER_RESOURCE:
            shelf.compacted = shelf.history.popleft().revision
        self._unpublished.append(event)
        if self._batch is None:
            loop = asyncio.get_running_loop()
            self._batch = loop.create_future()
            loop.call_soon(self._gather, 0, LONGEST_GATHERING)

    def _gather(self, seen: int, turns: int) -> None:
        """Flush when a turn of the event loop has brought no more writes, or after `turns`."""
        if turns and len(self._unpublished) > seen and self._disk is not None:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._gather, len(self._unpublished), turns - 1)
        else:
            self._flush()

    def _flush(self) -> None:
        events, self._unpublished = self._unpublished, []
        batch, self._batch = self._batch, None
        if not events:
            return
        if self._disk is not None:
            try:
                self._disk.write(_row(event) for event in events)
            except (DiskError, DiskFull) as error:
                self._roll_back(events)
                if not isinstance(error, DiskFull):
                    self._failure = error
                if batch is not None and not batch.done():
                    batch.set_exception(StoreFailed(str(error)))
                    batch.exception()
                return
        for event in events:
            for watcher in self._shelves[event.object.resource].watchers:
                if event.revision > watcher.revision:
                    watcher.offer(event)
        if batch is not None and not batch.done():
            batch.set_result(None)

    def _roll_back(self, events: list[StoredEvent]) -> None:
        """Make objects and history as they were before these events, the last of all."""
        for event in reversed(events):
            stored, shelf = event.object, self._shelves[event.object.resource]
            if event.previous is not None:
                self._place(shelf, event.previous)
            elif (stored.namespace, stored.name) in shelf.objects:
                self._displace(shelf, stored)
            if shelf.history and shelf.history[-1] is event:
                shelf.history.pop()

    def _displace(self, shelf: _Shelf, stored: Stored) -> None:
        key = (stored.namespace, stored.name)
        del shelf.objects[key]
        del shelf.keys[bisect_left(shelf.keys, key)]
        self._per_namespace[stored.namespace] -= 1

    def _load(self, disk: Disk) -> None:
        for resource, namespace, name, revision, body in disk.rows():
            obj = orjson.loads(body)
            self._place(
                self._shelves[resource], self._encode(resource, namespace, name, revision, obj)
            )
        self.revision = max(1, disk.revision())
        self._compacted = self.revision


def _row(event: StoredEvent) -> Row:
    stored = event.object
    body = None if event.type is EventType.DELETED else stored.body
    return stored.resource, stored.namespace, stored.name, event.revision, body


def _slice(
    keys: list[tuple[str, str]], namespace: str | None, after: tuple[str, str] | None
) -> list[tuple[str, str]]:
    start, end = 0, len(keys)
    if namespace is not None:
        start, end = bisect_left(keys, (namespace, "")), bisect_left(keys, (namespace + "\0", ""))
    if after is not None:
        start = max(start, bisect_right(keys, after))
    return keys[start:end]
