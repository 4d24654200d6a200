"""Which units deleted objects belonged to, as long as the page has seen them.

Records name Workloads and GpuWorkloads, which are deleted with their jobs; people know the jobs.
The latest deletions are kept, so that memory has a bound.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from reprieve.kube.cache import Cache

__all__ = ["FormerUnits"]

_MOST: Final = 20_000


class _OfUnit(Protocol):
    @property
    def uid(self) -> str: ...
    @property
    def unit(self) -> str: ...


class FormerUnits:
    """Units of deleted objects by uid; `most`: of so many."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._units: dict[str, str] = {}

    def follow(self, cache: Cache[Any, Any]) -> None:
        """Remember the units of what is deleted from a cache."""
        cache.subscribe(self._changed)

    def get(self, uid: str) -> str | None:
        """Return the unit of a deleted object, None where it was not seen or is forgotten."""
        return self._units.get(uid)

    def _changed(self, old: _OfUnit | None, new: _OfUnit | None) -> None:
        if old is None or new is not None:
            return
        self._units[old.uid] = old.unit
        if len(self._units) > self._most:
            del self._units[next(iter(self._units))]
