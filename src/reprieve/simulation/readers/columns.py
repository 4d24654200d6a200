"""Traces whose lines are rows under a header: what all readers of such forms have in common.

A form is the columns that have to be there and a function that makes a job of a row: it returns
None for one that wants no devices, and raises `Unreadable` for what it cannot read. Both are
counted. Arrivals are measured from the first job on.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from kubeworld.units.durations import SECOND
from kubeworld.units.untrusted import Unreadable, bounded, shown
from reprieve.simulation.readers.lines import is_text, numbered_lines
from reprieve.simulation.trace import Job, Malformed, Trace
from reprieve.units.errors import UsageError

__all__ = ["MakeJob", "Row", "gathered", "instant", "read_rows", "whole"]

Row = Mapping[str, str]
MakeJob = Callable[[Row, int], Job | None]


def read_rows(
    path: Path,
    name: str,
    needed: Collection[str],
    make: MakeJob,
    optional: Collection[str] | None = None,
    delimiter: str = ",",
    header: tuple[str, ...] = (),
) -> Trace:
    """Return the trace of a file.

    Args:
        path: the file.
        name: of the trace.
        needed: columns that have to be there.
        make: makes a job of a row and the number of its line.
        optional: the only other columns there may be; None allows all others.
        delimiter: between cells.
        header: the columns of files without a header line.

    Raises:
        UsageError: it cannot be read, or its header is another one.
    """
    lines = numbered_lines(path)
    columns = list(header)
    if not columns:
        first = next(lines, (1, ""))[1].removeprefix("\ufeff")
        columns = [cell.strip() for cell in next(csv.reader([first], delimiter=delimiter), [])]
    missing = [column for column in needed if column not in columns]
    known = None if optional is None else {*needed, *optional}
    unknown = [column for column in columns if known is not None and column not in known]
    if missing or unknown or len(set(columns)) < len(columns):
        said = "with a column twice"
        if missing or unknown:
            said = f"without {', '.join(missing)}" if missing else f"with {', '.join(unknown)}"
        more = f", and of {', '.join(optional)} those that are known" if optional else ""
        raise UsageError(f"{path}:1: a header {said}; accepted: {', '.join(needed)}{more}")

    def made(line: str, number: int) -> Job | None:
        cells = next(csv.reader([line], delimiter=delimiter))
        if len(cells) != len(columns):
            raise Unreadable(f"{len(cells)} cells where the header has {len(columns)}")
        return make(dict(zip(columns, (cell.strip() for cell in cells), strict=True)), number)

    return gathered(name, lines, made)


def gathered(
    name: str, lines: Iterator[tuple[int, str]], made: Callable[[str, int], Job | None]
) -> Trace:
    """Return the jobs of lines in the order of their arrivals, and what was left out of them."""
    jobs: list[Job] = []
    malformed: list[Malformed] = []
    ids: set[str] = set()
    without = 0
    for number, line in lines:
        if not line.strip():
            continue
        try:
            if not is_text(line):
                raise Unreadable("bytes that are no UTF-8")
            job = made(line, number)
            if job is not None and job.id in ids:
                raise Unreadable(f"job {shown(job.id)} stood before")
            if job is not None and not is_text(f"{job.id}{job.model}{job.tenant}"):
                raise Unreadable(f"job {shown(ascii(job.id))}: half of a surrogate pair is no text")
        except (Unreadable, csv.Error) as error:
            malformed.append(Malformed(number, str(error)))
            continue
        if job is None:
            without += 1
            continue
        ids.add(job.id)
        jobs.append(job)
    jobs.sort(key=lambda job: job.arrival)
    first = jobs[0].arrival if jobs else 0
    jobs = [replace(job, arrival=job.arrival - first) for job in jobs]
    return Trace(name, tuple(jobs), tuple(malformed), without)


def instant(text: str, what: str) -> int:
    """Return the nanoseconds of an instant such as 2023-03-01 00:18:22+08:00; UTC without a zone.

    Raises:
        Unreadable: it is none.
    """
    try:
        found = datetime.fromisoformat(bounded(text))
    except ValueError:
        raise Unreadable(
            f"{what} {shown(text)}; accepted: an instant such as 2023-03-01 00:18:22"
        ) from None
    moment = found if found.tzinfo else found.replace(tzinfo=UTC)
    return round(moment.timestamp()) * SECOND


def whole(duration: int, what: str = "it ran") -> int:
    """Return a duration of more than 0.

    Raises:
        Unreadable: it is none.
    """
    if duration <= 0:
        raise Unreadable(f"{what} for 0 seconds or less")
    return duration
