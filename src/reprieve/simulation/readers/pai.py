"""Tasks of Alibaba's PAI, cluster-trace-gpu-v2020 (`pai_task_table.csv`, which has no header).

`plan_gpu` are percent of a device for each instance: a task holds that, times its instances, in
whole devices. When it was submitted is not there: it counts as submitted when it started, so that
waiting in the original cluster is not in the trace. Tasks that never ended are left out and
reported.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Final

from kubeworld.units.untrusted import LONGEST_NAME, Unreadable, bounded, read_float
from reprieve.simulation.readers.columns import Row, read_rows, whole
from reprieve.simulation.readers.lines import MOST_DEVICES, seconds
from reprieve.simulation.trace import Job, Trace
from reprieve.units.counts import counted

__all__ = ["read_pai"]

_HEADER: Final = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)


def read_pai(path: Path, name: str) -> Trace:
    """Return the trace of a file.

    Raises:
        UsageError: it cannot be read.
    """
    return read_rows(path, name, _HEADER, _task, header=_HEADER)


def _task(cells: Row, number: int) -> Job | None:
    percent = read_float(cells["plan_gpu"]) if cells["plan_gpu"] else 0.0
    if percent <= 0:
        return None
    wanted = ceil(percent * read_float(cells["inst_num"] or "1") / 100)
    if not 0 < wanted <= MOST_DEVICES:
        raise Unreadable(f"it requests {counted(wanted, 'device')}; accepted: 1 to {MOST_DEVICES}")
    start = seconds(cells["start_time"], "start_time")
    return Job(
        id=bounded(f"{cells['job_name']}/{cells['task_name']}".strip("/"), LONGEST_NAME),
        arrival=start,
        devices=wanted,
        duration=whole(seconds(cells["end_time"], "end_time") - start),
    )
