"""The options of `reprieve explain`, and how an answer is printed as a document."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
import yaml

from reprieve.answers.document import Answer
from reprieve.cli.options.operator_option import operator_namespace

__all__ = ["Options", "partial_line", "print_document"]


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


def print_document(found: Answer, form: str) -> None:
    """Print an answer as JSON or YAML."""
    document = msgspec.to_builtins(found)
    if form == "jsonl":
        _print_line({"complete": True, "answer": document})
    elif form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip())


def partial_line(found: Answer) -> None:
    """Print a partial answer as a line of JSON, at once."""
    _print_line({"complete": False, "answer": found})


def _print_line(document: object) -> None:
    click.echo(msgspec.json.encode(document).decode())
    sys.stdout.flush()
