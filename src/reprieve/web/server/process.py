"""One server of the page: a mirror that is fed, pages that are made of it, and a port.

The mirror is filled before the address is printed, so that the first page is whole; a cluster that
is slow to list is not waited for longer than ten seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import ssl
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry

from kubeworld.units.clock import Clock
from reprieve.kube.errors import ApiError
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PODS
from reprieve.kube.transport import Request
from reprieve.settings.start_up import DEFAULT_NAMESPACE
from reprieve.telemetry.connections import HEAD_S, Connections, Limits, listening
from reprieve.telemetry.http import serve_telemetry
from reprieve.units.errors import ReprieveError
from reprieve.web.history.history import History
from reprieve.web.history.sampling import keep_sampling
from reprieve.web.live.watching import Watching
from reprieve.web.mirror.harm_reading import keep_reading_harm
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.watches import Feed, feeds, run_feeds, settled
from reprieve.web.records.numbers_key import numbers_key
from reprieve.web.records.opening import Opening
from reprieve.web.server.application import Site, application
from reprieve.web.server.assets import load_assets
from reprieve.web.server.door import Door
from reprieve.web.server.mirrored import MirroredCluster
from reprieve.web.server.objects import Objects, with_own_rights
from reprieve.web.server.planning import Plans

__all__ = ["Listening", "page_runner", "serve_page"]

log: Final = logging.getLogger("reprieve.web")

_FIRST_LISTS_S: Final = 10.0
#: Tokens of people in many groups are long.
_LONGEST_HEADER: Final = 32 * 1024
#: Streams hold a connection each, and cut off by themselves who does not read.
LIMITS: Final = Limits(most=1_024, write_s=60.0, idle_s=30.0)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the page is served.

    Attributes:
        host: None for all addresses.
        port: 0 chooses a free one.
        names: as which this server is known; None answers to all, an empty one to loopback names.
        tls: None for plain HTTP.
        metrics: port of the sums of samples; None serves none, 0 chooses a free one.
    """

    host: str | None
    port: int
    names: Collection[str] | None = ()
    tls: ssl.SSLContext | None = None
    metrics: int | None = None


Home = Callable[[Reader], Awaitable[str]]


@asynccontextmanager
async def serve_page(
    reader: Reader,
    clock: Clock,
    where: Listening,
    door: Door,
    plans: Plans,
    *,
    cluster: str,
    namespaces: Sequence[str] = (),
    operator_namespace: str | Home = DEFAULT_NAMESPACE,
    history: History | None = None,
    objects: Objects | None = None,
) -> AsyncIterator[int]:
    """Serve until the end of the block; gives the port.

    `cluster`: what it is called; `namespaces`: read alone where everything may not be;
    `operator_namespace`: where the operator keeps what it needs, or what finds it once the API
    server has answered; `history`: where samples are stored, else they are kept in memory;
    `objects`: reads single ones, else with the rights of `reader`.

    Raises:
        UsageError: the port cannot be listened on.
        ReprieveError: the API server does not answer, or does not know the user.
    """
    await _reached(reader)
    mirror = Mirror(cluster)
    mirror.history = history or mirror.history
    home = operator_namespace
    if not isinstance(home, str):
        home = await home(reader)
    mirror.key = await numbers_key(reader, home)
    opening = mirror.opened = Opening(reader, mirror.touch)
    found = await feeds(mirror, reader, clock, namespaces)
    watching = Watching(MirroredCluster(mirror), clock, lambda: secrets.token_hex(6))
    site = Site(
        watching,
        door,
        load_assets(),
        plans,
        clock,
        cluster,
        where.names,
        part=namespaces if _sees_a_part(mirror) else None,
        objects=objects or Objects(with_own_rights(reader.transport)),
    )
    connections = Connections(limits=LIMITS)
    runner = page_runner(site, connections)
    harm = keep_reading_harm(mirror, reader, home, clock)
    work = (run_feeds(found), watching.run(), opening.run(), harm)
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await _filled(found, clock)
        tasks += [asyncio.create_task(each) for each in _keeping(mirror, clock)]
        async with _metrics(mirror.history, where), _listening(runner, connections, where) as port:
            yield port
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await runner.cleanup()


def _keeping(mirror: Mirror, clock: Clock) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield what keeps the history, which begins once there is something to sample."""
    yield keep_sampling(mirror, clock)
    if mirror.history.elsewhere is not None:
        yield mirror.history.elsewhere.keep_asking()


@asynccontextmanager
async def _listening(
    runner: web.AppRunner, connections: Connections, where: Listening
) -> AsyncIterator[int]:
    """Listen until the end of the block; gives the port."""
    await runner.setup()
    assert runner.server is not None
    async with listening(
        connections, runner.server, where.host, where.port, where.tls, "--port"
    ) as port:
        yield port


@asynccontextmanager
async def _metrics(history: History, where: Listening) -> AsyncIterator[None]:
    """Serve the sums of samples until the end of the block, where a port is given."""
    if where.metrics is None:
        yield
        return
    registry = CollectorRegistry()
    registry.register(history.series)
    async with serve_telemetry(registry, tuple, tuple, where.metrics, where.host) as found:
        log.info("metrics of teams are served on port %d", found)
        yield


async def _filled(found: list[Feed], clock: Clock) -> None:
    """Return once everything was listed, or after a while."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FIRST_LISTS_S):
            await settled(found, clock)


def _sees_a_part(mirror: Mirror) -> bool:
    return any(each.partition(" ")[0] == PODS.qualified for each in mirror.unseen)


def page_runner(site: Site, connections: Connections | None = None) -> web.AppRunner:
    """Return what runs the server: it keeps no log of requests, which would hold tokens."""
    silent = logging.getLogger("reprieve.web.http")
    silent.setLevel(logging.CRITICAL)  # aiohttp quotes headers that it cannot read
    return web.AppRunner(
        application(site, connections or Connections(limits=LIMITS)),
        access_log=None,
        logger=silent,
        handler_cancellation=True,
        shutdown_timeout=0.5,
        keepalive_timeout=LIMITS.idle_s,
        lingering_time=HEAD_S,
        max_field_size=_LONGEST_HEADER,
    )


async def _reached(reader: Reader) -> None:
    """Return when the API server has answered.

    Raises:
        ReprieveError: it has not, or refuses the credentials.
    """
    try:
        await reader.transport.request(Request("GET", "/version"))
    except ApiError as error:
        raise ReprieveError(f"the API server cannot be read: {error}") from None
