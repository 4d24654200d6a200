"""`reprieve explain` of one preemption: its story, and its decision made again.

A module of its own: other queries do not need the records' imports.
"""

from __future__ import annotations

import asyncio

import click

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import format_instant
from reprieve.answers.document import VERSION, Answer, State, Subject
from reprieve.answers.preemptions.record_sources import record_of_cluster, record_of_file
from reprieve.answers.preemptions.recorded import answers, judged, reported
from reprieve.api.reprieve import Preemption
from reprieve.cli.options.explain_options import Options, print_document
from reprieve.units.errors import ReprieveError, UsageError

__all__ = ["explain_record"]


def explain_record(name: str | None, options: Options) -> None:
    """Return what a record states; exits with 1 where its decision is not the recorded one."""
    asked = _asked(options.workload)
    if options.filename is not None:
        record = record_of_file(options.filename, name)
    elif name:
        record = asyncio.run(
            record_of_cluster(
                name,
                options.namespace,
                options.operator_namespace,
                options.kubeconfig,
                options.context,
            )
        )
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
        lines = reported(record, replay, everything=options.everything)
    if options.form != "text":
        print_document(_record_answer(record, verdict, lines), options.form)
    else:
        if asked is None:
            metadata = record.metadata
            _print(f"Preemption {metadata.namespace}/{metadata.name}, plan {record.spec.plan_id}")
            _print(verdict)
            _print("")
        for line in lines:
            _print(line)
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


def _print(line: str) -> None:
    # A record may be any user's file: nothing in it may steer the terminal.
    click.echo(
        "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    )
