"""Idle work for what another Kueue keeps waiting: only what holds the quota that is lacking.

Kueue itself is not there: the test writes what its controller writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from reprieve.scenarios.model import NodeSpec
from tests.idle.site import NAMESPACE, Site, container, job, open_site, owned_by

V = "kueue.x-k8s.io/v1beta2"
GPU = "amd.com/gpu"
WORKLOADS = "workloads.kueue.x-k8s.io"
REFUSED = f"couldn't assign flavors to pod set main: insufficient quota for {GPU} in flavor"
Object = dict[str, Any]


def flavor(name: str) -> Object:
    return {"apiVersion": V, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {}}


def queues(name: str, cohort: str, **nominal: int) -> list[Object]:
    """Return a ClusterQueue with these quotas, by flavor, and its LocalQueue of the same name."""
    flavors = [
        {"name": each, "resources": [{"name": GPU, "nominalQuota": str(amount)}]}
        for each, amount in nominal.items()
    ]
    group = {"coveredResources": [GPU], "flavors": flavors}
    return [
        {
            "apiVersion": V,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {
                "cohortName": cohort,
                "namespaceSelector": {},
                "resourceGroups": [group],
                "preemption": {"reclaimWithinCohort": "Any"},
            },
        },
        {
            "apiVersion": V,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"clusterQueue": name},
        },
    ]


class Kueue:
    """A Kueue played by hand, on nodes with room for everything."""

    def __init__(self, site: Site) -> None:
        self.site = site

    async def queue(self, name: str, gpus: int, queue: str, status: Object) -> None:
        """Create a job and its Workload in a queue, with what Kueue says of it."""
        suspended = "admission" not in status
        wanted = job(name, container(gpu=gpus), enabled="true")
        wanted["spec"]["suspend"] = suspended
        stored = await self.site.create(wanted)
        template = {"spec": wanted["spec"]["template"]["spec"]}
        await self.site.create(
            {
                "apiVersion": V,
                "kind": "Workload",
                "metadata": {
                    "name": f"job-{name}",
                    "namespace": NAMESPACE,
                    "ownerReferences": owned_by(stored),
                },
                "spec": {
                    "queueName": queue,
                    "podSets": [{"name": "main", "count": 1, "template": template}],
                },
            }
        )
        await self.site.patch(WORKLOADS, f"job-{name}", {"status": status}, subresource="status")

    async def admitted(self, name: str, gpus: int, queue: str, flavor: str) -> None:
        """Create a job that is idle and holds quota of a flavor."""
        assigned = {
            "name": "main",
            "count": 1,
            "flavors": {GPU: flavor},
            "resourceUsage": {GPU: str(gpus)},
        }
        admission = {"clusterQueue": queue, "podSetAssignments": [assigned]}
        await self.queue(
            name, gpus, queue, {"admission": admission, "conditions": [_reserved("True", "")]}
        )

    async def refused(self, name: str, gpus: int, queue: str, flavor: str) -> None:
        """Create a job that lacks quota of a flavor."""
        said = _reserved("False", f"{REFUSED} {flavor}, 1 more needed")
        await self.queue(name, gpus, queue, {"conditions": [said]})

    async def until(self, **phases: str) -> None:
        """Wait for the phases of jobs."""

        async def are_there() -> bool:
            return await self.phases(*phases) == phases

        await self._once(are_there)

    async def freed(self, name: str) -> None:
        """Wait until a job has gone, and its Workload with it."""
        await self.until(**{name: "Preempted"})
        await self._once(lambda: self._is_gone(name))

    async def closed(self) -> None:
        """Wait until nobody expects a demand to come any more for which idle work went."""
        await self._once(self._is_closed)

    async def _is_gone(self, name: str) -> bool:
        return await self.site.get(WORKLOADS, f"job-{name}") is None

    async def _is_closed(self) -> bool:
        records = await self.site.all("preemptions.reprieve.dev")
        return all(each["status"]["phase"] != "Evicting" for each in records)

    async def _once(self, holds: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(10_000):
            if await holds():
                return
            await asyncio.sleep(0.1)
        raise AssertionError(self.site.lines[-20:])

    async def phases(self, *names: str) -> dict[str, str | None]:
        return {name: await self.site.phase(f"Job/{name}") for name in names}

    async def polled(self, times: int = 20) -> None:
        """Wait until the operator has had many occasions to decide."""
        await asyncio.sleep(0.3 * times)


def _reserved(status: str, message: str) -> Object:
    return {
        "type": "QuotaReserved",
        "status": status,
        "reason": "QuotaReserved" if status == "True" else "Pending",
        "message": message,
        "lastTransitionTime": "2026-03-04T10:00:00Z",
    }


@pytest.fixture
async def kueue(tmp_path: Path) -> AsyncIterator[Kueue]:
    """Two cohorts, of which one has two flavors; plenty of free GPUs on the node."""
    nodes = [NodeSpec("gpu-0", {GPU: "64"})]
    async with open_site(tmp_path, nodes, kueue=True) as site:
        await site.create(
            flavor("new"),
            flavor("old"),
            *queues("mine", "a", new=4),
            *queues("beside", "a", new=4, old=4),
            *queues("elsewhere", "b", new=8),
        )
        yield Kueue(site)


async def test_idle_work_goes_that_holds_quota_of_the_cohort_and_flavor_and_none_else(
    kueue: Kueue,
) -> None:
    await kueue.site.create(job("unqueued", container(gpu=8), enabled="true"))
    await kueue.admitted("stranger", 8, "elsewhere", "new")
    await kueue.admitted("other-flavor", 4, "beside", "old")
    await kueue.admitted("lender", 4, "beside", "new")
    await kueue.site.run()
    idle = dict.fromkeys(("unqueued", "stranger", "other-flavor", "lender"), "Idle")
    await kueue.until(**idle)
    await kueue.refused("demand", 8, "mine", "new")
    await kueue.freed("lender")
    await kueue.polled()
    assert await kueue.phases(*idle) == {**idle, "lender": "Preempted"}


async def test_no_more_idle_work_goes_than_quota_is_lacking(kueue: Kueue) -> None:
    await kueue.admitted("first", 2, "beside", "new")
    await kueue.admitted("second", 2, "beside", "new")
    await kueue.site.run()
    await kueue.until(first="Idle", second="Idle")
    await kueue.refused("demand", 6, "mine", "new")
    await kueue.freed("first")
    await kueue.polled()
    assert await kueue.phases("first", "second") == {"first": "Preempted", "second": "Idle"}


async def test_nobody_goes_where_all_idle_work_of_the_cohort_is_too_little(kueue: Kueue) -> None:
    await kueue.admitted("lender", 4, "beside", "new")
    await kueue.site.run()
    await kueue.until(lender="Idle")
    await kueue.refused("demand", 16, "mine", "new")
    await kueue.until(demand="PendingGpu")
    await kueue.polled()
    assert await kueue.phases("lender") == {"lender": "Idle"}


@pytest.mark.thorough
async def test_nobody_more_goes_until_quota_changes_where_kueue_does_not_use_what_is_free(
    kueue: Kueue,
) -> None:
    await kueue.admitted("first", 4, "beside", "new")
    await kueue.admitted("second", 4, "mine", "new")
    await kueue.site.run()
    await kueue.until(first="Idle", second="Idle")
    await kueue.refused("demand", 4, "mine", "new")
    await kueue.freed("first")
    await kueue.closed()
    await kueue.polled()
    assert await kueue.phases("second") == {"second": "Idle"}
    # Somebody else has what was freed: the demand lacks it once more.
    await kueue.admitted("busy", 4, "beside", "new")
    kueue.site.busy("Job/busy", 90)
    await kueue.freed("second")


async def test_the_sum_of_all_gpus_decides_where_a_file_says_so(kueue: Kueue) -> None:
    await kueue.site.create(job("unqueued", container(gpu=8), enabled="true"))
    await kueue.site.run(config="gpuPreemption: {queuedDemandSum: true}\n")
    await kueue.until(unqueued="Idle")
    await kueue.refused("demand", 8, "mine", "new")
    await kueue.until(unqueued="Preempted")
