"""Names of tenants' work as values of labels: none unless requested, and never more than so many.

The creator of an object makes up its name, and a series once counted stays until the process ends.
"""

from __future__ import annotations

from typing import Final

__all__ = ["OTHER", "CappedNames"]

OTHER: Final = "other"


class CappedNames:
    """The first `most` names as they are, all later ones as `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[str] = set()

    def of(self, name: str) -> str:
        """Return the value of a label that stands for a name."""
        if name in self._names:
            return name
        if len(self._names) >= self._most:
            return OTHER
        self._names.add(name)
        return name
