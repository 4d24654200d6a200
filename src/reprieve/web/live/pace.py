"""How long changes are gathered before pages are made again.

Between 250 ms and 2 s, by the cost of making the pages: at most about a twentieth of the time is
spent on making them, until 2 s are reached. The cost is smoothed, so that one slow turn (another
process had the machine) does not slow the pages for long. A page whose window moves with time, such
as a last hour, is made again after ten quiet seconds. Source: the targets of the web page, 10 % of
a core at 100 changes a second.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.durations import MILLISECOND, SECOND

__all__ = ["QUIET", "SHORTEST", "Pace"]

SHORTEST: Final = 250 * MILLISECOND
LONGEST: Final = 2 * SECOND
#: After so long pages are made again although nothing changed.
QUIET: Final = 10 * SECOND
_SHARE: Final = 20
_SMOOTHING: Final = 0.3


class Pace:
    """The pause between two rounds of making pages."""

    def __init__(self) -> None:
        self._cost = 0.0  # nanoseconds of one round, smoothed

    @property
    def pause(self) -> int:
        """Nanoseconds from the first change to the next round."""
        return min(max(int(self._cost * _SHARE), SHORTEST), LONGEST)

    def took(self, nanoseconds: int) -> None:
        """Record the duration of the last round."""
        self._cost += (nanoseconds - self._cost) * _SMOOTHING
