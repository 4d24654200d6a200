"""The HTTP server's connections: what is no HTTP is also refused with a Status object.

aiohttp answers such bytes itself, before any handler sees a request, with a plain text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from kubelocal.server.errors import bad_request

__all__ = ["Server"]

_log = logging.getLogger(__name__)


class Server(web.Server):
    """`aiohttp.web.Server` with connections of our kind; `handle` answers each request."""

    def __init__(self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(handle, access_log=None)
        self._listens = True

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if not self._listens:
            transport.abort()

    async def shutdown(self, timeout: float | None = None) -> None:
        # A TLS handshake may end after the server: nobody would close its connection.
        self._listens = False
        await super().shutdown(timeout)

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=asyncio.get_running_loop(), **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        _log.debug("%s sent what is no HTTP", request.remote, exc_info=exc)
        error = bad_request(f"the request is not HTTP: {(message or '').partition(chr(10))[0]}")
        response = web.Response(
            status=error.code,
            body=orjson.dumps(error.status()) + b"\n",
            content_type="application/json",
        )
        response.force_close()
        return response
