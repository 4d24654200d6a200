"""A client whose TLS handshake ends after the server has stopped."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

__all__ = ["late_handshake"]


@asynccontextmanager
async def late_handshake(
    serving: AbstractAsyncContextManager[int], trust: ssl.SSLContext
) -> AsyncIterator[bytes]:
    """Give what the client reads until its connection is closed; `serving` gives the port.

    Raises:
        TimeoutError: nobody closes it.
    """
    async with serving as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(20):  # turns of the loop in which the server accepts the connection
            await asyncio.sleep(0)
    try:
        try:
            await writer.start_tls(trust, server_hostname="127.0.0.1")
            async with asyncio.timeout(20):
                found = await reader.read()
        except ConnectionError:
            found = b""  # closed before the handshake has ended, which is as well
        yield found
    finally:
        writer.close()
