"""`reprieve explain KIND/NAME KIND/NAME ...`: several objects, of which all is read once.

The planes decide about the cluster once, and then state of each object why it waits and what helps.
No start is estimated. An object without an answer is reported, and the others are answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import click

from kubeworld.units.clock import SystemClock
from reprieve.answers.asking import answer
from reprieve.answers.document import Answer
from reprieve.answers.kinds import Asked, asked_of
from reprieve.answers.layout import Style, lines_of, safe
from reprieve.answers.sources import ClusterSource, OnceSource
from reprieve.cli.options.explain_options import Options, complete_line, error_line, within
from reprieve.cli.sessions.reading import reading_client
from reprieve.cli.texts.progress import Progress
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import PREEMPTIONS
from reprieve.units.errors import UsageError

__all__ = ["explain_several"]

_FORMS: Final = ("text", "jsonl")


def explain_several(words: Sequence[str], options: Options) -> None:
    """Print an answer about each object, in order.

    Raises:
        UsageError: the query cannot be answered, or, at the end, that about one of the objects.
    """
    asked = [_asked(each) for each in words]
    if options.form not in _FORMS:
        raise UsageError(f"-o: {options.form!r}; accepted of several objects: {', '.join(_FORMS)}")
    for given, name in (
        (options.workload, "--workload"),
        (options.filename, "-f"),
        (options.stored, "--from"),
        (options.decision_log, "--decision-log"),
    ):
        if given is not None:
            raise UsageError(f"{name} is for one object; {len(words)} are named")
    missing = asyncio.run(_answered(words, asked, options))
    if missing:
        raise UsageError(f"{missing} of {len(words)} objects are not answered")


def _asked(word: str) -> Asked:
    found = asked_of(word)
    if found.resources == (PREEMPTIONS,):
        raise UsageError(f"{word}: a preemption is explained alone")
    return found


async def _answered(words: Sequence[str], asked: Sequence[Asked], options: Options) -> int:
    """Print the answers as they are found; return how many objects have none."""
    from reprieve.cli.sessions.asking_planes import PlanesOfCluster

    clock = SystemClock()
    connection = await load_connection(options.kubeconfig, options.context, clock)
    client = reading_client(connection, clock)
    places = [within(options, each).namespace or connection.namespace for each in asked]
    source = OnceSource(ClusterSource(client, clock))
    diagnose = PlanesOfCluster(client, clock, sorted(set(places)), estimated=False)
    missing = 0
    try:
        for word, each, namespace in zip(words, asked, places, strict=True):
            try:
                with Progress.on_terminal() as progress:
                    progress(f"deciding on a copy of the cluster: {word}")
                    found = await answer(
                        source,
                        each,
                        namespace,
                        operator_namespace=options.operator_namespace,
                        diagnose=diagnose,
                        history=options.history,
                    )
            except UsageError as refusal:
                missing += 1
                _print_error(word, safe(str(refusal)), options)
            else:
                _print(found, options)
    except ApiError as failure:
        raise UsageError(safe(str(failure))) from None
    finally:
        await client.close()
    return missing


def _print(found: Answer, options: Options) -> None:
    if options.form != "text":
        complete_line(found)
        return
    style = Style.of_terminal(everything=options.everything or options.history)
    for line in lines_of(found, style):
        click.echo(line)
    click.echo()


def _print_error(word: str, error: str, options: Options) -> None:
    if options.form == "text":
        click.echo(f"{word}: {error}\n", err=True)
    else:
        error_line(word, error)
