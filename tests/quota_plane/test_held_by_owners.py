"""Work whose owner keeps it from ending keeps nobody of higher priority waiting for good."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from reprieve.kube.errors import ApiError
from reprieve.kube.resource import NODES, PODS
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.site import JOBS, NAMESPACE, Object, Site, job, node, site
from tests.quota_plane.test_jobs import LOWER, base

_OPTIONS = QuotaOptions(loop_limit=3)
_EVERY_S = 0.02


def _kept(grace: int = 1) -> Object:
    kept = job("kept", priority="low", pods=2)
    template = kept["spec"]["template"]
    template["spec"]["terminationGracePeriodSeconds"] = grace
    template["metadata"] = {"annotations": {"sim.reprieve.dev/termination-time": f"{grace}s"}}
    return kept


@contextlib.asynccontextmanager
async def _resumed(cluster: Site) -> AsyncIterator[None]:
    """Resume the job each time that it is suspended."""

    async def resume() -> None:
        while True:
            with contextlib.suppress(ApiError):
                change = {"spec": {"suspend": False}}
                await cluster.client.patch(JOBS, NAMESPACE, "kept", change, dict)
            await asyncio.sleep(_EVERY_S)

    resuming = asyncio.create_task(resume())
    yield
    resuming.cancel()


async def _until_high_runs(cluster: Site, seconds: float) -> None:
    async def runs() -> bool:
        return "high" in await cluster.running()

    await cluster.until("the preemptor runs", runs, seconds)


async def test_a_job_that_is_resumed_each_time_gives_its_quota_back(tmp_path: Path) -> None:
    async with site(tmp_path, *base(2, preemption=LOWER), options=_OPTIONS) as cluster:
        await cluster.create(_kept())
        await cluster.until_admitted("kept")
        before = {pod["metadata"]["uid"] for pod in await cluster.pods_of("kept")}
        async with _resumed(cluster):
            await cluster.create(job("high", priority="high", pods=2))
            await _until_high_runs(cluster, 30.0)
            assert await cluster.admitted() == {"high"}
            # Whoever was there when it was evicted has ended.
            left = {pod["metadata"]["uid"] for pod in await cluster.pods_of("kept")}
            assert not before & left


async def test_a_job_whose_pods_may_take_years_to_end_is_passed_by(tmp_path: Path) -> None:
    async with site(tmp_path, *base(4, preemption=LOWER), options=_OPTIONS) as cluster:
        await cluster.create(job("beside", priority="low", pods=2))
        await cluster.until_admitted("beside")
        await cluster.create(_kept(10**9))
        await cluster.until_admitted("beside", "kept")
        await cluster.create(job("high", priority="high", pods=2))
        await cluster.until_admitted("high", "kept")


async def test_where_nobody_else_is_a_job_that_takes_hours_to_end_is_evicted(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, *base(2, preemption=LOWER), options=_OPTIONS) as cluster:
        await cluster.create(_kept(7_200))
        await cluster.until_admitted("kept")
        await cluster.create(job("high", priority="high", pods=2))

        async def evicted() -> bool:
            return (await cluster.conditions("kept")).get("Evicted", ("",))[0] == "True"

        await cluster.until("it is evicted", evicted, 300.0)


async def test_others_are_evicted_where_the_pods_of_a_victim_do_not_end(tmp_path: Path) -> None:
    nodes = [node("node-0", 2), node("node-1", 4)]
    options = {"preemption": LOWER}
    async with site(tmp_path, *base(4, **options), options=_OPTIONS, nodes=nodes) as cluster:
        await cluster.create(job("beside", priority="low", pods=2))
        await cluster.until_admitted("beside")
        await cluster.create(_kept())
        await cluster.until_admitted("beside", "kept")
        for pod in await cluster.pods_of("kept"):
            # As where a volume cannot be unmounted.
            stuck = {"metadata": {"finalizers": ["example.com/volume"]}}
            await cluster.client.patch(PODS, NAMESPACE, pod["metadata"]["name"], stuck, dict)
            silent = {"metadata": {"annotations": {"sim.reprieve.dev/ready": "unknown"}}}
            await cluster.client.patch(NODES, "", pod["spec"]["nodeName"], silent, dict)
        await cluster.create(job("high", priority="high", pods=2))
        await cluster.until("beside is evicted", lambda: _is_evicted(cluster, "beside"), 600.0)


async def _is_evicted(cluster: Site, name: str) -> bool:
    return (await cluster.conditions(name)).get("Evicted", ("",))[0] == "True"
