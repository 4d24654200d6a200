"""A job that only the plane's cache has gets no Workload again and again.

Its watch stands still, and the garbage collector deletes each Workload that is made for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubelocal.cluster import Stage, Write
from kubeworld.units.clock import VirtualClock
from reprieve.jobs.table import job_kinds
from reprieve.kube.bodies import Propagation
from reprieve.kube.reflector import Reflector
from reprieve.kube.transport import Request
from reprieve.planes.quota.job_reconciler.lost_workloads import LostWorkloads
from tests.kube.fakes import FakeAnswer, FakeWire, client_over
from tests.quota_plane.site import (
    JOBS,
    NAMESPACE,
    WORKLOADS,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    site,
)

_LONG_S = 30.0
_OBJECTS = (flavor(), cluster_queue("small", 1), local_queue("small", "small"))


@pytest.fixture
def deletions(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bool]]:
    """Whether the watch of Jobs says what is deleted."""
    said, take = {"said": True}, Reflector._apply

    def taken(self: Reflector[Any], event: Any) -> None:
        if said["said"] or (self.resource.plural, event.type) != ("jobs", "DELETED"):
            take(self, event)

    monkeypatch.setattr(Reflector, "_apply", taken)
    yield said


class Made:
    """The Workloads that were made since it was begun."""

    def __init__(self, cluster: Site) -> None:
        self.count = 0
        cluster.embedded.cluster.on_write = self._on_write

    async def _on_write(self, write: Write, stage: Stage) -> None:
        path = write.path.partition("?")[0]
        self.count += stage is Stage.STORED and path.endswith("/workloads")


async def _waits(cluster: Site) -> None:
    async def there() -> bool:
        return "large" in await cluster.workloads()

    await cluster.create(job("large", "small", pods=3))
    await cluster.until("the job has a Workload", there)


@pytest.mark.parametrize("propagation", [Propagation.BACKGROUND, Propagation.ORPHAN])
async def test_a_job_that_only_the_cache_has_gets_no_workload_again(
    tmp_path: Path, deletions: dict[str, bool], propagation: Propagation
) -> None:
    async with site(tmp_path, *_OBJECTS) as cluster:
        await _waits(cluster)
        made = Made(cluster)
        deletions["said"] = False
        await cluster.client.delete(JOBS, NAMESPACE, "large", propagation=propagation)
        await asyncio.sleep(_LONG_S)
        assert made.count == 0
        if propagation is Propagation.BACKGROUND:
            assert await cluster.workloads() == {}

        deletions["said"] = True
        await cluster.create(job("large", "small", pods=3))

        async def again() -> bool:
            return "large" in await cluster.workloads() and made.count == 1

        await cluster.until("the next job of the name has a Workload", again)


async def test_an_owner_of_another_kind_is_not_looked_for_among_the_jobs() -> None:
    asked: list[str] = []

    def answer(request: Request) -> FakeAnswer:
        asked.append(request.path.rpartition("/")[2])
        return FakeAnswer(200, {"metadata": {"name": asked[-1], "uid": f"uid-{asked[-1]}"}})

    lost = LostWorkloads(client_over(FakeWire(answer), VirtualClock()))
    kind = next(
        each for each in job_kinds() if each.kind == "Job" and each.api_version == "batch/v1"
    )

    def workload(*owners: tuple[str, str, str]) -> dict[str, Any]:
        references = [
            {"apiVersion": version, "kind": word, "name": name, "uid": f"uid-{name}"}
            for version, word, name in owners
        ]
        return {"metadata": {"namespace": "team", "ownerReferences": references}}

    lost.record("team/one")
    set_alone = workload(("example.com/v1", "Job", "large"), ("apps/v1", "StatefulSet", "large"))
    assert await lost.in_vain(kind, "team/one", set_alone)
    assert asked == []
    both = workload(("apps/v1", "StatefulSet", "set"), ("batch/v1", "Job", "large"))
    assert not await lost.in_vain(kind, "team/one", both)
    assert asked == ["large"]


async def test_a_job_whose_workload_is_deleted_by_hand_gets_the_next_one(tmp_path: Path) -> None:
    async with site(tmp_path, *_OBJECTS) as cluster:
        await _waits(cluster)
        made = Made(cluster)
        before = (await cluster.workloads())["large"]["metadata"]
        for count in (1, 2):
            await cluster.client.delete(WORKLOADS, NAMESPACE, before["name"])

            async def again(count: int = count) -> bool:
                found = (await cluster.workloads()).get("large")
                return found is not None and made.count == count

            await cluster.until("the next one is made", again)
        assert (await cluster.workloads())["large"]["metadata"]["uid"] != before["uid"]
