"""How long something lasts: always the same, or drawn from a distribution.

`3s`, `uniform(1s, 5s)` and `exponential(2s)` (the mean). A draw depends on nothing but its seed, so
that a run can be repeated and a look at the same pod gives the same answer again.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import InvalidDuration, parse_duration

__all__ = ["InvalidLatency", "Latency", "parse_latency"]

_CALL: Final = re.compile(r"(uniform|exponential)\(([^()]*)\)")
_ACCEPTED: Final = "accepted: a Go duration such as 90s or 5m, uniform(1s, 5s), exponential(2s)"


class InvalidLatency(ValueError):
    """The text is not a latency."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Nanoseconds between `low` and `high`; `high` None means exponential with the mean `low`."""

    low: int
    high: int | None

    @classmethod
    def fixed(cls, nanoseconds: int) -> Latency:
        return cls(nanoseconds, nanoseconds)

    def draw(self, seed: str) -> int:
        """Return the nanoseconds for this seed."""
        if self.low == self.high:
            return self.low
        generator = random.Random(seed)
        if self.high is None:
            return int(generator.expovariate(1 / self.low)) if self.low else 0
        return generator.randint(self.low, self.high)


def parse_latency(text: str) -> Latency:
    """Return the latency.

    Raises:
        InvalidLatency: no such distribution, not durations, or negative ones.
    """
    call = _CALL.fullmatch(text.strip())
    name, inside = call.groups() if call else ("", text)
    try:
        values = [parse_duration(part.strip()) for part in inside.split(",")]
    except InvalidDuration:
        values = []
    if len(values) != (2 if name == "uniform" else 1) or min(values) < 0 or values[-1] < values[0]:
        raise InvalidLatency(f"{text!r} is not a latency; {_ACCEPTED}")
    return Latency(values[0], None if name == "exponential" else values[-1])
