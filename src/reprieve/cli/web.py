"""`reprieve web`: the web page as a server in the cluster, with a login and everybody's own rights.

It reads with rights of its own and shows each viewer what the API server states that they may see.
Tokens travel, so that it belongs behind TLS: its own, or that of a proxy in front of it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from kubeworld.units.clock import Clock, SystemClock
from reprieve.cli.options.cluster_options import context_option, kubeconfig_option
from reprieve.cli.options.keeping import keeping_options
from reprieve.cli.options.operator_option import operator_option
from reprieve.cli.options.own_audience import api_audience
from reprieve.kube.credentials import Connection, load_connection
from reprieve.kube.reader import Reader
from reprieve.kube.transport import HttpWire, Transport
from reprieve.operator.collector import relax_collector
from reprieve.settings.start_up import DEFAULT_NAMESPACE
from reprieve.telemetry.log import start_logging
from reprieve.units.errors import UsageError
from reprieve.web.history.history import History
from reprieve.web.login.attempts import Attempts, Network
from reprieve.web.login.door import ClusterDoor
from reprieve.web.login.reviews import Reviews
from reprieve.web.login.rights import Rights
from reprieve.web.login.sessions import Sessions
from reprieve.web.login.tokens import Tokens
from reprieve.web.login.wire import ReviewingWire
from reprieve.web.server.certificates import followed_certificate
from reprieve.web.server.commands import Rights as PlanRights
from reprieve.web.server.door import Door
from reprieve.web.server.guarding import is_loopback_name
from reprieve.web.server.local import LocalDoor
from reprieve.web.server.objects import Objects, as_who_asks
from reprieve.web.server.planning import Plans, as_viewer, with_kubeconfig
from reprieve.web.server.process import Listening, serve_page

__all__ = ["web"]

log: Final = logging.getLogger("reprieve.web")

_AUDIENCE: Final = "reprieve-web"


@dataclass(frozen=True, slots=True)
class _Options:
    kubeconfig: str | None
    context: str | None
    listen: str
    port: int
    certificate: Path | None
    key: Path | None
    names: tuple[str, ...]
    audiences: tuple[str, ...]
    proxies: tuple[Network, ...]
    cluster: str
    namespaces: tuple[str, ...]
    open_to_all: bool
    operator_namespace: str


@click.command()
@kubeconfig_option
@context_option
@click.option(
    "--listen", default="", metavar="ADDRESS", help="Address to listen on; all of them otherwise."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    metavar="N",
    help="Port of the page; 0 chooses a free one.",
)
@click.option(
    "--tls-cert",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Serve HTTPS with this chain of certificates; it is read again when it changes.",
)
@click.option(
    "--tls-key", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Its key."
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="Answer under this name alone; repeatable. Else under any.",
)
@click.option(
    "--audience",
    "audiences",
    multiple=True,
    default=(_AUDIENCE,),
    show_default=True,
    metavar="NAME",
    help="Accept tokens of this audience; repeatable.",
)
@click.option(
    "--trust-proxy",
    "proxies",
    multiple=True,
    metavar="NETWORK",
    help="Read client addresses from X-Forwarded-For of proxies in this network.",
)
@click.option("--cluster-name", default="", metavar="NAME", help="What the page calls the cluster.")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="Where to read what may not be read in all namespaces; repeatable.",
)
@operator_option(f"{DEFAULT_NAMESPACE}; it has the key to the numbers of others' work")
@keeping_options
@click.option(
    "--insecure-no-auth",
    "open_to_all",
    is_flag=True,
    help="Show everything to everybody; on a loopback address only.",
)
def web(
    kubeconfig: str | None,
    context: str | None,
    listen: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    names: tuple[str, ...],
    audiences: tuple[str, ...],
    proxies: tuple[str, ...],
    cluster_name: str,
    namespaces: tuple[str, ...],
    operator_namespace: str | None,
    history: History,
    metrics_port: int | None,
    open_to_all: bool,
) -> None:
    """Serve the web page in a cluster: each viewer logs in and sees what they may see."""
    if open_to_all and not is_loopback_name(listen):
        raise UsageError(
            f"--insecure-no-auth: --listen {listen or '(all addresses)'}; accepted: a loopback "
            "address, such as 127.0.0.1"
        )
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key: accepted: both, or neither")
    relax_collector()
    options = _Options(
        kubeconfig,
        context,
        listen,
        port,
        tls_cert,
        tls_key,
        names,
        audiences,
        tuple(map(_network, proxies)),
        cluster_name,
        namespaces,
        open_to_all,
        operator_namespace or DEFAULT_NAMESPACE,
    )
    asyncio.run(_serve(options, history, metrics_port))


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(f"--trust-proxy: {error}; accepted: such as 10.0.0.0/8") from None


async def _serve(options: _Options, history: History, metrics_port: int | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    clock = SystemClock()
    start_logging("text", clock)
    connection = await load_connection(options.kubeconfig, options.context, clock)
    transport = Transport(ReviewingWire(HttpWire(connection)), clock)
    try:
        async with followed_certificate(options.certificate, options.key, clock) as tls:
            page = serve_page(
                Reader(transport),
                clock,
                Listening(options.listen or None, options.port, _names(options), tls, metrics_port),
                _door(options, transport, clock, api_audience(await connection.headers())),
                Plans(_plan_rights(options, connection)),
                cluster=options.cluster or connection.context or "cluster",
                namespaces=options.namespaces,
                operator_namespace=options.operator_namespace,
                history=history,
                objects=None if options.open_to_all else Objects(as_who_asks(connection, clock)),
            )
            async with page as port:
                _print_address(options, port, tls)
                await stop.wait()
    finally:
        await transport.close()


def _names(options: _Options) -> tuple[str, ...] | None:
    """Return as which the server is known; without a login foreign names must not lead here."""
    return options.names or (() if options.open_to_all else None)


def _door(options: _Options, transport: Transport, clock: Clock, api: str) -> Door:
    if options.open_to_all:
        return LocalDoor("", "everybody")
    reviews = Reviews(transport, options.audiences)
    return ClusterDoor(
        Tokens(reviews, clock),
        Rights(reviews, clock),
        Sessions(clock),
        Attempts(clock),
        options.proxies,
        tuple(dict.fromkeys((options.audiences[0], api))),
    )


def _plan_rights(options: _Options, connection: Connection) -> PlanRights:
    if options.open_to_all:
        return with_kubeconfig(options.kubeconfig, options.context)
    return as_viewer(connection)


def _print_address(options: _Options, port: int, tls: ssl.SSLContext | None) -> None:
    host = options.listen or "localhost"
    scheme = "http" if tls is None else "https"
    click.echo(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/")
    sys.stdout.flush()
    if options.open_to_all:
        log.warning("everybody who reaches this address sees everything (--insecure-no-auth)")
    elif tls is None and not is_loopback_name(options.listen):
        log.warning(
            "without --tls-cert tokens must be kept from others by a proxy in front of this server"
        )
