"""Cron expressions of five fields into schedules: minute, hour, day of month, month, day of week.

A field is `*`, or a list of numbers and ranges (`1-5`); `*/15` and `8-18/2` are every so many of
them. Months and days of the week may be named by three letters, and 7 is Sunday, too. Nothing else
is accepted: no `@daily`, no seconds, no `L`, `W` or `?`. Source: crontab(5).
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from typing import Final

from kubeworld.units.untrusted import LONGEST_VALUE, Form, Unreadable, read_integer, shown
from reprieve.engine.harm_budgets.schedule import Schedule

__all__ = ["InvalidCron", "schedule_of"]


class InvalidCron(Unreadable):
    """The text is not a cron expression of five fields."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()  # the first stands for `least`

    @property
    def accepted(self) -> str:
        named = f" or {self.names[0].upper()} to {self.names[-1].upper()}" if self.names else ""
        return f"{self.least} to {self.most}{named}, with *, lists, ranges and steps"


_MONTHS: Final = tuple(name.lower() for name in calendar.month_abbr[1:])
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _WEEKDAYS),
)
_PART: Final = Form(r"(\*|[0-9A-Za-z]++)(?:-([0-9A-Za-z]++))?+(?:/([0-9]++))?+")
_SUNDAY: Final = 7
_MINUTES: Final = 60
_A_LEAP_YEAR: Final = 2024


def schedule_of(text: str) -> Schedule:
    """Return the schedule of a cron expression.

    Raises:
        InvalidCron: not five fields, one of them is not accepted, or such a day never comes.
    """
    if len(text) > LONGEST_VALUE:
        raise InvalidCron(f"{shown(text)}; accepted: at most {LONGEST_VALUE} characters")
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise InvalidCron(
            f"{shown(text)} has {len(fields)} fields; accepted: 5, such as 0 8 * * 1-5"
        )
    minutes, hours, days, months, weekdays = (
        _values(field, each) for field, each in zip(_FIELDS, fields, strict=True)
    )
    both = not (fields[2].startswith("*") or fields[4].startswith("*"))
    found = Schedule(
        tuple(sorted(hour * _MINUTES + minute for hour in hours for minute in minutes)),
        days,
        months,
        frozenset(day % _SUNDAY for day in weekdays),
        both,
    )
    longest = max(calendar.monthrange(_A_LEAP_YEAR, month)[1] for month in months)
    if not both and min(days) > longest:
        raise InvalidCron(f"{shown(text)} never comes: no such month has a day {min(days)}")
    return found


def _values(field: _Field, text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        form = _PART.fullmatch(part)
        if form is None:
            raise InvalidCron(f"{field.name} {shown(part)}; accepted: {field.accepted}")
        first, last, step = form.groups()
        every = None if step is None else _number(field, step, 1, field.most)
        if first == "*" and last is None:
            low, high = field.least, field.most
        else:
            low = _value(field, first)
            high = low if last is None else _value(field, last)
            if high < low or (every is not None and last is None):
                raise InvalidCron(f"{field.name} {shown(part)}; accepted: {field.accepted}")
        found.update(range(low, high + 1, every or 1))
    return frozenset(found)


def _value(field: _Field, text: str) -> int:
    name = text.lower()
    if name in field.names:
        return field.least + field.names.index(name)
    return _number(field, text, field.least, field.most)


def _number(field: _Field, text: str, least: int, most: int) -> int:
    try:
        return read_integer(text, least, most)
    except Unreadable:
        raise InvalidCron(f"{field.name} {shown(text)}; accepted: {field.accepted}") from None
