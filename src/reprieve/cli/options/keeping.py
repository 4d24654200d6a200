"""Where `reprieve dashboard` and `reprieve web` have their history from, by their options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from reprieve.cli.options.durations import DurationText
from reprieve.units.errors import UsageError
from reprieve.web.history.history import History
from reprieve.web.history.prometheus import Prometheus
from reprieve.web.history.stores import FolderStore

__all__ = ["keeping_options"]

_QUICKEST: Final = SECOND


def _kept(
    folder: Path | None, sample_every: int, prometheus: str | None, token: Path | None
) -> History:
    """Return the samples of a folder, or new ones in memory, and what else has their sums.

    Raises:
        UsageError: the folder cannot be written, samples would come too quickly, or the address
            cannot be used.
    """
    if sample_every < _QUICKEST:
        raise UsageError("--sample-every: accepted: a duration of at least 1s")
    if token is not None and prometheus is None:
        raise UsageError("--prometheus-token: accepted: together with --prometheus")
    elsewhere = None if prometheus is None else Prometheus(prometheus, token, SystemClock())
    store = None if folder is None else FolderStore(folder)
    return History(store, sample_every, elsewhere)


def keeping_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the history, which the command gets as `history`."""

    @click.option(
        "--history",
        "folder",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Keep samples of who held and waited here, so that they survive a restart; at most "
        "20 MB.",
    )
    @click.option(
        "--sample-every",
        type=DurationText(),
        default="1m",
        show_default=True,
        metavar="DURATION",
        help="Interval between samples.",
    )
    @click.option(
        "--prometheus",
        metavar="URL",
        envvar="REPRIEVE_PROMETHEUS",
        help="Query this Prometheus, which scrapes --metrics-port, for GPUs, preemptions and lost "
        "work of teams over time; default: $REPRIEVE_PROMETHEUS.",
    )
    @click.option(
        "--prometheus-token",
        "token",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Bearer token for it.",
    )
    @click.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        metavar="N",
        help="Serve the sums of each sample for a Prometheus on this port; without it none are "
        "served.",
    )
    @functools.wraps(command)
    def keeping(
        *,
        folder: Path | None,
        sample_every: int,
        prometheus: str | None,
        token: Path | None,
        **given: Any,
    ) -> None:
        command(history=_kept(folder, sample_every, prometheus, token), **given)

    return keeping
