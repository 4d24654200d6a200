"""`reprieve up`: an embedded cluster and the operator on it, with a scenario to look at.

Without more it is the demo: four teams on 12 nodes, until Ctrl-C, with a line for each thing that
happens. The first line that is printed is the `export KUBECONFIG=...` of the cluster, the second
one the address of its web page. Of a scenario there is a live view in a terminal; otherwise, or
with `--headless`, one line per transition. The operator and the page run as child processes, the
operator as it does in production. `--for` ends after that time, and the exit code states whether
the scenario's assertions held; without it the cluster stays until Ctrl-C.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from kubelocal.server.wire.faults import InvalidFaults, parse_faults
from reprieve.cli.options.durations import DurationText
from reprieve.cli.options.plane_options import gates_option, profile_options
from reprieve.cli.sessions.up_session import Demo, UpOptions, UpSession
from reprieve.operator.collector import relax_collector
from reprieve.scenarios.catalogue import DEFAULT, find, names, packaged, playground
from reprieve.scenarios.demo.cast import Pace, demo_scenario
from reprieve.scenarios.embedded import holds_cluster
from reprieve.scenarios.model import Scenario
from reprieve.units.errors import UsageError

__all__ = ["up"]


@click.command()
@click.option(
    "--scenario",
    metavar="FILE|NAME",
    help="The scenario to play instead of the demo, which runs until Ctrl-C.",
)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, option, wanted: _list(context) if wanted else None,
    help="List the scenarios that come with Reprieve, and exit.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 5000),
    metavar="N",
    help="Instead of a scenario, an empty cluster of so many nodes.",
)
@click.option(
    "--gpus",
    type=click.IntRange(0, 1024),
    metavar="N",
    help="GPUs (amd.com/gpu) of each of these nodes; default 8.",
)
@click.option(
    "--speed",
    type=click.FloatRange(0.5, 20),
    metavar="N",
    help="Speed of the demo: 10 shows a story every few seconds.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    help="Seed of the demo's order; default 1.",
)
@click.option("--no-open", is_flag=True, help="Print the address of the page and open no browser.")
@click.option("--headless", is_flag=True, help="One line per transition instead of the view.")
@click.option(
    "--for",
    "duration",
    type=DurationText(),
    metavar="DURATION",
    help="End after this time; the exit code is 0 if the scenario held.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the cluster's objects here; in memory otherwise.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port of the API server; any free one otherwise.",
)
@click.option(
    "--kubeconfig-out",
    "kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the kubeconfig here.",
)
@click.option(
    "--faults",
    metavar="TEXT",
    help="Answer badly on purpose: such as seed=1,user=reprieve,conflict=0.05,latency=20ms.",
)
@click.option("--tls", is_flag=True, help="Serve HTTPS, with an authority of the cluster's own.")
@click.option("--rbac", is_flag=True, help="Enforce roles; the operator and you have every right.")
@gates_option("Feature gates of the cluster and of the scheduling plane.")
@profile_options()
@click.option(
    "--strict-disruption-mode",
    is_flag=True,
    help="Refuse pod groups of disruption mode all that have no gang policy.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Answer under this name too; over plain HTTP only loopback names are answered.",
)
@click.option("--without-web", is_flag=True, help="Do not serve the web page.")
@click.option(
    "--web-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port of the web page; any free one otherwise.",
)
def up(
    scenario: str | None,
    headless: bool,
    duration: int | None,
    data: Path | None,
    port: int,
    kubeconfig: Path | None,
    faults: str | None,
    tls: bool,
    rbac: bool,
    feature_gates: str,
    scheduling_profile: str,
    quota_profile: str,
    idle_profile: str,
    strict_disruption_mode: bool,
    hosts: tuple[str, ...],
    nodes: int | None,
    gpus: int | None,
    without_web: bool,
    web_port: int,
    speed: float | None,
    seed: int | None,
    no_open: bool,
) -> None:
    """Start an embedded cluster with the operator on it, and show what it does.

    Without more four teams share 12 nodes of 8 GPUs until Ctrl-C: open the page that is printed.
    """
    at_terminal = sys.stdout.isatty()
    opened = at_terminal and not headless and not no_open
    headless = headless or not at_terminal
    played = scenario is None and nodes is None and gpus is None
    demo = _demo(speed, seed, played=played)
    options = UpOptions(
        scenario,
        headless,
        duration,
        data,
        port,
        kubeconfig,
        faults,
        tls,
        rbac,
        feature_gates,
        scheduling_profile,
        quota_profile,
        idle_profile,
        strict_disruption_mode,
        hosts,
        nodes,
        gpus,
        not without_web,
        web_port,
        demo,
        opened,
    )
    sys.exit(asyncio.run(_up(options)))


def _demo(speed: float | None, seed: int | None, *, played: bool) -> Demo | None:
    """Return how the demo runs where it is played.

    Raises:
        UsageError: it is not, and something is stated of it.
    """
    if played:
        return Demo(speed or 1.0, 1 if seed is None else seed)
    if speed is not None or seed is not None:
        raise UsageError(
            "--speed and --seed are of the demo; accepted: without --scenario, --nodes and --gpus"
        )
    return None


def _list(context: click.Context) -> None:
    formatter = context.make_formatter()
    formatter.write_dl([(name, packaged(name).note) for name in names()])
    click.echo(formatter.getvalue(), nl=False)
    context.exit()


async def _up(options: UpOptions) -> int:
    """Return the exit code.

    Raises:
        UsageError: a flag names something that cannot be used.
    """
    if options.scenario is None and options.data is not None and holds_cluster(options.data):
        options = replace(options, demo=None)
    scenario = _scenario(options)
    try:
        faults = None if options.faults is None else parse_faults(options.faults)
    except InvalidFaults as error:
        raise UsageError(f"--faults: {error}") from None
    if options.demo is None and options.scenario is None and options.data is not None:
        # Objects that users left there stay as they are; the tour would conflict with them.
        scenario = msgspec.structs.replace(scenario, steps=())
    relax_collector()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with tempfile.TemporaryDirectory(prefix="reprieve-up-") as directory:
        return await UpSession(options, scenario, stop, faults).run(Path(directory))


def _scenario(options: UpOptions) -> Scenario:
    if options.demo is not None:
        return demo_scenario(Pace(options.demo.speed))
    if options.nodes is None and options.gpus is None:
        return find(options.scenario or DEFAULT)
    if options.scenario is not None:
        raise UsageError(
            "--scenario has nodes of its own; accepted: either --scenario, or --nodes and --gpus"
        )
    return playground(options.nodes or 1, 8 if options.gpus is None else options.gpus)
