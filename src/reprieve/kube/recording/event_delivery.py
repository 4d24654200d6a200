"""Writes one Event after the other for the recorder: attempts, refusals, and what is dropped.

A request whose answer may change is sent again a few times. A namespace that is being deleted, or
in which this process may not write events, would refuse all other events there, so that nothing
more is sent for a while. Source: the API server's answers, 403 and, of a deleted namespace, 404.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.kube.client import Client
from reprieve.kube.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    NotFound,
)
from reprieve.kube.retry import AWAY, retried
from reprieve.units.errors import UsageError

__all__ = ["EventDelivery"]

_PAUSE: Final = MINUTE
_KEPT: Final = 10_000


class EventDelivery:
    """Delivers the events of one recorder; `dropped` counts those that are never written.

    `report` is called once for each distinct trouble.
    """

    def __init__(self, client: Client, clock: Clock, report: Callable[[Exception], None]) -> None:
        self.dropped = 0
        self._client = client
        self._clock = clock
        self._report = report
        self._reported: set[str] = set()
        self._refused: dict[str, Nanos] = {}  # until when, by namespace

    def refuses(self, namespace: str) -> bool:
        """Return whether nothing is to be sent there now; the event is dropped then."""
        until = self._refused.get(namespace)
        if until is None:
            return False
        if until > self._clock.monotonic():
            self.dropped += 1
            return True
        del self._refused[namespace]
        return False

    async def deliver(self, namespace: str, write: Callable[[], Awaitable[object]]) -> bool:
        """Write an event, a few times if need be; return whether it is written."""
        try:
            await retried(write, self._client.transport.pause, AWAY)
        except AlreadyExists:
            pass  # An earlier attempt whose answer was lost.
        except (ApiError, UsageError) as error:
            # Refused for good: no rights, a namespace that is being deleted, an unknown namespace.
            if isinstance(error, (Forbidden, NotFound)):
                self._refuse(namespace)
            self.drop(error)
            return False
        return True

    def drop(self, error: Exception) -> None:
        """Count an event that is never written, and report why the first time."""
        self.dropped += 1
        key = type(error).__name__
        if key not in self._reported:
            self._reported.add(key)
            self._report(error)

    def _refuse(self, namespace: str) -> None:
        if len(self._refused) >= _KEPT:
            self._refused.clear()
        self._refused[namespace] = Nanos(self._clock.monotonic() + _PAUSE)
