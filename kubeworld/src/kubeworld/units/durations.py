"""Go duration text: what `time.ParseDuration` accepts and `time.Duration.String` prints.

Kaiwo and Kueue store durations in this form (`5m0s`), users write shorter ones (`5m`); both are
read, the long form is written. Source: specification of the idle plane, section 4.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from kubeworld.units.untrusted import Form, Unreadable, shown

__all__ = [
    "HOUR",
    "LONGEST",
    "MICROSECOND",
    "MILLISECOND",
    "MINUTE",
    "SECOND",
    "DurationTooLong",
    "InvalidDuration",
    "format_duration",
    "parse_duration",
]

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000 * MICROSECOND
SECOND: Final = 1_000 * MILLISECOND
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

_UNITS: Final = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,  # U+00B5, micro sign
    "μs": MICROSECOND,  # U+03BC, Greek mu
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_PAIR: Final = Form(r"([0-9]++\.?+[0-9]*+|\.[0-9]++)(ns|us|µs|μs|ms|s|m|h)")
_MAXIMUM: Final = 2**63 - 1
#: The longest in whole hours, about 292 years.
LONGEST: Final = f"{_MAXIMUM // HOUR}h"


class InvalidDuration(Unreadable):
    """The text is not a Go duration."""


class DurationTooLong(InvalidDuration):
    """The text is a longer one than fits into 63 bits of nanoseconds."""


def parse_duration(text: str) -> int:
    """Return the nanoseconds that `text` stands for.

    Raises:
        InvalidDuration: not an optional sign followed by `number unit` pairs without blanks, or
            more than about 292 years.
    """
    sign = -1 if text.startswith("-") else 1
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    position, total = 0, 0
    while position < len(body):
        pair = _PAIR.match(body, position)
        if pair is None:
            break
        number = pair.group(1)
        total += int(Fraction(f"0{number}0" if "." in number else number) * _UNITS[pair.group(2)])
        position = pair.end()
    if body and position == len(body) and total > _MAXIMUM + (sign < 0):
        raise DurationTooLong(f"{shown(text)} is too long; accepted: {LONGEST} at most")
    if not body or position < len(body):
        raise InvalidDuration(
            f"{shown(text)} is not a duration; accepted: Go durations such as 90s, 5m, 1h30m"
        )
    return sign * total


def format_duration(nanoseconds: int) -> str:
    """Return the Go form: `0s`, `1.5s`, `5m0s`, `48h0m0s`, `1.5µs`."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < SECOND:
        unit, size = next(
            (u, s) for u, s in (("ms", MILLISECOND), ("µs", MICROSECOND), ("ns", 1)) if rest >= s
        )
        return f"{sign}{_decimal(rest, size)}{unit}"
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    lead = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{lead}{_decimal(rest, SECOND)}s"


def _decimal(amount: int, size: int) -> str:
    whole, part = divmod(amount, size)
    digits = str(part).rjust(len(str(size)) - 1, "0").rstrip("0") if part else ""
    return f"{whole}.{digits}" if digits else str(whole)
