"""The standard workload format of the Parallel Workloads Archive: 18 fields, `;` before comments.

Read are the job's number (1), when it was submitted (2), how long it ran (4) and its processors:
those that it got (5), else those that it requested (8). A processor counts as a device. Jobs that
did not run are left out and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kubeworld.units.untrusted import Unreadable
from reprieve.simulation.readers.columns import gathered, whole
from reprieve.simulation.readers.lines import devices, numbered_lines, seconds
from reprieve.simulation.trace import Job, Trace

__all__ = ["read_swf"]

_FIELDS: Final = 18


def read_swf(path: Path, name: str) -> Trace:
    """Return the trace of a file.

    Raises:
        UsageError: it cannot be read.
    """

    def lines() -> Iterator[tuple[int, str]]:
        for number, line in numbered_lines(path):
            if not line.lstrip().startswith(";"):
                yield number, line

    return gathered(name, lines(), _job)


def _job(line: str, _number: int) -> Job:
    fields = line.split()
    if len(fields) != _FIELDS:
        raise Unreadable(f"{len(fields)} fields; accepted: {_FIELDS}")
    processors = fields[4] if not fields[4].startswith("-") else fields[7]
    if fields[3].startswith("-"):
        raise Unreadable("it did not run")
    return Job(
        id=fields[0],
        arrival=seconds(fields[1], "submit time"),
        devices=devices(processors),
        duration=whole(seconds(fields[3], "run time")),
    )
