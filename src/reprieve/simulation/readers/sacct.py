"""What Slurm's accounting states: `sacct -a -P -o JobID,Submit,ElapsedRaw,AllocTRES ...`.

Cells are parted by `|`. The devices are `gres/gpu=N` of `AllocTRES`, of all kinds together. Steps
of a job (`JobID` with a dot) are parts of it and no jobs. Instants without a zone count as UTC,
which moves all of them alike. Jobs that did not run are left out and reported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeworld.units.untrusted import LONGEST_NAME, bounded
from reprieve.simulation.readers.columns import Row, instant, read_rows, whole
from reprieve.simulation.readers.lines import devices, seconds
from reprieve.simulation.trace import Job, Trace

__all__ = ["read_sacct"]

_NEEDED: Final = ("JobID", "Submit", "ElapsedRaw", "AllocTRES")


def read_sacct(path: Path, name: str) -> Trace:
    """Return the trace of a file.

    Raises:
        UsageError: it cannot be read, or has not the columns that are needed.
    """
    return read_rows(path, name, _NEEDED, _job, delimiter="|")


def _job(cells: Row, number: int) -> Job | None:
    resources = dict(each.partition("=")[::2] for each in cells["AllocTRES"].split(","))
    wanted = resources.get("gres/gpu", "0")
    if wanted == "0" or "." in cells["JobID"]:
        return None
    return Job(
        id=bounded(cells["JobID"] or f"L{number}", LONGEST_NAME),
        arrival=instant(cells["Submit"], "Submit"),
        devices=devices(wanted),
        duration=whole(seconds(cells["ElapsedRaw"], "ElapsedRaw")),
    )
