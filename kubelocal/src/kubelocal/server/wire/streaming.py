"""Watches over HTTP: each event is encoded once per form and written to all that watch it.

A stream ends after `timeoutSeconds`, when the store closes it (too slow, server stops) or when the
client disconnects; a client that does not even read the end is cut off a little later. Bookmarks
come about once a minute and before the end, to clients that want them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson
from aiohttp import web

from kubelocal.server.api import Api
from kubelocal.server.errors import StatusError
from kubelocal.server.printing.tables import table
from kubelocal.server.reading import Seen, Watching, bookmark
from kubelocal.server.selectors import Selectors
from kubelocal.server.types import conversion
from kubelocal.server.types.kinds import Kind
from kubelocal.server.wire.answers import JSON, encoded, warn
from kubelocal.server.wire.faults import WatchFate
from kubelocal.server.wire.negotiation import Form, as_partial, form_of
from kubelocal.server.wire.target import Target
from kubelocal.server.writing.options import ListOptions, query_number
from kubelocal.store import EventType, Stored
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND

__all__ = ["stream"]

BOOKMARK_INTERVAL: Final = 60 * SECOND
LONGEST_WATCH_SECONDS: Final = 3_600
# Time limit for a stream that has been closed to write what is left.
LAST_WORDS: Final = 5 * SECOND


async def stream(
    api: Api,
    request: web.BaseRequest,
    target: Target,
    selectors: Selectors,
    options: ListOptions,
    fate: Callable[[], WatchFate],
    warnings: Sequence[str] = (),
) -> web.StreamResponse:
    """Write the watch until it ends; `fate` returns after each write what becomes of it.

    `warnings`: what the answer's header states.
    """
    seconds = query_number(request.query, "timeoutSeconds") or LONGEST_WATCH_SECONDS
    await api.store.durable()
    watching = Watching(api.store, target.kind, target.namespace, selectors, options)
    timers = [
        asyncio.create_task(_end(api.clock, watching, seconds)),
        asyncio.create_task(_remind(api.clock, watching)),
        asyncio.create_task(_cut_off(api.clock, watching, request.transport)),
    ]
    try:
        return await _write(api, request, target, watching, options, fate, warnings)
    finally:
        watching.close()
        for timer in timers:
            timer.cancel()


async def _end(clock: Clock, watching: Watching, seconds: int) -> None:
    await clock.sleep(max(1, seconds) * SECOND)
    watching.subscription.close()


async def _cut_off(clock: Clock, watching: Watching, transport: asyncio.Transport | None) -> None:
    """Break the connection of a client that does not read what it is sent."""
    await watching.subscription.ended.wait()
    await clock.sleep(LAST_WORDS)
    if transport is not None:
        transport.abort()


async def _remind(clock: Clock, watching: Watching) -> None:
    while True:
        await clock.sleep(BOOKMARK_INTERVAL)
        watching.subscription.bookmark_due = True
        watching.subscription.wake()


async def _write(
    api: Api,
    request: web.BaseRequest,
    target: Target,
    watching: Watching,
    options: ListOptions,
    fate: Callable[[], WatchFate],
    warnings: Sequence[str],
) -> web.StreamResponse:
    encoder = _Encoder(
        target.kind,
        form_of(request.headers.get("Accept", "")),
        request.query.get("includeObject", "Metadata"),
        api.clock,
    )
    bookmarks = request.query.get("allowWatchBookmarks") in ("true", "1")
    existing = await watching.existing()
    response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache"})
    response.enable_chunked_encoding()
    warn(response, warnings)
    await response.prepare(request)
    first = [encoder.existing(stored) for stored in existing]
    if options.send_initial_events and bookmarks:
        first.append(encoder.bookmark(watching.version(), initial_events_end=True))
    if first:
        await response.write(b"".join(first))
    subscription = watching.subscription
    while True:
        try:
            lines = [encoder.event(seen) for seen in await watching.batch()]
        except StatusError as error:
            # An event that could not be converted; what follows it must not be shown.
            await response.write(encoder.error(error))
            break
        if (subscription.bookmark_due or subscription.closed) and bookmarks:
            lines.append(encoder.bookmark(watching.version()))
        subscription.bookmark_due = False
        if lines:
            await response.write(b"".join(lines))
        if subscription.closed:
            break
        what = fate() if lines else WatchFate.GOES_ON
        if what is WatchFate.FROZEN:
            await subscription.ended.wait()
        if what is not WatchFate.GOES_ON:
            break
    await response.write_eof()
    return response


class _Encoder:
    """Events as lines of JSON in the form of one watch."""

    def __init__(self, kind: Kind, form: Form, include_object: str, clock: Clock) -> None:
        self._kind, self._form, self._include = kind, form, include_object
        self._clock = clock
        # Columns of a Table stand in the first event only.
        self._columns = True

    def existing(self, stored: Stored) -> bytes:
        return self._line(EventType.ADDED, self._body(stored))

    def event(self, seen: Seen) -> bytes:
        stored, shared = seen.event.object, seen.event.encoded
        # A Table states ages, which are shared for the moment of the first encoding.
        form = (self._kind, seen.type, self._form, self._include, self._columns)
        line = shared.get(form)
        if line is None:
            line = shared[form] = self._line(seen.type, self._body(stored))
        self._columns = False
        return line

    def error(self, error: StatusError) -> bytes:
        return self._line(EventType.ERROR, orjson.dumps(error.status()))

    def bookmark(self, version: str, *, initial_events_end: bool = False) -> bytes:
        obj = bookmark(self._kind, version, initial_events_end=initial_events_end)
        if self._form is Form.TABLE:
            obj = self._table([], version) | {"metadata": obj["metadata"]}
        elif self._form is Form.PARTIAL:
            obj = as_partial(obj)
        return self._line(EventType.BOOKMARK, orjson.dumps(obj))

    def _body(self, stored: Stored) -> bytes:
        if self._form is Form.OBJECT:
            return encoded(self._kind, stored)
        obj = conversion.from_storage(self._kind, stored.decode())
        if self._form is Form.PARTIAL:
            return orjson.dumps(as_partial(obj))
        return orjson.dumps(self._table([obj], str(stored.revision)))

    def _table(self, objects: list[dict[str, Any]], version: str) -> dict[str, Any]:
        columns, self._columns = self._columns, False
        return table(
            self._kind,
            objects,
            self._clock.wall(),
            self._include,
            version,
            columns=columns,
        )

    def _line(self, event: EventType, body: bytes) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (event.value.encode(), body)
