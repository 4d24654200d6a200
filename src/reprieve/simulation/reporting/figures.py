"""The charts of a load, for the report and for files of their own.

Waiting times, devices in use, lost work with its interval, and how often jobs were preempted;
where jobs are idle, also what they held unused, and what of that they gave back early. As files
(`plots`) they are SVG with a legend and colours for paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from reprieve.simulation.reporting import charts
from reprieve.simulation.reporting.measures import GRID_S
from reprieve.simulation.reporting.summary import LoadSummary, Results
from reprieve.simulation.runs import Outcome

__all__ = ["Figure", "figures", "plots"]

_TIMES: Final = ("never", "once", "twice", "3 times", "4 times", "5 times", "6 or more")
_PAPER: Final = (
    "text{font:11px Helvetica,Arial,sans-serif;fill:#222}.grid{stroke:#ddd}.tick{stroke:#777}"
    ".line{fill:none;stroke:#555;stroke-width:1.4}.bar{fill:#aaa}"
    ".whisker{stroke:#000;fill:none}.line.p1{stroke:#0b62c4;stroke-width:2}.bar.p1{fill:#0b62c4}"
)
_VIEW: Final = re.compile(r'viewBox="0 0 (\d++) (\d++)"')
_IDLE: Final = (
    ("unused GPU h", "unused", "GPU hours of a run that were held without being used"),
    ("reclaimed GPU h", "reclaimed", "GPU hours of a run that idle work gave back early"),
)
_LEGEND: Final = 22  # height of a row
_ENTRY: Final = 140  # width of an entry


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart as SVG; `name` is good for a file."""

    name: str
    title: str
    svg: str


def figures(results: Results, summary: LoadSummary) -> Iterator[Figure]:
    """Yield the charts of a load."""
    waits = [
        charts.Line(policy.policy, number, policy.mean(lambda m: m.wait_shares))
        for number, policy in enumerate(summary.policies)
    ]
    title = "Share of jobs that waited no longer than a time"
    yield Figure("waits", title, charts.log_time_lines(waits, GRID_S, title))
    first = [policy.outcomes[0] for policy in summary.policies]
    yield _use(first, results.study.cluster.capacity)
    lost = [
        charts.Bar(policy.policy, number, found.value, f"{found.value.mean:,.0f}")
        for number, policy in enumerate(summary.policies)
        for found in (policy.columns["lost GPU h"],)
    ]
    title = "Lost GPU hours in a run"
    yield Figure("lost", title, charts.bars(lost, title))
    often = [
        (policy.policy, number, policy.mean(lambda m: m.often)[1:])
        for number, policy in enumerate(summary.policies)
    ]
    title = "Jobs of a run by how often they were preempted"
    yield Figure("often", title, charts.stacked(often, _TIMES[1:], title))
    for column, name, title in _IDLE if summary.idle else ():
        bars = [
            charts.Bar(policy.policy, number, found.value, f"{found.value.mean:,.0f}")
            for number, policy in enumerate(summary.policies)
            for found in (policy.columns[column],)
        ]
        yield Figure(name, title, charts.bars(bars, title))


def plots(results: Results) -> Iterator[tuple[str, str]]:
    """Yield name and content of a file for each chart of each load."""
    for summary in results.loads:
        names = [policy.policy for policy in summary.policies]
        load = "as-it-is" if summary.load is None else f"{summary.load:g}"
        for figure in figures(results, summary):
            yield f"load-{load}-{figure.name}.svg", _for_paper(figure.svg, names)


def _use(first: Sequence[Outcome], capacity: int) -> Figure:
    """One trace alone: the mean over traces of different length would show nothing."""
    run = first[0].run
    longest = max(outcome.measures.makespan_s for outcome in first)
    lines = []
    for number, outcome in enumerate(first):
        share = outcome.measures.makespan_s / longest
        parts = len(outcome.measures.use)
        # All on one axis: parts of the longest replay.
        places = [min(int(place / share), parts) for place in range(parts)]
        values = [outcome.measures.use[place] if place < parts else 0.0 for place in places]
        lines.append(charts.Line(outcome.run.policy.name, number, values))
    title = f"Devices in use over time (trace {run.trace}, seed {run.seed})"
    return Figure("use", title, charts.time_lines(lines, longest, capacity, title))


def _for_paper(svg: str, names: Sequence[str]) -> str:
    """Return a chart with its own style, and a legend below it."""
    view = _VIEW.search(svg)
    assert view is not None, "every chart has a view box"
    width, height = int(view[1]), int(view[2])
    in_a_row = width // _ENTRY
    rows = -(-len(names) // in_a_row)
    legend = []
    for number, name in enumerate(names):
        x, y = number % in_a_row * _ENTRY + 10, height + number // in_a_row * _LEGEND + 12
        dash = charts.DASHES[number % len(charts.DASHES)]
        legend.append(
            f'<line class="line p{number}" x1="{x}" x2="{x + 28}" y1="{y - 4}" y2="{y - 4}" '
            f'stroke-dasharray="{dash}"/><text x="{x + 34}" y="{y}">{escape(name)}</text>'
        )
    tall = f'viewBox="0 0 {width} {height + rows * _LEGEND}"'
    opened, rest = svg.replace(view[0], tall, 1).split("</title>", 1)
    inside = rest.removesuffix("</svg>")
    return f"{opened}</title><style>{_PAPER}</style>{inside}{''.join(legend)}</svg>\n"
