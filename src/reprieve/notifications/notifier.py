"""Sends one message for each displaced unit to the webhook of its namespace, without waiting.

1. The writer of a Disruption offers it (`offer`); only one process writes each, once. What waits in
   a process that ends is not sent: at most one message, never two by two processes.
2. The namespace's annotations `reprieve.dev/notify` (a URL) and `reprieve.dev/notify-format` state
   where to and in which shape. Without the first no message is sent.
3. No answer within 10 s, a broken connection, 429 and 5xx are tried again, five times in all, after
   1, 4, 16 and 60 s or what `Retry-After` states up to a minute. All else, redirects too, is final.
4. Bounded: 100 messages wait for a namespace, 1,000 in all; what comes beyond them is dropped and
   counted. One message of a namespace is under way at a time, eight in all, so that a webhook that
   hangs costs its own namespace alone.
5. A URL that is not allowed is reported by an event on the Disruption, and counted; nothing is
   sent.

Source: docs/disruptions/operators.md, "Notification by a webhook".
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import aiohttp
import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.untrusted import integer_or_none, shown
from reprieve.api.disruption import Disruption
from reprieve.api.reprieve import API_VERSION
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.recording.events import EventRecorder
from reprieve.kube.resource import NAMESPACES
from reprieve.notifications.messages import Format, body, format_for, headers
from reprieve.notifications.resolver import PublicResolver
from reprieve.notifications.settings import NotAllowed, NotificationSettings, Target
from reprieve.telemetry.metrics import Metrics
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["FORMAT_ANNOTATION", "URL_ANNOTATION", "Notifier", "Outcome"]

log: Final = logging.getLogger("reprieve.notifications")

URL_ANNOTATION: Final = "reprieve.dev/notify"
FORMAT_ANNOTATION: Final = "reprieve.dev/notify-format"
_CONTROLLER: Final = "reprieve"
_REFUSED: Final = "NotificationRefused"
_TIMEOUT: Final = 10.0  # seconds
_PAUSES: Final = (SECOND, 4 * SECOND, 16 * SECOND, MINUTE)
_MOST_OF_ONE: Final = 100
_MOST: Final = 1_000
_AT_ONCE: Final = 8


class Outcome(StrEnum):
    """What became of a message."""

    DELIVERED = "delivered"
    FAILED = "failed"
    REFUSED = "refused"
    DROPPED = "dropped"


class _Annotated(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Space(msgspec.Struct, frozen=True):
    """As much of a namespace as states where its users want notifications."""

    metadata: _Annotated


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a webhook answered: status 0 for none; `pause`: the wait it requests, nanoseconds."""

    status: int
    text: str
    pause: int = 0

    @property
    def again(self) -> bool:
        """Whether another try may succeed."""
        return self.status in (0, 429) or self.status >= 500


