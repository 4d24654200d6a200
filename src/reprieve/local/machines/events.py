"""Events (`v1`) of the machines: one object per subject, reason and text, counted up.

Courtesy for `kubectl describe`: an event that cannot be written is dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from reprieve.local.machines.objects import Object, Objects, StoreError
from reprieve.units.clock import Clock
from reprieve.units.instants import format_instant

__all__ = ["Recorder"]

_REMEMBERED: Final = 5_000


class Recorder:
    """Writes events in the name of one component."""

    def __init__(self, objects: Objects, clock: Clock, component: str) -> None:
        self._objects = objects
        self._clock = clock
        self._component = component
        # (uid, reason, message) -> the event as stored, least recently used first.
        self._known: OrderedDict[tuple[str, str, str], Object] = OrderedDict()
        # The number in the last event's name; grows, so that names sort as they came about.
        self._number = 0

    async def normal(self, subject: Object, reason: str, message: str) -> None:
        await self._record(subject, "Normal", reason, message)

    async def warning(self, subject: Object, reason: str, message: str) -> None:
        await self._record(subject, "Warning", reason, message)

    async def _record(self, subject: Object, kind: str, reason: str, message: str) -> None:
        metadata = subject["metadata"]
        wall = self._clock.wall()
        identity, now = (metadata["uid"], reason, message), format_instant(wall)
        known = self._known.pop(identity, None)
        try:
            if known is not None:
                known = {**known, "count": known.get("count", 1) + 1, "lastTimestamp": now}
                self._known[identity] = await self._objects.update("events", known)
                return
            self._number = max(self._number + 1, wall)
            name = f"{metadata['name']}.{self._number:x}"
            namespace = metadata.get("namespace") or "default"
            event = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "apiVersion": subject["apiVersion"],
                    "kind": subject["kind"],
                    "name": metadata["name"],
                    "namespace": metadata.get("namespace", ""),
                    "uid": metadata["uid"],
                    "resourceVersion": metadata.get("resourceVersion", ""),
                },
                "type": kind,
                "reason": reason,
                "message": message,
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "source": {"component": self._component},
                "reportingComponent": self._component,
                "reportingInstance": "",
            }
            self._known[identity] = await self._objects.create("events", event)
        except StoreError:
            return
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
