"""The reflector against a collection with history, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MILLISECOND, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.kube.errors import Forbidden, Unreachable
from reprieve.kube.reflector import Health, Reflector
from reprieve.kube.resource import PODS
from reprieve.kube.transport import Request
from tests.background import in_background
from tests.kube.fakes import (
    Collection,
    FakeAnswer,
    FakeWire,
    client_over,
    list_body,
    pod,
    refusal,
)


class Recorder:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def received(self, objects: list[Any]) -> list[Any]:
        return objects

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        names = [obj["metadata"]["name"] for obj in objects]
        self.told.append(("replaced", (names, resource_version)))

    def applied(self, obj: Any) -> None:
        self.told.append(("applied", self._text(obj)))

    def deleted(self, obj: Any) -> None:
        self.told.append(("deleted", self._text(obj)))

    def _text(self, obj: Any) -> str:
        return f"{obj['metadata']['name']}@{obj['metadata']['resourceVersion']}"


class Stage:
    """A reflector at work on a collection of pods."""

    def __init__(self, handler: Any = None) -> None:
        self.pods = Collection(PODS)
        self.wire = FakeWire(handler or self.pods.handle)
        self.clock = VirtualClock()
        self.sink = Recorder()
        self.reports: list[Exception] = []
        self.reflector: Reflector[Any] = Reflector(
            client_over(self.wire, self.clock),
            PODS,
            dict,
            self.sink,
            self.clock,
            jitter=Random(3),
            report=self.reports.append,
        )

    def health(self) -> Health:
        return self.reflector.health

    async def settle(self, nanoseconds: int = 0) -> None:
        await self.clock.advance(nanoseconds, settle=50)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with in_background(self.reflector.run()):
            await self.settle()
            yield


async def test_one_list_then_a_watch_from_its_version() -> None:
    stage = Stage()
    stage.pods.put(pod("a"))
    assert not stage.reflector.synced.is_set()
    async with stage.running():
        assert stage.reflector.synced.is_set()
        assert stage.health() is Health.WATCHING
        stage.pods.put(pod("b"))
        stage.pods.put(pod("a"))
        stage.pods.remove("work", "b")
        await stage.settle()
    assert stage.sink.told == [
        ("replaced", (["a"], "11")),
        ("applied", "b@12"),
        ("applied", "a@13"),
        ("deleted", "b@14"),
    ]
    assert len(stage.pods.lists) == 1
    assert [watch["resourceVersion"] for watch in stage.pods.watches] == ["11"]


async def test_a_closed_watch_is_resumed_without_a_list() -> None:
    stage = Stage()
    async with stage.running():
        stage.pods.put(pod("a"))
        await stage.settle()
        stage.pods.end_watches()
        stage.pods.put(pod("b"))
        await stage.settle(5 * SECOND)
        stage.pods.end_watches(Unreachable("reset"))
        stage.pods.put(pod("c"))
        await stage.settle(5 * SECOND)
    assert [told for told in stage.sink.told if told[0] == "applied"] == [
        ("applied", "a@11"),
        ("applied", "b@12"),
        ("applied", "c@13"),
    ]
    assert len(stage.pods.lists) == 1
    assert [watch["resourceVersion"] for watch in stage.pods.watches] == ["10", "11", "12"]


async def test_bookmarks_move_the_version_from_which_a_watch_is_resumed() -> None:
    stage = Stage()
    async with stage.running():
        stage.pods.version = 99
        stage.pods.bookmark()
        await stage.settle()
        stage.pods.end_watches()
        await stage.settle(5 * SECOND)
    assert [watch["resourceVersion"] for watch in stage.pods.watches] == ["10", "99"]
    assert stage.sink.told == [("replaced", ([], "10"))]


@pytest.mark.parametrize("as_status", [True, False], ids=["HTTP 410", "410 inside the watch"])
async def test_an_expired_version_leads_to_exactly_one_list_not_older_than_it(
    as_status: bool,
) -> None:
    stage = Stage()
    async with stage.running():
        stage.pods.put(pod("a"))
        await stage.settle()
        if as_status:
            refused = [refusal(410, "Expired", "too old")]
            stage.pods.refuse = lambda request: (
                refused.pop() if refused and request.query.get("watch") else None
            )
            stage.pods.end_watches()
        else:
            stage.pods.forget()
        await stage.settle(MINUTE)
    assert len(stage.pods.lists) == 2
    assert stage.pods.lists[1]["resourceVersion"] == "11"
    assert stage.pods.lists[1]["resourceVersionMatch"] == "NotOlderThan"
    assert [name for name, _ in stage.sink.told].count("replaced") == 2


async def test_a_server_that_always_says_410_is_asked_with_growing_pauses() -> None:
    stage = Stage()
    stage.pods.refuse = lambda request: (
        refusal(410, "Expired") if request.query.get("watch") else None
    )
    async with stage.running():
        await stage.settle(10 * MINUTE)
    assert 15 < len(stage.pods.lists) < 40
    assert len(stage.pods.lists) - 1 <= len(stage.wire.requests) - len(stage.pods.lists)


async def test_events_that_were_seen_already_are_not_told_again() -> None:
    stage = Stage()
    async with stage.running():
        stage.pods.put(pod("a"))
        stage.pods.put(pod("a"))
        stage.pods.say({"type": "MODIFIED", "object": pod("a", version=11)})
        await stage.settle()
    assert [told for told in stage.sink.told if told[0] == "applied"] == [
        ("applied", "a@11"),
        ("applied", "a@12"),
    ]


async def test_missing_rights_are_reported_once_with_the_rule_and_tried_again() -> None:
    stage = Stage()
    denial = 'pods is forbidden: User "x" cannot list resource "pods" in API group ""'
    stage.pods.refuse = lambda request: refusal(403, "Forbidden", denial)
    async with stage.running():
        await stage.settle(10 * MINUTE)
        assert stage.health() is Health.FORBIDDEN
        assert not stage.reflector.synced.is_set()
        [report] = stage.reports
        assert isinstance(report, Forbidden)
        assert report.rule == '- {apiGroups: [""], resources: ["pods"], verbs: ["list"]}'
        assert 10 <= len(stage.wire.requests) <= 25
        stage.pods.refuse = lambda request: None
        await stage.settle(MINUTE)
        assert stage.reflector.synced.is_set()
        assert stage.health() is Health.WATCHING
        assert stage.reflector.error is None


async def test_a_server_that_refuses_while_it_starts_is_asked_again_soon() -> None:
    stage = Stage()
    stage.pods.put(pod("a"))
    async with stage.running():
        await stage.settle()
        stage.pods.refuse = lambda request: refusal(403, "Forbidden", "pods is forbidden")
        stage.pods.end_watches()
        await stage.settle(SECOND)
        stage.pods.refuse = lambda request: None
        stage.pods.put(pod("b"))
        await stage.settle(5 * SECOND)
        assert stage.health() is Health.WATCHING
    assert stage.sink.told[-1] == ("applied", "b@12")
    assert len(stage.pods.lists) == 1


async def test_a_kind_that_is_not_served_is_waited_for() -> None:
    stage = Stage()
    stage.pods.refuse = lambda request: FakeAnswer(404, b"404 page not found")
    async with stage.running():
        await stage.settle(MINUTE)
        assert stage.health() is Health.NOT_SERVED
        assert len(stage.reports) == 1
        stage.pods.put(pod("a"))
        stage.pods.refuse = lambda request: None
        await stage.settle(10 * SECOND)
        assert stage.sink.told == [("replaced", (["a"], "11"))]


async def test_what_is_held_stays_while_the_server_is_away() -> None:
    stage = Stage()
    stage.pods.put(pod("a"))
    async with stage.running():
        away = Unreachable("connection refused")

        def refuse(request: Request) -> FakeAnswer | None:
            raise away

        stage.pods.refuse = refuse
        stage.pods.end_watches(away)
        await stage.settle(10 * MINUTE)
        assert stage.health() is Health.UNREACHABLE
        assert len(stage.reports) == 1
        stage.pods.refuse = lambda request: None
        stage.pods.put(pod("b"))
        await stage.settle(MINUTE)
    assert stage.sink.told == [("replaced", (["a"], "11")), ("applied", "b@12")]
    assert len(stage.pods.lists) == 1


async def test_an_object_that_cannot_be_read_is_reported_and_the_rest_goes_on() -> None:
    stage = Stage()
    async with stage.running():
        stage.pods.say({"type": "ADDED", "object": "nonsense"})
        stage.pods.say(b"not json")
        stage.pods.put(pod("a"))
        await stage.settle()
    assert stage.sink.told[-1] == ("applied", "a@11")
    assert len(stage.reports) == 2


async def test_a_list_whose_pages_expire_is_read_at_once_instead() -> None:
    def handle(request: Request) -> FakeAnswer:
        if request.query.get("watch"):
            return FakeAnswer(lines=asyncio.Queue())
        if request.query.get("continue"):
            return refusal(410, "Expired", "the continue token is too old")
        if request.query.get("limit"):
            return FakeAnswer(body=list_body([pod("a")], 20, "next"))
        return FakeAnswer(body=list_body([pod("a"), pod("b")], 21))

    stage = Stage(handle)
    async with stage.running():
        assert stage.sink.told == [("replaced", (["a", "b"], "21"))]


async def test_a_server_whose_storage_went_back_in_time_is_listed_as_it_is_now() -> None:
    stage = Stage()
    async with stage.running():
        stage.pods.put(pod("a"))
        await stage.settle()
        stage.pods.version = 3
        stage.pods.refuse = lambda request: (
            refusal(
                504,
                "Timeout",
                "Too large resource version: 11, current: 3",
                details={"causes": [{"reason": "ResourceVersionTooLarge"}]},
            )
            if request.query.get("resourceVersion") == "11" and not request.query.get("watch")
            else None
        )
        stage.pods.forget()
        stage.pods.restart_history()
        await stage.settle(5 * MINUTE)
    assert stage.sink.told[-1] == ("replaced", (["a"], "4"))


async def test_an_event_that_the_sink_cannot_take_costs_the_next_ones_nothing() -> None:
    stage = Stage()
    take = stage.sink.applied

    def applied(obj: Any) -> None:
        if obj["metadata"]["name"] == "poisoned":
            raise ZeroDivisionError("the test says so")
        take(obj)

    stage.sink.applied = applied  # type: ignore[method-assign]
    async with stage.running():
        stage.pods.put(pod("poisoned"))
        stage.pods.put(pod("other"))
        await stage.settle()
        assert [what for what, _ in stage.sink.told] == ["replaced", "applied"]
        assert stage.sink.told[-1][1].startswith("other@")
        assert stage.health() is Health.WATCHING


async def test_a_list_that_the_sink_cannot_take_is_asked_for_again_with_growing_pauses() -> None:
    stage = Stage()
    take, failures = stage.sink.replaced, 0

    def replaced(objects: list[Any], resource_version: str) -> None:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise ZeroDivisionError("the test says so")
        take(objects, resource_version)

    stage.sink.replaced = replaced  # type: ignore[method-assign]
    async with stage.running():
        assert stage.health() is Health.FAILING
        assert not stage.reflector.synced.is_set()
        await stage.settle(MINUTE)
        assert failures == 3
        assert stage.reflector.synced.is_set()
        assert stage.health() is Health.WATCHING


@pytest.mark.parametrize(("step", "order"), [(0, "aaat"), (10 * MILLISECOND, "atatat")])
async def test_a_burst_is_taken_in_as_a_whole_unless_that_takes_long(step: int, order: str) -> None:
    """What has come already is decided on together; others have their turn every 10 ms."""
    stage, told = Stage(), list[str]()
    loop, monotonic, taken = asyncio.get_running_loop(), stage.clock.monotonic, [0]

    def turn() -> None:
        if told[-1] != "t":
            told.append("t")

    def applied(obj: Any) -> None:
        told.append("a")
        taken[0] += step
        loop.call_soon(turn)

    stage.sink.applied = applied  # type: ignore[method-assign]
    stage.clock.monotonic = lambda: Nanos(monotonic() + taken[0])  # type: ignore[method-assign]
    async with stage.running():
        await stage.settle(20 * SECOND)
        for name in ("a", "b", "c"):
            stage.pods.put(pod(name))
        await stage.settle()
    assert "".join(told) == order
