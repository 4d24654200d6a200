"""Deleting one's own GpuWorkload without end keeps nobody from eviction, on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from reprieve.kube.errors import ApiError
from reprieve.kube.resource import GPU_WORKLOADS, PREEMPTIONS
from tests.background import in_background
from tests.integration.site import JOBS, Object, Site, job
from tests.tiers import first_of


@pytest.mark.parametrize("per_second", first_of((10, 1, 40), most=1))
async def test_idle_work_is_evicted_though_its_record_is_deleted_all_the_time(
    site: Site, per_second: int
) -> None:
    site.reports("Job/demand", 90)
    site.reports("Job/notebook", 0)
    await site.create(job("notebook", 4, grace_period="6s"))
    await site.operator()
    await site.in_phase("Job/notebook", "Idle")
    async with in_background(_delete_without_end(site, per_second)):
        await site.create(job("demand", 4, enabled="true"))
        await site.until(lambda: _gone(site), "the end of the idle work")
        await site.in_phase("Job/demand", "Active")
    records = await site.all(PREEMPTIONS)
    (victim,) = [v for record in records for v in record["spec"]["victims"]]
    assert victim["root"]["name"] == "notebook"


async def _gone(site: Site) -> bool:
    found = await site.find(JOBS, "notebook")
    return not found or bool(found["metadata"].get("deletionTimestamp"))


async def _delete_without_end(site: Site, per_second: int) -> None:
    names: set[str] = set()
    while True:
        for found in await _records(site):
            if found["spec"]["workloadRef"]["name"] == "notebook":
                names.add(found["metadata"]["name"])
        for name in names:
            with contextlib.suppress(ApiError):
                await site.client.delete(GPU_WORKLOADS, "team", name)
        await asyncio.sleep(1 / per_second)


async def _records(site: Site) -> list[Any]:
    with contextlib.suppress(ApiError):
        found: list[Object] = await site.workloads()
        return found
    return []
