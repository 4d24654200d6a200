"""`reprieve plan`: what would happen if these manifests were submitted now. Nothing is.

The cluster is read with the caller's rights, the manifests are created in a dry run, and the planes
of the operator decide in this process about a copy of what was read. Exit code 0: there is an
answer; with `--detailed-exitcode` 0 starts, 10 starts and others are preempted, 20 waits, 30 never
fits, 2 could not be answered. With `--check` 1 means that others would be evicted and nothing of it
start.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import click

from reprieve.cli.options.cluster_options import context_option, kubeconfig_option, namespace_option
from reprieve.cli.options.plane_options import file_option, gates_option, profile_options
from reprieve.cli.texts.progress import Progress
from reprieve.operator.collector import relax_collector
from reprieve.units.errors import ReprieveError, UsageError

__all__ = ["plan"]

_REFUSED: Final = 1


@click.command()
@click.option(
    "-f",
    "--filename",
    "filenames",
    required=True,
    multiple=True,
    metavar="FILE",
    help="Manifests in YAML or JSON; - is standard input. Repeatable.",
)
@namespace_option("Of what names none.")
@click.option(
    "--controllers",
    metavar="PLANES",
    help="Planes that decide, separated by commas; accepted: idle, scheduling, quota. Else those "
    "of the operator that is installed, or those whose kinds the cluster serves.",
)
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    metavar="NAME",
    help="Scheduler names whose pods are placed, as for reprieve run; repeatable. Default: "
    "those in the manifests.",
)
@file_option("--config", "The operator's --config file.", "config_file")
@file_option("--scheduler-config", "The operator's KubeSchedulerConfiguration.")
@file_option("--quota-config", "The operator's Configuration of Kueue.")
@gates_option("The operator's feature gates of the scheduling plane.")
@profile_options("the operator's")
@click.option(
    "--without-server",
    is_flag=True,
    help="Use the manifests as written, without a dry run on the API server.",
)
@click.option(
    "--from",
    "stored",
    metavar="SNAPSHOT",
    help="Decide on a file of reprieve snapshot instead of a cluster, without a dry run.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Of the answer; docs/plan.schema.json describes json and yaml.",
)
@click.option(
    "-v",
    "--all",
    "everything",
    is_flag=True,
    help="In detail: name every victim and every pod, and cut nothing.",
)
@click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="0 starts, 10 preempts, 20 waits, 30 never fits, 2 no answer.",
)
@click.option(
    "--check",
    is_flag=True,
    help="End with 1 if others would be evicted for nothing, as nothing of it would start.",
)
@kubeconfig_option
@context_option
def plan(
    filenames: tuple[str, ...],
    output: str,
    everything: bool,
    detailed_exitcode: bool,
    check: bool,
    **given: Any,
) -> None:
    """Plan a submission of these manifests: whether it starts, its victims, or why it waits.

    The planes themselves decide on a copy of what the cluster holds. Nothing is written and
    nothing is reserved.
    """
    relax_collector()
    with Progress.on_terminal() as progress:
        progress("loading the planes")
        # They are imported once a line states it: on a busy machine that lasts seconds.
        from reprieve.cli.sessions import planning

        documents = [each for name in filenames for each in planning.read(name)]
        try:
            answer, controllers = asyncio.run(planning.answered(documents, progress, **given))
        except ReprieveError as failure:
            # What could not be answered ends with 2, whatever exit codes are requested.
            raise UsageError(str(failure)) from None
    for line in planning.printed(answer, controllers, output, everything=everything):
        click.echo(line)
    if check and answer.evicts_in_vain:
        sys.exit(_REFUSED)
    if detailed_exitcode:
        sys.exit(planning.exit_code(answer))
