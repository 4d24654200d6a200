"""Ages as kubectl and the server print them: `45s`, `3m20s`, `5h12m`, `2d3h`, `1y30d`.

Source: the API machinery's human durations; the finer unit is omitted as the age grows.
"""

from __future__ import annotations

from typing import Any, Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant

__all__ = ["age", "human_duration"]

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 24
_YEAR: Final = 24 * 365


def age(instant: Any, now: Nanos) -> str:
    """Return the time since an RFC 3339 text, `<unknown>` for none, `<invalid>` for others."""
    if not instant:
        return "<unknown>"
    try:
        return human_duration(now - parse_instant(str(instant)))
    except ValueError:
        return "<invalid>"


def human_duration(nanoseconds: int) -> str:
    """Return the short form of a duration."""
    # Truncated towards zero: an instant less than a second ahead is now.
    seconds = int(nanoseconds / SECOND)
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _pair(seconds // _MINUTE, "m", seconds % _MINUTE, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    hours = seconds // _HOUR
    if hours < 8:
        return _pair(hours, "h", seconds // _MINUTE % 60, "m")
    if hours < 2 * _DAY:
        return f"{hours}h"
    if hours < 8 * _DAY:
        return _pair(hours // _DAY, "d", hours % _DAY, "h")
    if hours < 2 * _YEAR:
        return f"{hours // _DAY}d"
    if hours < 8 * _YEAR:
        return _pair(hours // _YEAR, "y", hours // _DAY % 365, "d")
    return f"{hours // _YEAR}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
