"""Namespaces that take no events: one that goes away, or in which nobody may write them.

What was refused once would be refused for everything else that is said there, so that nothing more
is sent for a while. Source: the API server's answers, 403 and, of a namespace that is gone, 404.
"""

from __future__ import annotations

from typing import Final

from reprieve.kube.errors import ApiError, Forbidden, NotFound
from reprieve.units.clock import Clock
from reprieve.units.durations import MINUTE
from reprieve.units.instants import Nanos

__all__ = ["EventRefusals"]

_PAUSE: Final = MINUTE
_KEPT: Final = 10_000


class EventRefusals:
    """Which namespaces refused events within the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, Nanos] = {}

    def holds(self, namespace: str) -> bool:
        """Tell whether nothing is to be sent there now."""
        until = self._until.get(namespace)
        if until is None:
            return False
        if until > self._clock.monotonic():
            return True
        del self._until[namespace]
        return False

    def note(self, namespace: str, error: ApiError) -> None:
        """Take in why an event was not written."""
        if not isinstance(error, (Forbidden, NotFound)):
            return
        if len(self._until) >= _KEPT:
            self._until.clear()
        self._until[namespace] = Nanos(self._clock.monotonic() + _PAUSE)
