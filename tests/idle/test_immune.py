"""A user who acts on his own GpuWorkload all the time does not keep idle work from its eviction.

Where nothing else suffices the idle work is evicted as it would be otherwise, and its idle time
goes on, whatever the user deletes, creates or writes, and however often.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import pytest

from kubelocal.server.errors import StatusError
from tests.background import in_background
from tests.idle.site import GPU_WORKLOADS, NAMESPACE, Object, Site, container, job
from tests.tiers import first_of

Act = Callable[[Site, Object, int], Awaitable[object]]


async def delete(site: Site, found: Object, turn: int) -> None:
    for each in await site.all(GPU_WORKLOADS, NAMESPACE):
        if each["spec"]["workloadRef"]["uid"] == found["spec"]["workloadRef"]["uid"]:
            await site.delete(GPU_WORKLOADS, each["metadata"]["name"])


async def delete_and_create(site: Site, found: Object, turn: int) -> None:
    await delete(site, found, turn)
    await site.create(_copy(found, found["metadata"]["name"]))


async def create_under_another_name(site: Site, found: Object, turn: int) -> None:
    await delete(site, found, turn)
    await site.create(_copy(found, f"by-hand-{turn}"))


async def annotate(site: Site, found: Object, turn: int) -> None:
    changes = {"metadata": {"annotations": {"turn": str(turn)}}}
    await site.patch(GPU_WORKLOADS, found["metadata"]["name"], changes)


async def hold_by_a_finalizer(site: Site, found: Object, turn: int) -> None:
    changes = {"metadata": {"finalizers": ["team.example/stays"]}}
    if not found["metadata"].get("deletionTimestamp"):
        await site.patch(GPU_WORKLOADS, found["metadata"]["name"], changes)
        await delete(site, found, turn)
    else:
        await annotate(site, found, turn)


async def write_status(site: Site, found: Object, turn: int) -> None:
    status = {"phase": "Active", "idleSince": None}
    await site.patch(
        GPU_WORKLOADS, found["metadata"]["name"], {"status": status}, subresource="status"
    )


RATES: Final = (10, 1, 40)
ACTS: Final[Mapping[str, Act]] = {
    each.__name__: each
    for each in (
        delete,
        delete_and_create,
        create_under_another_name,
        annotate,
        hold_by_a_finalizer,
        write_status,
    )
}


@pytest.mark.parametrize("story", first_of((f"{act} {n}" for n in RATES for act in ACTS), most=6))
async def test_idle_work_is_evicted_whatever_its_owner_does(site: Site, story: str) -> None:
    act, _, per_second = story.partition(" ")
    await site.create(job("victim", container(gpu=8), enabled="true", grace_period="4s"))
    site.busy("Job/demand", 90)
    await site.run()
    await site.until_phase("Job/victim", "Idle")
    async with in_background(_without_end(site, "victim", ACTS[act], int(per_second))):
        await asyncio.sleep(2)
        await site.create(job("demand", container(gpu=8), enabled="true"))
        await site.until_phase("Job/demand", "Active", seconds=20)
    assert site.evictions() == [f"delete /apis/batch/v1/namespaces/{NAMESPACE}/jobs/victim"]
    (record,) = await site.records()
    assert record["spec"]["preemptor"]["name"].startswith("job-demand-")


@pytest.mark.parametrize("per_second", first_of(RATES))
async def test_a_demand_whose_owner_deletes_its_record_has_one_plan(
    site: Site, per_second: int
) -> None:
    for name in ("first", "second"):
        await site.create(job(name, container(gpu=4), enabled="true", grace_period="2s"))
    site.busy("Job/demand", 90)
    await site.run()
    for name in ("first", "second"):
        await site.until_phase(f"Job/{name}", "Idle")
    await site.create(job("demand", container(gpu=4), enabled="true"))
    async with in_background(_without_end(site, "demand", delete, per_second)):
        await site.until_phase("Job/demand", "Active", seconds=20)
    assert len(site.evictions()) == 1
    (record,) = await site.records()
    assert record["spec"]["preemptor"]["name"].startswith("job-demand-")


@pytest.mark.parametrize("per_second", first_of(RATES))
async def test_the_policy_always_ends_idle_work_whose_owner_deletes_its_record(
    site: Site, per_second: int
) -> None:
    victim = job("victim", container(gpu=8), enabled="true", grace_period="4s", policy="Always")
    await site.create(victim)
    await site.run()
    await site.until_phase("Job/victim", "Idle")
    async with in_background(_without_end(site, "victim", delete, per_second)):
        await site.until(lambda: site.evictions(), seconds=8)
    assert site.evictions() == [f"delete /apis/batch/v1/namespaces/{NAMESPACE}/jobs/victim"]


async def _without_end(site: Site, name: str, act: Act, per_second: int) -> None:
    for turn in range(1_000_000):
        found = await site.workload(f"Job/{name}")
        if found is not None:
            with contextlib.suppress(StatusError):
                await act(site, found, turn)
        await asyncio.sleep(1 / per_second)


def _copy(found: Object, name: str) -> Object:
    return {
        "apiVersion": found["apiVersion"],
        "kind": found["kind"],
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": found["spec"],
    }
