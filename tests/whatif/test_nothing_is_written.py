"""A plan writes nothing: what its only client lets through, and what the API server was sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubelocal.cluster import Stage, Write
from reprieve.kube.transport import Request
from reprieve.whatif.copy.wire import ReadingWire, WouldWrite
from reprieve.whatif.questions.answer import Verdict
from tests.kube.fakes import FakeAnswer
from tests.scheduling.site import group, node, pod, site
from tests.whatif.asking import ask


class Reached:
    """A wire that counts what comes through."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def send(self, request: Request, stream: bool, rejected: bool) -> FakeAnswer:
        self.requests.append(request)
        return FakeAnswer(body={})

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "request_",
    [
        Request("POST", "/api/v1/namespaces/team/pods"),
        Request("POST", "/api/v1/namespaces/team/pods", {"dryRun": "None"}),
        Request("POST", "/api/v1/namespaces/team/pods/one/binding"),
        Request("POST", "/api/v1/namespaces/team/pods/one/eviction"),
        Request("PUT", "/api/v1/namespaces/team/pods/one", {"dryRun": "All"}),
        Request("PATCH", "/api/v1/namespaces/team/pods/one", {"dryRun": "All"}),
        Request("DELETE", "/api/v1/namespaces/team/pods/one", {"dryRun": "All"}),
        Request("DELETE", "/api/v1/namespaces/team/pods/one"),
    ],
    ids=lambda each: f"{each.method} {each.path} {dict(each.query)}",
)
async def test_the_client_of_a_plan_cannot_write(request_: Request) -> None:
    reached = Reached()
    with pytest.raises(WouldWrite):
        await ReadingWire(reached).send(request_, False, False)
    assert reached.requests == []


async def test_reads_dry_runs_and_questions_of_rights_go_through() -> None:
    reached = Reached()
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    harmless = [
        Request("GET", "/api/v1/pods"),
        Request("POST", "/api/v1/namespaces/team/pods", {"dryRun": "All"}),
        Request("POST", reviews),
    ]
    for request in harmless:
        await ReadingWire(reached).send(request, False, False)
    assert reached.requests == harmless


async def test_the_api_server_sees_reads_and_dry_runs_alone(tmp_path: Path) -> None:
    """Plans, evictions, bindings, events and records stay in the overlay."""
    async with site([node("node-0"), node("node-1")], tmp_path, kubelet=True) as cluster:
        operator = await cluster.operator()
        await cluster.classes()
        await cluster.create(group("low", min_count=4, mode="all", priority="low"))
        await cluster.create(*(pod(f"low-{i}", 2, group="low", priority="low") for i in range(4)))
        await asyncio.sleep(20)
        await operator.stop()
        stored: list[Write] = []

        async def on_write(write: Write, stage: Stage) -> None:
            stored.append(write)

        cluster.embedded.cluster.on_write = on_write
        asked = await ask(
            cluster.embedded.kubeconfig,
            group("high", min_count=2, priority="high"),
            *(pod(f"high-{i}", 4, group="high", priority="high") for i in range(2)),
            controllers="scheduling",
            names=["default-scheduler"],
        )
        assert asked.answer.verdict is Verdict.STARTS_WITH_VICTIMS
        assert {each.name for each in asked.answer.victims} == {f"low-{i}" for i in range(4)}
        others = [each for each in asked.sent if each[0] != "GET"]
        assert [(method, dry) for method, _, dry in others] == [("POST", "All")] * 3
        assert all("dryRun=All" in write.path for write in stored), stored
        assert not any("watch" in path for _, path, _ in asked.sent)
        names = {each["metadata"]["name"] for each in (await cluster.pods()).values()}
        assert names == {f"low-{i}" for i in range(4)}
        assert await cluster.victims() == set()
