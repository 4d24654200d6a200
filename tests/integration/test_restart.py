"""What an operator that was away takes up again."""

from __future__ import annotations

import os
import signal

import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import format_instant
from reprieve.kube.resource import GPU_WORKLOADS, PREEMPTIONS
from tests.integration.site import JOBS, NAMESPACE, Object, Site, job


async def test_a_restart_keeps_the_idle_timer(site: Site) -> None:
    site.reports("Job/notebook", 0)
    await site.create(job("notebook", 4, policy="Always", grace_period="1h"))
    operator = await site.operator()
    before = await site.in_phase("Job/notebook", "Idle")

    await operator.restart()
    site.reports("Job/notebook", 1)

    async def polled() -> Object | None:
        found = await site.workload("Job/notebook")
        return found if found["status"].get("aggregatedUtilization") == 1 else None

    after = await site.until(polled, "a poll after the restart")
    assert after["status"]["phase"] == "Idle"
    assert after["status"]["idleSince"] == before["status"]["idleSince"]

    # The stretch that began before the restart counts: no grace period of this length has passed
    # since the second start.
    grace = {"metadata": {"annotations": {"kaiwo.silogen.ai/gpu-preemption.grace-period": "1s"}}}
    await site.client.patch(JOBS, NAMESPACE, "notebook", grace, dict)
    gone = await site.in_phase("Job/notebook", "Preempted")
    assert await site.find(JOBS, "notebook") == {}
    assert gone["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_restart_finishes_what_is_preempting_although_nobody_waits_any_more(
    site: Site,
) -> None:
    site.reports("Job/notebook", 0)
    await site.create(job("notebook", 4, grace_period="1h"))
    operator = await site.operator()
    workload = await site.in_phase("Job/notebook", "Idle")
    await operator.stop()
    await preempting(site, workload)

    await operator.start()
    gone = await site.in_phase("Job/notebook", "Preempted")

    assert gone["metadata"]["uid"] == workload["metadata"]["uid"]
    assert await site.find(JOBS, "notebook") == {}


async def test_a_killed_operator_is_followed_by_one_that_evicts_once(site: Site) -> None:
    site.reports("Job/demand", 90)
    await site.create(job("notebook", 4, grace_period="1s"))
    first = await site.operator()
    victim = await site.in_phase("Job/notebook", "Idle")
    await site.create(job("demand", 4, enabled="true"))
    await site.in_phase("Job/demand", "PendingGpu", "Active")
    os.kill(first.pids[0], signal.SIGKILL)

    await site.operator()
    await site.in_phase("Job/demand", "Active")
    gone = await site.in_phase("Job/notebook", "Preempted")

    async def closed() -> bool:
        records = await site.all(PREEMPTIONS)
        # One that was stored in the moment of the death has no status yet.
        phases = {(one.get("status") or {}).get("phase") for one in records}
        return phases <= {"Completed", "Abandoned"}

    await site.until(closed, "every intent is closed")
    evicted = [
        entry["uid"]
        for one in await site.all(PREEMPTIONS)
        for entry in one["status"].get("victims", ())
        if entry["state"] == "Evicted"
    ]
    assert evicted == [victim["spec"]["workloadRef"]["uid"]]
    assert gone["metadata"]["uid"] == victim["metadata"]["uid"]


@pytest.mark.parametrize("site", ["real"], indirect=True)
async def test_an_api_server_that_starts_anew_costs_neither_the_operator_nor_its_idle_timer(
    site: Site,
) -> None:
    site.reports("Job/notebook", 0)
    await site.create(job("notebook", 4, policy="Always", grace_period="1h"))
    await site.operator()
    before = await site.in_phase("Job/notebook", "Idle")

    async with site.cut_watches():
        pass

    # The lease may have run out meanwhile: then the process begins anew by itself.
    grace = {"metadata": {"annotations": {"kaiwo.silogen.ai/gpu-preemption.grace-period": "1s"}}}
    await site.client.patch(JOBS, NAMESPACE, "notebook", grace, dict)

    gone = await site.in_phase("Job/notebook", "Preempted")
    assert gone["status"]["preemptionReason"].startswith("Policy is Always")
    assert gone["metadata"]["uid"] == before["metadata"]["uid"]
    assert await site.find(JOBS, "notebook") == {}


async def preempting(site: Site, workload: Object) -> None:
    """Mark a GpuWorkload as an operator does that ends right afterwards."""
    status = {
        "phase": "Preempting",
        "preemptedAt": format_instant(SystemClock().wall()),
        "preemptedFor": "job-demand-00000000",
        "preemptionReason": "Preempted to free 4 amd.com/gpu for pending workload "
        "job-demand-00000000",
    }
    await site.client.patch_status(
        GPU_WORKLOADS, NAMESPACE, workload["metadata"]["name"], status, dict
    )
