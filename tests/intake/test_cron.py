"""Cron expressions of harm budgets: what is accepted, and when windows begin."""

from __future__ import annotations

import pytest

from kubeworld.units.durations import HOUR, MINUTE
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.intake.cron import InvalidCron, schedule_of


def began(text: str, at: str, duration: int) -> str | None:
    """Return when the window began that an instant lies in."""
    found = schedule_of(text).began(parse_instant(at), duration)
    return None if found is None else format_instant(found)


@pytest.mark.parametrize(
    ("text", "at", "duration", "expected"),
    [
        # The second of November 2026 is a Monday.
        ("0 8 * * 1-5", "2026-11-02T08:00:00Z", 10 * HOUR, "2026-11-02T08:00:00Z"),
        ("0 8 * * 1-5", "2026-11-02T07:59:59Z", 10 * HOUR, None),
        ("0 8 * * 1-5", "2026-11-02T17:59:59Z", 10 * HOUR, "2026-11-02T08:00:00Z"),
        ("0 8 * * 1-5", "2026-11-02T18:00:00Z", 10 * HOUR, None),
        ("0 8 * * MON-FRI", "2026-11-01T09:00:00Z", 10 * HOUR, None),
        ("0 8 * * 7", "2026-11-01T09:00:00Z", 10 * HOUR, "2026-11-01T08:00:00Z"),
        ("*/20 * * * *", "2026-11-02T09:59:00Z", 30 * MINUTE, "2026-11-02T09:40:00Z"),
        ("5 22 * * *", "2026-11-02T02:00:00Z", 8 * HOUR, "2026-11-01T22:05:00Z"),
        ("0 0 1 * *", "2026-11-29T02:00:00Z", 720 * HOUR, "2026-11-01T00:00:00Z"),
        ("0 0 1 nov *", "2026-12-01T02:00:00Z", 10 * MINUTE, None),
        # The first of the month or a Tuesday.
        ("0 0 1 * 2", "2026-11-03T00:30:00Z", HOUR, "2026-11-03T00:00:00Z"),
        ("0 0 1 * 2", "2026-11-01T00:30:00Z", HOUR, "2026-11-01T00:00:00Z"),
        ("0 0 1 * 2", "2026-11-02T00:30:00Z", HOUR, None),
        ("0 0 29 2 *", "2028-02-29T00:30:00Z", HOUR, "2028-02-29T00:00:00Z"),
    ],
)
def test_a_window_begins_when_the_schedule_says(
    text: str, at: str, duration: int, expected: str | None
) -> None:
    assert began(text, at, duration) == expected


def test_a_window_ends_after_its_duration_to_the_nanosecond() -> None:
    schedule, end = schedule_of("0 8 * * *"), parse_instant("2026-11-02T18:00:00Z")
    assert schedule.began(Nanos(end - 1), 10 * HOUR) is not None
    assert schedule.began(end, 10 * HOUR) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' has 0 fields; accepted: 5, such as 0 8 * * 1-5"),
        ("@daily", "'@daily' has 1 fields; accepted: 5, such as 0 8 * * 1-5"),
        ("0 0 8 * * *", "'0 0 8 * * *' has 6 fields; accepted: 5, such as 0 8 * * 1-5"),
        ("60 * * * *", "minute '60'; accepted: 0 to 59, with *, lists, ranges and steps"),
        ("0 24 * * *", "hour '24'; accepted: 0 to 23, with *, lists, ranges and steps"),
        ("0 8-6 * * *", "hour '8-6'; accepted: 0 to 23, with *, lists, ranges and steps"),
        ("0 8/2 * * *", "hour '8/2'; accepted: 0 to 23, with *, lists, ranges and steps"),
        ("*/0 * * * *", "minute '0'; accepted: 0 to 59, with *, lists, ranges and steps"),
        ("*-5 * * * *", "minute '*'; accepted: 0 to 59, with *, lists, ranges and steps"),
        ("0 0 L * *", "day of month 'L'; accepted: 1 to 31, with *, lists, ranges and steps"),
        (
            "0 0 * foo *",
            "month 'foo'; accepted: 1 to 12 or JAN to DEC, with *, lists, ranges and steps",
        ),
        (
            "0 0 * * 8",
            "day of week '8'; accepted: 0 to 7 or SUN to SAT, with *, lists, ranges and steps",
        ),
        ("1, * * * *", "minute ''; accepted: 0 to 59, with *, lists, ranges and steps"),
        ("0 0 31 2,4 *", "'0 0 31 2,4 *' never comes: no such month has a day 31"),
        ("\u0661 * * * *", "minute '\u0661'; accepted: 0 to 59, with *, lists, ranges and steps"),
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(text: str, told: str) -> None:
    with pytest.raises(InvalidCron) as refusal:
        schedule_of(text)
    assert str(refusal.value) == told


def test_a_text_of_any_length_is_refused_in_few_words() -> None:
    with pytest.raises(InvalidCron) as refusal:
        schedule_of("* " * 100_000)
    assert len(str(refusal.value)) <= 200
