"""`kubelocal`: a cluster that stays until Ctrl-C, and the line that points kubectl at it."""

from __future__ import annotations

import asyncio
import errno
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

import kubelocal
from kubelocal.errors import UsageError

if TYPE_CHECKING:
    from kubelocal.running import Settings

__all__ = ["main"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kubelocal.__version__, prog_name="kubelocal")
@click.option("--nodes", type=click.IntRange(0, 5000), default=1, metavar="N", help="Nodes.")
@click.option("--gpus", type=click.IntRange(0, 1024), default=0, metavar="N", help="GPUs of each.")
@click.option(
    "--gpu-resource", default="nvidia.com/gpu", metavar="NAME", help="What a GPU is called."
)
@click.option("--no-machines", is_flag=True, help="The API server alone, as envtest has it.")
@click.option("--no-scheduler", is_flag=True, help="Leave it to a scheduler of yours.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="0: any.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep objects here; in memory otherwise.",
)
@click.option(
    "--kubeconfig-out",
    "kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the kubeconfig here.",
)
@click.option("--tls", is_flag=True, help="Serve HTTPS, with an authority of the cluster's own.")
@click.option("--rbac", is_flag=True, help="Enforce Roles and ClusterRoles.")
@click.option("--feature-gates", default="", metavar="A=true,B=false", help="Of the API server.")
@click.option(
    "--faults",
    default="",
    metavar="TEXT",
    help="Answer badly on purpose: such as seed=1,conflict=0.05,latency=20ms.",
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Answer under this name too."
)
def command(
    nodes: int,
    gpus: int,
    gpu_resource: str,
    no_machines: bool,
    no_scheduler: bool,
    port: int,
    data: Path | None,
    kubeconfig: Path | None,
    tls: bool,
    rbac: bool,
    feature_gates: str,
    faults: str,
    hosts: tuple[str, ...],
) -> None:
    """Start a Kubernetes API server and a small imitated cluster; Ctrl-C ends it."""
    from kubelocal.running import Settings
    from kubelocal.server.wire.faults import InvalidFaults, parse_faults

    try:
        misbehaviour = parse_faults(faults) if faults else None
    except InvalidFaults as error:
        raise UsageError(f"--faults: {error}") from None
    settings = Settings(
        nodes=nodes,
        gpus=gpus,
        gpu_resource=gpu_resource,
        machines=not no_machines,
        scheduler=not no_scheduler,
        port=port,
        data=data,
        rbac=rbac,
        tls=tls,
        feature_gates=_gates(feature_gates),
        hosts=hosts,
        faults=misbehaviour,
    )
    try:
        asyncio.run(_serve(settings, kubeconfig))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"--port {port}: already in use; accepted: a free one, or 0") from None
        where = error.filename or data or kubeconfig
        raise UsageError(
            f"{where}: {error.strerror or error}; accepted for --data and --kubeconfig-out: "
            "places that can be written"
        ) from None


async def _serve(settings: Settings, kubeconfig: Path | None) -> None:
    from kubelocal.running import running

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(settings, kubeconfig=kubeconfig) as cluster:
        click.echo(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig.absolute()))}")
        click.echo(f"API server: {cluster.url}")
        if cluster.metrics_url is not None:
            click.echo(f"GPU metrics: {cluster.metrics_url}")
        sys.stdout.flush()
        await stop.wait()


def _gates(text: str) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if value.lower() not in ("true", "false"):
            raise UsageError(f"--feature-gates: {part!r}; accepted: such as A=true,B=false")
        found[name] = value.lower() == "true"
    return found


def main() -> None:
    """Run the command; what cannot be used ends with exit code 2 and one line."""
    try:
        command.main(prog_name="kubelocal", standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except UsageError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
