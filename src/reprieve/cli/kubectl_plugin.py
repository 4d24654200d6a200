"""`kubectl reprieve`: the same commands as a plugin of kubectl, with its completion.

kubectl runs `kubectl-reprieve` from PATH, and for completion `kubectl_complete-reprieve` with all
words so far, the last of them unfinished. It reads a completion a line, a tab before what stands
beside it, and at the end a colon and a number: what the shell does where nothing fits. Source: the
plugins' part of kubectl's documentation.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from reprieve.cli.main import cli, main

__all__ = ["complete", "completions", "plugin"]

_NAME: Final = "kubectl reprieve"


class _Directive(IntEnum):
    """What kubectl answers the shell: offer files, or nothing but the completions."""

    FILES = 0
    NO_FILES = 4


def plugin() -> None:
    """Run the command line as a plugin of kubectl."""
    main(_NAME)


def complete() -> None:
    """Print what may follow the words of the command line, as kubectl reads it."""
    for line in completions(sys.argv[1:]):
        click.echo(line)


def completions(words: Sequence[str]) -> list[str]:
    """Return the lines for these words; the last one is unfinished, and may be empty."""
    *done, unfinished = words or ("",)
    items = ShellComplete(cli, {}, _NAME, "").get_completions(list(done), unfinished)
    named = [item for item in items if item.type == "plain"]
    files = len(named) < len(items)
    return [*map(_line, named), f":{int(_Directive.FILES if files else _Directive.NO_FILES)}"]


def _line(item: CompletionItem) -> str:
    return f"{item.value}\t{item.help}" if item.help else str(item.value)
