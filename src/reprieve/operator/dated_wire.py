"""What the API server's clock shows, by the date of its answers.

Each answer has a date, to the second. One is read every few seconds, of a request whose answer came
soon: one that was waited for states nothing of now.
"""

from __future__ import annotations

from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.kube.transport import Answer, Request, Wire

__all__ = ["DatedWire"]

_EVERY: Final = 5 * SECOND
_SOON: Final = 2 * SECOND


class DatedWire:
    """A `Wire` that reports the dates of answers to `dated`."""

    def __init__(self, wire: Wire, clock: Clock, dated: Callable[[Nanos], None]) -> None:
        self._wire = wire
        self._clock = clock
        self._dated = dated
        self._next = clock.monotonic()

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        began = self._clock.monotonic()
        answer = await self._wire.send(request, stream, rejected)
        now = self._clock.monotonic()
        if now >= self._next and now - began <= _SOON:
            date = _instant(answer.headers.get("Date", ""))
            if date is not None:
                self._next = Nanos(now + _EVERY)
                self._dated(date)
        return answer

    async def close(self) -> None:
        await self._wire.close()


def _instant(date: str) -> Nanos | None:
    """Return the middle of the second that a header names, None where it names none."""
    try:
        return Nanos(int(parsedate_to_datetime(date).timestamp()) * SECOND + SECOND // 2)
    except (ValueError, OverflowError, OSError, IndexError, TypeError):
        return None
