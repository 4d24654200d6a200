"""Charts as SVG, for a page of either theme and for paper.

A chart has no colours of its own: its parts have classes, which the page gives the colours of its
theme. Policies are distinguished by the pattern of their line and by their name; the one with class
`chosen` gets the page's accent. Positions are rounded to a tenth, so that the same figures give the
same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final

from reprieve.simulation.reporting.intervals import Estimate

__all__ = ["DASHES", "Bar", "Line", "bars", "legend", "log_time_lines", "stacked", "time_lines"]

_WIDTH: Final = 560
_HEIGHT: Final = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 24, 40
#: Patterns of lines, in the order of the policies; they begin again where there are more.
DASHES: Final = ("", "7 3", "2 2.5", "9 3 2 3", "4 4", "12 4")
_TIMES: Final = (
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3_600, "1 h"),
    (36_000, "10 h"),
    (259_200, "3 d"),
    (2_592_000, "30 d"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """Values of one policy at the places of the chart; `number` is that of the policy."""

    name: str
    number: int
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure of one policy; `text` is how it is written."""

    name: str
    number: int
    value: Estimate
    text: str


def legend(names: Sequence[str]) -> str:
    """Return a legend, whose entries choose the policy with the accent."""
    found = []
    for number, name in enumerate(names):
        dash = DASHES[number % len(DASHES)]
        found.append(
            f'<button type="button" data-policy="{number}"><svg width="30" height="8">'
            f'<line class="line p{number}" x1="0" x2="30" y1="4" y2="4" stroke-dasharray="{dash}"/>'
            f"</svg>{escape(name)}</button>"
        )
    return f'<p class="legend">{"".join(found)}</p>'


def log_time_lines(lines: Sequence[Line], places_s: Sequence[float], title: str) -> str:
    """Return a chart of shares over times in seconds, on a scale of powers of ten."""
    end = _last_of_interest(lines, places_s)
    span = log10(places_s[end] / places_s[0]) or 1.0
    ticks = [
        (log10(at / places_s[0]) / span, text) for at, text in _TIMES if at <= places_s[end] * 1.001
    ]
    across = [log10(at / places_s[0]) / span for at in places_s[: end + 1]]
    upward = [(share / 4, f"{share * 25} %") for share in range(5)]
    return _chart(lines, across, 1.0, ticks, upward, (title, "time waited", "share of jobs"))


def time_lines(lines: Sequence[Line], end_s: float, top: float, title: str) -> str:
    """Return a chart of means over equal parts of a time; `top` is the most there can be."""
    parts = len(lines[0].values)
    across = [(place + 0.5) / parts for place in range(parts)]
    days = end_s / 86_400
    unit, size = ("d", 1.0) if days > 2 else ("h", 24.0)
    ticks = [(at / (days * size), f"{at:g} {unit}") for at in _round_ticks(days * size, 7)]
    upward = [(at / top, f"{at:,g}") for at in _round_ticks(top, 5)]
    axes = (title, "time since the first arrival", "devices in use")
    return _chart(lines, across, top, ticks, upward, axes)


def _axes(across: str, upward: str) -> list[str]:
    """Return the titles of both axes: below the middle, and above the axis that points upwards."""
    middle = _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
    return [
        _label(middle, _HEIGHT - 5, across, "middle", "axis"),
        _label(4, 12, upward, "start", "axis"),
    ]


def bars(given: Sequence[Bar], title: str, unit: str = "GPU hours") -> str:
    """Return horizontal bars with their intervals."""
    top = max([*(bar.value.high or bar.value.mean for bar in given), 1e-9])
    row, left, width = 24, 110, _WIDTH - 110 - 90
    height = row * len(given) + 42
    parts = [_open(height, title)]
    for at in _round_ticks(top, 5):
        x = left + width * at / top
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 36}"/>')
        parts.append(_label(x, height - 22, f"{at:,g}", "middle"))
    parts.append(_label(left + width / 2, height - 5, unit, "middle", "axis"))
    for place, bar in enumerate(given):
        y, long = row * place + 5, width * bar.value.mean / top
        parts.append(_label(left - 8, y + 11, bar.name, "end", "name"))
        parts.append(
            f'<rect class="bar p{bar.number}" x="{left}" y="{y}" width="{long:.1f}" height="13">'
            f"<title>{escape(bar.name)}: {escape(bar.text)}</title></rect>"
        )
        after = left + long
        if (
            bar.value.low is not None
            and bar.value.high is not None
            and bar.value.high > bar.value.low
        ):
            low = left + width * bar.value.low / top
            high = left + width * bar.value.high / top
            parts.append(
                f'<path class="whisker" d="M{low:.1f} {y + 6.5}H{high:.1f}'
                f'M{low:.1f} {y + 3}v7M{high:.1f} {y + 3}v7"/>'
            )
            after = max(after, high)
        parts.append(_label(after + 7, y + 11, bar.text, "start", "value"))
    return "".join([*parts, "</svg>"])


