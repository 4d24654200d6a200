"""`/metrics`, `/healthz` and `/readyz` over HTTP, and what plugins show under `/apis/v1/plugins`.

The two probes run the checks that the process gives and answer 200 or 503 with one line for each
check. A check that is not required is shown and does not fail the probe: an action that is off for
want of a right leaves the operator ready. `/metrics` answers in the format that is requested, the
exemplars being in OpenMetrics alone. With a `Protection` everything but the probes is for those
that it accepts, by their bearer token and over TLS.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from reprieve.telemetry.connections import IDLE_S, Connections, listening
from reprieve.telemetry.probes import Check, Page, Probe

__all__ = ["Access", "Protection", "serve_telemetry"]

_OPEN: Final = ("/healthz", "/readyz")
_BEARER: Final = "Bearer "


class Access(StrEnum):
    """Whether a user may read what is requested."""

    ALLOWED = "allowed"
    UNKNOWN = "unknown"
    DENIED = "denied"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Protection:
    """Who may read: `judge` decides by token and path, tokens come over TLS of `context`."""

    judge: Callable[[str, str], Awaitable[Access]]
    context: ssl.SSLContext


@asynccontextmanager
async def serve_telemetry(
    registry: CollectorRegistry,
    healthy: Probe,
    ready: Probe,
    port: int,
    host: str | None = None,
    pages: Callable[[str], Page] | None = None,
    protection: Protection | None = None,
) -> AsyncIterator[int]:
    """Serve until the end of the block; gives the port, a free one when `port` is 0.

    `host`: None listens on all addresses. `pages`: what plugins show, by the path below
    `/apis/v1/plugins/`. `protection`: of all but the probes; without it everything is open.

    Raises:
        UsageError: the port cannot be listened on.
    """
    connections = Connections()
    judging = [] if protection is None else [_protected(protection.judge)]
    application = web.Application(middlewares=[connections.middleware(), *judging])
    application.router.add_get("/metrics", _metrics(registry))
    application.router.add_get("/healthz", _probe(healthy))
    application.router.add_get("/readyz", _probe(ready))
    if pages is not None:
        application.router.add_get("/apis/v1/plugins/{path:.*}", _pages(pages))
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=1.0, keepalive_timeout=IDLE_S
    )
    await runner.setup()
    assert runner.server is not None
    context = None if protection is None else protection.context
    try:
        async with listening(
            connections, runner.server, host, port, context, "--metrics-port"
        ) as found:
            yield found
    finally:
        await runner.cleanup()


def _protected(judge: Callable[[str, str], Awaitable[Access]]) -> Middleware:
    @web.middleware
    async def protected(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in _OPEN:
            return await handler(request)
        given = request.headers.get("Authorization", "")
        if not given.startswith(_BEARER):
            found = Access.UNKNOWN
        else:
            found = await judge(given.removeprefix(_BEARER).strip(), request.path)
        match found:
            case Access.ALLOWED:
                return await handler(request)
            case Access.UNKNOWN:
                headers = {"WWW-Authenticate": "Bearer"}
                return web.Response(text="a bearer token is needed\n", status=401, headers=headers)
            case Access.DENIED:
                return web.Response(text=f"needs the right to get {request.path}\n", status=403)
            case Access.UNDECIDED:
                return web.Response(
                    text="the API server returned no user for this token\n", status=503
                )

    return protected


def _metrics(registry: CollectorRegistry) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        response = web.Response(body=encode(registry), headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    return handler


def _pages(pages: Callable[[str], Page]) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        page = pages(request.match_info["path"])
        if page.missing:
            return web.Response(text=page.missing, status=404)
        return web.json_response(page.document)

    return handler


def _probe(probe: Probe) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        checks = list(probe())
        failed = any(check.required and not check.passed for check in checks)
        lines = [_line(check) for check in checks]
        lines.append("failed" if failed else "ok")
        return web.Response(text="\n".join(lines) + "\n", status=503 if failed else 200)

    return handler


def _line(check: Check) -> str:
    mark = "+" if check.passed else "-" if check.required else "!"
    return f"[{mark}] {check.name}" + (f": {check.detail}" if check.detail else "")
