"""`reprieve explain`: why work waits, why it went, who made way for it, and what can be done.

`KIND/NAME` asks about an object, with the rights of the caller. The name of a record, with or
without `preemption/`, asks about one preemption: its story is told, and its decision made again.
Exit code 0: answered. 1: a decision made again is not the recorded one, or cannot be made again.
2: what was asked cannot be answered; one line says why.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Final

import click
import msgspec
import yaml

from reprieve.answers.asking import answer
from reprieve.answers.decided_again import decided_again
from reprieve.answers.diagnosing import Decided, asked_of_planes
from reprieve.answers.document import VERSION, Answer, State, Subject
from reprieve.answers.kinds import Asked, asked_of
from reprieve.answers.layout import Page, Style, lines_of, safe
from reprieve.answers.past import answer_of_past
from reprieve.answers.record_sources import record_of_cluster, record_of_file
from reprieve.answers.recorded import answers, judged, told
from reprieve.answers.sources import ClusterSource, SnapshotSource
from reprieve.answers.unit import Unit
from reprieve.api.reprieve import Preemption
from reprieve.cli.cluster_options import context_option, kubeconfig_option, namespace_option
from reprieve.cli.deciding import deciders_of, installed_deciders, reading_client
from reprieve.cli.live_names import subjects
from reprieve.cli.running_operator import running_deciders
from reprieve.cli.snapshot import read_snapshot
from reprieve.engine.plan import Plane
from reprieve.kube.client import Client
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError, Forbidden
from reprieve.kube.resource import PREEMPTIONS
from reprieve.operator.collector import relax_collector
from reprieve.planes.common.process_settings import SCHEDULER_NAME
from reprieve.settings.start_up import DEFAULT_NAMESPACE
from reprieve.units.clock import Clock, SystemClock
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.units.instants import Nanos, format_instant, parse_instant
from reprieve.whatif.beside import affordable
from reprieve.whatif.lists import gather
from reprieve.whatif.rest import Undecided
from reprieve.whatif.run import decided, settled

__all__ = ["explain"]

_NAMESPACE: Final = "GPU_PREEMPTION_OPERATOR_NAMESPACE"
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_FORMS: Final = ("text", "json", "yaml")


@dataclass(frozen=True, slots=True)
class _Options:
    namespace: str | None
    workload: str | None
    filename: str | None
    form: str
    history: bool
    everything: bool
    kubeconfig: str | None
    context: str | None
    stored: str | None
    as_of: str | None
    decision_log: Path | None

    @property
    def operator_namespace(self) -> str:
        """Where records are, but for `--namespace`."""
        return os.environ.get(_NAMESPACE, "").strip() or DEFAULT_NAMESPACE


@click.command()
@click.argument(
    "words", nargs=-1, metavar="[KIND/NAME | KIND NAME | PREEMPTION]", shell_complete=subjects
)
@namespace_option(
    "Where it is; default: that of the kubeconfig's context. Of a preemption: "
    f"${_NAMESPACE}, else {DEFAULT_NAMESPACE}."
)
@click.option("--history", is_flag=True, help="Tell every displacement of this line of work.")
@click.option("-o", "--output", "form", default="text", metavar="FORM", help="text, json or yaml.")
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
    "--all",
    "everything",
    is_flag=True,
    help="Tell everything, however long; of a preemption: name every member and victim.",
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
    help="Tell why it waited then, from --decision-log: 2026-11-20 03:00, or RFC 3339; UTC unless "
    "it says another offset.",
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
    """Tell why work waits or why it went, and what can be done.

    KIND/NAME, or KIND NAME: a pod, a job of any kind that is queued, a podgroup, workload,
    gpuworkload or preemption, such as pod/train-3 or job/sweep-17. A name alone is that of a
    preemption, whose decision is made again; exits 1 when that does not give the recorded plan.
    """
    relax_collector()
    if form not in _FORMS:
        raise UsageError(f"-o: {form!r}; accepted: {', '.join(_FORMS)}")
    options = _Options(
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
            "--as-of and --decision-log belong together; accepted: both, as the past is told from "
            "the log"
        )
    if len(words) > 2:
        raise UsageError(f"{' '.join(words)!r}; accepted: KIND/NAME, or KIND NAME, of one object")
    subject = "/".join(words) or None
    asked = asked_of(subject) if subject is not None and "/" in subject else None
    if asked is not None and asked.resources != (PREEMPTIONS,):
        for given, name in ((workload, "--workload"), (filename, "-f")):
            if given is not None:
                raise UsageError(f"{name} is for preemptions; {subject} is a {asked.kind}")
        find = _of_cluster if stored is None else _of_snapshot
        find = find if decision_log is None else _of_past
        _print(asyncio.run(find(asked, options)), options)
        return
    if decision_log is not None:
        raise UsageError("--as-of asks about KIND/NAME that waited, such as job/train")
    _explain_record(asked.name if asked is not None else subject, options)


async def _of_cluster(asked: Asked, options: _Options) -> Answer:
    clock = SystemClock()
    connection = await load_connection(options.kubeconfig, options.context, clock)
    client = reading_client(connection, clock)
    namespace = options.namespace or connection.namespace
    try:
        return await answer(
            ClusterSource(client, clock),
            asked,
            namespace,
            operator_namespace=options.operator_namespace,
            diagnose=_Planes(client, clock, namespace),
            history=options.history,
        )
    except ApiError as failure:
        raise UsageError(safe(str(failure))) from None
    finally:
        await client.close()


async def _of_snapshot(asked: Asked, options: _Options) -> Answer:
    assert options.stored is not None
    snapshot = read_snapshot(options.stored)

    async def diagnose(unit: Unit, plane: Plane) -> Decided | None:
        """Return what the planes say on the snapshot; what it lacks cannot be asked for."""
        deciders = installed_deciders(snapshot, _schedulers(unit), {})
        try:
            since = process_time()
            run = settled(snapshot, deciders)
            return await asked_of_planes(
                unit, run, plane, deciders, affordable(process_time() - since)
            )
        except Undecided as failure:
            return Decided(snapshot.at, notes=(f"The planes cannot decide: {failure}.",))

    return await answer(
        SnapshotSource(snapshot),
        asked,
        options.namespace or "default",
        operator_namespace=options.operator_namespace,
        diagnose=diagnose,
        history=options.history,
    )


async def _of_past(asked: Asked, options: _Options) -> Answer:
    """Return what the decision log tells; no cluster is asked but for the context's namespace."""
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
    """Return the instant that somebody wrote, in UTC without an offset.

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


@dataclass(frozen=True, slots=True)
class _Planes:
    """Has the planes decide on a copy of what the caller may read."""

    client: Client
    clock: Clock
    namespace: str

    async def __call__(self, unit: Unit, plane: Plane) -> Decided | None:
        """Return what they say of a unit; None where they cannot decide here."""
        names = _schedulers(unit)
        try:
            operator = await running_deciders(self.client)
            kinds = (operator or deciders_of(None, names, {})).kinds()
            snapshot = await gather(self.client, kinds, self.clock, namespaces=[self.namespace])
            deciders = operator or installed_deciders(snapshot, names, {})
            since = process_time()
            run = await decided(self.client, snapshot, deciders)
            asking = affordable(process_time() - since)
            return await asked_of_planes(unit, run, plane, deciders, asking, self.client)
        except (Forbidden, Undecided) as failure:
            return Decided(self.clock.wall(), notes=(f"The planes cannot decide: {failure}.",))


def _schedulers(unit: Unit) -> tuple[str, ...]:
    """Return whose pods are placed: those of Reprieve, and those of the unit's own scheduler."""
    named = {str(pod["spec"].get("schedulerName", _DEFAULT_SCHEDULER)) for pod in unit.pods}
    return (SCHEDULER_NAME, *sorted(named - {SCHEDULER_NAME}))


