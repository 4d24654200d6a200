"""Each displaced unit is one message at most; a bad webhook costs its own namespace alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.kube.errors import NotFound
from reprieve.notifications.notifier import FORMAT_ANNOTATION, URL_ANNOTATION, Notifier
from reprieve.notifications.settings import notification_settings
from reprieve.telemetry.metrics import Metrics
from tests.notifications.builders import disruption

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Patient(SystemClock):
    """A clock on which no pause takes any time."""

    def __init__(self) -> None:
        self.pauses: list[int] = []

    async def sleep(self, nanoseconds: int) -> None:
        self.pauses.append(nanoseconds)
        await asyncio.sleep(0)


@dataclass
class Site:
    """A server for webhooks, namespaces that name it, and what came of it."""

    notifier: Notifier
    metrics: Metrics
    clock: Patient
    spaces: dict[str, dict[str, str]]
    url: str
    received: list[tuple[str, bytes]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def outcomes(self) -> dict[str, int]:
        (family,) = self.metrics.notifications.collect()
        return {
            each.labels["outcome"]: int(each.value)
            for each in family.samples
            if each.name.endswith("_total")
        }

    async def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(1_000_000):
            if holds():
                return
            await asyncio.sleep(0)
        raise AssertionError(self.outcomes())


@asynccontextmanager
async def site(handler: Handler, *hosts: str) -> AsyncIterator[Site]:
    found: Site

    async def receive(request: web.Request) -> web.StreamResponse:
        found.received.append((request.path, await request.read()))
        return await handler(request)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", receive)
    async with TestServer(application) as server:
        metrics, clock = Metrics(), Patient()
        url = f"http://127.0.0.1:{server.port}"
        spaces = {name: {URL_ANNOTATION: f"{url}/{name}"} for name in ("team", "other")}

        async def get(_resource: Any, _space: str, name: str, type_: Any) -> Any:
            if name not in spaces:
                raise NotFound(f"namespace {name}")
            return SimpleNamespace(metadata=SimpleNamespace(annotations=spaces[name]))

        recorder: Any = SimpleNamespace(
            event=lambda about, kind, reason, action, note, **_: found.events.append((reason, note))
        )
        settings = notification_settings([f"127.0.0.1:{server.port}", *hosts], None)
        assert settings is not None
        client: Any = SimpleNamespace(get=get)
        notifier = Notifier(client, settings, clock, metrics, recorder)
        found = Site(notifier, metrics, clock, spaces, url)
        running = asyncio.ensure_future(notifier.run())
        try:
            yield found
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def fine(_request: web.Request) -> web.Response:
    return web.Response(status=204)


async def test_each_unit_is_one_message_in_the_order_of_its_namespace() -> None:
    async with site(fine) as found:
        found.spaces["team"][FORMAT_ANNOTATION] = "slack"
        for number in range(5):
            found.notifier.offer(disruption(number))
        await found.until(lambda: found.outcomes().get("delivered") == 5)
    assert [path for path, _ in found.received] == ["/team"] * 5
    for number, (_, content) in enumerate(found.received):
        assert f"disruption -n team train-{number}".encode() in content
    assert found.outcomes() == {"delivered": 5}


async def test_without_an_annotation_or_a_namespace_nobody_is_called() -> None:
    async with site(fine) as found:
        found.spaces["team"].clear()
        found.notifier.offer(disruption(1))
        found.notifier.offer(disruption(2, "gone"))
        found.notifier.offer(disruption(3, "other"))
        await found.until(lambda: found.outcomes() == {"delivered": 1})
    assert [path for path, _ in found.received] == ["/other"]
    assert found.events == []


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({URL_ANNOTATION: "https://evil.com/x"}, "the operator may not call 'evil.com:443'"),
        ({URL_ANNOTATION: "https:/hooks/secret"}, "it is no URL such as"),
        ({FORMAT_ANNOTATION: "xml"}, "accepted: slack, cloudevents"),
    ],
)
async def test_what_may_not_be_called_is_told_and_counted(
    annotations: dict[str, str], text: str
) -> None:
    async with site(fine) as found:
        found.spaces["team"].update(annotations)
        found.notifier.offer(disruption())
        await found.until(lambda: found.outcomes() == {"refused": 1})
    assert found.received == []
    ((reason, note),) = found.events
    assert reason == "NotificationRefused" and text in note
    assert "secret" not in note


async def test_a_server_that_cannot_answer_now_is_asked_five_times_in_all() -> None:
    async def away(_request: web.Request) -> web.Response:
        return web.Response(status=503)

    async with site(away) as found:
        found.notifier.offer(disruption())
        await found.until(lambda: found.outcomes() == {"failed": 1})
    assert len(found.received) == 5
    assert found.clock.pauses == [SECOND, 4 * SECOND, 16 * SECOND, MINUTE]


@pytest.mark.parametrize(("asked", "waited"), [("30", 30), ("9999999", 60), ("soon", 1)])
async def test_a_server_that_says_when_is_asked_then_within_a_minute(
    asked: str, waited: int
) -> None:
    answers = [web.Response(status=429, headers={"retry-after": asked}), web.Response()]

    async def limited(_request: web.Request) -> web.Response:
        return answers.pop(0)

    async with site(limited) as found:
        found.notifier.offer(disruption())
        await found.until(lambda: found.outcomes() == {"delivered": 1})
    assert found.clock.pauses == [waited * SECOND]
    assert len({content for _, content in found.received}) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 410])
async def test_a_refusal_is_final(status: int) -> None:
    async def refuses(_request: web.Request) -> web.Response:
        return web.Response(status=status)

    async with site(refuses) as found:
        found.notifier.offer(disruption())
        await found.until(lambda: found.outcomes() == {"failed": 1})
    assert len(found.received) == 1


async def test_a_redirect_is_not_followed() -> None:
    async def elsewhere(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"location": f"{request.url.origin()}/inside"})

    async with site(elsewhere) as found:
        found.notifier.offer(disruption())
        await found.until(lambda: found.outcomes() == {"failed": 1})
    assert [path for path, _ in found.received] == ["/team"]


async def test_a_webhook_that_hangs_holds_up_no_other_namespace() -> None:
    let_go = asyncio.Event()

    async def hangs(request: web.Request) -> web.Response:
        if request.path == "/team":
            await let_go.wait()
        return web.Response()

    async with site(hangs) as found:
        for number in range(150):
            found.notifier.offer(disruption(number))
        for number in range(20):
            found.notifier.offer(disruption(number, "other"))
        await found.until(lambda: found.outcomes().get("delivered") == 20)
        assert Counter(path for path, _ in found.received) == {"/team": 1, "/other": 20}
        assert found.outcomes() == {"delivered": 20, "dropped": 50}
        let_go.set()
        await found.until(lambda: found.outcomes().get("delivered") == 120)


async def test_no_more_wait_in_all_than_a_thousand() -> None:
    async with site(fine) as found:
        for number in range(3_000):
            found.notifier.offer(disruption(number, f"space-{number % 200}"))
        assert found.outcomes() == {"dropped": 2_000}
