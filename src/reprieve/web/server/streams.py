"""`GET /api/live`: a page as server-sent events, for as long as its reader may see it.

A stream waits for its reader to read what was sent: what happens meanwhile is sent in one piece, or
as a snapshot, when the reader comes back, and one that reads nothing for a minute is cut off. Every
30 s the reader's identity and rights are checked anew; a reader who may see less than before is
sent `ended` and nothing else, since the page wipes itself then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, TypeAlias

import msgspec
from aiohttp import web

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.units.errors import ReprieveError
from reprieve.web.server.door import Door, TooManyAttempts, Unauthenticated, Unverified, Visit
from reprieve.web.server.packing import Packer, accepts_gzip
from reprieve.web.tables import NotFound

__all__ = ["CHECKED", "LINES", "send_lines", "send_stream"]

log: Final = logging.getLogger(__name__)

_Write: TypeAlias = Callable[[bytes], Awaitable[None]]

#: The type of an answer that comes in lines of JSON.
LINES: Final = "application/x-ndjson"
#: How often it is checked that a reader may still see what is sent.
CHECKED: Final = 30 * SECOND
#: A reader that reads nothing for so long is cut off.
_PATIENCE_S: Final = 60.0
#: How long the message of an end may need to reach its reader.
_FAREWELL_S: Final = 1.0


class _Ended(ReprieveError):
    """The reader may not see the page any more."""


async def send_stream(
    request: web.Request,
    events: AsyncGenerator[bytes],
    door: Door,
    visit: Visit,
    clock: Clock,
    every: int,
) -> web.StreamResponse:
    """Answer with events until one of the two ends hangs up, or the right to see them is lost.

    Args:
        request: what is answered.
        events: of which the first one may raise what is answered instead.
        door: queried anew.
        visit: what it stated first.
        clock: for the pauses between two questions.
        every: how long these are, in nanoseconds.
    """
    async with aclosing(events):
        first = await anext(events)
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                # Proxies that gather answers would keep the events to themselves.
                "X-Accel-Buffering": "no",
                "Vary": "Accept-Encoding",
            }
        )
        packer = Packer() if accepts_gzip(request) else None
        if packer is not None:
            response.headers["Content-Encoding"] = "gzip"
        await response.prepare(request)

        async def write(part: bytes) -> None:
            await response.write(part if packer is None else packer(part))

        try:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(_ask_anew(request, door, visit, clock, every))
                await _write_patiently(write, first)
                async for event in events:
                    await _write_patiently(write, event)
                asking.cancel()
        except* (_Ended, NotFound) as ends:
            await _send_farewell(request, write, str(ends.exceptions[0]))
        except* (ConnectionError, TimeoutError):
            _hang_up(request)
        except* Exception:
            # The answer has begun, so that no other can replace it.
            log.exception("a stream ended with an error: %s", request.path)
            _hang_up(request)
    return response


async def send_lines(request: web.Request, lines: AsyncGenerator[bytes]) -> web.StreamResponse:
    """Answer with lines as they come; a reader who leaves ends their source.

    Before the first line its error is answered instead, later as a last line with `error`.
    """
    async with aclosing(lines):
        first = await anext(lines, b"")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Type": LINES}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        try:
            await _write_patiently(response.write, first)
            async for line in lines:
                await _write_patiently(response.write, line)
        except ReprieveError as failure:
            error = msgspec.json.encode({"error": str(failure)})
            await _write_patiently(response.write, error + b"\n")
        except (ConnectionError, TimeoutError):
            _hang_up(request)
    return response


async def _ask_anew(
    request: web.Request, door: Door, before: Visit, clock: Clock, every: int
) -> None:
    """Return never.

    Raises:
        _Ended: the reader may see less than before, or their rights cannot be determined.
    """
    while True:
        await clock.sleep(every)
        try:
            now = await door.visit(request, anew=True)
        except (Unauthenticated, TooManyAttempts, Unverified) as refusal:
            raise _Ended(str(refusal)) from None
        # Who may see more than before has another topic, and learns it with the next request.
        kept = now.viewer.sees_all or (
            not before.viewer.sees_all and before.viewer.namespaces <= now.viewer.namespaces
        )
        if now.name != before.name or not kept:
            raise _Ended("your rights have changed: load the page again")


async def _write_patiently(write: _Write, part: bytes) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        await write(part)


async def _send_farewell(request: web.Request, write: _Write, why: str) -> None:
    """Notify a reader that this is all; one that does not read it is cut off."""
    event = b"event: ended\ndata: %b\n\n" % msgspec.json.encode({"error": why})
    with contextlib.suppress(ConnectionError):
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await write(event)
        except TimeoutError:
            _hang_up(request)


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
