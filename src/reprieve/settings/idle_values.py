"""How one value of the idle plane's settings is read, whichever place it stands in.

A value that is not accepted raises `NotAccepted`, whose message states what is. Text that tenants
wrote, and numbers of JSON or YAML, come in as they are. Source: the guide's "Configuration
Hierarchy"; specification of the idle plane, sections 3 to 5.
"""

from __future__ import annotations

import math
from typing import Final

from kubeworld.units.durations import LONGEST, DurationTooLong, InvalidDuration, parse_duration
from kubeworld.units.untrusted import Unreadable, read_float
from reprieve.engine.idle.model import Aggregation, PreemptionPolicy

__all__ = [
    "NotAccepted",
    "read_aggregation",
    "read_duration",
    "read_policy",
    "read_threshold",
]


_PERCENT: Final = "a number of percent from 0 to 100, such as 5 or 10.5"
_DURATION: Final = "a Go duration such as 90s or 5m, 0 or more"


class NotAccepted(ValueError):
    """The value cannot be used; the message states what is accepted."""


def read_threshold(value: object) -> float:
    """Return a threshold in percent."""
    try:
        if isinstance(value, str):
            number = read_float(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value)
        else:
            raise NotAccepted(_PERCENT)
    except (Unreadable, OverflowError):
        raise NotAccepted(_PERCENT) from None
    # Above 100 everything is idle; what is no number compares as neither.
    if not math.isfinite(number) or not 0 <= number <= 100:
        raise NotAccepted(_PERCENT)
    return number


def read_duration(value: object) -> int:
    """Return a duration in nanoseconds."""
    try:
        # YAML writers leave the quotes off `0`.
        text = "0" if value == 0 and not isinstance(value, bool) else value
        if isinstance(text, str) and (found := parse_duration(text)) >= 0:
            return found
    except DurationTooLong:
        raise NotAccepted(f"{_DURATION}, at most {LONGEST}") from None
    except InvalidDuration:
        pass
    raise NotAccepted(_DURATION)


def read_policy(value: object) -> PreemptionPolicy:
    """Return when idle work is preempted."""
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
