"""The fence: whether a write may still be sent under the process lease.

A write is allowed while the lease would still be ours when the write has timed out. The age of the
lease is measured on the monotonic clock from the start of the last successful renewal, never from
times that another machine wrote. Source: the design's "Intent log and executor", step 1.
"""

from __future__ import annotations

from typing import Protocol

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos
from reprieve.units.errors import ReprieveError

__all__ = ["Deposed", "Fence", "Tenure"]


class Deposed(ReprieveError):
    """This process does not hold the process lease for long enough to finish another write."""


class Tenure(Protocol):
    """What the fence requests of the leader election."""

    @property
    def identity(self) -> str:
        """Return the name of this process on the lease."""
        ...

    @property
    def epoch(self) -> int:
        """Return the number of this tenure; a later holder has a greater one."""
        ...

    @property
    def held_until(self) -> Nanos | None:
        """Return the monotonic end of the tenure unless it is renewed, None when not held."""
        ...


class Fence:
    """Guards every write that can evict."""

    def __init__(self, tenure: Tenure, clock: Clock, lease_duration: int) -> None:
        self._tenure = tenure
        self._clock = clock
        # A third of the lease for the write itself, so that two more renewals fit before its end.
        self.request_timeout = lease_duration // 3
        self._margin = self.request_timeout * 11 // 10

    @property
    def identity(self) -> str:
        return self._tenure.identity

    @property
    def epoch(self) -> int:
        return self._tenure.epoch

    @property
    def open(self) -> bool:
        """Whether a write may be sent now."""
        until = self._tenure.held_until
        return until is not None and self._clock.monotonic() < until - self._margin

    def check(self) -> None:
        """Return when a write may be sent now.

        Raises:
            Deposed: the lease is not held, or could end before the write has timed out.
        """
        if not self.open:
            raise Deposed(f"{self.identity} does not hold the process lease: nothing is evicted")
