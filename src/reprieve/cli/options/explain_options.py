"""The options of `reprieve explain`, and how an answer is printed as a document."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import click
import msgspec
import yaml

from reprieve.answers.document import Answer
from reprieve.answers.kinds import Asked
from reprieve.cli.options.operator_option import operator_namespace
from reprieve.units.errors import UsageError

__all__ = ["Options", "complete_line", "error_line", "partial_line", "print_document", "within"]


@dataclass(frozen=True, slots=True)
class Options:
    """The words after the command."""

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
        return operator_namespace()


def within(options: Options, asked: Asked | None) -> Options:
    """Return the options with the namespace that a query names.

    Raises:
        UsageError: `--namespace` names another one.
    """
    if asked is None or not asked.namespace:
        return options
    if options.namespace not in (None, asked.namespace):
        raise UsageError(
            f"-n {options.namespace}: {asked.kind.lower()}/{asked.namespace}/{asked.name} names "
            "another namespace; accepted: one of the two"
        )
    return replace(options, namespace=asked.namespace)


def print_document(found: Answer, form: str) -> None:
    """Print an answer as JSON or YAML."""
    document = msgspec.to_builtins(found)
    if form == "jsonl":
        complete_line(found)
    elif form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip())


def partial_line(found: Answer) -> None:
    """Print a partial answer as a line of JSON, at once."""
    _print_line({"complete": False, "answer": found})


def complete_line(found: Answer) -> None:
    """Print a complete answer as a line of JSON, at once."""
    _print_line({"complete": True, "answer": found})


def error_line(subject: str, error: str) -> None:
    """Print why there is no answer about one of several objects."""
    _print_line({"subject": subject, "error": error})


def _print_line(document: object) -> None:
    click.echo(msgspec.json.encode(document).decode())
    sys.stdout.flush()
