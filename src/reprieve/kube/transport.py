"""Requests to one API server: bytes in, bytes out.

`Wire` is the interface of one method that carries a request; `HttpWire` does it over HTTP with
aiohttp, tests use an in-process one instead. `Transport` adds what every caller needs: errors as
exceptions, and retries (`retry`). Retried are refused connections, timeouts, 429 and 5xx, and only
for reads and where the caller requests it: after a write without an answer it is unknown whether it
happened. A 401 has the credentials loaded anew, once; a 403 is judged by `starting`.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.kube.connections import Connections
from reprieve.kube.credentials import Connection
from reprieve.kube.errors import (
    ApiError,
    Call,
    Unauthorized,
    Unreachable,
    error_from,
)
from reprieve.kube.retry import AWAY, backoff, retried
from reprieve.kube.starting import Starting
from reprieve.units.errors import ReprieveError

__all__ = ["Answer", "HttpWire", "Request", "Transport", "Wire"]

JSON: Final = "application/json"
_READ: Final = 2**20
#: What the request at hand checks before it is sent.
_BEFORE_SEND: Final = ContextVar[Callable[[], None] | None]("before_send", default=None)


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `timeout` in nanoseconds, for a stream the longest silence."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    timeout: int = 10 * SECOND


class Answer(Protocol):
    """A response whose body has not been read; `close` may be called at any time, repeatedly."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes: ...

    def lines(self) -> AsyncGenerator[bytes]: ...

    def close(self) -> None: ...


class Wire(Protocol):
    """What carries requests."""

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        """Return the answer, whatever its status.

        Args:
            request: what to send.
            stream: the body is read line by line and may never end.
            rejected: the server refused the credentials just now: load them anew.

        Raises:
            Unreachable: no answer.
        """
        ...

    async def close(self) -> None: ...


class Transport:
    """A `Wire` with errors and retries.

    Args:
        wire: what carries the requests.
        clock: for backoff.
        jitter: spreads the backoff of several processes; seeded in tests.
    """

    def __init__(self, wire: Wire, clock: Clock, *, jitter: Random | None = None) -> None:
        self._wire = wire
        self._clock = clock
        self._jitter = jitter or Random()
        self._starting = Starting(clock)

    async def request(
        self,
        request: Request,
        call: Call | None = None,
        *,
        retry: bool | None = None,
        turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        before_send: Callable[[], None] | None = None,
    ) -> bytes:
        """Send and return the body of a 2xx answer.

        Args:
            request: what to send.
            call: what it is in RBAC's words, for errors.
            retry: None retries reads only.
            turn: entered for each attempt and left before the pause that follows it.
            before_send: called inside the turn, right before each attempt, and by `HttpWire` once
                more with the connection at hand; what it raises ends the call.

        Raises:
            ApiError: see `reprieve.kube.errors`.
        """
        rejected = False

        async def once() -> bytes:
            async with turn():
                if before_send is None:
                    return await self._once(request, call, rejected)
                before_send()
                checked = _BEFORE_SEND.set(before_send)
                try:
                    return await self._once(request, call, rejected)
                finally:
                    _BEFORE_SEND.reset(checked)

        async def accepted() -> bytes:
            nonlocal rejected
            try:
                return await once()
            except Unauthorized:
                if rejected:
                    raise
                rejected = True
                return await once()

        if request.method == "GET" if retry is None else retry:
            return await retried(accepted, self.pause, AWAY)
        return await accepted()

    async def stream(
        self,
        request: Request,
        call: Call | None = None,
        *,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes]:
        """Yield the lines of a 2xx answer as they come, until the server ends it.

        `opened` is called before the first line, once the server has accepted.

        Raises:
            ApiError: the server refused; `Unreachable` also when the stream breaks.
        """
        answer = await self._open(request, call)
        try:
            if opened is not None:
                opened()
            with self._starting:
                async with aclosing(answer.lines()) as lines:
                    async for line in lines:
                        yield line
        finally:
            answer.close()

    async def pause(self, attempt: int, retry_after: float | None = None) -> None:
        """Wait as after a failed attempt; `retry_after`: the seconds that the server requested."""
        await self._clock.sleep(backoff(attempt, self._jitter, retry_after))

    async def close(self) -> None:
        """Close all connections."""
        await self._wire.close()

    async def _once(self, request: Request, call: Call | None, rejected: bool) -> bytes:
        with self._starting:
            try:
                answer = await self._wire.send(request, False, rejected)
                body = await _read(answer)
            except Unreachable as failure:
                failure.call = failure.call or call
                raise
        if 200 <= answer.status < 300:
            return body
        raise self._starting.judged(_error(answer, body, call))

    async def _open(self, request: Request, call: Call | None) -> Answer:
        with self._starting:
            answer = await self._wire.send(request, True, False)
            if answer.status == 401:
                answer.close()
                answer = await self._wire.send(request, True, True)
            if 200 <= answer.status < 300:
                return answer
            body = await _read(answer)
        raise self._starting.judged(_error(answer, body, call))


