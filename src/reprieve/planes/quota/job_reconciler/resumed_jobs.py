"""Evicted jobs that are resumed repeatedly, and would otherwise hold their quota indefinitely.

Each resumption makes pods, and a job with pods holds its quota. After the job of one eviction was
suspended three times, only those pods are waited for that were there when it was evicted: what was
made since runs without quota, and is ended each time that it is seen.

Source: specification of the quota plane, section 10.1.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.api.kueue import Workload
from reprieve.intake.quota_workloads import condition_of

__all__ = ["ResumedJobs"]

_SUSPENDED: Final = 3
_MOST: Final = 10_000  # of which the newest are known


class ResumedJobs:
    """Counts how often the job of an evicted Workload was suspended, by uid and eviction."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], int] = {}

    def stopped(self, workload: Workload) -> None:
        """Note that the job of an evicted Workload ran, and was suspended."""
        key = _key(workload)
        self._times[key] = self._times.pop(key, 0) + 1
        while len(self._times) > _MOST:
            del self._times[next(iter(self._times))]

    def evicted(self, workload: Workload) -> Nanos | None:
        """Return when a Workload was evicted whose job is resumed all the time, None for others."""
        uid, at = _key(workload)
        return instant_or_none(at) if self._times.get((uid, at), 0) >= _SUSPENDED else None


def _key(workload: Workload) -> tuple[str, str]:
    eviction = condition_of(workload.status.conditions, "Evicted")
    since = "" if eviction is None else eviction.last_transition_time or ""
    return workload.metadata.uid, since
