"""What happens while units are tried: the events that each has to be checked for afterwards.

An event that comes while a unit is in flight may help it, but what rejected the unit is known only
when its cycle ends. Source: specification 22.
"""

from __future__ import annotations

from typing import Final

from reprieve.engine.scheduling.queueing.events import Event

__all__ = ["Flights"]

_MANY_EVENTS: Final = 1_000


class Flights:
    """Entries in flight, and the events since the first of them left."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._dropped = 0  # events before those
        self._flying: dict[str, int] = {}  # entries in flight: number of their first event

    def __contains__(self, key: str) -> bool:
        return key in self._flying

    def start(self, key: str) -> None:
        """The entry is being tried from now on."""
        self._flying[key] = self._dropped + len(self._events)

    @property
    def any(self) -> bool:
        """Whether any entry is in flight."""
        return bool(self._flying)

    def record(self, event: Event) -> None:
        """Keep an event for those in flight; without any it is forgotten."""
        if self._flying:
            self._events.append(event)

    def land(self, key: str) -> list[Event]:
        """Return what happened while the entry was being tried; its cycle has ended."""
        events = self._events[self._flying.pop(key) - self._dropped :]
        if not self._flying:
            self._dropped += len(self._events)
            self._events.clear()
        elif len(self._events) > _MANY_EVENTS:
            over = min(self._flying.values()) - self._dropped
            del self._events[:over]
            self._dropped += over
        return events