class Notifier:
    """Offered what was written; `run` sends it beside the planes, until cancelled."""

    def __init__(
        self,
        client: Client,
        settings: NotificationSettings,
        clock: Clock,
        metrics: Metrics,
        events: EventRecorder,
        *,
        source: str = "/reprieve",
    ) -> None:
        """`source`: that of CloudEvents."""
        self._client = client
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._events = events
        self._source = source
        self._waiting: dict[str, deque[Disruption]] = {}
        self._new = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def offer(self, reported: Disruption) -> None:
        """Have a Disruption sent; returns at once."""
        space = reported.metadata.namespace
        queue = self._waiting.get(space, deque())
        if len(queue) >= _MOST_OF_ONE or sum(map(len, self._waiting.values())) >= _MOST:
            self._count(Outcome.DROPPED)
            log.warning(
                "message %s/%s is not sent: the queue of messages is full",
                space,
                reported.metadata.name,
            )
            return
        queue.append(reported)
        self._waiting[space] = queue
        self._new.set()

    async def run(self) -> None:
        """Send what is offered, until cancelled."""
        connector = aiohttp.TCPConnector(
            resolver=PublicResolver(self._settings.allowed), limit=_AT_ONCE, force_close=True
        )
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            asyncio.TaskGroup() as group,
        ):
            under_way: set[str] = set()

            async def empty(space: str) -> None:
                try:
                    await self._empty(session, space)
                finally:
                    under_way.discard(space)
                    self._new.set()

            while True:
                await self._new.wait()
                self._new.clear()
                for space in [each for each in self._waiting if each not in under_way]:
                    under_way.add(space)
                    group.create_task(empty(space))

    async def _empty(self, session: aiohttp.ClientSession, space: str) -> None:
        """Send what waits for a namespace, one after the other."""
        queue = self._waiting[space]
        while queue:
            reported = queue[0]
            try:
                await self._send(session, reported)
            except Exception:
                self._count(Outcome.FAILED)
                log.exception("message %s/%s is not sent", space, reported.metadata.name)
            queue.popleft()
        del self._waiting[space]

    async def _send(self, session: aiohttp.ClientSession, reported: Disruption) -> None:
        annotations = await self._annotations(reported.metadata.namespace)
        url = annotations.get(URL_ANNOTATION, "")
        if not url:
            return
        try:
            target = self._settings.allowed.target(url)
            shape = _shape(annotations.get(FORMAT_ANNOTATION, ""), target)
        except NotAllowed as error:
            self._refuse(reported, str(error))
            return
        content = body(reported, shape, self._source)
        for pause in (*_PAUSES, None):
            answer = await self._post(session, reported, target, shape, content)
            if answer.status // 100 == 2:
                self._count(Outcome.DELIVERED)
                return
            if not answer.again or pause is None:
                break
            await self._clock.sleep(max(pause, min(answer.pause, MINUTE)))
        self._count(Outcome.FAILED)
        space, name = reported.metadata.namespace, reported.metadata.name
        log.warning("message %s/%s is not sent: %s %s", space, name, target.host, answer.text)

    async def _post(
        self,
        session: aiohttp.ClientSession,
        reported: Disruption,
        target: Target,
        shape: Format,
        content: bytes,
    ) -> _Answer:
        signed = headers(reported, shape, content, self._clock.wall(), self._settings.key)
        async with self._slots:
            try:
                async with session.post(
                    target.url, data=content, headers=dict(signed), allow_redirects=False
                ) as response:
                    seconds = integer_or_none(response.headers.get("retry-after"))
                    text = f"answers {response.status}"
                    return _Answer(response.status, text, max(0, seconds or 0) * SECOND)
            except aiohttp.InvalidURL:
                return _Answer(400, "is no host of a URL")  # the error states all of the URL
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                return _Answer(0, f"does not answer: {error or type(error).__name__}")

    async def _annotations(self, space: str) -> Mapping[str, str]:
        """Return what a namespace states, {} where it cannot be read."""
        try:
            found = await self._client.get(NAMESPACES, "", space, _Space)
        except NotFound:
            return {}
        except ApiError as failure:
            self._count(Outcome.FAILED)
            log.warning("no messages are sent for namespace %s: %s", space, failure)
            return {}
        return found.metadata.annotations or {}

    def _refuse(self, reported: Disruption, why: str) -> None:
        space, name = reported.metadata.namespace, reported.metadata.name
        self._count(Outcome.REFUSED)
        log.warning("message %s/%s is not sent: %s", space, name, why)
        about = Reference(API_VERSION, reported.kind, space, name, Uid(""))
        text = f"Annotation {URL_ANNOTATION} of the namespace: {why}"
        self._events.event(about, "Warning", _REFUSED, _REFUSED, text, controller=_CONTROLLER)

    def _count(self, outcome: Outcome) -> None:
        self._metrics.notifications.labels(outcome.value).inc()


def _shape(wanted: str, target: Target) -> Format:
    try:
        return format_for(wanted, target.host)
    except ValueError:
        raise NotAllowed(
            f"{FORMAT_ANNOTATION} is {shown(wanted)}; accepted: {', '.join(Format)}"
        ) from None
