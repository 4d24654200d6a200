"""Job logs of SenseTime's Helios (`cluster_log.csv`) and of Shanghai AI Lab's Acme.

Both have `job_id`, `gpu_num`, `submit_time`, `start_time` and `end_time`, each its own columns
beside. A job's length is that of its run; its `state` plays no role, since it held its devices.
Jobs that never started are left out and reported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeworld.units.untrusted import LONGEST_NAME, bounded, read_integer
from reprieve.simulation.readers.columns import Row, instant, read_rows, whole
from reprieve.simulation.readers.lines import MOST_DEVICES
from reprieve.simulation.trace import Job, Trace

__all__ = ["read_helios"]

_NEEDED: Final = ("job_id", "gpu_num", "submit_time", "start_time", "end_time")


def read_helios(path: Path, name: str) -> Trace:
    """Return the trace of a file.

    Raises:
        UsageError: it cannot be read, or has another header.
    """
    return read_rows(path, name, _NEEDED, _job)


def _job(cells: Row, number: int) -> Job | None:
    wanted = read_integer(cells["gpu_num"], 0, MOST_DEVICES)
    if not wanted:
        return None
    start, end = (instant(cells[column], column) for column in ("start_time", "end_time"))
    return Job(
        id=bounded(cells["job_id"] or f"L{number}", LONGEST_NAME),
        arrival=instant(cells["submit_time"], "submit_time"),
        devices=wanted,
        duration=whole(end - start),
    )
