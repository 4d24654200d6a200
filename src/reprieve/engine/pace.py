"""What is decided about, and whether to continue: checked at steps where nothing is half changed.

The engine has no clock. The caller of a decision may bring one, and end the decision about one that
lasts too long, or is not to be decided about for now. In the quota plane what is raised is that
one's fault, and the others are decided about; in the idle plane, whose demands are decided on
together, it ends the evaluation, and the caller leaves that one out of the next.
"""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["UNHURRIED", "Pace"]


class Pace(Protocol):
    """Follows decisions."""

    def begin(self, what: str) -> None:
        """Record what is decided about from now on: a namespace/name.

        Raises:
            Exception: it is not to be decided about for now.
        """
        ...

    def check(self) -> None:
        """Return when that may last longer.

        Raises:
            Exception: it has lasted too long.
        """
        ...


class _Unhurried:
    def begin(self, what: str) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Do nothing."""


UNHURRIED: Final[Pace] = _Unhurried()
