"""How long work waits before it preempts: `preemptionDelay` in a plane's section.

A duration from 0s to 1h. Classes of priorities and ClusterQueues state otherwise by an annotation
(`intake.preemption_delay`). Source: the page `docs/preemption-delay.md`.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.durations import HOUR
from reprieve.settings.fields import duration, refuse

__all__ = ["preemption_delay"]

_KEY: Final = "preemptionDelay"


def preemption_delay(value: object, place: str) -> int | None:
    """Return the nanoseconds that a plane's section has, None where it has none.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    if value is None or value == "":
        return None
    found = duration(value, f"{place}.{_KEY}")
    if found > HOUR:
        refuse(f"{place}.{_KEY}", value, "durations from 0s to 1h")
    return found
