"""HTTP/1.1 for requests whose answer is read whole, over connections that are kept open.

Most of what a controller sends is small writes, one call each, and a general client takes longer
over such a call than everything else that a decision costs. Nothing is retried here. A connection
carries one request at a time, and is closed after an answer that was not read to its end, that
closes it, or that has no length. Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

__all__ = ["Connections", "Incomplete", "Malformed", "Whole"]

_IDLE_MOST: Final = 15.0  # seconds; servers and what stands before them close what lasts longer
_CONNECT: Final = 10.0
_HEAD_MOST: Final = 2**16
_END: Final = b"\r\n"


class Incomplete(ConnectionError):
    """The connection ended before the answer did."""


class Malformed(ConnectionError):
    """The answer is not HTTP/1.1."""


@dataclass(slots=True)
class Whole:
    """An answer that has been read; names of headers are written `Like-This`."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    async def read(self) -> bytes:
        """Return the body."""
        return self.body

    async def lines(self) -> AsyncGenerator[bytes]:
        """Yield the lines of the body that are not empty."""
        for line in self.body.split(b"\n"):
            if line:
                yield line

    def close(self) -> None:
        """Nothing is held."""


class Connections:
    """Connections to one server.

    Args:
        server: URL, possibly with a path.
        tls: None for plain HTTP.
        server_name: whose certificate it has to be; None for the host of `server`.
        limit: connections at a time.
        made: gives the socket for an address.
    """

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext | None,
        server_name: str | None,
        limit: int,
        made: Callable[[Any], socket.socket],
    ) -> None:
        parts = urlsplit(server)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._named = parts.netloc.rpartition("@")[2]
        self._tls = tls if parts.scheme == "https" else None
        self._server_name = server_name or self._host
        self._made = made
        self._places = asyncio.Semaphore(limit)
        self._free: list[_Channel] = []

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        seconds: float,
    ) -> Whole:
        """Return the answer, whatever its status.

        Raises:
            TimeoutError: not within so many seconds.
            OSError: no connection, or one that ended too early.
            ValueError: a header that would be two.
        """
        target = self._prefix + path + (_encoded(tuple(query.items())) if query else "")
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._named}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join(lines)
        if head.count("\r") + head.count("\n") != 2 * (len(lines) - 1):
            raise ValueError("a header with a line break")
        request = head.encode("latin-1") + _END + _END + body
        async with asyncio.timeout(seconds), self._places:
            channel = await self._channel()
            try:
                return await channel.send(request)
            finally:
                if channel.reusable:
                    channel.idle_since = time.monotonic()
                    self._free.append(channel)
                else:
                    channel.abort()

    def close(self) -> None:
        """Close all connections that carry nothing now."""
        for channel in self._free:
            channel.abort()
        self._free.clear()

    async def _channel(self) -> _Channel:
        now = time.monotonic()
        while self._free:
            channel = self._free.pop()
            if channel.reusable and now - channel.idle_since < _IDLE_MOST:
                return channel
            channel.abort()
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        failure: OSError | None = None
        for info in infos:
            opened = self._made((*info[:3], "", info[4]))
            opened.setblocking(False)
            try:
                async with asyncio.timeout(_CONNECT):
                    await loop.sock_connect(opened, info[4])
                    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    name = self._server_name if self._tls is not None else None
                    _, channel = await loop.create_connection(
                        _Channel, sock=opened, ssl=self._tls, server_hostname=name
                    )
            except OSError as error:  # a timeout is one
                opened.close()
                failure = error
            except BaseException:
                opened.close()
                raise
            else:
                return channel
        raise failure or OSError(f"{self._host} has no address")


class _Channel(asyncio.Protocol):
    """One connection; `reusable` once an answer was read to its end."""

    def __init__(self) -> None:
        self.reusable = False
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[Whole] | None = None
        self._head: _Head | None = None
        self._lost: BaseException | None = None

    async def send(self, request: bytes) -> Whole:
        """Return the answer to one request."""
        assert self._transport is not None
        self.reusable = False
        if self._lost is not None:
            raise Incomplete("the connection is closed") from self._lost
        self._head = None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def abort(self) -> None:
        """Close at once."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    # The event loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            # Nobody asked: what comes next would be taken for an answer.
            self.abort()
            return
        self._received += data
        try:
            self._read(ended=False)
        except ValueError as error:
            self._fail(Malformed(f"the answer cannot be read: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        self._lost = exc or ConnectionResetError("the server closed the connection")
        if self._answer is None or self._answer.done():
            return
        with contextlib.suppress(ValueError):
            self._read(ended=True)
        if not self._answer.done():
            self._fail(Incomplete(str(exc) if exc else "the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.abort()

    def _read(self, *, ended: bool) -> None:
        if self._head is None:
            self._head = self._read_head()
        head = self._head
        if head is None:
            return
        if head.chunked:
            found = _chunks(self._received, head.start)
        elif head.length is not None:
            end = head.start + head.length
            whole = len(self._received) >= end
            found = (bytes(self._received[head.start : end]), end) if whole else None
        else:
            found = (bytes(self._received[head.start :]), -1) if ended else None
        if found is None:
            return
        body, end = found
        # More than was asked for belongs to nobody.
        self.reusable = head.kept and not ended and end == len(self._received)
        self._received.clear()
        assert self._answer is not None
        self._answer.set_result(Whole(head.status, head.headers, body))

    def _read_head(self) -> _Head | None:
        while True:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > _HEAD_MOST:
                    raise ValueError("its headers are too long")
                return None
            head = _head(self._received[:end].decode("latin-1"), end + 4)
            if head.status >= 200:
                return head
            # 1xx: the answer itself follows.
            del self._received[: end + 4]


class _Head(NamedTuple):
    """`start` is where the body begins; `length` None: until the connection ends."""

    status: int
    headers: Mapping[str, str]
    start: int
    chunked: bool
    length: int | None
    kept: bool


@functools.lru_cache(maxsize=64)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    return "?" + urlencode(query, safe=",")


def _head(text: str, start: int) -> _Head:
    first, *lines = text.split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
        raise ValueError(f"it begins with {first[:40]!r}")
    status = int(rest[:3])
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"a header without a colon: {line[:40]!r}")
        name = name.title()
        value = value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    chunked = headers.get("Transfer-Encoding", "").lower().endswith("chunked")
    said = headers.get("Content-Length")
    length: int | None = None
    if status in (204, 304):
        length = 0
    elif said is not None and not chunked:
        if not said.isdecimal():
            raise ValueError(f"a length of {said[:40]!r}")
        length = int(said)
    connection = headers.get("Connection", "").lower()
    kept = "keep-alive" in connection if version == "HTTP/1.0" else "close" not in connection
    return _Head(status, headers, start, chunked, length, kept)


def _chunks(received: bytearray, start: int) -> tuple[bytes, int] | None:
    """Return the body and where it ends, None while some of it is missing."""
    parts = []
    while True:
        line = received.find(_END, start)
        if line < 0:
            return None
        size = int(received[start:line].partition(b";")[0], 16)
        start = line + 2
        if size == 0:
            break
        if len(received) < start + size + 2:
            return None
        parts.append(bytes(received[start : start + size]))
        start += size + 2
    while True:  # trailers
        line = received.find(_END, start)
        if line < 0:
            return None
        if line == start:
            return b"".join(parts), start + 2
        start = line + 2
