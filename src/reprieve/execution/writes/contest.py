"""Writes to an object that another writes all the time.

A write names the resourceVersion that was judged, so that what changed since is judged again. A
user who may patch an object could keep it from any such write by being faster each time. After two
conflicts the object is still read and judged again, and the write then names its uid alone. A
failure without an answer is no conflict: what it requested may have been done. Source: the design's
"Intent log and executor".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from reprieve.kube.errors import Conflict

__all__ = ["Contest"]

T = TypeVar("T")
_LOST_AFTER: Final = 2


class Contest:
    """Counts the conflicts of the tries of one write."""

    def __init__(self) -> None:
        self._conflicts = 0

    @property
    def met(self) -> bool:
        """Whether another was faster at any try."""
        return self._conflicts > 0

    @property
    def lost(self) -> bool:
        """Whether another is always faster: the uid has to do."""
        return self._conflicts >= _LOST_AFTER

    def of(self, once: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Return the try, with its conflicts counted."""

        async def counted() -> T:
            try:
                return await once()
            except Conflict:
                self._conflicts += 1
                raise

        return counted
