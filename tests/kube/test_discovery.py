"""Kinds of all group versions, found through discovery and remembered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.kube.discovery import MAXIMUM_UNSERVED, NotServed, RestMapper
from reprieve.kube.errors import ServerError
from reprieve.kube.resource import PODS, Resource
from reprieve.kube.transport import Request
from tests.kube.fakes import FakeAnswer, FakeWire, client_over, refusal


def _entry(name: str, kind: str, namespaced: bool = True) -> dict[str, Any]:
    return {"name": name, "kind": kind, "namespaced": namespaced, "verbs": ["get"]}


class Stage:
    def __init__(self) -> None:
        self.served = {
            "/api/v1": [_entry("pods", "Pod"), _entry("pods/eviction", "Eviction")],
            "/apis/batch/v1": [_entry("jobs", "Job"), _entry("jobs/status", "Job")],
        }
        self.clock = VirtualClock()
        self.wire = FakeWire(self._answer)
        self.mapper = RestMapper(client_over(self.wire, self.clock), self.clock)

    def _answer(self, request: Request) -> FakeAnswer:
        if request.path not in self.served:
            return FakeAnswer(404, b"404 page not found")
        return FakeAnswer(body={"kind": "APIResourceList", "resources": self.served[request.path]})


async def test_kinds_are_found_with_plural_and_scope_and_asked_for_once() -> None:
    stage = Stage()
    assert await stage.mapper.resource_for("v1", "Pod") == PODS
    expected = Resource("batch", "v1", "jobs", "Job")
    found = await asyncio.gather(*(stage.mapper.resource_for("batch/v1", "Job") for _ in "123"))
    assert found == [expected] * 3
    assert [request.path for request in stage.wire.requests] == ["/api/v1", "/apis/batch/v1"]


async def test_a_kind_that_is_missing_is_asked_for_again_after_a_while_only() -> None:
    stage = Stage()
    for _ in range(3):
        with pytest.raises(NotServed, match="does not serve RayJob of ray"):
            await stage.mapper.resource_for("ray.io/v1", "RayJob")
    assert len(stage.wire.requests) == 1
    stage.served["/apis/ray.io/v1"] = [_entry("rayjobs", "RayJob")]
    await stage.clock.advance(10 * SECOND)
    found = await stage.mapper.resource_for("ray.io/v1", "RayJob")
    assert found == Resource("ray.io", "v1", "rayjobs", "RayJob")
    assert len(stage.wire.requests) == 2


@pytest.mark.parametrize("text", ["", "/", "a/b/c", "../v1/x/"])
async def test_an_api_version_that_is_none_is_not_served(text: str) -> None:
    with pytest.raises(NotServed):
        await Stage().mapper.resource_for(text, "Job")


async def test_a_version_with_a_hyphen_is_asked_for() -> None:
    stage = Stage()
    stage.served["/apis/example.com/v1-beta"] = [_entry("things", "Thing")]
    found = await stage.mapper.resource_for("example.com/v1-beta", "Thing")
    assert found == Resource("example.com", "v1-beta", "things", "Thing")


async def test_a_forgotten_group_version_is_asked_for_at_once() -> None:
    stage = Stage()
    await stage.mapper.resource_for("batch/v1", "Job")
    del stage.served["/apis/batch/v1"]
    stage.mapper.forget("batch/v1")
    with pytest.raises(NotServed):
        await stage.mapper.resource_for("batch/v1", "Job")


async def test_a_server_that_fails_says_nothing_about_the_kind() -> None:
    clock = VirtualClock()
    mapper = RestMapper(client_over(FakeWire(lambda request: refusal(500)), clock), clock)
    task = asyncio.ensure_future(mapper.resource_for("batch/v1", "Job"))
    while not task.done():
        await clock.advance(SECOND)
    with pytest.raises(ServerError):
        task.result()


async def test_group_versions_that_tenants_invent_are_forgotten_and_leave_no_lock() -> None:
    stage = Stage()
    assert await stage.mapper.resource_for("v1", "Pod") == PODS
    for number in range(2 * MAXIMUM_UNSERVED):
        with pytest.raises(NotServed):
            await stage.mapper.resource_for(f"invented{number}.example/v1", "Thing")
    assert stage.mapper.remembered == MAXIMUM_UNSERVED + 1
    asked = len(stage.wire.requests)
    last = f"invented{2 * MAXIMUM_UNSERVED - 1}.example/v1"
    with pytest.raises(NotServed):
        await stage.mapper.resource_for(last, "Thing")
    assert await stage.mapper.resource_for("v1", "Pod") == PODS
    assert len(stage.wire.requests) == asked


async def test_several_that_ask_at_once_for_an_invented_group_version_leave_no_lock() -> None:
    stage = Stage()
    asked = (stage.mapper.resource_for("invented/v1", "Thing") for _ in range(5))
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NotServed] * 5
    assert (stage.mapper.remembered, len(stage.wire.requests)) == (1, 1)


@pytest.mark.parametrize(
    "text", ["x" * 300, "a/" + "v" * 64, "..", "../v1", "a/../v1", "A/v1", "é/v1"]
)
async def test_text_that_is_no_group_version_is_neither_asked_for_nor_kept(text: str) -> None:
    stage = Stage()
    with pytest.raises(NotServed) as refused:
        await stage.mapper.resource_for(text, "K" * 1000)
    assert len(str(refused.value)) < 300
    assert (stage.mapper.remembered, stage.wire.requests) == (0, [])
