"""How many connections stay open to an API server after many were needed at once."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubeworld.units.clock import SystemClock
from reprieve.kube import transport as transports
from reprieve.kube.connections import Connections
from reprieve.kube.credentials import Connection, Headers
from reprieve.kube.transport import HttpWire, Request, Transport

AT_ONCE: Final = 8


async def _left(monkeypatch: pytest.MonkeyPatch, longest: float) -> int:
    """Return how many connections carry requests one by one, some time after many at once."""
    monkeypatch.setattr(transports, "Connections", partial(Connections, longest=longest))
    arrived, together = 0, asyncio.Event()
    carried: list[asyncio.BaseTransport | None] = []

    async def answer(request: web.Request) -> web.Response:
        nonlocal arrived
        arrived += 1
        carried.append(request.transport)
        if arrived == AT_ONCE:
            together.set()
        await together.wait()
        return web.Response(text="{}")

    application = web.Application()
    application.router.add_get("/", answer)
    async with TestServer(application) as there:
        address = str(there.make_url("")).rstrip("/")
        connection = Connection(server=address, tls=None, headers=Headers(lambda: "Bearer t"))
        transport = Transport(HttpWire(connection), SystemClock())
        try:
            await asyncio.gather(
                *(transport.request(Request("GET", "/"), retry=False) for _ in range(AT_ONCE))
            )
            # Each that is idle has its turn: those that are old go with it.
            for _ in range(2 * AT_ONCE):
                await transport.request(Request("GET", "/"))
            wire = transport._wire
            assert isinstance(wire, HttpWire) and wire._session is not None
            connector = wire._session.connector
            assert isinstance(connector, Connections)
            assert len(set(carried[:AT_ONCE])) == AT_ONCE, "they were not needed at once"
            return sum(map(len, connector._conns.values()))
        finally:
            await transport.close()


async def test_connections_that_were_needed_once_do_not_stay_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await _left(monkeypatch, longest=0.0) <= 1
    # Without an end all of them stay, since each has its turn.
    assert await _left(monkeypatch, longest=3600.0) == AT_ONCE
