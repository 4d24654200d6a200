"""Plans of manifests: read them, decide on a copy of the cluster, print the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import click
import msgspec
import yaml

from kubeworld.units.clock import SystemClock
from reprieve.answers.layout import Style
from reprieve.cli.sessions.deciding import deciders_of, installed_deciders
from reprieve.cli.sessions.reading import reading_client
from reprieve.cli.sessions.running_operator import running_deciders
from reprieve.cli.snapshot import read_snapshot
from reprieve.cli.texts.plan_text import plan_text
from reprieve.cli.texts.progress import Progress
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.whatif.copy.gathering import gather_for
from reprieve.whatif.copy.lists import discovered
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

__all__ = ["answered", "exit_code", "printed", "read"]

_DECIDING: Final = "deciding on a copy of it"
_CODES: Final = {
    Verdict.STARTS: 0,
    Verdict.STARTS_WITH_VICTIMS: 10,
    Verdict.WAITS: 20,
    Verdict.NEVER_FITS: 30,
}
_NO_ANSWER: Final = 2


async def answered(
    documents: Sequence[Document],
    progress: Progress,
    *,
    namespace: str | None,
    controllers: str | None,
    kubeconfig: str | None,
    context: str | None,
    without_server: bool,
    scheduler_names: tuple[str, ...],
    stored: str | None,
    **passed: Any,
) -> tuple[Answer, tuple[str, ...]]:
    """Return the answer, and the planes that decided it.

    Raises:
        ReprieveError: it cannot be answered; the text states what is accepted.
    """
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
        progress(_DECIDING)
        answer = await planned(None, chosen, deciders, found)
        return answer, deciders.options.controllers
    progress("reading the cluster")
    clock = SystemClock()
    connection = await load_connection(kubeconfig, context, clock)
    client = reading_client(connection, clock)
    place = namespace or connection.namespace
    names = {each.object["metadata"].get("namespace") or place for each in documents}
    try:
        operator = None if said else await running_deciders(client)
        deciders = operator or deciders_of(controllers, scheduler_names, passed)
        snapshot = await gather_for(client, deciders, clock, namespaces=names)
        if controllers is None and operator is None:
            deciders = installed_deciders(snapshot, scheduler_names, passed)
        submitted = matched(documents, discovered(snapshot.documents), place)
        notes: tuple[str, ...] = ()
        if not without_server:
            submitted = await dry_run(client, submitted)
            notes = await dry_run_pods(client, submitted, kinds_of(deciders))
        progress(_DECIDING)
        answer = await planned(client, snapshot, deciders, submitted)
        answer = replace(answer, warnings=(*notes, *answer.warnings))
        return answer, deciders.options.controllers
    except ApiError as failure:
        raise ReprieveError(f"{connection.server}: {failure}") from None
    finally:
        await client.close()


def read(filename: str) -> list[Document]:
    """Return the manifests of a file, or of standard input.

    Raises:
        UsageError: it cannot be read, or contains no manifests.
    """
    where = "standard input" if filename == "-" else filename
    try:
        with click.open_file(filename, encoding="utf-8") as file:
            return read_documents(file.read(), where)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"-f {filename}: cannot be read: {error}") from None


def printed(
    answer: Answer, controllers: Sequence[str], output: str, *, everything: bool
) -> Iterable[str]:
    """Return the lines of an answer in a format of `-o`."""
    if output == "text":
        style = Style.of_terminal(everything=everything)
        return plan_text(answer, controllers, style, SystemClock().wall())
    return (_encoded(plan_document(answer, controllers), output),)


def exit_code(answer: Answer) -> int:
    """Return the exit code that states the verdict."""
    return _NO_ANSWER if answer.verdict is None else _CODES[answer.verdict]


def _encoded(document: PlanDocument, output: str) -> str:
    if output == "yaml":
        return yaml.safe_dump(msgspec.to_builtins(document), sort_keys=False).rstrip()
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
