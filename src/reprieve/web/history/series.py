"""What a sample adds up to, as series that a Prometheus scrapes and `prometheus` reads again.

`reprieve_team_devices` (`state`: working, idle, waiting) is a gauge of the last sample. Counters
`reprieve_team_preempted_units` and `reprieve_team_lost_device_seconds` begin at 0 with the process.
Labels: `resource`, `team` (the namespace), `cluster_queue`. `MOST_SERIES` teams have counters of
their own, later ones are counted under the team `*`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from reprieve.web.history.model import MOST_TEAMS, Sample, Team

__all__ = ["DEVICES", "LABELS", "LOST", "MOST_SERIES", "PREEMPTED", "STATES", "TeamSeries"]

LABELS: Final = ("resource", "team", "cluster_queue")
#: The states, in the order of the fields of `Sums`.
STATES: Final = ("working", "idle", "waiting")
DEVICES: Final = "reprieve_team_devices"
PREEMPTED: Final = "reprieve_team_preempted_units"
LOST: Final = "reprieve_team_lost_device_seconds"
MOST_SERIES: Final = 8 * MOST_TEAMS


class TeamSeries(Collector):
    """The series of one process, as of its last sample."""

    def __init__(self) -> None:
        self._last: Sample | None = None
        self._counted: dict[Team, tuple[int, int]] = {}

    def add(self, sample: Sample) -> None:
        """Show a sample in place of the one before, and count its evictions."""
        self._last = sample
        for reported, sums in sample.teams:
            team = Team(*reported)
            if not sums[3] and not sums[4]:
                continue
            if team not in self._counted and len(self._counted) >= MOST_SERIES:
                team = Team(team.resource, "*", "")
            preempted, lost = self._counted.get(team, (0, 0))
            self._counted[team] = (preempted + sums[3], lost + sums[4])

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the three families."""
        devices = GaugeMetricFamily(
            DEVICES, "Devices that teams use, hold idle or wait for.", labels=(*LABELS, "state")
        )
        for reported, sums in () if self._last is None else self._last.teams:
            for state, amount in zip(STATES, sums, strict=False):
                devices.add_metric((*reported, state), amount)
        preempted = CounterMetricFamily(PREEMPTED, "Preempted units of teams.", labels=LABELS)
        lost = CounterMetricFamily(LOST, "Work of teams lost by preemption.", labels=LABELS)
        for team, counts in self._counted.items():
            preempted.add_metric(team, counts[0])
            lost.add_metric(team, counts[1])
        yield from (devices, preempted, lost)
