"""An answer that is lost leaves a stale copy here: nobody is evicted in two records for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar

import pytest

from reprieve.kube.errors import Unreachable
from reprieve.kube.transport import Answer, HttpWire, Request
from reprieve.operator import process
from reprieve.planes.idle.records import WorkloadRecord
from reprieve.planes.idle.workloads import TrackedWorkload, TrackedWorkloads
from tests.idle.site import Site, container, job

_NAME = "job-kept-"


class _Lossy(HttpWire):
    """Loses the answer to the write of `Preempted`, after which the watch is late."""

    lost: ClassVar[bool] = False

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        loses = not _Lossy.lost and b'"phase":"Preempted"' in (request.body or b"")
        # The watch may be faster than the answer.
        _Lossy.lost |= loses
        answer = await super().send(request, stream, rejected)
        if loses:
            raise Unreachable("the connection ended")
        return answer


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Event]:
    """While it is not set, the watch shows nothing of the victim after the answer was lost."""
    shown, put_record = asyncio.Event(), TrackedWorkloads.observe_record

    def put(self: TrackedWorkloads, record: WorkloadRecord) -> TrackedWorkload:
        held = next((each for each in self if each.ref.name == record.name), None)
        if _Lossy.lost and not shown.is_set() and held and record.name.startswith(_NAME):
            return held
        return put_record(self, record)

    monkeypatch.setattr(TrackedWorkloads, "observe_record", put)
    monkeypatch.setattr(process, "HttpWire", _Lossy)
    _Lossy.lost = False
    yield shown
    _Lossy.lost = False


async def test_who_is_evicted_has_one_record_though_the_answer_to_its_mark_is_lost(
    site: Site, late: asyncio.Event
) -> None:
    await site.create(job("kept", container(gpu=8), enabled="true"))
    site.busy("Job/demand", 80)
    operator = await site.run()
    await site.until_phase("Job/kept", "Idle")
    await site.create(job("demand", container(gpu=8), enabled="true"))
    await site.until(lambda: operator.said("completed: 1 of 1 victims evicted"))
    # Somebody else waits, so that there is another evaluation before the watch shows it.
    await site.create(job("another", container(gpu=8), enabled="true"))
    await site.until_event("GpuWorkload/job-another", "NobodyMakesWay")
    late.set()
    await site.delete("jobs.batch", "demand")
    await site.until_phase("Job/another", "Idle")
    assert [record["status"]["phase"] for record in await site.records()] == ["Completed"]
