"""Reports what is in progress in the demo, a line at a time, and breaks a silence.

Each event is reported with its time. After five seconds without a line, a line states how much is
in use and how many wait, so that a silent demo is not mistaken for one that hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant

__all__ = ["Narrator"]

_SILENCE: Final = 5 * SECOND
_LOOK: Final = SECOND


class Narrator:
    """Prints lines with their time of day by `print_line`."""

    def __init__(self, clock: Clock, print_line: Callable[[str], None]) -> None:
        self._clock, self._print = clock, print_line
        self._last = clock.monotonic()

    def report(self, text: str) -> None:
        """Print what happens."""
        self._last = self._clock.monotonic()
        self._print(f"{format_instant(self._clock.wall())[11:19]}  {text}")

    async def keep_company(self, status: Callable[[], str]) -> None:
        """Print the status whenever nothing was stated for a while, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK)
            if self._clock.monotonic() - self._last >= _SILENCE - _LOOK:
                self.report(f"  {status()}")
