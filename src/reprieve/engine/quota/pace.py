"""Who is decided about, and whether to go on: asked at steps where nothing is half changed.

The engine has no clock. Who runs cycles may bring one, and end the decision about a head that takes
too long: what `check` raises is that head's fault (`faults`), and the others are decided about.
"""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["UNHURRIED", "Pace"]


class Pace(Protocol):
    """Follows a run of cycles."""

    def begin(self, what: str) -> None:
        """Take note of the head that is decided about from now on."""
        ...

    def check(self) -> None:
        """Return when that head may take longer.

        Raises:
            Exception: it has taken too long.
        """
        ...


class _Unhurried:
    def begin(self, what: str) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Do nothing."""


UNHURRIED: Final[Pace] = _Unhurried()
