"""How an answer looks: columns, width, colours, what is cut, and what may not steer a terminal."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.answers.document import Answer, Fact, State, Step, Subject
from reprieve.answers.layout import MOST_LINES, Style, lines_of
from reprieve.answers.quantities import ago, amounts, duration, quantity

LONG = " ".join(f"word-{number}" for number in range(200))


def page(**given: Any) -> Answer:
    parts: dict[str, Any] = {
        "version": 1,
        "subject": Subject("Job", "train", "team"),
        "as_of": "2026-03-04T10:00:00Z",
        "state": State.WAITS,
        "verdict": "Job team/train waits.",
        "evidence": [Fact("requests", "8 pods"), Fact("queue", "a")],
        "next_steps": [Step("Read:", "kubectl get pods")],
        "certainty": ["As of now."],
    }
    return Answer(**{**parts, **given})


def test_columns_are_aligned_and_parts_stand_apart_in_their_order() -> None:
    assert lines_of(page(limits=["Without nodes."])) == [
        "Without nodes.",
        "Job team/train waits.",
        "",
        "  requests  8 pods",
        "  queue     a",
        "",
        "Next",
        "  1. Read:",
        "     kubectl get pods",
        "",
        "How sure",
        "  As of now.",
    ]


def test_parts_that_are_empty_leave_no_gap() -> None:
    assert lines_of(page(evidence=[], next_steps=[], certainty=[])) == ["Job team/train waits."]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_longest_answer_fits_the_screen_and_says_where_it_was_cut(width: int) -> None:
    whole = page(
        verdict=LONG,
        limits=[LONG],
        evidence=[Fact(f"fact {number}", LONG) for number in range(12)],
        next_steps=[Step(LONG, "kubectl get pods") for _ in range(5)],
        certainty=[LONG],
    )
    lines = lines_of(whole, Style(width))
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= width
    assert sum(line.endswith(" ...") for line in lines) >= 4
    told = lines_of(whole, Style(width, everything=True))
    assert not [line for line in told if line.endswith(" ...")]
    assert sum("word-199" in line for line in told) == 1 + 1 + 12 + 5 + 1


def test_the_longest_row_is_cut_first() -> None:
    facts = [Fact(str(number), "short") for number in range(5)] + [Fact("long", LONG)]
    lines = lines_of(page(evidence=facts))
    assert [line for line in lines if line.endswith(" short")] == [
        f"  {number}     short" for number in range(5)
    ]


def test_nothing_in_a_text_steers_the_terminal() -> None:
    evil = "\x1b[2Jforged\nline\x07"
    lines = lines_of(page(verdict=evil, evidence=[Fact(evil, evil)], next_steps=[Step(evil, evil)]))
    assert not [line for line in lines if "\x1b" in line or "\x07" in line]
    assert "forged line" in lines[0]


def test_colours_change_no_letter() -> None:
    plain, painted = lines_of(page()), lines_of(page(), Style(colours=True))
    assert painted != plain
    stripped = list(painted)
    for code in ("1", "2", "33", "0"):
        stripped = [line.replace(f"\x1b[{code}m", "") for line in stripped]
    assert stripped == plain


@pytest.mark.parametrize(
    ("terminal", "environment", "colours"),
    [
        (False, {}, False),
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_whose_owner_wants_them(
    terminal: bool, environment: dict[str, str], colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert Style.of_terminal().colours is colours


@pytest.mark.parametrize(
    ("resource", "amount", "written"),
    [
        ("cpu", 4_000, "4"),
        ("cpu", 1_500, "1500m"),
        ("memory", 16 * 2**30, "16Gi"),
        ("memory", 1_500_000_000, "1.4Gi"),
        ("memory", 100, "100"),
        ("memory", 3 * 2**80, f"{3 * 2**20}Ei"),
        ("hugepages-2Mi", 2**22, "4Mi"),
        ("nvidia.com/gpu", 18_204, "18,204"),
    ],
)
def test_quantities_are_as_people_write_them(resource: str, amount: int, written: str) -> None:
    assert quantity(resource, amount) == written


def test_what_is_scarce_is_named_before_cpu_and_memory() -> None:
    asked = {"cpu": 4_000, "memory": 2**34, "nvidia.com/gpu": 8, "pods": 0}
    assert amounts(asked) == "8 nvidia.com/gpu, 4 cpu, 16Gi memory"


@pytest.mark.parametrize(
    ("length", "written"),
    [
        (-1, "0 s"),
        (45 * SECOND, "45 s"),
        (12 * MINUTE + 59 * SECOND, "12 min"),
        (3 * HOUR, "3 h"),
        (3 * HOUR + 20 * MINUTE, "3 h 20 min"),
        (52 * HOUR, "2 d 4 h"),
    ],
)
def test_durations_have_two_units_at_most(length: int, written: str) -> None:
    assert duration(length) == written


def test_an_instant_of_another_day_has_its_date() -> None:
    now = parse_instant("2026-11-20T00:10:00Z")
    assert ago(Nanos(now - 5 * MINUTE), now) == "00:05:00Z (5 min ago)"
    assert ago(Nanos(now - 20 * MINUTE), now) == "2026-11-19 23:50:00Z (20 min ago)"
    assert ago(Nanos(now + 5 * MINUTE), now) == "00:15:00Z (in 5 min)"
