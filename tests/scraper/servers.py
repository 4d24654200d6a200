"""Metric endpoints for tests: an HTTP server on a free port of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Answer every GET with `handler`; gives `http://HOST:PORT`."""
    application = web.Application()
    application.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    try:
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def text(body: str, status: int = 200) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body, status=status)

    return handler


def busy(pod: str, value: str = "5", namespace: str = "team", gpu: str = "0") -> str:
    return f'gpu_gfx_activity{{namespace="{namespace}",pod="{pod}",gpu_id="{gpu}"}} {value}\n'
