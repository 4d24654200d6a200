"""How one value of the idle plane's settings is read, whichever place it stands in.

A value that is not accepted raises `NotAccepted`, whose message says what is. Text that tenants
wrote, and numbers of JSON or YAML, come in as they are. Source: the guide's "Configuration
Hierarchy"; specification of the idle plane, sections 3 to 5.
"""

from __future__ import annotations

import math

from reprieve.engine.idle.model import Aggregation, PreemptionPolicy
from reprieve.units.durations import InvalidDuration, parse_duration
from reprieve.units.untrusted import Unreadable, read_float

__all__ = [
    "NotAccepted",
    "read_aggregation",
    "read_duration",
    "read_percent",
    "read_policy",
    "read_threshold",
]


class NotAccepted(ValueError):
    """The value cannot be used; the message says what is accepted."""


def read_threshold(value: object) -> float:
    """Return a threshold in percent, which a spec may have above 100."""
    accepted = "a number of percent such as 5 or 10.5"
    try:
        if isinstance(value, str):
            return read_float(value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise NotAccepted(accepted)
        number = float(value)
    except (Unreadable, OverflowError):
        raise NotAccepted(accepted) from None
    if not math.isfinite(number):
        raise NotAccepted(accepted)
    return number


def read_percent(value: object) -> float:
    """Return a threshold that is a percentage."""
    number = read_threshold(value)
    if not 0 <= number <= 100:
        raise NotAccepted("a number of percent, 0 to 100")
    return number


def read_duration(value: object) -> int:
    """Return a duration in nanoseconds."""
    try:
        # YAML writers leave the quotes off `0`.
        text = "0" if value == 0 and not isinstance(value, bool) else value
        if isinstance(text, str):
            return parse_duration(text)
    except InvalidDuration:
        pass
    raise NotAccepted("a Go duration such as 90s, 5m or 1h30m")


def read_policy(value: object) -> PreemptionPolicy:
    """Return when idle work makes way."""
    try:
        return PreemptionPolicy(str(value))
    except ValueError:
        raise NotAccepted("OnPressure or Always") from None


def read_aggregation(value: object) -> Aggregation:
    """Return how the figures of a workload's devices become one."""
    try:
        return Aggregation(str(value))
    except ValueError:
        raise NotAccepted("Min, Max or Avg") from None
