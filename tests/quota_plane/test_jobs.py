"""A Job from queued to finished, and a preemption in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.kube.resource import PODS, PREEMPTIONS
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    priority_class,
    site,
)

NO_ROOM = (
    "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor "
    "default-flavor, 2 more needed"
)
LOWER = {"withinClusterQueue": "LowerPriority"}


def base(cpu: int = 4, **spec: Any) -> list[Object]:
    """Return one queue with two priorities."""
    return [
        flavor(),
        cluster_queue("cq", cpu, **spec),
        local_queue("q", "cq"),
        priority_class("low", 100),
        priority_class("high", 10000),
    ]


async def end(cluster: Site, name: str) -> None:
    for pod in await cluster.pods_of(name):
        await cluster.client.patch_status(
            PODS, NAMESPACE, pod["metadata"]["name"], {"phase": "Succeeded"}, dict
        )


async def test_a_job_is_admitted_started_and_gives_its_quota_back(tmp_path: Path) -> None:
    async with site(tmp_path, *base(2)) as cluster:
        # One after the other: of two of the same second the uid would decide who is first.
        await cluster.create(job("first", pods=2))
        await cluster.until_admitted("first")
        await cluster.create(job("second", pods=2, suspend=False))
        found = (await cluster.workloads())["first"]
        assert found["spec"]["podSets"][0]["count"] == 2
        assert found["status"]["admission"]["podSetAssignments"] == [
            {
                "name": "main",
                "count": 2,
                "flavors": {"cpu": "default-flavor"},
                "resourceUsage": {"cpu": "2"},
            }
        ]

        async def waits() -> bool:
            said = await cluster.conditions("second")
            return said.get("QuotaReserved", ("", "", ""))[0] == "False"

        await cluster.until("the second waits", waits)
        assert (await cluster.job("second"))["spec"]["suspend"] is True
        await end(cluster, "first")
        await cluster.until_admitted("second")
        said = await cluster.conditions("first")
        assert said["Finished"][:2] == ("True", "Succeeded")

        async def shown() -> bool:
            queue: Object = await cluster.client.get(CLUSTER_QUEUES, "", "cq", dict)
            status = queue.get("status") or {}
            return (
                status.get("admittedWorkloads") == 1
                and status["flavorsUsage"][0]["resources"][0]["total"] == "2"
                and status["pendingWorkloads"] == 0
            )

        await cluster.until("the status shows it", shown)


async def test_a_job_of_higher_priority_preempts_within_its_queue(tmp_path: Path) -> None:
    async with site(tmp_path, *base(4, preemption=LOWER)) as cluster:
        await cluster.create(job("low-a", priority="low"), job("low-b", priority="low"))
        await cluster.until_admitted("low-a", "low-b")
        await cluster.create(job("high", priority="high"))

        async def over() -> bool:
            return "high" in await cluster.running() and len(await cluster.admitted()) == 2

        await cluster.until("high runs", over)
        (victim,) = {"low-a", "low-b"} - await cluster.admitted()

        async def requeued() -> bool:
            said = await cluster.conditions(victim)
            return said["QuotaReserved"][1] == "WaitingForQuota"

        await cluster.until("the victim waits", requeued)
        said, workloads = await cluster.conditions(victim), await cluster.workloads()
        uids = [
            workloads["high"]["metadata"]["uid"],
            (await cluster.job("high"))["metadata"]["uid"],
        ]
        message = (
            f"Preempted to accommodate a workload (UID: {uids[0]}, JobUID: {uids[1]}) due to "
            "prioritization in the ClusterQueue; preemptor path: /cq; preemptee path: /cq"
        )
        assert said["Evicted"] == ("True", "Preempted", message)
        assert said["Preempted"] == ("True", "InClusterQueue", message)
        assert said["Requeued"] == ("True", "Preempted", message)
        assert said["Admitted"] == ("False", "NoReservation", "The workload has no reservation")
        assert said["QuotaReserved"] == (
            "False",
            "WaitingForQuota",
            NO_ROOM,
        )
        assert workloads[victim]["status"]["schedulingStats"]["evictions"] == [
            {"reason": "Preempted", "underlyingCause": "", "count": 1}
        ]
        stopped = await cluster.job(victim)
        assert stopped["spec"]["suspend"] is True
        assert await cluster.pods_of(victim) == []

        async def completed() -> bool:
            found = await cluster.intents()
            return [(each.get("status") or {}).get("phase") for each in found] == ["Completed"]

        await cluster.until("the intent is closed", completed)
        await cluster.client.delete(JOBS, NAMESPACE, "high")
        await cluster.until_admitted("low-a", "low-b")


async def test_a_preemption_is_over_when_its_victim_ends_before_it_is_stopped(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, *base(2, preemption=LOWER)) as cluster:
        await cluster.create(job("low", priority="low"))
        await cluster.until_admitted("low")
        held = (await cluster.workloads())["low"]
        await cluster.create(job("high", priority="high"))

        async def closed() -> bool:
            phases = [(each.get("status") or {}).get("phase") for each in await cluster.intents()]
            return phases == ["Completed"]

        await cluster.until("the preemption is over", closed)
        await cluster.stop()
        # As if the job had succeeded between its mark and its suspension, and the process died.
        conditions = (await cluster.workloads())["low"]["status"]["conditions"]
        (evicted,) = (each for each in conditions if each["type"] == "Evicted")
        finished = {"type": "Finished", "reason": "Succeeded", "message": ""}
        ended = [*held["status"]["conditions"], evicted, {**evicted, **finished}]
        name = held["metadata"]["name"]
        status = {"admission": held["status"]["admission"], "conditions": ended}
        await cluster.client.patch_status(WORKLOADS, NAMESPACE, name, status, dict)
        (intent,) = await cluster.intents()
        open_again: Object = {"phase": "Evicting", "victims": [], "finishedAt": None}
        await cluster.client.patch_status(
            PREEMPTIONS, OPERATOR_NAMESPACE, intent["metadata"]["name"], open_again, dict
        )
        assert not await closed()
        await cluster.start()
        await cluster.until("the preemption is over again", closed)
        ((victim,),) = [each["status"]["victims"] for each in await cluster.intents()]
        assert (victim["state"], victim["message"]) == ("Evicted", "finished")


async def test_who_waits_without_having_been_evicted_is_no_victim_of_an_interrupted_plan(
    tmp_path: Path,
) -> None:
    """Its admission failed while the plan was recorded, and the process died before any mark."""
    async with site(tmp_path, *base(2, preemption=LOWER)) as cluster:
        await cluster.create(job("low", priority="low"))
        await cluster.until_admitted("low")
        await cluster.create(job("high", priority="high"))

        async def phases() -> list[str | None]:
            return [(each.get("status") or {}).get("phase") for each in await cluster.intents()]

        async def completed() -> bool:
            return await phases() == ["Completed"]

        await cluster.until("the preemption is over", completed)
        await cluster.until_admitted("high")
        await cluster.stop()
        waiting = (await cluster.workloads())["low"]
        status = waiting["status"]
        assert "admission" not in status
        status = {
            "conditions": [each for each in status["conditions"] if each["type"] != "Evicted"]
        }
        name = waiting["metadata"]["name"]
        await cluster.client.patch_status(WORKLOADS, NAMESPACE, name, status, dict)
        (intent,) = await cluster.intents()
        open_again: Object = {"phase": "Evicting", "victims": [], "finishedAt": None}
        await cluster.client.patch_status(
            PREEMPTIONS, OPERATOR_NAMESPACE, intent["metadata"]["name"], open_again, dict
        )
        await cluster.start()

        async def abandoned() -> bool:
            return await phases() == ["Abandoned"]

        await cluster.until("the preemption is abandoned", abandoned)
        ((victim,),) = [each["status"]["victims"] for each in await cluster.intents()]
        assert victim["state"] == "Spared"
