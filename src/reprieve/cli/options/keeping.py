"""Where `reprieve dashboard` and `reprieve web` keep their samples, by their options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kubeworld.units.durations import SECOND
from reprieve.cli.options.durations import DurationText
from reprieve.units.errors import UsageError
from reprieve.web.history.history import History
from reprieve.web.history.stores import FolderStore

__all__ = ["keeping_options", "kept_history"]

F = TypeVar("F", bound=Callable[..., Any])

_QUICKEST: Final = SECOND


def kept_history(folder: Path | None, every: int) -> History:
    """Return the samples of a folder, or new ones in memory.

    Raises:
        UsageError: the folder cannot be written, or samples would come too quickly.
    """
    if every < _QUICKEST:
        raise UsageError("--sample-every: accepted: a duration of at least 1s")
    return History(None if folder is None else FolderStore(folder), every)


def keeping_options(command: F) -> F:
    """Add the options that state where samples are kept, and how often one is made."""
    command = click.option(
        "--sample-every",
        type=DurationText(),
        default="1m",
        show_default=True,
        metavar="DURATION",
        help="Interval between samples.",
    )(command)
    return click.option(
        "--history",
        "folder",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Keep samples of who held and waited here, so that they survive a restart; at most "
        "20 MB.",
    )(command)
