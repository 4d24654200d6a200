"""An HTTP client that does next to nothing, so that the server has the machine to itself.

Requests are bytes made beforehand; of an answer only the code and the body are taken.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

__all__ = ["Connection", "Watcher", "request_bytes"]

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)


def request_bytes(method: str, path: str, body: bytes = b"", content_type: str = "") -> bytes:
    """Return the bytes of a request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
    head += "User-Agent: bench/1\r\n"
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
            length = _LENGTH.search(self._received, 0, head)
            assert length is not None, bytes(self._received[:head])
            self._end = head + 4 + int(length[1])
            self._start = head + 4
        if len(self._received) >= self._end and self._answer is not None:
            self._answer.set_result(
                (int(self._received[9:12]), bytes(self._received[self._start : self._end]))
            )
            self._answer = None


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
