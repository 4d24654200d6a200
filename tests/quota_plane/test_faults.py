"""Jobs come, preempt each other and end on a server that often answers badly: none is lost."""

from __future__ import annotations

import random
from pathlib import Path

from reprieve.kube.errors import ApiError
from reprieve.kube.resource import PODS
from tests.quota_plane.site import CLUSTER_QUEUES, NAMESPACE, Object, Site, job, site
from tests.quota_plane.test_jobs import LOWER, base

JOBS = 40


async def end_some(cluster: Site, chosen: random.Random) -> None:
    """Let every pod of some running jobs succeed."""
    running = sorted(await cluster.running())
    for name in chosen.sample(running, min(2, len(running))):
        for pod in await cluster.pods_of(name):
            try:
                await cluster.client.patch_status(
                    PODS, NAMESPACE, pod["metadata"]["name"], {"phase": "Succeeded"}, dict
                )
            except ApiError:
                continue


async def test_no_job_is_lost_and_no_quota_is_left_held(tmp_path: Path) -> None:
    chosen = random.Random(7)
    async with site(tmp_path, *base(8, preemption=LOWER)) as cluster:
        cluster.embedded.cluster.faults.configure(
            seed=7, user="reprieve", conflict=0.05, too_many=0.05, error=0.05, drop_watch=0.01
        )

        async def full() -> bool:
            return len(await cluster.admitted()) == 4 and bool(await cluster.running())

        for index in range(JOBS):
            # High ones come last, when low ones run.
            priority = "low" if index < JOBS * 3 // 4 else "high"
            await cluster.create(job(f"job-{index}", priority=priority, pods=2))
            if index == JOBS * 3 // 4 - 1:
                await cluster.until("the queue is full", full)

        async def evicted() -> bool:
            found = [
                each
                for each in (await cluster.workloads()).values()
                if ((each.get("status") or {}).get("schedulingStats") or {}).get("evictions")
            ]
            return len(found) >= 3

        await cluster.until("some are preempted", evicted, patience=60.0)

        async def all_finished() -> bool:
            await end_some(cluster, chosen)
            found = await cluster.workloads()
            finished = [
                name
                for name, each in found.items()
                for condition in (each.get("status") or {}).get("conditions") or ()
                if condition["type"] == "Finished" and condition["status"] == "True"
            ]
            return len(finished) == JOBS

        await cluster.until("all jobs are finished", all_finished, patience=120.0)

        async def free() -> bool:
            queue: Object = await cluster.client.get(CLUSTER_QUEUES, "", "cq", dict)
            status = queue["status"]
            used = status["flavorsReservation"][0]["resources"][0]["total"]
            return (used, status["pendingWorkloads"], status["admittedWorkloads"]) == ("0", 0, 0)

        await cluster.until("nothing is held", free)

        async def closed() -> bool:
            found = await cluster.intents()
            phases = {(each.get("status") or {}).get("phase") for each in found}
            return phases <= {"Completed", "Abandoned"}

        await cluster.until("all intents are closed", closed)
