"""Samples: what each unit held and requested at an instant, and what teams' work adds up to.

Amounts are in base units (cpu in thousandths). A team is a namespace, together with the
ClusterQueue of the work, so that sums by namespace and by queue come from the same samples, and a
viewer of some namespaces can be shown those alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos

__all__ = [
    "MOST_TEAMS",
    "Eviction",
    "Moment",
    "Sample",
    "Sums",
    "Team",
    "UnitRow",
    "bounded",
    "sample_of",
]

#: Teams of one sample that are kept apart: those with the largest amounts.
MOST_TEAMS: Final = 128


class UnitRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a unit was at, by one resource; it waits where `waiting` or `waits_since` is not 0."""

    unit: str
    resource: str
    queue: str
    held: int
    idle: int
    leaving: int
    waiting: int
    pods: int
    nodes: int
    since: int
    waits_since: int
    reason: str

    @property
    def namespace(self) -> str:
        """The namespace of the unit."""
        return self.unit.split("/")[1]

    @property
    def key(self) -> tuple[str, str]:
        """What separates it from the others of an instant."""
        return self.unit, self.resource


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster at an instant; `totals`: what its nodes offered, by resource."""

    at: Nanos
    totals: Mapping[str, int]
    rows: Mapping[tuple[str, str], UnitRow]


class Eviction(NamedTuple):
    """A unit that was evicted since the sample before; `lost`: device-seconds of work."""

    resource: str
    namespace: str
    queue: str
    lost: int


class Team(NamedTuple):
    """Whose sums they are; a namespace of `*` are the teams that were not kept apart."""

    resource: str
    namespace: str
    queue: str


class Sums(NamedTuple):
    """What a team had on average (working, idle, waiting), and what befell it."""

    working: float = 0
    idle: float = 0
    waiting: float = 0
    preempted: int = 0
    lost: int = 0


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The sums of the time that ended at an instant; `length` in nanoseconds."""

    at: int
    length: int
    teams: list[tuple[Team, Sums]]


def sample_of(moment: Moment, length: int, evictions: Iterable[Eviction]) -> Sample:
    """Return what the work of an instant adds up to by team."""
    sums: dict[Team, list[int]] = {}
    for row in moment.rows.values():
        team = sums.setdefault(Team(row.resource, row.namespace, row.queue), [0, 0, 0, 0, 0])
        team[0] += row.held - row.idle - row.leaving
        team[1] += row.idle
        team[2] += row.waiting
    for each in evictions:
        team = sums.setdefault(Team(each.resource, each.namespace, each.queue), [0, 0, 0, 0, 0])
        team[3] += 1
        team[4] += each.lost
    return Sample(moment.at, length, bounded([(key, Sums(*each)) for key, each in sums.items()]))


def merged(samples: list[Sample]) -> Sample:
    """Return several samples, the oldest first, as one: means by time, and sums of what befell."""
    length = sum(each.length for each in samples)
    means: dict[Team, list[float]] = {}
    counts: Counter[tuple[Team, str]] = Counter()
    for sample in samples:
        share = sample.length / length if length else 0
        for reported, sums in sample.teams:
            team = Team(*reported)
            total = means.setdefault(team, [0, 0, 0])
            for index in range(3):
                total[index] += sums[index] * share
            counts[team, "preempted"] += sums[3]
            counts[team, "lost"] += sums[4]
    teams = [
        (
            team,
            Sums(
                round(found[0], 2),
                round(found[1], 2),
                round(found[2], 2),
                counts[team, "preempted"],
                counts[team, "lost"],
            ),
        )
        for team, found in means.items()
    ]
    return Sample(samples[-1].at, length, bounded(teams))


def bounded(teams: list[tuple[Team, Sums]]) -> list[tuple[Team, Sums]]:
    """Return the `MOST_TEAMS` largest teams, and the others as one for each resource."""
    if len(teams) <= MOST_TEAMS:
        return teams
    teams = sorted(teams, key=lambda each: (-sum(each[1][:3]) - each[1].preempted, each[0]))
    rest: dict[Team, Sums] = {}
    for team, sums in teams[MOST_TEAMS:]:
        others = Team(team.resource, "*", "")
        before = rest.get(others, Sums())
        rest[others] = Sums(*(a + b for a, b in zip(before, sums, strict=True)))  # type: ignore[arg-type]
    return [*teams[:MOST_TEAMS], *rest.items()]


#: What a sample stands for at most, so that a pause of the server stays a gap.
def length_since(before: Nanos | None, now: Nanos, every: int) -> int:
    """Return the time that a sample stands for, in nanoseconds."""
    if before is None:
        return every
    return max(SECOND, min(now - before, 2 * every))
