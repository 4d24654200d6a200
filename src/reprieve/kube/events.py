"""The Event recorder: tells people, in the objects' own events, what was done and why.

Recording never waits and never fails: events go into a bounded queue, from which one task writes
them behind all other writes. What does not fit, is spam (see `event_correlation`) or cannot be
written after a few attempts is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.errors import NotFound
from reprieve.kube.event_correlation import Correlator, Happening, Series
from reprieve.kube.event_delivery import EventDelivery
from reprieve.kube.references import Reference
from reprieve.kube.resource import EVENTS
from reprieve.kube.writes import Priority
from reprieve.units.clock import Clock
from reprieve.units.instants import format_instant

__all__ = ["EventRecorder"]

_QUEUE: Final = 1_000


class EventRecorder:
    """Writes core/v1 Events for one component.

    Args:
        client: for the API server.
        clock: for the times in the events.
        component: who reports, such as `reprieve`.
        instance: which process reports.
        queue: events that may wait to be written.
        report: told once of each distinct trouble with writing events.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        component: str = "reprieve",
        instance: str = "",
        queue: int = _QUEUE,
        report: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._client = client.at(Priority.EVENT)
        self._clock = clock
        self._component = component
        self._instance = instance
        self._limit = queue
        self._correlator = Correlator()
        self._delivery = EventDelivery(self._client, clock, report)
        self._waiting: deque[Happening] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def dropped(self) -> int:
        """The number of events that were dropped."""
        return self._delivery.dropped

    def event(
        self,
        regarding: Reference,
        type: str,
        reason: str,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record an event; returns at once and never raises.

        Args:
            regarding: the object it is about.
            type: `Normal` or `Warning`.
            reason: one word in CamelCase.
            message: for people.
            annotations: of the Event object.
        """
        if len(self._waiting) >= self._limit:
            self._delivery.dropped += 1
            return
        self._waiting.append(
            Happening(
                regarding,
                str(type),
                reason,
                message,
                dict(annotations or {}),
                self._clock.wall(),
                self._clock.monotonic(),
            )
        )
        self._idle.clear()
        self._arrived.set()

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            await self._arrived.wait()
            while self._waiting:
                happening = self._waiting.popleft()
                try:
                    series = self._correlator.observe(happening)
                    if series is None:
                        self._delivery.dropped += 1
                    else:
                        await self._write(happening, series)
                except Exception as fault:
                    # An event is never worth the others.
                    self._delivery.drop(fault)
            self._arrived.clear()
            self._idle.set()

    async def flush(self) -> None:
        """Return when everything recorded so far is written or dropped; `run` must be running."""
        await self._idle.wait()

    async def _write(self, happening: Happening, series: Series) -> None:
        namespace = happening.regarding.home
        if self._delivery.refuses(namespace):
            return
        if await self._delivery.deliver(namespace, lambda: self._once(happening, series)):
            series.written = True

    async def _once(self, happening: Happening, series: Series) -> None:
        namespace = happening.regarding.home
        if series.written:
            patch: Json = {
                "count": series.count,
                "lastTimestamp": format_instant(series.last),
                "message": series.message,
            }
            if series.annotations:
                patch["metadata"] = {"annotations": dict(series.annotations)}
            try:
                await self._client.patch(EVENTS, namespace, series.name, patch, dict)
            except NotFound:
                # Events live for an hour; the series goes on in a new object of the same name.
                series.written = False
            else:
                return
        await self._client.create(EVENTS, self._body(happening, series, namespace), dict)

    def _body(self, happening: Happening, series: Series, namespace: str) -> Json:
        metadata: dict[str, Any] = {"name": series.name, "namespace": namespace}
        if series.annotations:
            metadata["annotations"] = dict(series.annotations)
        return {
            "metadata": metadata,
            "involvedObject": happening.regarding.as_json(),
            "type": happening.type,
            "reason": happening.reason,
            "message": series.message,
            "count": series.count,
            "firstTimestamp": format_instant(series.first),
            "lastTimestamp": format_instant(series.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
