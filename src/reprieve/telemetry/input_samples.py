"""Which refusals have their whole input written to the decision log.

One in two hundred of those that could have it, the first of them at once, and at most one a second
over all planes. After a large one none is made until its bytes are made up for, so that what is
sampled adds at most a megabyte a minute. Source: the design's "Why work waits".
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos

__all__ = ["InputSamples"]

_ONE_IN: Final = 200
_PAUSE: Final = SECOND
_BYTES_A_SECOND: Final = 16 * 1024


class InputSamples:
    """Counts refusals; a caller that is to write one states how many bytes it was."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = 0  # refusals until the next one is due
        self._not_before = clock.monotonic()

    def is_due(self) -> bool:
        """Count one refusal; return whether its input is to be written."""
        self._left -= 1
        if self._left >= 0 or self._clock.monotonic() < self._not_before:
            return False
        self._left = _ONE_IN - 1
        self._not_before = Nanos(self._clock.monotonic() + _PAUSE)
        return True

    def took(self, size: int) -> None:
        """Record how many bytes one had."""
        pause = max(_PAUSE, size * SECOND // _BYTES_A_SECOND)
        self._not_before = Nanos(self._clock.monotonic() + pause)
