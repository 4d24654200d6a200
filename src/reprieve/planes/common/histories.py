"""Which planes of the process know the displacements that former processes recorded.

Each plane adopts its own records when it starts leading, into the history that all share. Before
the last of them has, the idle plane cannot see that a demand is the return of work that another
plane displaced under a former process. It decides nothing until then, nor do the others preempt
while it starts. A plane that cannot start delays it for a minute.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.durations import MINUTE
from reprieve.engine.plan import Plane

__all__ = ["Histories"]

_MOST: Final = MINUTE


class Histories:
    """Planes register with `begins`, and are left out once `known`."""

    def __init__(self) -> None:
        self._begun: dict[Plane, int] = {}

    def begins(self, plane: Plane, now: int) -> None:
        """A plane starts, at a monotonic instant, and will adopt its records."""
        self._begun[plane] = now

    def known(self, plane: Plane) -> None:
        """A plane has adopted its records, or leaves all decisions to another operator."""
        self._begun.pop(plane, None)

    def missing(self, now: int) -> str:
        """Return what is not known yet, empty when nothing is waited for."""
        for plane, since in self._begun.items():
            if now - since < _MOST:
                return f"displacements recorded by the {plane} plane are not known yet"
        return ""
