"""`reprieve run`: the operator against any cluster, from inside or outside of it."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeworld.units.durations import HOUR, SECOND, InvalidDuration, format_duration, parse_duration
from reprieve.cli.options.cluster_options import context_option, kubeconfig_option
from reprieve.cli.options.plane_options import file_option, gates_option, profile_options
from reprieve.units.errors import UsageError

if TYPE_CHECKING:
    from reprieve.planes.common.process_settings import OperatorOptions

__all__ = ["operator_options", "run"]

_PAUSE_S = 1.0  # before a process begins anew, so that one that cannot start does so rarely
_CONTROLLERS = ("idle", "scheduling", "quota")


@click.command()
@click.option(
    "--controllers",
    default="idle",
    show_default=True,
    help="Planes to run, separated by commas; accepted: idle, scheduling, quota.",
)
@kubeconfig_option
@context_option
@file_option(
    "--config",
    "YAML in the shape of the Helm values; environment variables win over it.",
    "config_file",
)
@click.option(
    "--dry-run", is_flag=True, help="Write only our own objects: nothing is marked or evicted."
)
@click.option(
    "--metrics-port",
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of /metrics, /healthz and /readyz; 0 chooses a free one.",
)
@click.option(
    "--metrics-address",
    metavar="ADDRESS",
    help="Where this port is open; accepted: an address, or all. Else: in a pod, where the kubelet "
    "probes it, all, anywhere else 127.0.0.1.",
)
@click.option(
    "--metrics-auth",
    type=click.Choice(["none", "kubernetes"]),
    default="none",
    show_default=True,
    help="Who reads metrics and pages: everybody, or whom the API server allows; then over TLS.",
)
@click.option(
    "--notice-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port where pods request notice of evictions, at the address of the metrics; 0 "
    "chooses a free one. Default: no notice.",
)
@click.option(
    "--notice-tls",
    default="",
    metavar="SERVICE",
    help="Serve notice over TLS, as this Service of the operator's namespace, with a certificate "
    "of an own authority: in the Secret SERVICE-tls; the authority is in the ConfigMap SERVICE-ca.",
)
@click.option(
    "--notice-certificate",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Serve notice over TLS with tls.crt and tls.key of this folder, which another tool keeps.",
)
@click.option(
    "--notice-files",
    is_flag=True,
    help="Deliver notice by file to pods that request it (reprieve.dev/notice-file), and store "
    "the saves that they report; needs the right to patch pods.",
)
@click.option(
    "--eviction-notice",
    metavar="DURATION",
    help="Give notice to pods whose eviction others request through the Eviction API "
    "(lifecycle.k8s.io), for so long at most; 10s to 1h. Default: such requests are not answered.",
)
@click.option(
    "--named-series",
    default=0,
    show_default=True,
    metavar="N",
    type=click.IntRange(0, 10_000),
    help="How many names of gangs and workloads metrics have series of their own for; all others "
    "have one together, called other.",
)
@click.option(
    "--lease-duration",
    default="15s",
    show_default=True,
    metavar="DURATION",
    help="Duration of the process lease, at least 1s; who dies together with what renews it is "
    "followed when this is over.",
)
@click.option(
    "--decision-limit",
    default="5s",
    show_default=True,
    metavar="DURATION",
    help="Time limit of a decision; work that exceeds it is retried later. At least 250ms.",
)
@click.option(
    "--longest-silence",
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="A process whose event loop has not answered for as long is ended; at least 5s.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or a JSON object each.",
)
@gates_option("Feature gates of the scheduling plane; they win over those of the --config file.")
@profile_options(more="; it wins over that of the --config file")
@file_option("--scheduler-config", "A KubeSchedulerConfiguration for the scheduling plane.")
@file_option("--quota-config", "A Configuration of Kueue for the quota plane.")
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
    help="Share the nodes with other Reprieve schedulers, in turns.",
)
@click.option(
    "--watch-others",
    is_flag=True,
    help="Count evictions by other actors (schedulers, Kueue, Volcano, KAI) for the protection "
    "of that work; those known by a pod condition need the scheduling plane.",
)
@click.option(
    "--notify",
    multiple=True,
    metavar="HOST",
    help="Allow webhooks of the annotation reprieve.dev/notify on this host, HOST:PORT or "
    "*.DOMAIN: a namespace is notified there of its displaced work. Repeatable.",
)
@file_option("--notify-key", "Sign these messages with what the file holds, at least 16 bytes.")
@click.option(
    "--decision-log",
    metavar="FILE|-",
    help="Write a JSON line for each change of the reason for which work waits; - is standard "
    "output. A file of 64 MiB is begun anew, three before it are kept.",
)
def run(**given: Any) -> None:
    """Run the operator against a cluster, inside or outside of it.

    SIGTERM releases the leases and ends the process within 5 seconds. A process that loses its
    lease begins anew by itself, as a candidate.
    """
    from reprieve.operator.first_process import below_first_process

    below_first_process()
    # Here, because they bring the HTTP client and the event loop, which help does not need.
    import uvloop

    from kubeworld.units.clock import SystemClock
    from reprieve.operator.lease_keeper import LeaseKeeper
    from reprieve.operator.returned_memory import few_heaps, returning_memory

    options = operator_options(os.environ, **given)
    clock = SystemClock()
    few_heaps()
    # While there is neither a thread nor an event loop.
    keeper = (
        None if options.dry_run else LeaseKeeper.fork(options.kubeconfig, options.context, clock)
    )
    # After the fork: the engine brings numpy, which starts threads where it is loaded.
    from reprieve.operator.process import End, run_operator

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            end = runner.run(returning_memory(run_operator(options, clock, keeper), clock))
    finally:
        if keeper is not None:
            keeper.close()
    if end is End.ANEW:
        _begin_anew()


def operator_options(
    environment: Mapping[str, str],
    *,
    controllers: str,
    config_file: Path | None,
    metrics_address: str | None,
    metrics_auth: str,
    lease_duration: str,
    decision_limit: str,
    longest_silence: str,
    eviction_notice: str | None = None,
    notice_tls: str = "",
    notice_certificate: Path | None = None,
    **plain: Any,
) -> OperatorOptions:
    """Return the settings of `run` from its flags, by their names, and the variables.

    Raises:
        UsageError: a flag has a value that is not accepted.
    """
    from reprieve.planes.common.process_settings import OperatorOptions

    planes = tuple(name.strip() for name in controllers.split(",") if name.strip())
    unknown = [name for name in planes if name not in _CONTROLLERS]
    if unknown or not planes:
        raise UsageError(
            f"--controllers: {unknown[0] if unknown else controllers!r} is not a controller; "
            f"accepted: {', '.join(_CONTROLLERS)}"
        )
    if notice_tls and notice_certificate is not None:
        raise UsageError("--notice-tls: accepted: without --notice-certificate")
    return OperatorOptions(
        controllers=planes,
        notice_tls=notice_tls,
        notice_certificate=notice_certificate,
        environment=dict(environment),
        config_file=config_file,
        metrics_host=_metrics_host(metrics_address, environment),
        metrics_auth=metrics_auth == "kubernetes",
        lease_duration=_duration("--lease-duration", lease_duration, SECOND),
        decision_limit=_duration("--decision-limit", decision_limit, SECOND // 4),
        longest_silence=_duration("--longest-silence", longest_silence, 5 * SECOND),
        eviction_notice=_eviction_notice(eviction_notice),
        **plain,
    )


def _eviction_notice(text: str | None) -> int:
    if text is None:
        return 0
    found = _duration("--eviction-notice", text, 10 * SECOND)
    if found > HOUR:
        raise UsageError(f"--eviction-notice: {text} is too long; accepted: 1h or shorter")
    return found


def _begin_anew() -> None:
    """Execute the program again in this process: all that it believed and ran is dropped."""
    time.sleep(_PAUSE_S)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, sys.orig_argv)


def _metrics_host(text: str | None, environment: Mapping[str, str]) -> str | None:
    """Return where telemetry listens; None is everywhere."""
    if text == "all" or (text is None and "KUBERNETES_SERVICE_HOST" in environment):
        return None
    try:
        return str(ipaddress.ip_address(text or "127.0.0.1"))
    except ValueError:
        raise UsageError(
            f"--metrics-address: {text!r} is no address; accepted: one such as 127.0.0.1, or all"
        ) from None


def _duration(flag: str, text: str, least: int) -> int:
    try:
        duration = parse_duration(text)
    except InvalidDuration as error:
        raise UsageError(f"{flag}: {error}") from None
    if duration < least:
        raise UsageError(
            f"{flag}: {text} is too short; accepted: {format_duration(least)} or longer"
        )
    return duration
