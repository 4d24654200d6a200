"""Dry runs, and a Kaiwo operator that reclaims in the same cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import format_micro
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, OPERATOR_USER
from tests.background import ended
from tests.idle.site import GPU_WORKLOADS, NAMESPACE, Object, Site, container, job

LEASE = "83fc2279.silogen.ai"


async def test_a_dry_run_writes_what_it_would_do_and_evicts_nobody(site: Site) -> None:
    await site.create(job("victim", container(gpu=8), enabled="true"))
    operator = await site.run({}, "--dry-run")
    await site.until_phase("Job/victim", "Idle")
    await site.create(job("demand", container(gpu=8), enabled="true"))
    await site.until_phase("Job/demand", "PendingGpu")

    (record,) = await site.until(site.records)

    assert record["spec"]["dryRun"] is True
    assert record["metadata"]["labels"]["reprieve.dev/dry-run"] == "true"
    assert [victim["root"]["name"] for victim in record["spec"]["victims"]] == ["victim"]
    assert "Preempted to free 8 amd.com/gpu" in record["spec"]["victims"][0]["reason"]
    # Many polls later, and after a restart, it is still one record.
    scrapes = site.embedded.machines.exporter.scrapes
    await site.until(lambda: site.embedded.machines.exporter.scrapes > scrapes + 4)
    await operator.stop()
    again = await site.run({}, "--dry-run")
    await site.until(lambda: again.said("dry run: plan"))
    scrapes = site.embedded.machines.exporter.scrapes
    await site.until(lambda: site.embedded.machines.exporter.scrapes > scrapes + 2)
    assert await site.records() == [record]

    assert await site.phase("Job/victim") == "Idle"
    assert await site.get("jobs.batch", "victim") is not None
    written = {f"{write.verb} {write.path.split('/')[-1].split('?')[0]}" for write in site.writes}
    assert not any("lease" in write.path for write in site.writes)
    asked = {
        verb
        for user, verb, _, resource in site.cluster.requests
        if (user, resource) == (OPERATOR_USER, "leases")
    }
    assert asked <= {"get", "list", "watch"}
    groups = {"events.k8s.io", "kaiwo.silogen.ai", "reprieve.dev"}
    assert {write.path.split("/")[2] for write in site.writes} <= groups
    assert not any(line.startswith("delete") for line in written)
    assert site.evictions() == []
    assert await site.events("GpuWorkload/job-victim", "PreemptionStarted") == []
    assert await site.all("kaiwoconfigs.config.kaiwo.silogen.ai") == []


async def test_a_dry_run_blocks_nothing_that_a_real_instance_does(site: Site) -> None:
    await site.create(job("victim", container(gpu=8), enabled="true"))
    site.busy("Job/demand", 90)
    await site.run({}, "--dry-run")
    await site.until_phase("Job/victim", "Idle")
    await site.create(job("demand", container(gpu=8), enabled="true"))
    await site.until(site.records)

    await site.run()

    await site.until_phase("Job/victim", "Preempted")
    await site.until_phase("Job/demand", "Active")
    assert await site.get("jobs.batch", "victim") is None
    records = await site.until(lambda: _two(site))
    assert {record["spec"].get("dryRun", False) for record in records} == {True, False}


async def _two(site: Site) -> list[Object]:
    records = await site.records()
    closed = [r for r in records if r.get("status", {}).get("phase") == "Completed"]
    return records if len(records) == 2 and closed else []


async def test_beside_a_live_kaiwo_operator_nothing_is_written_until_it_is_gone(site: Site) -> None:
    config = {"apiVersion": "config.kaiwo.silogen.ai/v1alpha1", "kind": "KaiwoConfig"}
    root = await site.create(
        {**config, "metadata": {"name": "kaiwo"}, "spec": {}},
        job("training", container(gpu=4), policy="Always"),
    )
    name = f"job-training-{root['metadata']['uid'][:8]}"
    await site.create(_tracked_by_kaiwo(name, root))
    status = {"phase": "Active", "ownerChain": "Pod/training-x -> Job/training"}
    await site.patch(
        GPU_WORKLOADS, name, {"status": status}, subresource="status", manager="manager"
    )

    async with _kaiwo(site) as stop:
        operator = await site.run()
        await site.until(lambda: operator.said("idle plane runs"))
        (said,) = await site.until(
            lambda: operator.said("WARNING", "read-only: the Kaiwo operator kaiwo-0 is alive")
        )
        assert "its manager 'manager' writes GpuWorkloads" in said
        code, text = await operator.readiness()
        assert code == 200
        assert "[!] alone: read-only: the Kaiwo operator kaiwo-0 is alive" in text
        await site.create(job("later", container(gpu=2), enabled="true"))
        scrapes = site.embedded.machines.exporter.scrapes
        await site.until(lambda: site.embedded.machines.exporter.scrapes > scrapes + 8)
        assert [f"{write.verb} {write.path}" for write in site.writes] == []
        assert await site.workload("Job/later") is None
        await stop()

    # Its Lease is not renewed any more: this one goes back to work.
    await site.until(lambda: operator.said("not read-only"))
    await site.until_phase("Job/training", "Preempted")
    await site.until_phase("Job/later", "Idle")
    # What it only watched does not count as idle time.
    assert len(await site.events("GpuWorkload/job-training", "WorkloadIdle")) == 1
    assert "alone" not in (await operator.readiness())[1]


async def test_a_kaiwo_operator_that_does_not_reclaim_is_no_obstacle(site: Site) -> None:
    async with _kaiwo(site):
        await site.create(job("training", container(gpu=4), policy="Always"))
        operator = await site.run()
        await site.until_phase("Job/training", "Preempted")
        assert operator.said("read-only") == []


def _tracked_by_kaiwo(name: str, root: Object) -> Object:
    return {
        "apiVersion": "kaiwo.silogen.ai/v1alpha1",
        "kind": "GpuWorkload",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "workloadRef": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": root["metadata"]["name"],
                "uid": root["metadata"]["uid"],
            },
            "gpuResources": {"amd.com/gpu": 4},
            "preemptionPolicy": "Always",
        },
    }


@asynccontextmanager
async def _kaiwo(site: Site) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Renew Kaiwo's manager Lease until the block ends, or what it gives is called.

    It lasts until this machine may have stood still for long; the last renewal makes it short.
    """
    clock = SystemClock()
    spec = {"holderIdentity": "kaiwo-0", "leaseDurationSeconds": 60}
    await site.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": OPERATOR_NAMESPACE},
            "spec": {**spec, "renewTime": format_micro(clock.wall())},
        }
    )

    async def renew(**changes: object) -> None:
        await site.patch(
            "leases.coordination.k8s.io",
            LEASE,
            {"spec": {**spec, "renewTime": format_micro(clock.wall()), **changes}},
            namespace=OPERATOR_NAMESPACE,
            manager="manager",
        )

    async def renewing() -> None:
        while True:
            await asyncio.sleep(0.3)
            await renew()

    renewal = asyncio.create_task(renewing())

    async def stop() -> None:
        await ended(renewal)
        await renew(leaseDurationSeconds=2)

    try:
        yield stop
    finally:
        await ended(renewal)