def stacked(
    rows: Sequence[tuple[str, int, Sequence[float]]], names: Sequence[str], title: str
) -> str:
    """Return bars of counts side by side: for each name one small bar of each policy."""
    top = max([*(value for _, _, values in rows for value in values), 1e-9])
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    parts = [_open(_HEIGHT, title), *_axes("how often a job was preempted", "jobs")]
    for at in _round_ticks(top, 5):
        y = _TOP + height * (1 - at / top)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_label(_LEFT - 6, y + 3.5, f"{at:,g}", "end"))
    group = width / len(names)
    wide = min(22.0, group * 0.76 / len(rows))
    for place, name in enumerate(names):
        middle = _LEFT + group * (place + 0.5)
        parts.append(_label(middle, _HEIGHT - 24, name, "middle"))
        for number, (policy, of, values) in enumerate(rows):
            x = middle + (number - len(rows) / 2) * wide
            tall = height * values[place] / top
            parts.append(
                f'<rect class="bar p{of}" x="{x + 1:.1f}" y="{_TOP + height - tall:.1f}" '
                f'width="{wide - 2:.1f}" height="{tall:.1f}">'
                f"<title>{escape(policy)}, {escape(name)}: {values[place]:,.1f}</title></rect>"
            )
    return "".join([*parts, "</svg>"])


def _chart(
    lines: Sequence[Line],
    across: Sequence[float],
    top: float,
    ticks: Sequence[tuple[float, str]],
    upward: Sequence[tuple[float, str]],
    titles: tuple[str, str, str],
) -> str:
    """Draw lines; `titles`: of the chart, of the axis across and of the one upwards."""
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    parts = [_open(_HEIGHT, titles[0]), *_axes(titles[1], titles[2])]
    for share, text in upward:
        y = _TOP + height * (1 - share)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_label(_LEFT - 6, y + 3.5, text, "end"))
    for share, text in ticks:
        x = _LEFT + width * share
        parts.append(
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" '
            f'y1="{_TOP + height}" y2="{_TOP + height + 4}"/>'
        )
        parts.append(_label(x, _TOP + height + 16, text, "middle"))
    for line in lines:
        points = " ".join(
            f"{_LEFT + width * x:.1f},{_TOP + height * (1 - min(1.0, value / top)):.1f}"
            for x, value in zip(across, line.values, strict=False)
        )
        parts.append(
            f'<polyline class="line p{line.number}" '
            f'stroke-dasharray="{DASHES[line.number % len(DASHES)]}" points="{points}">'
            f"<title>{escape(line.name)}</title></polyline>"
        )
    return "".join([*parts, "</svg>"])


def _last_of_interest(lines: Sequence[Line], places: Sequence[float]) -> int:
    """Return the place from which on all lines are at their end."""
    for place in range(len(places) - 1, 0, -1):
        if any(line.values[place - 1] < 1.0 for line in lines):
            return place
    return min(len(places) - 1, 24)


def _round_ticks(top: float, most: int) -> Iterator[float]:
    """Yield round numbers from 0 to `top`."""
    raw = top / most
    power = 10.0 ** floor(log10(raw))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= raw * 0.999)
    for place in range(ceil(top / step) + 1):
        if place * step <= top * 1.0001:
            yield round(place * step, 10)


def _open(height: int, title: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
    )


def _label(x: float, y: float, text: str, anchor: str, kind: str = "label") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )
