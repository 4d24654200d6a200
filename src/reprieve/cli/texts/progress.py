"""The stage of a query, on one line of a terminal, so that a busy machine shows no silence.

The line is on standard error, is replaced by the next stage and erased at the end: output is the
same with and without it. Where standard error is no terminal nothing is written.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

import click

__all__ = ["Progress"]

_ERASED = "\r\x1b[K"


class Progress:
    """Callable with the stage that begins; within a `with`, whose end erases the line."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown

    @classmethod
    def on_terminal(cls) -> Self:
        """Return one that is shown where standard error is a terminal."""
        return cls(shown=sys.stderr.isatty())

    def __call__(self, stage: str) -> None:
        """Replace the line."""
        self._write(f"{_ERASED}{stage} ...")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write(_ERASED)

    def _write(self, text: str) -> None:
        if self._shown:
            click.echo(text, err=True, nl=False, color=True)
