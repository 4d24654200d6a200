"""Which namespaces may have too many Disruptions, as far as this process has counted them.

A namespace without a count is assumed to have too many, so it is checked. A forgotten namespace
therefore costs one list call, and the number of namespaces in memory is bounded. Source:
specification of disruptions, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["MOST_IN_NAMESPACE", "Crowding"]

MOST_IN_NAMESPACE: Final = 200
_MOST_NAMESPACES: Final = 10_000


class Crowding:
    """How many there are by namespace; `most`: namespaces that are known."""

    def __init__(self, most: int = _MOST_NAMESPACES) -> None:
        self._most = most
        self._counts: dict[str, int] = {}
        self._crowded: set[str] = set()

    @property
    def crowded(self) -> list[str]:
        """The namespaces to be looked at, by name."""
        return sorted(self._crowded)

    def __len__(self) -> int:
        """Return of how many namespaces it is known."""
        return len(self._counts)

    def written(self, namespace: str) -> None:
        """One more was written."""
        self._count(namespace, self._counts.pop(namespace, MOST_IN_NAMESPACE) + 1)

    def left(self, namespace: str, count: int) -> None:
        """A namespace was looked at, and so many are left."""
        self._crowded.discard(namespace)
        self._counts.pop(namespace, None)
        self._count(namespace, count)

    def counted(self, counts: Mapping[str, int]) -> None:
        """All were counted."""
        self._counts.clear()
        self._crowded.clear()
        # The fullest last, as the first are forgotten.
        for namespace, count in sorted(counts.items(), key=lambda each: each[1]):
            self._count(namespace, count)

    def _count(self, namespace: str, count: int) -> None:
        self._counts[namespace] = count
        if len(self._counts) > self._most:
            del self._counts[next(iter(self._counts))]
        # What finds no place is found when all are counted, once an hour.
        if count > MOST_IN_NAMESPACE and len(self._crowded) < self._most:
            self._crowded.add(namespace)
