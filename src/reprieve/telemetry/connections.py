"""What one connection to a server may cost: how many there are, and how long each may dawdle.

For the webhooks, the page and the telemetry alike. A connection is closed when

1. as many are open already as the server's `Limits` state
2. the handshake of TLS, or the head of a request once its first byte came, lasts too long
3. its peer does not read an answer for too long
4. no request was sent on it for the idle time from the start: the API server opens connections
   that it uses later, and does not try again where the first request on one fails

For webhooks that is longer than the API server keeps an idle connection, so that it is the API
server that closes. After an answer aiohttp measures it. How long a body may last, and how large
it may be, is for its reader.

Source: the threat model in `docs/security.md`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from reprieve.units.errors import UsageError

__all__ = ["HEAD_S", "IDLE_S", "Connections", "Limits", "listening"]

HANDSHAKE_S: Final = 5.0
HEAD_S: Final = 5.0
IDLE_S: Final = 120.0
_BACKLOG: Final = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one server: connections at a time, and seconds."""

    most: int = 256
    head_s: float = HEAD_S
    write_s: float = 10.0
    idle_s: float = IDLE_S


DEFAULT = Limits()


def _unheard(why: str) -> None:
    return


class Connections:
    """All connections of one server. `refused` hears why one was closed."""

    def __init__(
        self, refused: Callable[[str], None] = _unheard, limits: Limits | None = None
    ) -> None:
        self._limits = limits
        self._refused = refused
        self._open: dict[object, _Connection] = {}
        self._speakers: dict[object, object] = {}  # of which connection, where it is another one
        self._listens = True

    def end(self) -> None:
        """Close each connection whose handshake ends from now on: the server has stopped."""
        self._listens = False

    @property
    def listens(self) -> bool:
        """Return whether new connections are served."""
        return self._listens

    @property
    def limits(self) -> Limits:
        """Return what one connection may cost."""
        return self._limits or DEFAULT

    def opened(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """Return what listens to a new connection, on which `inner` speaks HTTP."""
        return _Connection(inner, self, self._refused)

    def middleware(self) -> Middleware:
        """Return what notes when the head of a request was read, and when it was answered."""

        @web.middleware
        async def timed(request: web.Request, handler: Handler) -> web.StreamResponse:
            self.began(request.protocol)
            try:
                return await handler(request)
            finally:
                self.ended(request.protocol)

        return timed

    def began(self, inner: object) -> None:
        """Note that the head of a request was read."""
        connection = self._connection(inner)
        if connection is not None:
            connection.began()

    def ended(self, inner: object) -> None:
        """Note that a request was answered."""
        connection = self._connection(inner)
        if connection is not None:
            connection.ended()

    def _connection(self, inner: object) -> _Connection | None:
        return self._open.get(self._speakers.get(inner, inner))

    def speaks(self, inner: object, instead_of: object) -> None:
        """Record one that speaks HTTP as the one that was given the connection."""
        self._speakers[inner] = instead_of

    def silent(self, inner: object) -> None:
        """Forget one of `speaks`, whose connection is closed."""
        self._speakers.pop(inner, None)

    def admits(self, inner: object, connection: _Connection) -> bool:
        """Count a connection; return whether it is within the bound."""
        if len(self._open) >= self.limits.most:
            return False
        self._open[inner] = connection
        return True

    def forget(self, inner: object) -> None:
        """Count a connection that is closed no longer."""
        self._open.pop(inner, None)


class _Connection(asyncio.Protocol):
    """One connection: hands everything on to what speaks HTTP, and keeps the time."""

    __slots__ = (
        "_counted",
        "_head",
        "_in_request",
        "_inner",
        "_owner",
        "_refused",
        "_transport",
        "_unused",
        "_write",
    )

    def __init__(
        self, inner: asyncio.Protocol, owner: Connections, refused: Callable[[str], None]
    ) -> None:
        self._inner = inner
        self._owner = owner
        self._refused = refused
        self._counted = False
        self._in_request = False
        self._transport: asyncio.Transport | None = None
        self._unused: asyncio.TimerHandle | None = None
        self._head: asyncio.TimerHandle | None = None
        self._write: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # One of uvloop's, which are not of this class.
        self._transport = cast("asyncio.Transport", transport)
        if not self._owner.listens:
            self._transport.abort()
            return
        self._counted = self._owner.admits(self._inner, self)
        if not self._counted:
            self._close("connections")
            return
        self._inner.connection_made(transport)
        self._unused = self._close_after(self._owner.limits.idle_s, "unused")

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.forget(self._inner)
        for timer in (self._unused, self._head, self._write):
            _stop(timer)
        if self._counted:
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._counted:
            return
        _stop(self._unused)
        if not self._in_request and self._head is None:
            self._head = self._close_after(self._owner.limits.head_s, "slow-head")
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._counted else None

    def pause_writing(self) -> None:
        self._write = self._close_after(self._owner.limits.write_s, "slow-reader")
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        _stop(self._write)
        self._inner.resume_writing()

    def began(self) -> None:
        self._in_request = True
        _stop(self._head)
        self._head = None

    def ended(self) -> None:
        self._in_request = False

    def _close_after(self, seconds: float, why: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._close, why)

    def _close(self, why: str) -> None:
        self._refused(why)
        if self._transport is not None:
            self._transport.abort()


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


@asynccontextmanager
async def listening(
    connections: Connections,
    speaking: Callable[[], asyncio.Protocol],
    host: str | None,
    port: int,
    context: ssl.SSLContext | None,
    called: str = "webhook port",
) -> AsyncIterator[int]:
    """Listen until the end of the block; gives the port.

    Args:
        connections: counts them.
        speaking: makes what speaks HTTP on a new one.
        host: None listens on all addresses.
        port: 0 chooses a free one.
        context: of TLS, None without.
        called: the setting of the port.

    Raises:
        UsageError: the port cannot be listened on.
    """
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: connections.opened(speaking()),
            sock=_socket(host, port),
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
            backlog=_BACKLOG,
        )
    except OSError as error:
        raise UsageError(
            f"{called} {port}: cannot listen: {error.strerror or error}; "
            "accepted: a free port, 0 selects any"
        ) from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        connections.end()


def _socket(host: str | None, port: int) -> socket.socket:
    if host is None and socket.has_dualstack_ipv6():
        # One socket, because each address family would be given a free port of its own.
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.AF_INET6 if host is not None and ":" in host else socket.AF_INET
    return socket.create_server((host or "", port), family=family)
