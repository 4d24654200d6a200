"""An HTTP client that does next to nothing, so that the server has the machine to itself.

Requests are bytes made beforehand; of an answer only the code and the body are taken, whether it
comes with its length or in chunks.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from reprieve.kube.credentials import Connection as Credentials

__all__ = ["Connection", "Endpoint", "Watcher", "request_bytes"]

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_CHUNKED: Final = -1


@dataclass(frozen=True)
class Endpoint:
    """Where an API server listens; `headers` are lines that go with every request."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    headers: str = ""

    @classmethod
    async def of(cls, credentials: Credentials) -> Endpoint:
        """Return the server of a kubeconfig, with what its headers are now."""
        parts = urlsplit(credentials.server)
        headers = await credentials.headers()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.hostname or "127.0.0.1", port, credentials.tls, lines)

    async def connect(self) -> Connection:
        """Open one connection."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self.host, self.port, ssl=self.tls)
        return connection


def request_bytes(
    method: str, path: str, body: bytes = b"", content_type: str = "", headers: str = ""
) -> bytes:
    """Return the bytes of a request; `headers` are more lines of its head."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
    head += f"User-Agent: bench/1\r\n{headers}"
    if body:
        head += f"Content-Type: {content_type or 'application/json'}\r\n"
        head += f"Content-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


class Connection(asyncio.Protocol):
    """One request at a time over one connection."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._end = 0
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    def send(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Return the code and the body of the answer, when it is there."""
        self._received.clear()
        self._end = 0
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._end:
            head = self._received.find(b"\r\n\r\n")
            if head < 0:
                return
            self._start = head + 4
            length = _LENGTH.search(self._received, 0, head)
            self._end = self._start + int(length[1]) if length is not None else _CHUNKED
        if self._answer is None:
            return
        if self._end == _CHUNKED:
            body = _joined(self._received, self._start) if data.endswith(b"\r\n\r\n") else None
        elif len(self._received) >= self._end:
            body = bytes(self._received[self._start : self._end])
        else:
            body = None
        if body is not None:
            self._answer.set_result((int(self._received[9:12]), body))
            self._answer = None


def _joined(received: bytearray, start: int) -> bytes | None:
    """Return the body that came in chunks, None before the last one."""
    parts: list[bytes] = []
    while (end := received.find(b"\r\n", start)) >= 0:
        size = int(received[start:end], 16)
        start = end + 2 + size + 2
        if not size:
            return b"".join(parts)
        if start > len(received):
            return None
        parts.append(bytes(received[end + 2 : start - 2]))
    return None


class Watcher(asyncio.Protocol):
    """Counts the events of a watch until there are as many as were `wanted`."""

    def __init__(self, request: bytes, wanted: int) -> None:
        loop = asyncio.get_running_loop()
        self.began: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self.events = 0
        self._request, self._wanted, self._last = request, wanted, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.began, self.done):
            if not future.done():
                future.set_exception(ConnectionError("the watch ended early"))

    def data_received(self, data: bytes) -> None:
        if not self.began.done():
            assert data.startswith(b"HTTP/1.1 200"), data[:300]
            self.began.set_result(None)
        # JSON has no line feeds of its own, and chunks end with another character before it.
        self.events += data.count(b"}\n") + (self._last == b"}" and data[:1] == b"\n")
        self._last = data[-1:]
        if self.events >= self._wanted and not self.done.done():
            self.done.set_result(None)
            self._transport.close()