async def _read(answer: Answer) -> bytes:
    try:
        return await answer.read()
    finally:
        answer.close()


def _error(answer: Answer, body: bytes, call: Call | None) -> ApiError:
    try:
        status: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Proxies and unknown paths answer in plain text.
        status = {"message": " ".join(body[:200].decode("utf-8", "replace").split())}
    return error_from(
        answer.status,
        status if isinstance(status, dict) else {},
        call,
        _seconds(answer.headers.get("Retry-After")),
    )


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


class _CheckedRequest(aiohttp.ClientRequest):
    """A request that checks once more whether it may be sent when its connection is there.

    A connection may need long to open, the process may stand still meanwhile, and aiohttp sends
    again by itself where a connection that was kept open turns out to be closed.
    """

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        check = _BEFORE_SEND.get()
        if check is not None:
            check()
        return await super().send(conn)

    async def write_bytes(self, writer: Any, conn: Any, *rest: Any) -> None:
        """Write what was made ready, in a task of its own, if it may still be sent."""
        check = _BEFORE_SEND.get()
        try:
            if check is not None:
                check()
        except ReprieveError as refused:
            conn.protocol.set_exception(refused)
        else:
            await super().write_bytes(writer, conn, *rest)


class HttpWire:
    """HTTP/1.1 over aiohttp, with connections kept open.

    Args:
        connection: server and credentials.
        limit: connections at a time; each watch holds one.
    """

    def __init__(self, connection: Connection, *, limit: int = 100) -> None:
        self._connection = connection
        self._limit = limit
        # Opened at the first request, since aiohttp wants a running loop.
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        headers = {"Accept": request.accept, **await self._connection.headers(rejected)}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        address = self._connection.server + request.path
        if request.query:
            address += "?" + urlencode(request.query, safe=",")
        try:
            response = await self._opened().request(
                request.method,
                URL(address, encoded=True),
                data=request.body,
                headers=headers,
                timeout=_timeout(request.timeout, stream),
                proxy=self._connection.proxy,
                server_hostname=self._connection.tls_server_name,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as cause:
            raise self._unreachable(cause) from cause
        return _HttpAnswer(response, self._unreachable)

    async def close(self) -> None:
        if self._session is not None:
            # A server that is slow to close would keep sockets beyond the end of the loop.
            if self._session.connector is not None:
                await self._session.connector.close(abort_ssl=True)
            await self._session.close()
            self._session = None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=Connections(
                    limit=self._limit,
                    ssl=self._connection.tls or False,
                    socket_factory=_kept_alive,
                ),
                read_bufsize=_READ,
                request_class=_CheckedRequest,
                headers={"User-Agent": "reprieve"},
            )
        return self._session

    def _unreachable(self, cause: BaseException) -> Unreachable:
        timed_out = isinstance(cause, TimeoutError)
        text = "no answer in time" if timed_out else str(cause) or type(cause).__name__
        if isinstance(cause, aiohttp.ClientPayloadError):
            text = "the connection ended in the middle of an answer"
        return Unreachable(f"{self._connection.server}: {text}", reason="Timeout" * timed_out)


@functools.lru_cache(maxsize=64)
def _timeout(nanoseconds: int, stream: bool) -> aiohttp.ClientTimeout:
    seconds = nanoseconds / SECOND
    if stream:
        return aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=seconds)
    return aiohttp.ClientTimeout(total=seconds)


def _kept_alive(address: Any) -> socket.socket:
    """Return a socket that notices within a minute that its peer has left without a word."""
    family, kind, protocol, _, _ = address
    result = socket.socket(family, kind, protocol)
    result.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            result.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return result


class _HttpAnswer:
    def __init__(
        self,
        response: aiohttp.ClientResponse,
        unreachable: Callable[[BaseException], Unreachable],
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._unreachable = unreachable

    async def read(self) -> bytes:
        try:
            return await self._response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as cause:
            raise self._unreachable(cause) from cause

    async def lines(self) -> AsyncGenerator[bytes]:
        # Lines are cut here, since an object may be longer than aiohttp's own line limit.
        rest: list[bytes] = []
        try:
            async for chunk in self._response.content.iter_any():
                head, *more = chunk.split(b"\n")
                rest.append(head)
                for part in more:
                    line = b"".join(rest)
                    rest = [part]
                    if line:
                        yield line
        except (TimeoutError, aiohttp.ClientError, OSError) as cause:
            raise self._unreachable(cause) from cause

    def close(self) -> None:
        # A finished response returned to the pool when it was read; others are cut off.
        if not self._response.closed:
            connection = self._response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
            self._response.close()
