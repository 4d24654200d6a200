"""`reprieve explain`: why work waits, why it was evicted, what was preempted for it, what helps.

`KIND/NAME` queries an object, with the rights of the caller. The name of a record, with or without
`preemption/`, queries one preemption: its story is reported, and its decision made again.
Exit code 0: answered. 1: a decision made again is not the recorded one, or cannot be made again.
2: the query cannot be answered; one line states why.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.answers.asking import Partial, answer
from reprieve.answers.decided import Decided
from reprieve.answers.document import Answer
from reprieve.answers.kinds import Asked, asked_of
from reprieve.answers.layout import Style, lines_of, safe
from reprieve.answers.preemptions.past import answer_of_past
from reprieve.answers.sources import ClusterSource, SnapshotSource
from reprieve.answers.unit import Unit
from reprieve.cli.options.cluster_options import context_option, kubeconfig_option, namespace_option
from reprieve.cli.options.explain_options import (
    Options,
    partial_line,
    print_document,
    within,
)
from reprieve.cli.options.live_names import subjects
from reprieve.cli.options.operator_option import OPERATOR_VARIABLE
from reprieve.cli.sessions.reading import reading_client
from reprieve.cli.texts.progress import Progress
from reprieve.engine.plan import Plane
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import PREEMPTIONS
from reprieve.operator.collector import relax_collector
from reprieve.units.errors import UsageError

__all__ = ["explain"]

_FORMS: Final = ("text", "json", "yaml", "jsonl")
_LINES: Final = "jsonl"
_DECIDING: Final = "deciding on a copy of the cluster"


@click.command()
@click.argument(
    "words",
    nargs=-1,
    metavar="[KIND/[NAMESPACE/]NAME... | KIND NAME | PREEMPTION]",
    shell_complete=subjects,
)
@namespace_option(
    "Where it is; default: that of the kubeconfig's context. Of a preemption: "
    f"${OPERATOR_VARIABLE}, else the one that has it."
)
@click.option("--history", is_flag=True, help="List every displacement of this lineage.")
@click.option(
    "-o",
    "--output",
    "form",
    default="text",
    metavar="FORM",
    help="text, json or yaml; jsonl: partial answers as they are found, then the complete one, a "
    "JSON object on each line.",
)
@click.option(
    "--workload",
    metavar="NAMESPACE/NAME",
    help="Of a preemption: answer for this one alone: a GpuWorkload, the root owner of one, a pod "
    "or a pod group, a Workload of a queue.",
)
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    help="Read the record of a preemption from a file of kubectl get -o yaml; - is standard input.",
)
@click.option(
    "-v",
    "--all",
    "everything",
    is_flag=True,
    help="Print all details; for a preemption, every member and victim.",
)
@click.option(
    "--from",
    "stored",
    metavar="SNAPSHOT",
    help="Answer from a file of reprieve snapshot instead of a cluster.",
)
@click.option(
    "--as-of",
    metavar="INSTANT",
    help="Explain why it waited at this instant, from --decision-log: 2026-11-20 03:00, or RFC "
    "3339; UTC without an offset.",
)
@click.option(
    "--decision-log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file of reprieve run --decision-log, with those that it was rotated into.",
)
@kubeconfig_option
@context_option
def explain(
    words: tuple[str, ...],
    namespace: str | None,
    history: bool,
    form: str,
    workload: str | None,
    filename: str | None,
    everything: bool,
    kubeconfig: str | None,
    context: str | None,
    stored: str | None,
    as_of: str | None,
    decision_log: Path | None,
) -> None:
    """Explain why work waits or was preempted, and what helps.

    KIND/NAME, or KIND NAME: a pod, a job of any kind that is queued, a podgroup, workload,
    gpuworkload or preemption, such as pod/train-3 or job/sweep-17. A name alone is that of a
    preemption, whose decision is made again; exits 1 when that does not give the recorded plan.
    Of several KIND/NAME that wait the cluster is read and decided about once.
    """
    relax_collector()
    if form not in _FORMS:
        raise UsageError(f"-o: {form!r}; accepted: {', '.join(_FORMS)}")
    options = Options(
        namespace,
        workload,
        filename,
        form,
        history,
        everything,
        kubeconfig,
        context,
        stored,
        as_of,
        decision_log,
    )
    if (as_of is None) != (decision_log is None):
        raise UsageError(
            "--as-of and --decision-log belong together; accepted: both, as the past is read from "
            "the log"
        )
    if len(words) > 1 and all("/" in each for each in words):
        from reprieve.cli.explain_several import explain_several

        explain_several(words, options)
    else:
        _explain_one(words, options)


def _explain_one(words: tuple[str, ...], options: Options) -> None:
    if len(words) > 2:
        raise UsageError(f"{' '.join(words)!r}; accepted: KIND/NAME..., or KIND NAME")
    subject = "/".join(words) or None
    asked = asked_of(subject) if subject is not None and "/" in subject else None
    options = within(options, asked)
    if asked is not None and asked.resources != (PREEMPTIONS,):
        for given, name in ((options.workload, "--workload"), (options.filename, "-f")):
            if given is not None:
                raise UsageError(f"{name} is for preemptions; {subject} is a {asked.kind}")
        find = _of_cluster if options.stored is None else _of_snapshot
        find = find if options.decision_log is None else _of_past
        with Progress.on_terminal() as progress:
            found = asyncio.run(find(asked, options, progress))
        _print(found, options)
        return
    if options.decision_log is not None:
        raise UsageError("--as-of is about KIND/NAME that waited, such as job/train")
    from reprieve.cli.explain_record import explain_record

    explain_record(asked.name if asked is not None else subject, options)


async def _of_cluster(asked: Asked, options: Options, progress: Progress) -> Answer:
    progress("reading the cluster")
    clock = SystemClock()
    connection = await load_connection(options.kubeconfig, options.context, clock)
    client = reading_client(connection, clock)
    namespace = options.namespace or connection.namespace

    streamed = options.form == _LINES
    partial = Partial(partial_line if streamed else lambda answer: None)

    async def diagnose(unit: Unit, plane: Plane) -> Decided | None:
        """Return what the planes state; most questions are answered without them."""
        progress(_DECIDING)
        from reprieve.cli.sessions.asking_planes import PlanesOfCluster

        return await PlanesOfCluster(client, clock, [namespace], partial.decided)(unit, plane)

    try:
        return await answer(
            ClusterSource(client, clock),
            asked,
            namespace,
            operator_namespace=options.operator_namespace,
            diagnose=diagnose,
            history=options.history,
            partial=partial if streamed else None,
        )
    except ApiError as failure:
        raise UsageError(safe(str(failure))) from None
    finally:
        await client.close()


async def _of_snapshot(asked: Asked, options: Options, progress: Progress) -> Answer:
    progress(_DECIDING)
    from reprieve.cli.sessions.asking_planes import planes_of_snapshot, read_snapshot

    assert options.stored is not None
    snapshot = read_snapshot(options.stored)
    return await answer(
        SnapshotSource(snapshot),
        asked,
        options.namespace or "default",
        operator_namespace=options.operator_namespace,
        diagnose=planes_of_snapshot(snapshot),
        history=options.history,
    )


async def _of_past(asked: Asked, options: Options, progress: Progress) -> Answer:
    """Return what the decision log has; no cluster is queried but for the context's namespace."""
    progress("reading the decision log")
    from reprieve.answers.preemptions.decided_again import decided_again

    assert options.as_of is not None and options.decision_log is not None
    namespace = options.namespace
    if namespace is None:
        try:
            connection = await load_connection(options.kubeconfig, options.context, SystemClock())
            namespace = connection.namespace
        except UsageError:
            namespace = "default"  # a log is read where there is no cluster, too
    instant = _instant(options.as_of)
    return answer_of_past(options.decision_log, asked, namespace, instant, decided_again)


def _instant(text: str) -> Nanos:
    """Return the instant that a user wrote, in UTC without an offset.

    Raises:
        UsageError: it is none.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--as-of: {text!r} is no instant; accepted: 2026-11-20 03:00 or 2026-11-20T03:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return parse_instant(moment.isoformat())


def _print(found: Answer, options: Options) -> None:
    if options.form == "text":
        style = Style.of_terminal(everything=options.everything or options.history)
        for line in lines_of(found, style):
            click.echo(line)
    else:
        print_document(found, options.form)
