"""Utilisation over time: a number, or a script such as `90 for 30s, 0`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kubeworld.units.durations import InvalidDuration, parse_duration

__all__ = ["InvalidScript", "Script", "format_percent", "parse_script"]


class InvalidScript(ValueError):
    """The text is not a utilisation script."""


@dataclass(frozen=True, slots=True)
class Script:
    """Steps of (percent, length in nanoseconds); the last one has no end (length None)."""

    steps: tuple[tuple[float, int | None], ...]

    def at(self, age: int) -> float:
        """Return the percent at this age of the pod, in nanoseconds since it began to run."""
        for value, length in self.steps:
            if length is None or age < length:
                return value
            age -= length
        return self.steps[-1][0]


def parse_script(text: str) -> Script:
    """Return the script; after its last step that step's value stays.

    A value may be NaN, infinite, negative or above 100, so that a reader's handling of impossible
    samples can be tried.

    Raises:
        InvalidScript: a step is not `NUMBER` or `NUMBER for DURATION`, or one that is not the last
            has no duration.
    """
    steps: list[tuple[float, int | None]] = []
    parts = [part.strip() for part in text.split(",")]
    for position, part in enumerate(parts):
        value_text, has_length, length_text = part.partition(" for ")
        try:
            value = float(value_text)
            length = parse_duration(length_text.strip()) if has_length else None
        except (ValueError, InvalidDuration):
            raise InvalidScript(_accepted(text)) from None
        if length is None and position < len(parts) - 1:
            raise InvalidScript(_accepted(text))
        if length is not None and length < 0:
            raise InvalidScript(_accepted(text))
        steps.append((value, length))
    return Script(tuple(steps))


def format_percent(value: float) -> str:
    """Return the value as Prometheus text has it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) else repr(value)


def _accepted(text: str) -> str:
    return f"{text!r} is not a utilisation; accepted: a number, or steps such as `90 for 30s, 0`"
