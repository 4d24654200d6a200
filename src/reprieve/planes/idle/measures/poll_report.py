"""Polls of metric sources, counted and reported.

A poll is logged only where something changed: when a source begins to fail, when it
fails in another way, when all its targets answer again, and once for each pod with an impossible
value, or with samples that contradict each other, for as long as it continues.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from kubeworld.units.durations import SECOND
from reprieve.intake.exposition import Defect, InvalidSample
from reprieve.planes.idle.measures.scraper import PodKey, Poll, SourceHealth
from reprieve.telemetry.metrics import Metrics

__all__ = ["PollReport"]

_log = logging.getLogger("reprieve.scraper")


class PollReport:
    """Metrics and log lines of polls."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        # By source, as shown: the classes of failure that the last poll met there.
        self._failing: dict[str, frozenset[str]] = {}
        # All and only pods with an impossible value in the last poll.
        self._invalid: frozenset[PodKey] = frozenset()
        # All and only pods whose samples contradicted each other in the last poll.
        self._contradicted: frozenset[PodKey] = frozenset()

    def report(self, poll: Poll) -> None:
        """Count one poll and log what is new in it."""
        metrics = self._metrics
        metrics.last_poll.set(poll.at / SECOND)
        for health in poll.sources:
            self._report_source(health)
        for reading in poll.readings:
            metrics.scrape_seconds.labels(reading.target.source.shown).observe(
                reading.duration / SECOND
            )
        dropped = Counter(bad.defect.value for bads in poll.invalid.values() for bad in bads)
        dropped["Unassigned"] += poll.unassigned
        dropped["Contradicted"] += len(poll.conflicts)
        for reason, number in dropped.items():
            metrics.samples_dropped.labels(reason).inc(number)
        for pod in sorted(poll.invalid.keys() - self._invalid):
            _log.warning(
                "a sample of pod %s/%s is dropped: %s; accepted: %s",
                *pod,
                ", ".join(sorted({bad.defect.value for bad in poll.invalid[pod]})),
                _accepted(poll.invalid[pod]),
            )
        self._invalid = frozenset(poll.invalid)
        for pod in sorted(poll.conflicts.keys() - self._contradicted):
            conflict = poll.conflicts[pod]
            _log.warning(
                "pod %s/%s: GPU %s is reported with %.1f %% and with %.1f %%; the higher value "
                "counts. Another exporter may publish samples of it: name the exporters' job "
                "or namespace in the query",
                *pod,
                conflict.gpu_id or '""',
                conflict.lowest,
                conflict.highest,
            )
        self._contradicted = frozenset(poll.conflicts)

    def _report_source(self, health: SourceHealth) -> None:
        metrics, shown = self._metrics, health.source.shown
        failures = Counter(
            reading.failure.value for reading in health.failures if reading.failure is not None
        )
        for reason, number in failures.items():
            metrics.scrape_failures.labels(shown, reason).inc(number)
        metrics.samples.labels(shown).inc(health.samples)
        failed = len(health.failures)
        metrics.scrape_targets.labels(shown, "up").set(health.targets - failed)
        metrics.scrape_targets.labels(shown, "down").set(failed)
        before = self._failing.get(shown, frozenset())
        self._failing[shown] = frozenset(failures)
        if health.failures and before != self._failing[shown]:
            first = health.failures[0]
            _log.warning(
                "metrics endpoint %s: %d of %d targets gave no reading; %s: %s: %s",
                shown,
                failed,
                health.targets,
                first.target.shown,
                first.failure,
                first.detail,
            )
        elif before and not failures:
            _log.info("metrics endpoint %s: all %d targets answer again", shown, health.targets)


def _accepted(dropped: Iterable[InvalidSample]) -> str:
    if any(bad.defect is Defect.OLD for bad in dropped):
        return "0 to 100 percent, with no time on the line or one within the freshness window"
    return "0 to 100 percent"