def _print(found: Answer, options: _Options) -> None:
    if options.form == "text":
        page = Page(
            found.state,
            found.verdict,
            found.limits,
            found.evidence,
            found.next_steps,
            found.certainty,
        )
        style = Style.of_terminal(everything=options.everything or options.history)
        for line in lines_of(page, style):
            click.echo(line)
    else:
        _print_document(found, options.form)


def _print_document(found: Answer, form: str) -> None:
    document = msgspec.to_builtins(found)
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip())


def _explain_record(name: str | None, options: _Options) -> None:
    asked = _asked(options.workload)
    if options.filename is not None:
        record = record_of_file(options.filename, name)
    elif name:
        where = options.namespace or options.operator_namespace
        record = asyncio.run(record_of_cluster(name, where, options.kubeconfig, options.context))
    else:
        raise UsageError(
            "nothing is named; accepted: KIND/NAME such as pod/train-3, the name of a Preemption "
            "(kubectl get preemptions -A lists them), or -f FILE"
        )
    replay, verdict, upheld = judged(record)
    if asked is not None:
        if replay is None:
            raise ReprieveError(f"{'/'.join(asked)}: no answer. {verdict}")
        lines = answers(replay, *asked)
    else:
        lines = told(record, replay, everything=options.everything)
    if options.form != "text":
        _print_document(_record_answer(record, verdict, lines), options.form)
    else:
        if asked is None:
            metadata = record.metadata
            _say(f"Preemption {metadata.namespace}/{metadata.name}, plan {record.spec.plan_id}")
            _say(verdict)
            _say("")
        for line in lines:
            _say(line)
    if not upheld:
        if asked is not None:
            raise ReprieveError(verdict)
        raise SystemExit(1)


def _record_answer(record: Preemption, verdict: str, lines: list[str]) -> Answer:
    metadata, status = record.metadata, record.status
    return Answer(
        version=VERSION,
        subject=Subject("Preemption", metadata.name, metadata.namespace),
        state=State.LEAVES if status.phase.open else State.FINISHED,
        verdict=verdict,
        as_of=format_instant(SystemClock().wall()),
        story=lines,
    )


def _asked(workload: str | None) -> tuple[str, str] | None:
    if workload is None:
        return None
    namespace, _, name = workload.partition("/")
    if not namespace or not name or "/" in name:
        raise UsageError(f"--workload: {workload!r}; accepted: NAMESPACE/NAME")
    return namespace, name


def _say(line: str) -> None:
    # A record may be anybody's file: nothing in it may steer the terminal.
    click.echo(
        "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    )
