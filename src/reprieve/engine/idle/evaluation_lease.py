"""Who may evaluate: the rule of the Lease `gpu-preemption-eval`.

Free: there is no Lease, no process holds it, it is ours, or the holder did not renew it. A missing
duration counts as 0. A released Lease is free at once (the reference waits until it has run out,
difference D11, which the guide does not request). Source: specification of the idle plane,
section 15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos

__all__ = ["DURATION_SECONDS", "NAME", "LeaseState", "may_acquire"]

NAME: Final = "gpu-preemption-eval"
DURATION_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class LeaseState:
    """What the Lease states; `holder` is empty after a release."""

    holder: str
    renewed: Nanos | None = None
    duration_seconds: int = 0


def may_acquire(lease: LeaseState | None, holder: str, now: Nanos) -> bool:
    """Return whether `holder` may write itself into the Lease."""
    if lease is None or lease.holder in ("", holder) or lease.renewed is None:
        return True
    return lease.renewed + lease.duration_seconds * SECOND <= now
