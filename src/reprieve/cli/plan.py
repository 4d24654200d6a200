"""`reprieve plan`: what would happen if these manifests were submitted now. Nothing is.

The cluster is read with the caller's rights, the manifests are created in a dry run, and the planes
of the operator decide in this process about a copy of what was read. Exit code 0: there is an
answer; with `--detailed-exitcode` 0 starts, 10 starts and others are preempted, 20 waits, 30 never
fits, 2 could not be answered. With `--check` 1 says that others would be evicted and nothing of it
start.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import click
import msgspec
import yaml

from kubeworld.units.clock import SystemClock
from reprieve.answers.layout import Style
from reprieve.cli.options.cluster_options import context_option, kubeconfig_option, namespace_option
from reprieve.cli.options.plane_options import file_option, gates_option, profile_options
from reprieve.cli.sessions.deciding import deciders_of, installed_deciders
from reprieve.cli.sessions.reading import reading_client
from reprieve.cli.sessions.running_operator import running_deciders
from reprieve.cli.snapshot import read_snapshot
from reprieve.cli.texts.plan_text import plan_text
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError
from reprieve.operator.collector import relax_collector
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.whatif.copy.lists import discovered, gather
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.questions.answer import Answer, Verdict
from reprieve.whatif.questions.document import PlanDocument, plan_document
from reprieve.whatif.questions.planning import kinds_of, planned
from reprieve.whatif.submitting.pod_admission import dry_run_pods
from reprieve.whatif.submitting.submission import (
    Document,
    dry_run,
    matched,
    read_documents,
    schedulers_named,
)

__all__ = ["plan"]

_CODES: Final = {
    Verdict.STARTS: 0,
    Verdict.STARTS_WITH_VICTIMS: 10,
    Verdict.WAITS: 20,
    Verdict.NEVER_FITS: 30,
}
_NO_ANSWER: Final = 2
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
    documents = [each for name in filenames for each in _read(name)]
    try:
        answer, deciders = asyncio.run(_answered(documents, **given))
    except ReprieveError as failure:
        # Whatever could not be answered ends with 2, whether or not more is asked of the code.
        raise UsageError(str(failure)) from None
    if output == "text":
        style = Style.of_terminal(everything=everything)
        for line in plan_text(answer, deciders.options.controllers, style, SystemClock().wall()):
            click.echo(line)
    else:
        click.echo(_encoded(plan_document(answer, deciders.options.controllers), output))
    if check and answer.evicts_in_vain:
        sys.exit(_REFUSED)
    if detailed_exitcode:
        sys.exit(_NO_ANSWER if answer.verdict is None else _CODES[answer.verdict])


async def _answered(
    documents: Sequence[Document],
    *,
    namespace: str | None,
    controllers: str | None,
    kubeconfig: str | None,
    context: str | None,
    without_server: bool,
    scheduler_names: tuple[str, ...],
    stored: str | None,
    **passed: Any,
) -> tuple[Answer, Deciders]:
    said = controllers or scheduler_names or any(passed.values())
    if not scheduler_names and not passed["scheduler_config"] and not passed["config_file"]:
        scheduler_names = schedulers_named(documents)
    if stored is not None:
        chosen = read_snapshot(stored)
        if controllers is None:
            deciders = installed_deciders(chosen, scheduler_names, passed)
        else:
            deciders = deciders_of(controllers, scheduler_names, passed)
        found = matched(documents, discovered(chosen.documents), namespace or "default")
        return await planned(None, chosen, deciders, found), deciders
    clock = SystemClock()
    connection = await load_connection(kubeconfig, context, clock)
    client = reading_client(connection, clock)
    place = namespace or connection.namespace
    names = {each.object["metadata"].get("namespace") or place for each in documents}
    try:
        operator = None if said else await running_deciders(client)
        deciders = operator or deciders_of(controllers, scheduler_names, passed)
        snapshot = await gather(client, deciders.kinds(), clock, namespaces=names)
        if controllers is None and operator is None:
            deciders = installed_deciders(snapshot, scheduler_names, passed)
        submitted = matched(documents, discovered(snapshot.documents), place)
        notes: tuple[str, ...] = ()
        if not without_server:
            submitted = await dry_run(client, submitted)
            notes = await dry_run_pods(client, submitted, kinds_of(deciders))
        answer = await planned(client, snapshot, deciders, submitted)
        return replace(answer, warnings=(*notes, *answer.warnings)), deciders
    except ApiError as failure:
        raise ReprieveError(f"{connection.server}: {failure}") from None
    finally:
        await client.close()


def _read(filename: str) -> list[Document]:
    where = "standard input" if filename == "-" else filename
    try:
        with click.open_file(filename, encoding="utf-8") as file:
            return read_documents(file.read(), where)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"-f {filename}: cannot be read: {error}") from None


def _encoded(document: PlanDocument, output: str) -> str:
    if output == "yaml":
        return yaml.safe_dump(msgspec.to_builtins(document), sort_keys=False).rstrip()
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
