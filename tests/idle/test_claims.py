"""GPUs that pods hold by claims: tracked, and reclaimed for work that waits for devices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reprieve.scenarios.model import NodeSpec
from tests.idle.device_scheduler import (
    CLAIMS,
    claim,
    claiming,
    dcgm,
    device_class,
    published,
    scheduling,
    template,
)
from tests.idle.site import Site, job, open_site

NVIDIA = "gpu.nvidia.com"
NAME = f"deviceclass.resource.kubernetes.io/{NVIDIA}"
CONFIG = "gpuPreemption: {vendors: [nvidia]}\n"


class Devices:
    """A site with two nodes of one device each, a scheduler for it and an exporter."""

    def __init__(self, site: Site, url: str, busy: dict[str, float]) -> None:
        self.site = site
        self.busy = busy
        self._environment = {"GPU_PREEMPTION_METRICS_ENDPOINT": url}

    async def run(self, config: str = CONFIG) -> None:
        await self.site.run(self._environment, config=config)

    async def wants(self, name: str) -> None:
        """Create a Job for one device of a template."""
        await self.site.create(claiming(job(name, enabled="true"), by_template="one"))

    async def uses(self, name: str, by_name: str, **annotations: str) -> None:
        """Create a Job that uses a claim of that name."""
        await self.site.create(claiming(job(name, **annotations), by_name=by_name))


@pytest.fixture
async def devices(tmp_path: Path) -> AsyncIterator[Devices]:
    nodes = [NodeSpec(f"node-{number}", {}) for number in range(2)]
    busy: dict[str, float] = {}
    async with open_site(tmp_path, nodes) as site, dcgm(site, busy) as url:
        await site.create(
            device_class(NVIDIA),
            published("node-0", NVIDIA, 1),
            published("node-1", NVIDIA, 1),
            template("one", NVIDIA),
        )
        async with scheduling(site):
            yield Devices(site, url, busy)


async def test_an_idle_pod_is_evicted_for_one_that_waits_for_devices(devices: Devices) -> None:
    site = devices.site
    devices.busy |= {"kept": 90.0, "wanting": 90.0}
    await devices.run()
    await devices.wants("kept")
    await site.until_phase("Job/kept", "Active")
    await devices.wants("unused")
    tracked = await site.until_phase("Job/unused", "Idle")
    assert tracked["spec"]["gpuResources"] == {NAME: 1}
    assert tracked["status"]["gpus"] == f"1 {NAME}"

    await devices.wants("wanting")
    over = await site.until_phase("Job/unused", "Preempted")
    await site.until_phase("Job/wanting", "Active")

    demand = await site.workload("Job/wanting")
    assert demand is not None
    reason = f"Preempted to free 1 {NAME} for pending workload {demand['metadata']['name']}"
    assert over["status"]["preemptionReason"] == reason
    (record,) = await site.records()
    assert record["spec"]["proof"]["need"] == {NAME: 1}
    assert record["spec"]["proof"]["level"] == "Placement"
    assert await site.phase("Job/kept") == "Active"


async def test_a_device_that_was_released_while_its_plan_was_open_is_not_freed_twice(
    devices: Devices,
) -> None:
    """Both could go; the claim of the first is given back before the demand has its pod placed."""
    site = devices.site
    devices.busy |= {"wanting": 90.0}
    await devices.run()
    await devices.wants("first")
    await site.until_phase("Job/first", "Idle")
    await devices.wants("second")
    await site.until_phase("Job/second", "Idle")
    await asyncio.sleep(5)  # both are beyond their grace period

    await devices.wants("wanting")
    await site.until_phase("Job/wanting", "Active")
    await asyncio.sleep(30)  # beyond the time that freed GPUs count as on their way

    phases = {await site.phase("Job/first"), await site.phase("Job/second")}
    assert phases == {"Preempted", "Idle"}
    assert len(await site.records()) == 1
    allocated = [each for each in await site.all(CLAIMS) if "allocation" in each.get("status", {})]
    assert len(allocated) == 2


async def test_who_shares_a_claim_goes_with_all_others_and_the_device_counts_once(
    devices: Devices,
) -> None:
    site = devices.site
    devices.busy |= {"kept": 90.0, "wanting": 90.0}
    await site.create(claim("both", NVIDIA))
    await devices.run()
    await devices.wants("kept")
    await site.until_phase("Job/kept", "Active")
    await devices.uses("one", "both", enabled="true")
    await site.until_phase("Job/one", "Idle")
    await devices.uses("other", "both", enabled="true")
    await site.until_phase("Job/other", "Idle")
    counted = [await site.workload(f"Job/{name}") for name in ("one", "other")]
    assert [each["spec"]["gpuResources"] for each in counted if each] == [{NAME: 1}, {NAME: 0}]

    await devices.wants("wanting")
    await site.until_phase("Job/one", "Preempted")
    await site.until_phase("Job/other", "Preempted")
    await site.until_phase("Job/wanting", "Active")

    (record,) = await site.records()
    assert record["spec"]["proof"]["freed"] == {NAME: 1}
    assert len(record["spec"]["victims"]) == 2


async def test_nobody_goes_whose_device_others_keep(devices: Devices) -> None:
    site = devices.site
    devices.busy |= {"kept": 90.0, "wanting": 90.0}
    await site.create(claim("both", NVIDIA))
    await devices.run()
    await devices.wants("kept")
    await site.until_phase("Job/kept", "Active")
    await devices.uses("tracked", "both", enabled="true")
    await site.until_phase("Job/tracked", "Idle")
    await devices.uses("stranger", "both")
    await site.until(lambda: _reserved_for(site, "both", 2))

    await devices.wants("wanting")
    await site.until_phase("Job/wanting", "PendingGpu")
    await asyncio.sleep(30)
    assert (await site.phase("Job/tracked"), await site.records()) == ("Idle", [])

    # Once the other has ended the device comes free with the one that is left.
    await site.delete("jobs.batch", "stranger")
    await site.until_phase("Job/tracked", "Preempted")
    await site.until_phase("Job/wanting", "Active")


async def test_a_claim_whose_device_moved_is_reclaimed_where_it_is_now(devices: Devices) -> None:
    """The claim stays when its pod ends, and its next pod has a device of another node."""
    site = devices.site
    devices.busy |= {"kept": 90.0, "wanting": 90.0}
    await site.create(claim("moving", NVIDIA))
    await devices.run()
    await devices.uses("early", "moving", enabled="true")
    await site.until_phase("Job/early", "Idle")
    await site.delete("jobs.batch", "early")
    await site.until(lambda: _reserved_for(site, "moving", 0))
    await devices.wants("kept")
    await site.until_phase("Job/kept", "Active")
    await devices.uses("late", "moving", enabled="true")
    await site.until_phase("Job/late", "Idle")

    await devices.wants("wanting")
    await site.until_phase("Job/late", "Preempted")
    await site.until_phase("Job/wanting", "Active")

    (record,) = await site.records()
    (placed,) = record["spec"]["placement"]
    assert placed["node"] == "node-1"


async def test_pods_of_other_classes_are_not_tracked(devices: Devices) -> None:
    site = devices.site
    nic = "nic.example.com"
    await site.create(device_class(nic), published("node-0", nic, 1), template("nic", nic))
    await devices.run()
    await site.create(claiming(job("networked", enabled="true"), by_template="nic"))
    await devices.wants("tracked")
    await site.until_phase("Job/tracked", "Idle")
    assert await site.phase("Job/networked") is None


async def test_a_class_that_is_an_extended_resource_has_its_name(devices: Devices) -> None:
    site = devices.site
    await site.patch(
        "deviceclasses.resource.k8s.io",
        NVIDIA,
        {"spec": {"extendedResourceName": "nvidia.com/gpu"}},
        namespace="",
    )
    await devices.run()
    await devices.wants("tracked")
    tracked = await site.until_phase("Job/tracked", "Idle")
    assert tracked["spec"]["gpuResources"] == {"nvidia.com/gpu": 1}


async def _reserved_for(site: Site, name: str, users: int) -> bool:
    found = await site.get(CLAIMS, name)
    return found is not None and len((found.get("status") or {}).get("reservedFor", ())) == users
