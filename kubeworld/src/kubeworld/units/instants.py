"""Instants: nanoseconds since the Unix epoch, and RFC 3339 text with whole seconds in UTC.

RFC 3339 has years of four digits, an API server writes longer ones where a grace period leads
there. Whatever lies outside the years 1 to 9999 is read and written as the first or last second of
them, so that no instant of an object raises anywhere.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NewType

from kubeworld.units.untrusted import Unreadable, bounded, shown

__all__ = [
    "InvalidInstant",
    "Nanos",
    "format_instant",
    "format_micro",
    "instant_or_none",
    "parse_instant",
]

Nanos = NewType("Nanos", int)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Where RFC 3339 has its separators; `fromisoformat` also accepts weeks, and any other separator.
_LAST: Final = 253_402_300_799  # second of the year 9999
_FIRST: Final = -62_135_596_800  # of the year 1
_OUTSIDE: Final = re.compile(
    r"(?:\+?+[0-9]{5,18}+|-[0-9]{4,18}+|0000)-[0-9]{2}-[0-9]{2}[Tt ]"
    r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9}+)?+(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_SEPARATORS: Final = ((4, "-"), (7, "-"), (10, "Tt "), (13, ":"), (16, ":"))


class InvalidInstant(Unreadable):
    """The text is not RFC 3339 with an offset from UTC."""


# Statuses name the same seconds over and over.
@lru_cache(maxsize=4096)
def parse_instant(text: str) -> Nanos:
    """Return the instant that RFC 3339 `text` names.

    Raises:
        InvalidInstant: not RFC 3339 with an offset.
    """
    try:
        if _OUTSIDE.fullmatch(bounded(text)):
            return Nanos((_FIRST if text[0] in "-0" else _LAST) * 1_000_000_000)
        moment = datetime.fromisoformat(bounded(text))
    except ValueError:
        moment = None
    if not all(text[place : place + 1] in accepted for place, accepted in _SEPARATORS):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInstant(
            f"{shown(text)} is not an instant; accepted: RFC 3339 such as 2026-03-04T10:00:00Z"
        )
    elapsed = moment - _EPOCH
    return Nanos(
        ((elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds) * 1_000
    )


def format_instant(instant: Nanos) -> str:
    """Return `2026-03-04T10:00:00Z`; the part below a second is cut off."""
    return _second(max(_FIRST, min(instant // 1_000_000_000, _LAST)))


def format_micro(instant: Nanos) -> str:
    """Return the MicroTime form of Leases: `2026-03-04T10:00:00.000000Z`."""
    return f"{format_instant(instant)[:-1]}.{instant // 1_000 % 1_000_000:06}Z"


# Many objects are written in one second.
@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    moment = _EPOCH + timedelta(seconds=seconds)
    # Some C libraries write the year 999 with three digits.
    return f"{moment.replace(tzinfo=None).isoformat()}Z"


def instant_or_none(text: object) -> Nanos | None:
    """Return what `parse_instant` reads, None where that is nothing."""
    try:
        return parse_instant(text) if isinstance(text, str) and text else None
    except InvalidInstant:
        return None
