"""`reprieve run`: the operator against any cluster, from inside or outside of it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from reprieve.units.durations import SECOND, InvalidDuration, parse_duration
from reprieve.units.errors import UsageError

__all__ = ["run"]

_CONTROLLERS = ("idle", "scheduling", "quota")


@click.command()
@click.option(
    "--controllers",
    default="idle",
    show_default=True,
    help="Planes to run, separated by commas; accepted: idle, scheduling, quota.",
)
@click.option("--kubeconfig", metavar="FILE", help="Else $KUBECONFIG, in-cluster, ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="YAML in the shape of the Helm values; environment variables win over it.",
)
@click.option(
    "--dry-run", is_flag=True, help="Write only our own objects: nothing is marked or evicted."
)
@click.option(
    "--metrics-port",
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of /metrics, /healthz and /readyz; 0 takes a free one.",
)
@click.option(
    "--lease-duration",
    default="15s",
    show_default=True,
    metavar="DURATION",
    help="Duration of the process lease, at least 1s; also the longest hand-over after a crash.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
)
@click.option(
    "--feature-gates",
    default="",
    metavar="A=true,B=false",
    help="Feature gates of the scheduling plane; they win over those of the --config file.",
)
@click.option(
    "--scheduler-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A KubeSchedulerConfiguration for the scheduling plane.",
)
@click.option(
    "--quota-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A Configuration of Kueue for the quota plane.",
)
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    metavar="NAME",
    help="Schedule the pods of this scheduler name, reprieve-scheduler otherwise; repeatable.",
)
@click.option(
    "-v",
    "--verbosity",
    default=0,
    show_default=True,
    type=click.IntRange(0, 10),
    help="4 logs what is held back; 6 each victim with the filter that refused its reprieve.",
)
@click.option(
    "--shared-nodes",
    is_flag=True,
    help="Other Reprieve schedulers fill the same nodes: take turns on them.",
)
def run(
    controllers: str,
    kubeconfig: str | None,
    context: str | None,
    config_file: Path | None,
    dry_run: bool,
    metrics_port: int,
    lease_duration: str,
    log_format: str,
    feature_gates: str,
    scheduler_config: Path | None,
    quota_config: Path | None,
    scheduler_names: tuple[str, ...],
    verbosity: int,
    shared_nodes: bool,
) -> None:
    """Run the operator against a cluster, inside or outside of it.

    SIGTERM releases the leases and ends the process within 5 seconds.
    """
    # Here, because they bring the HTTP client and the event loop, which help does not need.
    import uvloop

    from reprieve.controllers.process import OperatorOptions, run_operator
    from reprieve.units.clock import SystemClock

    planes = tuple(name.strip() for name in controllers.split(",") if name.strip())
    unknown = [name for name in planes if name not in _CONTROLLERS]
    if unknown or not planes:
        raise UsageError(
            f"--controllers: {unknown[0] if unknown else controllers!r} is not a controller; "
            f"accepted: {', '.join(_CONTROLLERS)}"
        )
    options = OperatorOptions(
        controllers=planes,
        environment=dict(os.environ),
        kubeconfig=kubeconfig,
        context=context,
        config_file=config_file,
        dry_run=dry_run,
        metrics_port=metrics_port,
        lease_duration=_lease_duration(lease_duration),
        log_format=log_format,
        feature_gates=feature_gates,
        scheduler_config=scheduler_config,
        quota_config=quota_config,
        scheduler_names=scheduler_names,
        shared_nodes=shared_nodes,
        verbosity=verbosity,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        raise SystemExit(runner.run(run_operator(options, SystemClock())))


def _lease_duration(text: str) -> int:
    try:
        duration = parse_duration(text)
    except InvalidDuration as error:
        raise UsageError(f"--lease-duration: {error}") from None
    if duration < SECOND:
        raise UsageError(f"--lease-duration: {text} is too short; accepted: 1s or longer")
    return duration
