"""Requests as bytes on a connection, so that nothing mends them on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

HANG_SECONDS = 60


@dataclass(frozen=True)
class Request:
    """`raw` replaces everything else: bytes that are no HTTP."""

    what: str
    method: str = "GET"
    path: str = "/"
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    chunked: bool = False
    raw: bytes | None = None
    # May turn out to be a good request: then any answer will do that is no fault of the server.
    may_be_good: bool = False

    def encoded(self) -> bytes:
        if self.raw is not None:
            return self.raw
        headers = {"Host": "localhost", "Accept": "application/json", **self.headers}
        if self.chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif "Content-Length" not in headers:
            headers["Content-Length"] = str(len(self.body))
        lines = [f"{self.method} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
        return head + (_chunks(self.body) if self.chunked else self.body)

    def __str__(self) -> str:
        sent = self.encoded()
        return f"{self.what}: {sent[:600]!r}{'...' if len(sent) > 600 else ''} ({len(sent)} bytes)"


@dataclass(frozen=True)
class Answer:
    """`body` is decoded JSON, or the bytes where it is none."""

    code: int
    body: Any


class Wire:
    """One connection to the server, opened again whenever it is closed."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self._address = parts.hostname, parts.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: Request) -> Answer:
        """Send and wait for the answer.

        Raises:
            TimeoutError: none came.
        """
        async with asyncio.timeout(HANG_SECONDS):
            return await self._send(request)

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(ConnectionError):
                await self._streams[1].wait_closed()
            self._streams = None

    async def _send(self, request: Request) -> Answer:
        kept = self._streams is not None
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        # The server may answer and close before it has taken everything.
        writer.write(request.encoded())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            if not kept:
                raise
            # The server had closed the connection after the request before this one.
            await self.close()
            return await self._send(request)
        lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readline(), 16):
                body += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
        elif request.method != "HEAD":
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        # What was not read of a body would be taken for the next request.
        odd = request.raw is not None or "Content-Length" in request.headers
        if odd or headers.get("connection") == "close" or len(request.body) > 1 << 16:
            await self.close()
        decoded: Any = body
        with contextlib.suppress(ValueError):
            decoded = json.loads(body)
        return Answer(int(lines[0].split()[1]), decoded)


def _chunks(body: bytes) -> bytes:
    size = 1 << 16
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
