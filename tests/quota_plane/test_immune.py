"""Whatever the owner of admitted work does to its objects, a higher priority has its quota.

The owner deletes, creates or patches his own job, Workload and pods without end, at several rates.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from reprieve.kube.errors import ApiError
from reprieve.kube.resource import PODS
from reprieve.planes.quota.context import QuotaOptions
from tests.background import in_background
from tests.quota_plane.site import JOBS, NAMESPACE, WORKLOADS, Object, Site, job, site
from tests.quota_plane.test_jobs import LOWER, base
from tests.tiers import first_of

Act = Callable[[Site, int], Awaitable[object]]
_OPTIONS: Final = QuotaOptions(loop_limit=3)


async def delete_the_workload(cluster: Site, turn: int) -> None:
    for name in await _workloads(cluster):
        await cluster.client.delete(WORKLOADS, NAMESPACE, name)


async def delete_and_create_the_workload(cluster: Site, turn: int) -> None:
    for name, found in (await _workloads(cluster)).items():
        await cluster.client.delete(WORKLOADS, NAMESPACE, name)
        kept = {key: found["metadata"][key] for key in ("name", "labels", "ownerReferences")}
        copy = {"metadata": {**kept, "namespace": NAMESPACE}, "spec": found["spec"]}
        await cluster.client.create(WORKLOADS, copy, dict)


async def hold_the_workload(cluster: Site, turn: int) -> None:
    for name, found in (await _workloads(cluster)).items():
        if not found["metadata"].get("deletionTimestamp"):
            finalizers = {"metadata": {"finalizers": ["team.example/stays"]}}
            await cluster.client.patch(WORKLOADS, NAMESPACE, name, finalizers, dict)
            await cluster.client.delete(WORKLOADS, NAMESPACE, name)


async def patch_the_workload(cluster: Site, turn: int) -> None:
    change = {"metadata": {"annotations": {"turn": str(turn)}}, "spec": {"active": True}}
    for name in await _workloads(cluster):
        await cluster.client.patch(WORKLOADS, NAMESPACE, name, change, dict)


async def delete_and_create_the_job(cluster: Site, turn: int) -> None:
    await cluster.client.delete(JOBS, NAMESPACE, "one")
    await cluster.create(job("one", priority="low", pods=2))


async def hold_the_job(cluster: Site, turn: int) -> None:
    change = {"metadata": {"finalizers": ["team.example/stays"], "labels": {"turn": str(turn)}}}
    await cluster.client.patch(JOBS, NAMESPACE, "one", change, dict)


async def resume_the_job(cluster: Site, turn: int) -> None:
    await cluster.client.patch(JOBS, NAMESPACE, "one", {"spec": {"suspend": False}}, dict)


async def delete_the_pods(cluster: Site, turn: int) -> None:
    for pod in await cluster.pods_of("one"):
        await cluster.client.delete(PODS, NAMESPACE, pod["metadata"]["name"])


ACTS: Final[Mapping[str, Act]] = {
    each.__name__: each
    for each in (
        delete_the_workload,
        delete_and_create_the_workload,
        hold_the_workload,
        patch_the_workload,
        delete_and_create_the_job,
        hold_the_job,
        resume_the_job,
        delete_the_pods,
    )
}
RATES: Final = (10, 1, 40)


@pytest.mark.parametrize("story", first_of((f"{act} {n}" for n in RATES for act in ACTS), most=8))
async def test_a_higher_priority_has_its_quota_whatever_the_owner_does(
    tmp_path: Path, story: str
) -> None:
    act, _, rate = story.partition(" ")
    async with site(tmp_path, *base(2, preemption=LOWER), options=_OPTIONS) as cluster:
        await cluster.create(job("one", priority="low", pods=2))
        await cluster.until_admitted("one")
        async with in_background(_without_end(cluster, ACTS[act], int(rate))):
            await asyncio.sleep(2)
            await cluster.create(job("high", priority="high", pods=2))
            await cluster.until("it runs", lambda: _runs(cluster, "high"), 60.0)
            await asyncio.sleep(10)
            assert "one" not in await cluster.running() and "high" in await cluster.running()
        assert len(await cluster.intents()) <= 2


async def _runs(cluster: Site, name: str) -> bool:
    return name in await cluster.running()


async def _workloads(cluster: Site) -> dict[str, Any]:
    """Return the Workloads of the job by their names."""
    page = await cluster.client.list(WORKLOADS, dict, namespace=NAMESPACE)
    found: list[Object] = page.items
    return {
        each["metadata"]["name"]: each
        for each in found
        if each["metadata"]["name"].startswith("job-one-")
    }


async def _without_end(cluster: Site, act: Act, rate: int) -> None:
    for turn in range(1_000_000):
        with contextlib.suppress(ApiError):
            await act(cluster, turn)
        await asyncio.sleep(1 / rate)
