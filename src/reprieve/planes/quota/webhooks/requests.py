"""One request to a webhook, from its head to its answer: what is read, worked on, and refused.

In this order, each refusal with a Status that the API server prints:

1. 403 without a certificate of the API server, where one is required
2. 415 a compressed body; 413 one that is stated to be larger than `MOST_BYTES`
3. 429 with Retry-After while as many others are in flight, after a short wait in line with the body
   unread; the API server comes again
4. 408 a body that does not come in time; 413 one that turns out to be too large
5. 503 while the process ends, as when it has lost its lease
6. 400 what is no review; 500 where we fail

Reviews are decoded, judged and encoded in a thread of their kind, so that the event loop continues,
and conversions, for which Kubernetes has no client certificates, never hold admissions up.

Source: the threat model in `docs/security/tenants.md`; retries after 429 as client-go does them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from reprieve.planes.quota.webhooks.reviews import Json, MalformedReview

__all__ = ["MOST_BYTES", "PLACES", "ClientRule", "Desk"]

log: Final = logging.getLogger(__name__)

MOST_BYTES: Final = 3 * 2**20  # the API server accepts no larger request either
PLACES: Final = 8  # in flight, for admissions and for conversions each
_WAITING: Final = 64
_WAIT_S: Final = 1.0
_BODY_S: Final = 5.0
_AGAIN_S: Final = "1"
_REASONS: Final = {
    400: "BadRequest",
    403: "Forbidden",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True, slots=True)
class ClientRule:
    """Which clients are answered: those with a certificate, of these names where there are any."""

    names: tuple[str, ...] = ()

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether the bearer of a certificate, in the form of `getpeercert`, may call."""
        if not certificate:
            return False
        return not self.names or not _names(certificate).isdisjoint(self.names)


class _Refusal(Exception):
    """A request that is not answered: the code, the metric's reason, and what is stated."""

    def __init__(self, code: int, why: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.why = why


class Desk:
    """Where requests of one kind are worked on: one thread, `PLACES` requests in flight.

    Args:
        name: of the thread.
        refused: hears why a request was refused.
        rule: of the clients; None answers all of them.
    """

    def __init__(
        self, name: str, refused: Callable[[str], None], rule: ClientRule | None = None
    ) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._free = asyncio.Semaphore(PLACES)
        self._waiting = 0
        self._closed = False
        self._refused = refused
        self._rule = rule

    def handler(self, answer: Callable[[bytes], Json]) -> Handler:
        """Return what handles requests whose bodies `answer` answers."""

        def work(body: bytes) -> bytes:
            return orjson.dumps(answer(body))

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await self._answered(request, work)
            except _Refusal as refusal:
                self._refused(refusal.why)
                return _status(refusal.code, str(refusal))
            except Exception:
                log.exception("a webhook failed at %s", request.path)
                return _status(500, "this review could not be answered; the operator's log has why")

        return handle

    def close(self) -> None:
        """Accept nothing more; what is being worked on ends by itself."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _answered(
        self, request: web.Request, work: Callable[[bytes], bytes]
    ) -> web.StreamResponse:
        if self._rule is not None and not self._rule.admits(request.get_extra_info("peercert")):
            raise _Refusal(403, "client", "webhooks are for the API server: no certificate of it")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise _Refusal(415, "encoding", "accepted: bodies without Content-Encoding")
        if (request.content_length or 0) > MOST_BYTES:
            raise _too_large()
        async with self._place():
            body = await _body(request)
            if self._closed:
                raise _stopping()
            loop = asyncio.get_running_loop()
            try:
                found = await loop.run_in_executor(self._thread, work, body)
            except MalformedReview as error:
                raise _Refusal(400, "malformed", str(error)) from None
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if self._closed and (task is None or not task.cancelling()):
                    raise _stopping() from None
                raise
            response = web.Response(body=found, content_type="application/json")
            # Within the place, so that answers which no client reads do not heap up.
            await response.prepare(request)
            await response.write_eof()
        return response

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        busy = _Refusal(429, "busy", "too many reviews in flight")
        if self._waiting >= _WAITING:
            raise busy
        self._waiting += 1
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._free.acquire()
        except TimeoutError:
            raise busy from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()


async def _body(request: web.Request) -> bytes:
    found = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for chunk in request.content.iter_any():
                found += chunk
                if len(found) > MOST_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise _Refusal(408, "slow-body", f"the body did not come within {_BODY_S:g} s") from None
    except (web.RequestPayloadError, HttpProcessingError, ConnectionError) as error:
        raise _Refusal(400, "malformed", f"the body cannot be read: {error}") from None
    return bytes(found)


def _stopping() -> _Refusal:
    """Return the answer after which the API server calls another replica, or comes again."""
    return _Refusal(503, "stopping", "this process of the operator ends, another one answers")


def _too_large() -> _Refusal:
    return _Refusal(413, "too-large", f"the body is too large; accepted: {MOST_BYTES} bytes")


def _status(code: int, message: str) -> web.Response:
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": _REASONS[code],
        "message": message,
        "code": code,
    }
    response = web.Response(body=orjson.dumps(status), status=code, content_type="application/json")
    if code == 429:
        response.headers["Retry-After"] = _AGAIN_S
    else:
        # Whatever else comes on this connection may be the rest of what was refused.
        response.force_close()
    return response


def _names(certificate: Mapping[str, Any]) -> set[str]:
    """Return the common name and the alternative names of a certificate."""
    common = {
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    }
    return common | {value for _, value in certificate.get("subjectAltName", ())}
