"""Events (`v1`) of the machines: one object per subject, reason and text, counted up.

Courtesy for `kubectl describe`, so nothing waits for them: what a machine records is written in the
background. What cannot be written is dropped, and so is what comes above a rate that a busy cluster
can bear, as the API server's EventRateLimit would refuse it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

from kubelocal.machines.objects import Object, Objects, StoreError
from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant

__all__ = ["EventLog", "Recorder"]

_REMEMBERED: Final = 5_000
#: What recurs after so long is a new event, as with client-go.
_COUNTED_UP: Final = 10 * MINUTE
_BURST: Final = 1_000
_PER_SECOND: Final = 100


@dataclass(frozen=True, slots=True)
class _Entry:
    component: str
    subject: Object
    kind: str
    reason: str
    message: str
    wall: Nanos


class EventLog:
    """Writes what the recorders got, in order, as long as `run` runs."""

    def __init__(self, objects: Objects, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        self._pending: deque[_Entry] = deque()
        # How many more may be noted, as of this monotonic instant.
        self._allowance = float(_BURST)
        self._counted = clock.monotonic()
        self._stirred = asyncio.Event()
        # (component, uid, reason, message) -> when it was noted last, and the event as stored, the
        # least recently used first.
        self._known: OrderedDict[tuple[str, str, str, str], tuple[Nanos, Object]] = OrderedDict()
        # The number in the last event's name; grows, so that names sort as they came about.
        self._number = 0

    def note(self, component: str, subject: Object, kind: str, reason: str, message: str) -> None:
        now = self._clock.monotonic()
        self._allowance += (now - self._counted) * _PER_SECOND / SECOND
        self._allowance, self._counted = min(self._allowance, float(_BURST)), now
        if self._allowance >= 1:
            self._allowance -= 1
            entry = _Entry(component, subject, kind, reason, message, self._clock.wall())
            self._pending.append(entry)
            self._stirred.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            if not self._pending:
                self._stirred.clear()
                await self._stirred.wait()
            try:
                await self._write(self._pending.popleft())
            except StoreError:
                continue

    async def _write(self, entry: _Entry) -> None:
        metadata, now = entry.subject["metadata"], format_instant(entry.wall)
        identity = (entry.component, metadata["uid"], entry.reason, entry.message)
        self._forget(entry.wall)
        _, known = self._known.pop(identity, (None, None))
        if known is not None:
            known = {**known, "count": known.get("count", 1) + 1, "lastTimestamp": now}
            self._known[identity] = entry.wall, await self._objects.update("events", known)
            return
        self._number = max(self._number + 1, entry.wall)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name']}.{self._number:x}",
                "namespace": metadata.get("namespace") or "default",
            },
            "involvedObject": {
                "apiVersion": entry.subject["apiVersion"],
                "kind": entry.subject["kind"],
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "type": entry.kind,
            "reason": entry.reason,
            "message": entry.message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": entry.component},
            "reportingComponent": entry.component,
            "reportingInstance": "",
        }
        self._known[identity] = entry.wall, await self._objects.create("events", event)

    def _forget(self, now: Nanos) -> None:
        """Forget events that were noted long ago, and the oldest of too many."""
        while self._known:
            at, _ = next(iter(self._known.values()))
            if now - at < _COUNTED_UP and len(self._known) < _REMEMBERED:
                return
            self._known.popitem(last=False)


class Recorder:
    """Records events in the name of one component."""

    def __init__(self, log: EventLog, component: str) -> None:
        self._log = log
        self._component = component

    def normal(self, subject: Object, reason: str, message: str) -> None:
        self._log.note(self._component, subject, "Normal", reason, message)

    def warning(self, subject: Object, reason: str, message: str) -> None:
        self._log.note(self._component, subject, "Warning", reason, message)
