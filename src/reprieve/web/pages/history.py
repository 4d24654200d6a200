"""The page History: what teams or queues held, requested and lost over the last hour, day or week.

Parameters: `range` (hour, day, week), `by` (team: the namespace; queue), `measure` (working, idle,
waiting, preempted, lost), `resource`, `ns`. Table `teams`, the largest first: team, working, idle,
waiting (device-hours), preempted (units), lost (device-seconds), all of the time shown. Values:
`resource`, `resources`, `range`, `by`, `measure`, `step` (seconds that one point stands for),
`every` (seconds between samples), `source` (a sentence, where Prometheus has the sums or should),
`oldest` (of which units are known), `from`, `to`, `times` (the
ends of steps), `lines` (by team, a number or null for each time, the largest teams alone) and
`others` (how many teams the last line adds up).

Working, idle and waiting are means of a step; preempted units and lost device-seconds are its sums.
A step without a sample is null. Teams that the viewer does not see are one line, where there are
three of them or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.web.history.model import Sample, Sums, Team
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages.asked import Asked, asked_of, one
from reprieve.web.tables import (
    Cell,
    Column,
    InvalidParameter,
    Kind,
    Page,
    Parameters,
    Table,
    Viewer,
    seconds,
)

__all__ = ["page"]

#: How long a time is, and how long a step is at least.
_RANGES: Final = {
    "hour": (HOUR, MINUTE),
    "day": (24 * HOUR, 10 * MINUTE),
    "week": (7 * 24 * HOUR, HOUR),
}
_MEASURES: Final = Sums._fields
_COUNTED: Final = ("preempted", "lost")
_FEWEST_STEPS: Final = 60
_MOST_LINES: Final = 6
_OTHERS: Final = "others"
_FEWEST_TENANTS: Final = 3
_TEAMS: Final = (
    Column("team", Kind.TEXT),
    Column("working", Kind.NUMBER),
    Column("idle", Kind.NUMBER),
    Column("waiting", Kind.NUMBER),
    Column("preempted", Kind.NUMBER),
    Column("lost", Kind.NUMBER),
)

_Steps = list[list[float] | None]


def page(mirror: Mirror, viewer: Viewer, parameters: Parameters, at: Nanos) -> Page:
    """Return what teams did over a time.

    Raises:
        InvalidParameter: as of `asked_of`, or a word that is not known.
    """
    asked = asked_of(mirror, {name: parameters.get(name, ()) for name in ("resource", "ns")})
    shown = _word(parameters, "range", tuple(_RANGES))
    by = _word(parameters, "by", ("team", "queue"))
    measure = _word(parameters, "measure", _MEASURES)
    length, step = _RANGES[shown]
    every = mirror.history.every
    samples = list(mirror.history.between(Nanos(at - length), at))
    if samples:
        # What was not yet sampled gets no space.
        begun = samples[0].at - samples[0].length
        length = min(length, max(at - begun, 10 * every))
    step = max(every, min(step, length // _FEWEST_STEPS))
    ends = [Nanos(at - length + step * (n + 1)) for n in range(max(1, length // step))]
    found = _by_team(samples, viewer, asked, by, mirror)
    points = {team: _points(each, ends, step, measure) for team, each in found.items()}
    totals = {team: _totals(each) for team, each in found.items()}
    ranked = sorted(points, key=lambda team: (team == _OTHERS, -_size(points[team]), team))
    lines, others = _lines(ranked, points)
    return Page(
        {
            "resource": asked.resource,
            "resources": list(asked.resources),
            "range": shown,
            "by": by,
            "measure": measure,
            "step": step // SECOND,
            "every": every / SECOND,
            "source": mirror.history.source,
            "oldest": seconds(mirror.history.oldest),
            "from": seconds(Nanos(at - length)),
            "to": seconds(at),
            "times": [seconds(end) for end in ends],
            "lines": lines,
            "others": others,
        },
        {"teams": Table(_TEAMS, {team: _row(team, totals[team], asked) for team in ranked})},
    )


def _word(parameters: Parameters, name: str, accepted: Sequence[str]) -> str:
    given = one(parameters, name) or accepted[0]
    if given not in accepted:
        raise InvalidParameter(f"{name} {given!r}: accepted: {', '.join(accepted)}")
    return given


def _by_team(
    samples: Iterable[Sample], viewer: Viewer, asked: Asked, by: str, mirror: Mirror
) -> dict[str, list[tuple[Sample, list[float]]]]:
    """Return for each team that may be named its sums in each sample."""
    foreign: set[str] = set()
    found: dict[str, list[tuple[Sample, list[float]]]] = {}
    name = _naming(viewer, asked, by)
    for sample in samples:
        present: dict[str, list[float]] = {}
        for team, sums in sample.teams:
            if team[0] != asked.resource:
                continue
            called = name(Team(*team))
            if called is None:
                continue
            if called == _OTHERS:
                foreign.add(team[1])
            total = present.setdefault(called, [0.0] * len(_MEASURES))
            for index, amount in enumerate(sums):
                total[index] += amount
        for called, total in present.items():
            found.setdefault(called, []).append((sample, total))
        # A team of which a sample states nothing had nothing.
        for called in found.keys() - present.keys():
            found[called].append((sample, [0.0] * len(_MEASURES)))
    if not viewer.sees_all and len(foreign) < _FEWEST_TENANTS:
        found.pop(_OTHERS, None)
    return found


def _naming(viewer: Viewer, asked: Asked, by: str) -> Callable[[Team], str | None]:
    """Return what a team is called; None for one that is not to be shown."""

    def name(team: Team) -> str | None:
        if team.namespace == "*":
            return _OTHERS if viewer.sees_all and not asked.namespaces else None
        if asked.shows(viewer, team.namespace):
            return team.namespace if by == "team" else (team.queue or "without a queue")
        return None if asked.namespaces or viewer.sees_all else _OTHERS

    return name


def _points(
    samples: Sequence[tuple[Sample, list[float]]], ends: Sequence[Nanos], step: int, measure: str
) -> list[float | None]:
    """Return a mean or a sum for each step; None where no sample has it."""
    index = _MEASURES.index(measure)
    sums, covered = [0.0] * len(ends), [0] * len(ends)
    start = ends[0] - step
    for sample, amounts in samples:
        begun = sample.at - sample.length
        last = min((sample.at - 1 - start) // step, len(ends) - 1)
        for place in range(max((begun - start) // step, 0), last + 1):
            edge = start + place * step
            share = min(sample.at, edge + step) - max(begun, edge)
            covered[place] += share
            if measure not in _COUNTED:
                sums[place] += amounts[index] * share
        if measure in _COUNTED and last >= 0:
            sums[last] += amounts[index]
    counted = measure in _COUNTED
    return [
        round(total if counted else total / time, 2) if time else None
        for total, time in zip(sums, covered, strict=True)
    ]


def _totals(samples: Sequence[tuple[Sample, list[float]]]) -> list[float]:
    """Return device-hours of what is held and requested, and the sums of what befell."""
    total = [0.0] * len(_MEASURES)
    for sample, amounts in samples:
        for index, amount in enumerate(amounts):
            counted = _MEASURES[index] in _COUNTED
            total[index] += amount if counted else amount * sample.length / HOUR
    return total


def _size(points: Sequence[float | None]) -> float:
    return sum(point or 0 for point in points)


def _lines(
    ranked: Sequence[str], points: Mapping[str, list[float | None]]
) -> tuple[dict[str, list[float | None]], int]:
    """Return the lines of the largest teams, the rest as one; and how many the rest are."""
    most = _MOST_LINES + (len(ranked) == _MOST_LINES + 1)
    lines = {team: points[team] for team in ranked[:most]}
    rest = [points[team] for team in ranked[most:]]
    if rest:
        known = [*rest, *([lines.pop(_OTHERS)] if _OTHERS in lines else [])]
        lines[_OTHERS] = [
            None
            if all(each is None for each in step)
            else round(sum(each or 0 for each in step), 2)
            for step in zip(*known, strict=True)
        ]
    return lines, len(rest)


def _row(team: str, totals: Sequence[float], asked: Asked) -> tuple[Cell, ...]:
    scale = 1000 if asked.resource == "cpu" else 1
    hours = [round(each / scale, 2) for each in totals[:3]]
    return (team, *hours, round(totals[3]), round(totals[4]))
