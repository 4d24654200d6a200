"""`reprieve traces`: where to get traces, the sha256 of those that one has, and a check of sums.

Exit code 0; 1 where a file has another sum than is stated; 2 for usage.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from reprieve.simulation.sources import SOURCES, read_sums, sum_of
from reprieve.units.errors import UsageError

__all__ = ["traces"]


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--check",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="SUMS",
    help="A file of sums, as this command and sha256sum write it; compare the files it names.",
)
def traces(files: tuple[Path, ...], check: Path | None) -> None:
    """List traces for simulate, and verify files by their sha256.

    With FILES: their sums, in the form of sha256sum, to be kept beside a study. Without: the forms
    that are read, where to get each, and the name that a study gives it.
    """
    if check is not None:
        if files:
            raise UsageError("--check: accepted: without FILES, which the sums name")
        _check(check)
    elif files:
        for path in files:
            click.echo(f"{sum_of(path)}  {path}")
    else:
        for source in SOURCES:
            click.echo(f"{source.form}: {source.what}\n  {source.where}\n  {source.file}")


def _check(sums: Path) -> None:
    wrong = 0
    for path, expected in read_sums(sums).items():
        if not path.is_file():
            verdict = "is not there"
        elif (found := sum_of(path)) != expected:
            verdict = f"another file: {found} where {expected} is stated"
        else:
            verdict = "as it is stated"
        wrong += verdict != "as it is stated"
        click.echo(f"{path}: {verdict}")
    if wrong:
        sys.exit(1)
