"""The statuses of PodGroups go on from the answers to their own writes, not from older events."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import msgspec

from kubeworld.units.clock import VirtualClock
from reprieve.api.gangs import KOORDINATOR, PodGroup
from reprieve.kube.transport import Request
from reprieve.planes.scheduling.gangs.statuses import GroupStatuses
from tests.kube.fakes import FakeAnswer, FakeWire, client_over


class Open:
    """A fence that lets every write through."""

    def check(self) -> None:
        pass


def group(version: int, **status: Any) -> dict[str, Any]:
    metadata = {"name": "g", "namespace": "team", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"minMember": 1}, "status": status}


async def test_an_event_that_is_older_than_our_own_write_changes_nothing() -> None:
    stored = group(5)
    sent: list[dict[str, Any]] = []

    def take(request: Request) -> FakeAnswer:
        assert request.body is not None
        patch = msgspec.json.decode(request.body)
        sent.append(patch)
        assert patch["metadata"] == {"uid": "u"}
        stored["status"] |= patch["status"]
        stored["metadata"]["resourceVersion"] = str(5 + len(sent))
        return FakeAnswer(200, copy.deepcopy(stored))

    clock = VirtualClock()
    fence: Any = Open()
    client = client_over(FakeWire(take), clock)
    statuses = GroupStatuses(client, fence, clock, lambda id: (), fault=lambda: None, dry_run=False)
    task = asyncio.create_task(statuses.run())

    async def quiet() -> int:
        for _ in range(200):
            await asyncio.sleep(0)
        return len(sent)

    before = msgspec.convert(group(5), PodGroup)
    statuses.observe(KOORDINATOR, before)
    written = await quiet()
    assert written > 0
    statuses.observe(KOORDINATOR, before)
    assert await quiet() == written
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
