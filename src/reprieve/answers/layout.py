"""Four parts of an answer as text: verdict, evidence, next, how sure.

Columns are aligned, long texts are wrapped below themselves, and the text fits `MOST_LINES`
lines unless everything is wanted: the longest row of evidence is cut first. Colours only where the
caller states it. Nothing in a text may steer the terminal: what cannot be printed is replaced.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reprieve.answers.document import Answer, Fact, State, Step

__all__ = [
    "MOST_EVIDENCE",
    "MOST_LINES",
    "MOST_STEPS",
    "Style",
    "lines_of",
    "safe",
    "shortened",
    "wrapped",
]

MOST_LINES: Final = 25
MOST_EVIDENCE: Final = 8
MOST_STEPS: Final = 3
_MOST_CERTAINTY: Final = 4
_MOST_VERDICT: Final = 4
_WIDTH: Final = 100
_NARROWEST: Final = 60
_CUT: Final = " ..."

_BOLD: Final = "1"
_DIM: Final = "2"
_COLOURS: Final[Mapping[State, str]] = {
    State.RUNS: "32",
    State.FINISHED: "32",
    State.WAITS: "33",
    State.STARTS: "33",
    State.LEAVES: "31",
    State.STOPPED: "33",
    State.GONE: "31",
}


@dataclass(frozen=True, slots=True)
class Style:
    """How wide lines may be, whether they have colours, and whether everything is shown."""

    width: int = _WIDTH
    colours: bool = False
    everything: bool = False

    @classmethod
    def of_terminal(cls, *, everything: bool = False) -> Style:
        """Return what standard output can show; `NO_COLOR` and `TERM=dumb` are respected."""
        if not sys.stdout.isatty():
            return cls(everything=everything)
        width = max(_NARROWEST, shutil.get_terminal_size((_WIDTH, 24)).columns)
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return cls(width, not plain, everything)


def lines_of(answer: Answer, style: Style | None = None) -> list[str]:
    """Return the lines of an answer."""
    style = style or Style()
    limits = [line for each in answer.limits for line in wrapped(each, style.width)]
    verdict = wrapped(answer.verdict, style.width)
    if not style.everything:
        limits = shortened(limits, 2, style.width)
        verdict = shortened(verdict, _MOST_VERDICT, style.width)
    blocks = [_steps(answer.next_steps, style), _certainty(answer.certainty, style)]
    chosen = len(limits) + len(verdict) + 1 + sum(len(block) + 1 for block in blocks if block)
    room = max(1, min(MOST_EVIDENCE, MOST_LINES - chosen))
    blocks.insert(0, _evidence(answer.evidence, style, room))
    lines = [_painted(line, _DIM, style) for line in limits]
    lines += [_painted(line, _COLOURS.get(answer.state, _BOLD), style) for line in verdict]
    for block in blocks:
        lines += ["", *block] if block else []
    return lines


def safe(text: str) -> str:
    """Return the text in one line, with nothing in it that steers a terminal."""
    joined = " ".join(text.split())
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in joined)


def wrapped(text: str, width: int) -> list[str]:
    """Return the text in lines of at most so many columns, each of them safe."""
    whole = safe(text)
    return textwrap.wrap(whole, max(_NARROWEST // 2, width), break_on_hyphens=False) or [whole]


def shortened(lines: list[str], most: int, width: int) -> list[str]:
    """Return the first lines; the last of them states that it was cut, within the length."""
    if len(lines) <= most:
        return lines
    last = lines[most - 1].removesuffix(_CUT)
    while len(last) + len(_CUT) > width and " " in last:
        last = last.rpartition(" ")[0]
    return [*lines[: most - 1], f"{last}{_CUT}"]


def _evidence(facts: Sequence[Fact], style: Style, most: int) -> list[str]:
    column = max((len(fact.name) for fact in facts), default=0)
    indent = " " * (column + 4)
    width = style.width - len(indent)
    rows = [wrapped(fact.text, width) for fact in facts]
    if not style.everything:
        rows = rows[:most]
        while sum(map(len, rows)) > most:
            longest = max(range(len(rows)), key=lambda index: (len(rows[index]), index))
            rows[longest] = shortened(rows[longest], len(rows[longest]) - 1, width)
    lines = []
    for fact, (first, *rest) in zip(facts, rows, strict=False):
        name = _painted(safe(fact.name).ljust(column), _DIM, style)
        lines += [f"  {name}  {first}", *(f"{indent}{line}" for line in rest)]
    return lines


def _steps(steps: Sequence[Step], style: Style) -> list[str]:
    if not steps:
        return []
    lines = [_painted("Next", _BOLD, style)]
    for number, step in enumerate(steps if style.everything else steps[:MOST_STEPS], start=1):
        # A command stands on a line of its own, so that it can be copied.
        reported = wrapped(step.text, style.width - 5)
        if not style.everything:
            reported = shortened(reported, 2, style.width - 5)
        lines += [f"  {number}. {reported[0]}", *(f"     {line}" for line in reported[1:])]
        if step.command:
            lines.append(f"     {_painted(safe(step.command), _BOLD, style)}")
    return lines


def _certainty(texts: Sequence[str], style: Style) -> list[str]:
    if not texts:
        return []
    reported = [line for each in texts for line in wrapped(each, style.width - 2)]
    if not style.everything:
        reported = shortened(reported, _MOST_CERTAINTY, style.width - 2)
    return [_painted("How sure", _BOLD, style), *(f"  {line}" for line in reported)]


def _painted(text: str, colour: str, style: Style) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if style.colours and text else text
