"""Lists in pages and watches: what a reader sees, and from which version on.

A page's continue token names the version of its list, so all pages show one state; when the history
up to that version is compacted the answer is 410 with a token for an inconsistent rest. A
watch hands out every event after its version once and in order, seen through its selectors: an
object that stops matching is DELETED, one that starts is ADDED. The newest state that is shown is
the last one on disk. Source: k8s.io/apiserver.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson

from kubelocal.server.errors import StatusError, bad_request, expired
from kubelocal.server.selectors import Selectors
from kubelocal.server.types import conversion
from kubelocal.server.types.kinds import Kind
from kubelocal.server.writing.options import ListOptions, parse_revision
from kubelocal.store import Compacted, EventType, Store, Stored, StoredEvent, Subscription

__all__ = [
    "INITIAL_EVENTS_END",
    "ListResult",
    "Seen",
    "WatchEvent",
    "Watching",
    "bookmark",
    "list_page",
    "watch_events",
]

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class ListResult:
    """One page: kept objects, the version that it shows, and how to get on."""

    kind: Kind
    stored: list[Stored]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The objects in the version requested, decoded; the caller may change them."""
        return [conversion.from_storage(self.kind, stored.decode()) for stored in self.stored]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event; a bookmark's object has nothing but its resourceVersion."""

    type: EventType
    object: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """An event as one watcher sees it: type and the version of the object that it is given."""

    type: EventType
    event: StoredEvent


def matches(stored: Stored, namespace: str | None, selectors: Selectors) -> bool:
    return (namespace is None or stored.namespace == namespace) and selectors.matches(
        stored.namespace, stored.name, stored.labels, stored.fields
    )


def list_page(
    store: Store, kind: Kind, namespace: str | None, selectors: Selectors, options: ListOptions
) -> ListResult:
    """Return the page that `options` request.

    Raises:
        StatusError: 400 bad token or version, 410 version compacted, 504 version not there yet.
    """
    resource = conversion.shelf(kind)
    if selectors.single_name() is not None and not options.continue_token:
        return _by_name(store, kind, namespace, selectors, options)
    version, objects = _source(store, resource, namespace, options)
    page: list[Stored] = []
    more = False
    for stored in objects:
        if not selectors.matches(stored.namespace, stored.name, stored.labels, stored.fields):
            continue
        if options.limit and len(page) == options.limit:
            more = True
            break
        page.append(stored)
    if not more:
        return ListResult(kind, page, str(version))
    last = (page[-1].namespace, page[-1].name)
    remaining = None
    if not (selectors.labels or selectors.fields):
        remaining = 1 + sum(1 for _ in objects)
    return ListResult(kind, page, str(version), _token(version, last), remaining)


def _by_name(
    store: Store, kind: Kind, namespace: str | None, selectors: Selectors, options: ListOptions
) -> ListResult:
    """One object by name needs no walk through all of them."""
    _check_reached(store, parse_revision(options.resource_version))
    name = selectors.single_name() or ""
    if namespace is not None or not kind.namespaced:
        found = store.published_object(conversion.shelf(kind), namespace or "", name)
        candidates = [] if found is None else [found]
    else:
        everywhere = store.range_at(conversion.shelf(kind), None, store.published)
        candidates = [one for one in everywhere if one.name == name]
    objects = [one for one in candidates if matches(one, namespace, selectors)]
    return ListResult(kind, objects, str(store.published))


def _source(
    store: Store, resource: str, namespace: str | None, options: ListOptions
) -> tuple[int, Iterator[Stored]]:
    if options.continue_token:
        version, after = _parse_token(options.continue_token)
        if version is None:
            return store.published, store.range_at(resource, namespace, store.published, after)
        return version, _checked(store, resource, namespace, version, after)
    wanted = parse_revision(options.resource_version)
    _check_reached(store, wanted)
    if options.match == "Exact":
        return wanted, _checked(store, resource, namespace, wanted, None)
    return store.published, store.range_at(resource, namespace, store.published)


def _checked(
    store: Store,
    resource: str,
    namespace: str | None,
    version: int,
    after: tuple[str, str] | None,
) -> Iterator[Stored]:
    try:
        return iter(list(store.range_at(resource, namespace, version, after)))
    except Compacted:
        if after is None:
            raise expired(
                f"The resourceVersion for the provided list is too old: {version}"
            ) from None
        error = expired(
            "The provided continue parameter is too old to display a consistent list result. "
            "You can start a new list without the continue parameter, or use the continue token "
            "in this response to retrieve the remainder of the results. Continuing with the "
            "provided token results in an inconsistent list - objects that were created, "
            "modified, or deleted between the time the first chunk was returned and now may show "
            "up in the list."
        )
        error.metadata = {"continue": _token(None, after)}
        raise error from None


def _check_reached(store: Store, version: int) -> None:
    if version > store.published:
        message = f"Too large resource version: {version}, current: {store.published}"
        raise StatusError(
            504,
            "Timeout",
            f"Timeout: {message}",
            {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": message}],
                "retryAfterSeconds": 1,
            },
        )


def _token(version: int | None, after: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps({"rv": version, "start": after})).decode()


def _parse_token(token: str) -> tuple[int | None, tuple[str, str]]:
    try:
        decoded = orjson.loads(base64.urlsafe_b64decode(token.encode()))
        version, (namespace, name) = decoded["rv"], decoded["start"]
        if not isinstance(version, int | None) or not isinstance(namespace + name, str):
            raise ValueError(token)
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise bad_request("continue key is not valid: it is not a token of this server") from None
    return version, (namespace, name)


class Watching:
    """One watch: what exists first, if requested, then what happens.

    Raises on construction:
        StatusError: 410 when the history after the requested version is compacted.
    """

    def __init__(
        self,
        store: Store,
        kind: Kind,
        namespace: str | None,
        selectors: Selectors,
        options: ListOptions,
    ) -> None:
        self.kind = kind
        self._store, self._namespace, self._selectors = store, namespace, selectors
        self._resource = conversion.shelf(kind)
        version = parse_revision(options.resource_version)
        _check_reached(store, version)
        self.sends_initial_events = options.send_initial_events
        self.initial: list[Stored] = []
        start = version
        if version == 0 or options.send_initial_events:
            self.initial = [
                stored
                for stored in store.range_at(self._resource, namespace, store.published)
                if matches(stored, namespace, selectors)
            ]
            start = store.published
        try:
            self.subscription: Subscription = store.subscribe(self._resource, start)
        except Compacted as gone:
            raise expired(f"too old resource version: {start} ({gone.oldest})") from None
        self.start = start

    async def batch(self) -> list[Seen]:
        """Return the next events that concern this watch; may be empty."""
        seen = []
        for event in await self.subscription.batch():
            what = self._seen(event)
            if what is not None:
                seen.append(what)
            self.subscription.revision = event.revision
        if not conversion.asks(self.kind):
            return seen
        objects = [one.event.object for one in seen]
        converted = await conversion.read_as(self._store, self.kind, objects)
        return [
            one if one.event.object is obj else Seen(one.type, replace(one.event, object=obj))
            for one, obj in zip(seen, converted, strict=True)
        ]

    async def existing(self) -> list[Stored]:
        """Return what is there at the start, in the version watched."""
        return await conversion.read_as(self._store, self.kind, self.initial)

    def close(self) -> None:
        self._store.unsubscribe(self._resource, self.subscription)

    def version(self) -> str:
        """Return the version up to which this watch has got everything."""
        reported = self.subscription.revision
        if self.subscription.caught_up:
            reported = max(reported, self._store.published)
        return str(max(self.start, reported))

    def _seen(self, event: StoredEvent) -> Seen | None:
        now = event.type is not EventType.DELETED and matches(
            event.object, self._namespace, self._selectors
        )
        before = event.previous is not None and matches(
            event.previous, self._namespace, self._selectors
        )
        if now:
            return Seen(EventType.MODIFIED if before else EventType.ADDED, event)
        return Seen(EventType.DELETED, event) if before else None


def bookmark(kind: Kind, version: str, *, initial_events_end: bool = False) -> dict[str, Any]:
    """Return the object of a bookmark."""
    metadata: dict[str, Any] = {"creationTimestamp": None, "resourceVersion": version}
    if initial_events_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}


async def watch_events(
    store: Store,
    kind: Kind,
    namespace: str | None,
    selectors: Selectors,
    options: ListOptions,
    bookmarks: bool,
) -> AsyncIterator[WatchEvent]:
    """Yield the decoded events of one watch; ends when the store closes it."""
    await store.durable()
    watching = Watching(store, kind, namespace, selectors, options)
    try:
        for stored in await watching.existing():
            yield WatchEvent(EventType.ADDED, conversion.from_storage(kind, stored.decode()))
        if options.send_initial_events and bookmarks:
            end = bookmark(kind, watching.version(), initial_events_end=True)
            yield WatchEvent(EventType.BOOKMARK, end)
        while True:
            for seen in await watching.batch():
                obj = seen.event.object.decode()
                yield WatchEvent(seen.type, conversion.from_storage(kind, obj))
            if watching.subscription.closed:
                return
            if watching.subscription.bookmark_due:
                watching.subscription.bookmark_due = False
                if bookmarks:
                    yield WatchEvent(EventType.BOOKMARK, bookmark(kind, watching.version()))
    finally:
        watching.close()
