"""A server of the page over HTTP, on a free port, with a stand-in for the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from kubeworld.units.clock import Clock, SystemClock
from kubeworld.units.durations import SECOND
from reprieve.telemetry.connections import Connections, Limits, listening
from reprieve.web.live.watching import Watching
from reprieve.web.server.application import Site
from reprieve.web.server.assets import Assets
from reprieve.web.server.door import Door
from reprieve.web.server.explaining import Explanations
from reprieve.web.server.local import LocalDoor
from reprieve.web.server.planning import Plans, with_kubeconfig
from reprieve.web.server.process import LIMITS, page_runner
from tests.web.stand_in import StandIn

TOKEN = "a-token-of-this-start"


@dataclass
class Served:
    """A server and somebody who asks it; `cluster` is what the pages are made of."""

    cluster: StandIn
    watching: Watching
    address: str
    client: aiohttp.ClientSession

    async def json(self, path: str, status: int = 200, **more: Any) -> Any:
        async with self.client.get(self.address + path, **more) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()


class QuickClock(SystemClock):
    """The machine's clock, with pauses fifty times as short."""

    async def sleep(self, nanoseconds: int) -> None:
        await super().sleep(nanoseconds // 50)


@contextlib.asynccontextmanager
async def serving(
    cluster: StandIn,
    *,
    door: Door | None = None,
    assets: Assets | None = None,
    plans: Plans | None = None,
    explanations: Explanations | None = None,
    names: Collection[str] | None = (),
    checked: int = 30 * SECOND,
    clock: Clock | None = None,
    headers: dict[str, str] | None = None,
    limits: Limits = LIMITS,
    part: Sequence[str] | None = None,
) -> AsyncIterator[Served]:
    clock = clock or QuickClock()
    watching = Watching(cluster, clock, lambda: secrets.token_hex(6))
    site = Site(
        watching,
        door or LocalDoor(TOKEN, "me"),
        assets or Assets({}),
        plans or Plans(with_kubeconfig(None, None)),
        clock,
        "kind-a",
        names,
        checked,
        explanations,
        part,
    )
    connections = Connections(limits=limits)
    runner = page_runner(site, connections)
    await runner.setup()
    assert runner.server is not None
    port_of = listening(connections, runner.server, "127.0.0.1", 0, None)
    port = await port_of.__aenter__()
    making = asyncio.create_task(watching.run())
    known = {"Authorization": f"Bearer {TOKEN}"} if headers is None else headers
    jar = aiohttp.CookieJar(unsafe=True)
    try:
        async with aiohttp.ClientSession(headers=known, cookie_jar=jar) as client:
            yield Served(cluster, watching, f"http://127.0.0.1:{port}", client)
    finally:
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)
        await port_of.__aexit__(None, None, None)
        await runner.cleanup()
