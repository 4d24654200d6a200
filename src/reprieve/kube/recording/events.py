"""The Event recorder, one of a process: reports, in events.k8s.io/v1, what was done and why.

An event names an action and, where there is one, a related object; its time is `eventTime`, and the
old fields stay empty. The same event again within six minutes (same regarding with its
resourceVersion, related, type, reason and action; of those that are recorded `apart` also note and
annotations, since there each of them states something of its own) becomes the series of the first
one, written at its first repetition and then at most once a minute. A note is cut where the API
accepts no more. Recording never waits or fails: what cannot be written, or is about a namespace
that has refused events lately, is dropped and counted. Warnings are sent first, and all within a
budget that is small while this process has other things to write; of a queue that is full the
oldest event is dropped that is no warning. Source: client-go, tools/events/event_broadcaster.go;
the design's "Processes and time".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sys import intern
from types import MappingProxyType
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos, format_micro
from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.errors import NotFound
from reprieve.kube.recording.event_delivery import EventDelivery
from reprieve.kube.recording.write_budget import Allowance, WriteBudget
from reprieve.kube.resource import Resource
from reprieve.kube.writes import Priority
from reprieve.units.references import Reference

__all__ = ["EventRecorder"]

_EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
_QUEUE: Final = 4_000
_WRITERS: Final = 4
#: While more than so many other writes per second are made, only so many events per second are.
_ALLOWANCE: Final = Allowance(burst=200, quiet=100, busy=20, many=10)
_SERIES: Final = 6 * MINUTE
_PATCH: Final = MINUTE
_KEPT: Final = 4_096
_LONGEST: Final = 1_024  # bytes of a note
_CUT: Final = " ..."
_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})
#: Where the events of cluster-wide objects stand.
_CLUSTER_WIDE: Final = "default"


@dataclass(frozen=True, slots=True)
class _Happening:
    """One event. Thousands wait in bad times: what they have in common is there once."""

    regarding: Reference
    related: Reference | None
    controller: str
    type: str
    reason: str
    action: str
    note: str
    annotations: Mapping[str, str]
    apart: bool
    wall: Nanos
    monotonic: Nanos

    @property
    def thing(self) -> int:
        """What is the same where it is the same thing again: 64 bits stand for all of it."""
        apart = (self.note, tuple(sorted(self.annotations.items()))) if self.apart else None
        about = (self.regarding, self.related, self.controller)
        return hash((about, self.type, self.reason, self.action, apart))


@dataclass(slots=True)
class _Series:
    number: int  # by which it is named
    last: Nanos
    count: int = 0
    patched: Nanos | None = None


class EventRecorder:
    """Writes Events; `instance` names this process.

    `report` is called once for each distinct trouble with writing.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        instance: str,
        report: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._client = client.at(Priority.EVENT)
        self._clock = clock
        self._instance = instance
        self._budget = WriteBudget(clock, lambda: client.passed_before(Priority.EVENT), _ALLOWANCE)
        self._delivery = EventDelivery(self._client, clock, report)
        self._warnings: deque[_Happening] = deque()
        self._others: deque[_Happening] = deque()
        self._series: dict[int, _Series] = {}  # by the thing, that which came last at the end
        self._last_name = 0
        self._arrived = asyncio.Semaphore(0)
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def dropped(self) -> int:
        """The number of events that were dropped."""
        return self._delivery.dropped

    @property
    def remembers(self) -> tuple[int, int]:
        """How many events wait to be written, and how many series are known."""
        return len(self._warnings) + len(self._others), len(self._series)

    def event(
        self,
        regarding: Reference,
        type: str,
        reason: str,
        action: str,
        note: str,
        *,
        controller: str,
        related: Reference | None = None,
        annotations: Mapping[str, str] | None = None,
        apart: bool = False,
    ) -> None:
        """Record an event; returns at once and never raises.

        Args:
            regarding: the object it is about.
            type: `Normal` or `Warning`.
            reason: one word in CamelCase.
            action: what was done, one word in CamelCase.
            note: for people.
            controller: who reports.
            related: who else is concerned.
            annotations: of the Event object.
            apart: whether another note or annotation is another event, not this one again.
        """
        happening = _Happening(
            regarding,
            related,
            controller,
            type,
            reason,
            action,
            intern(str(_cut(note))),
            dict(annotations) if annotations else _NO_ANNOTATIONS,
            apart,
            self._clock.wall(),
            self._clock.monotonic(),
        )
        full = len(self._warnings) + len(self._others) >= _QUEUE
        if full:
            self._delivery.dropped += 1
            if not self._others:
                return
            self._others.popleft()
        (self._warnings if type == "Warning" else self._others).append(happening)
        if not full:
            self._open += 1
            self._idle.clear()
            self._arrived.release()

    async def run(self) -> None:
        """Write events until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(self._work())

    async def flush(self) -> None:
        """Return when everything recorded so far is written or dropped; `run` must be running."""
        await self._idle.wait()

    async def _work(self) -> None:
        while True:
            await self._arrived.acquire()
            try:
                await self._write((self._warnings or self._others).popleft())
            except Exception as fault:
                # An event is never worth the others.
                self._delivery.drop(fault)
            finally:
                self._open -= 1
                if not self._open:
                    self._idle.set()

    async def _write(self, happening: _Happening) -> None:
        namespace = happening.regarding.namespace or _CLUSTER_WIDE
        if self._delivery.refuses(namespace):
            return
        series = self._observe(happening)
        if series.count > 1:
            due = series.patched is None or happening.monotonic - series.patched >= _PATCH
            if not due:
                return
            series.patched = happening.monotonic
        await self._budget.turn()
        await self._delivery.deliver(namespace, lambda: self._once(happening, series))

    def _observe(self, happening: _Happening) -> _Series:
        thing, now = happening.thing, happening.monotonic
        series = self._series.pop(thing, None)
        if series is None or now - series.last > _SERIES:
            # Names come from the time; two events of one instant need two names all the same.
            self._last_name = max(happening.wall, self._last_name + 1)
            series = _Series(self._last_name, now)
        series.last = now
        series.count += 1
        self._series[thing] = series
        # Those that were not touched longest stand first; one that is over begins anew anyway.
        while len(self._series) > _KEPT or now - next(iter(self._series.values())).last > _SERIES:
            del self._series[next(iter(self._series))]
        return series

    async def _once(self, happening: _Happening, series: _Series) -> None:
        namespace = happening.regarding.namespace or _CLUSTER_WIDE
        if series.count > 1:
            patch: Json = {"series": self._series_json(happening, series)}
            name = _name(happening.regarding, series)
            try:
                await self._client.patch(_EVENTS, namespace, name, patch, dict)
            except NotFound:
                # Events live for an hour: it begins anew, with its count.
                pass
            else:
                return
        await self._client.create(_EVENTS, self._body(happening, series, namespace), dict)

    def _series_json(self, happening: _Happening, series: _Series) -> Json:
        return {
            "count": series.count,
            "lastObservedTime": format_micro(happening.wall),
        }

    def _body(self, happening: _Happening, series: _Series, namespace: str) -> Json:
        body: dict[str, Any] = {
            "metadata": {"name": _name(happening.regarding, series), "namespace": namespace},
            "eventTime": format_micro(happening.wall),
            "reportingController": happening.controller,
            "reportingInstance": self._instance,
            "action": happening.action,
            "reason": happening.reason,
            "type": happening.type,
            "note": happening.note,
            "regarding": _as_json(happening.regarding),
        }
        if happening.annotations:
            body["metadata"]["annotations"] = dict(happening.annotations)
        if happening.related is not None:
            body["related"] = _as_json(happening.related)
        if series.count > 1:
            body["series"] = self._series_json(happening, series)
        return body


def _name(regarding: Reference, series: _Series) -> str:
    stem = regarding.name[:236].rstrip("-.")
    return f"{stem}.{series.number:x}"


def _cut(note: str) -> str:
    if len(note) <= _LONGEST // 4:
        return note
    said = note.encode()
    if len(said) <= _LONGEST:
        return note
    return said[: _LONGEST - len(_CUT)].decode(errors="ignore") + _CUT


def _as_json(reference: Reference) -> Json:
    fields = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
        "resourceVersion": reference.resource_version,
    }
    return {key: value for key, value in fields.items() if value}
