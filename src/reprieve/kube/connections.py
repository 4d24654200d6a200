"""Connections to an API server that are kept open, but not for ever.

aiohttp reuses the connection that has been idle for the longest time, and closes one that was idle
for 15 s: while requests keep coming each has its turn, so that as many stay as were ever needed at
one moment. Over TLS each uses 256 KiB for what is read from it, and what OpenSSL needs. One that
has been open for longer than `_LONGEST` is therefore closed after the request for which it is used,
and another is made only if none is idle.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

import aiohttp

__all__ = ["Connections"]

_LONGEST: Final = 120.0  # seconds


class Connections(aiohttp.TCPConnector):
    """aiohttp's, each of them for a time; `longest` in seconds."""

    def __init__(self, *, longest: float = _LONGEST, **options: Any) -> None:
        super().__init__(**options)
        self._longest = longest
        self._made: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    async def connect(self, *request: Any, **options: Any) -> aiohttp.connector.Connection:
        """Return a connection for a request, which is its last one if it is old."""
        connection = await super().connect(*request, **options)
        now = asyncio.get_running_loop().time()
        if now - self._made.setdefault(connection.protocol, now) > self._longest:
            assert connection.protocol is not None
            connection.protocol.force_close()
        return connection
