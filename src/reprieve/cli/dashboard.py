"""`reprieve dashboard`: the web page of a cluster, on this machine and with the caller's rights.

It listens on the loopback interface alone, and the address that it prints has a token, since other
users of the machine reach that interface too. The API server enforces what the caller may see: what
may not be listed cluster-wide is listed in the namespaces of `-n`. Nothing is written
but samples, to the folder of `--history`.
"""

from __future__ import annotations

import asyncio
import getpass
import secrets
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from kubeworld.units.clock import SystemClock
from reprieve.cli.options.cluster_options import context_option, kubeconfig_option
from reprieve.cli.options.keeping import keeping_options
from reprieve.cli.sessions.opening import has_display, open_page
from reprieve.cli.sessions.operator_home import operator_home
from reprieve.kube.credentials import load_connection
from reprieve.kube.reader import Reader
from reprieve.kube.transport import HttpWire, Transport
from reprieve.operator.collector import relax_collector
from reprieve.web.history.history import History
from reprieve.web.server.local import LocalDoor
from reprieve.web.server.planning import Plans, with_kubeconfig
from reprieve.web.server.process import Listening, serve_page
from reprieve.whatif.copy.wire import ReadingWire

__all__ = ["dashboard"]

_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class _Options:
    kubeconfig: str | None
    context: str | None
    namespaces: tuple[str, ...]
    port: int
    opened: bool
    with_parent: bool


@click.command()
@kubeconfig_option
@context_option
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="Where to read what you may not read in all namespaces; repeatable. Else that of the "
    "context.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port on the loopback interface; any free one otherwise.",
)
@keeping_options
@click.option("--no-open", is_flag=True, help="Print the address and open no browser.")
@click.option("--with-parent", is_flag=True, hidden=True, help="End when standard input does.")
def dashboard(
    kubeconfig: str | None,
    context: str | None,
    namespaces: tuple[str, ...],
    port: int,
    history: History,
    metrics_port: int | None,
    no_open: bool,
    with_parent: bool,
) -> None:
    """Open the web page: holders, pending work, preemptions and their causes.

    It runs on this machine with your kubeconfig and shows what you may read; Ctrl-C ends it.
    """
    relax_collector()
    opened = not no_open and has_display()
    options = _Options(kubeconfig, context, namespaces, port, opened, with_parent)
    asyncio.run(_serve(options, history, metrics_port))


async def _serve(options: _Options, history: History, metrics_port: int | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if options.with_parent:
        loop.add_reader(sys.stdin.fileno(), stop.set)  # it is never written to: this is its end
    clock = SystemClock()
    connection = await load_connection(options.kubeconfig, options.context, clock)
    reader = Reader(Transport(ReadingWire(HttpWire(connection)), clock))
    token = secrets.token_urlsafe(24)
    page = serve_page(
        reader,
        clock,
        Listening(_LOOPBACK, options.port, metrics=metrics_port),
        LocalDoor(token, _user()),
        Plans(with_kubeconfig(options.kubeconfig, options.context)),
        cluster=connection.context or connection.server,
        namespaces=options.namespaces or (connection.namespace,),
        operator_namespace=operator_home,
        history=history,
    )
    try:
        async with page as port:
            address = f"http://{_LOOPBACK}:{port}/?token={token}"
            _print(address)
            with tempfile.TemporaryDirectory(prefix="reprieve-dashboard-") as folder:
                if options.opened:
                    await asyncio.to_thread(open_page, address, Path(folder))
                await stop.wait()
    finally:
        await reader.transport.close()


def _print(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "you"  # a number without a name, as containers have
