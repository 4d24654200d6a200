"""Alibaba's pod lists: cluster-trace-gpu-v2023 (`openb_pod_list_*.csv`) and gpu-v2025.

Of the former `name`, `num_gpu`, `creation_time`, `deletion_time` and `scheduled_time` are read, of
the latter (`disaggregated_DLRM_trace.csv`) `instance_sn` and `gpu_request` in place of the first
two. A pod's length is from when it was scheduled to its deletion. One that shares a device counts
with a whole one. Pods that have no time because they ran before or after the trace, or were never
scheduled, are left out and reported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeworld.units.untrusted import LONGEST_NAME, bounded, read_integer
from reprieve.simulation.readers.columns import Row, read_rows, whole
from reprieve.simulation.readers.lines import MOST_DEVICES, seconds
from reprieve.simulation.trace import Job, Trace

__all__ = ["read_openb", "read_openb_2025"]

_TIMES: Final = ("creation_time", "scheduled_time", "deletion_time")


def read_openb(path: Path, name: str) -> Trace:
    """Return the trace of a pod list of gpu-v2023.

    Raises:
        UsageError: it cannot be read, or has another header.
    """
    return read_rows(path, name, ("name", "num_gpu", *_TIMES), _pod_2023)


def read_openb_2025(path: Path, name: str) -> Trace:
    """Return the trace of gpu-v2025.

    Raises:
        UsageError: it cannot be read, or has another header.
    """
    return read_rows(path, name, ("instance_sn", "gpu_request", *_TIMES), _pod_2025)


def _pod_2023(cells: Row, number: int) -> Job | None:
    return _pod(cells, cells["name"] or f"L{number}", cells["num_gpu"])


def _pod_2025(cells: Row, number: int) -> Job | None:
    return _pod(cells, cells["instance_sn"] or f"L{number}", cells["gpu_request"])


def _pod(cells: Row, name: str, devices: str) -> Job | None:
    wanted = read_integer(devices.removesuffix(".0"), 0, MOST_DEVICES)
    if not wanted:
        return None
    created, scheduled, deleted = (seconds(cells[column], column) for column in _TIMES)
    return Job(bounded(name, LONGEST_NAME), created, wanted, whole(deleted - scheduled))
