"""Numbers that may be percentages: `3`, `"30%"`.

Source: `IntOrString` of the API, and `GetScaledValueFromIntOrPercent`: a text without a percent
sign is no number.
"""

from __future__ import annotations

from typing import Any

from kubeworld.units.untrusted import integer_or_none

__all__ = ["scaled"]


def scaled(value: Any, total: int, *, up: bool = True) -> int | None:
    """Return the number that an int-or-percent stands for; None where it stands for none.

    Args:
        value: what was stated.
        total: of which a percentage is meant.
        up: whether a percentage is rounded up, else down.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = None
    if isinstance(value, str) and value.endswith("%"):
        number = integer_or_none(value.removesuffix("%"), 0)
    if number is None:
        return None
    parts = number * total
    return -(-parts // 100) if up else parts // 100
