"""Microsoft's Philly trace (`cluster_job_log`, a list in JSON).

Of each job `jobid`, `submitted_time` and its `attempts` are read: the devices are those of the
widest attempt (`detail[].gpus`), the length is that of all attempts that have both ends together.
The virtual cluster (`vc`) is the tenant. Jobs that never started are left out and reported; places
are counted in the list from 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubeworld.units.untrusted import LONGEST_NAME, Unreadable, bounded
from reprieve.simulation.readers.columns import gathered, instant, whole
from reprieve.simulation.readers.lines import json_of
from reprieve.simulation.trace import Job, Trace
from reprieve.units.errors import UsageError

__all__ = ["read_philly"]


def read_philly(path: Path, name: str) -> Trace:
    """Return the trace of a file.

    Raises:
        UsageError: it cannot be read, or is no list in JSON.
    """
    jobs = json_of(path, "the job log of Philly in JSON")
    if not isinstance(jobs, list):
        raise UsageError(f"{path}: no list; accepted: the job log of Philly in JSON")

    def made(_line: str, number: int) -> Job | None:
        return _job(jobs[number - 1])

    return gathered(name, ((place, "job") for place in range(1, len(jobs) + 1)), made)


def _job(said: Any) -> Job | None:
    if not isinstance(said, Mapping) or not isinstance(said.get("attempts"), list):
        raise Unreadable("no job with attempts")
    wide, ran = 0, 0
    for attempt in said["attempts"]:
        if not isinstance(attempt, Mapping):
            raise Unreadable("an attempt that is no mapping")
        detail = attempt.get("detail") or []
        gpus = [each.get("gpus") or [] for each in detail if isinstance(each, Mapping)]
        wide = max(wide, sum(len(each) for each in gpus if isinstance(each, list)))
        start, end = (str(attempt.get(key) or "None") for key in ("start_time", "end_time"))
        if "None" not in (start, end):
            ran += instant(end, "end_time") - instant(start, "start_time")
    if not said["attempts"]:
        raise Unreadable("it never started")
    if not wide:
        return None
    return Job(
        id=bounded(str(said.get("jobid") or ""), LONGEST_NAME),
        arrival=instant(str(said.get("submitted_time")), "submitted_time"),
        devices=wide,
        duration=whole(ran),
        tenant=bounded(str(said.get("vc") or ""), LONGEST_NAME),
    )
