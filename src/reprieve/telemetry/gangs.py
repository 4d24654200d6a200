"""Metrics of gangs and job preemption, under Koordinator's names.

Attempts and victims are counted in kube-scheduler's `scheduler_preemption_attempts_total` and
`scheduler_preemption_victims` as well. Source: specification of gang jobs, sections 5 and 9.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram

__all__ = ["GangMetrics", "job_size"]

_SECONDS: Final = tuple(0.001 * 2**power for power in range(20))


class GangMetrics:
    """One attribute each; durations in seconds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.preemption_seconds = Histogram(
            "scheduler_job_preemption_duration_seconds",
            "Time of an attempt at job preemption, by the preemptor (other unless gangs are to be "
            "named) and what it ended in.",
            ("jobName", "result"),
            buckets=_SECONDS,
            registry=registry,
        )
        self.waiting_groups = Gauge(
            "scheduler_waiting_gang_group_number",
            "Gang groups that wait to be scheduled.",
            registry=registry,
        )
        self.cycle_seconds = Histogram(
            "scheduler_gang_schedule_cycle_duration_seconds",
            "Time of a gang group's cycle, by the reason for which it ended.",
            ("reason", "job_size"),
            buckets=_SECONDS,
            registry=registry,
        )


def job_size(pods: int) -> str:
    """Return the label for a number of pods: 0, 1-100, 101-200, ..., 1000+."""
    if pods <= 0:
        return "0"
    if pods > 1000:
        return "1000+"
    first = (pods - 1) // 100 * 100 + 1
    return f"{first}-{first + 99}"
