"""Planes of several processes: an open record owns its demand, whoever wrote it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from reprieve.api.reprieve import Metadata, ObjectRef, Preemption, PreemptionSpec, Proof
from reprieve.kube.resource import PREEMPTIONS, Resource
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from tests.together.site import KINDS, Site, deployment, job, node, site

WORKLOADS: Final = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
APART = ("idle", "scheduling,quota")


async def test_idle_work_stays_where_another_process_evicts_for_the_demand(tmp_path: Path) -> None:
    # Its victim does not end, so that the demand stays pending while the idle plane evaluates.
    busy, idle = deployment("bob", "b", opted=False), deployment("ann", "b", priority="high")
    busy[0]["spec"]["template"]["metadata"]["finalizers"] = ["tests/stays"]
    wanted = job("wanted", "a", priority="high")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}, planes=APART) as cluster:
        await cluster.runs(busy, idle)
        await cluster.create(*wanted)
        await asyncio.sleep(5)
        assert cluster.evicted == {"bob": 4}, "nobody was idle yet"
        await cluster.idle(idle)
        await asyncio.sleep(60)
        assert (cluster.evicted, cluster.placed("ann")) == ({"bob": 4}, 1)


async def test_idle_work_goes_where_no_other_process_evicts_for_the_demand(tmp_path: Path) -> None:
    busy, idle = deployment("bob", "b", priority="high"), deployment("ann", "b", priority="high")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}, planes=APART) as cluster:
        await cluster.runs(busy, idle)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", priority="high"))
        await asyncio.sleep(10)
        assert (evicted, cluster.placed("wanted"), cluster.placed("bob")) == ({"ann": 4}, 1, 1)


async def test_an_open_record_owns_its_demand_until_it_is_closed(tmp_path: Path) -> None:
    idle, wanted = deployment("ann", "b", gpus=8), job("wanted", "a", gpus=8)
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}, planes="idle") as cluster:
        await cluster.runs(idle)
        await cluster.idle(idle)
        cluster.use(wanted, 90.0)
        made = await cluster.client.create(KINDS["Job"], wanted[0], dict)
        name = await recorded(cluster, "scheduling", made)
        await asyncio.sleep(60)
        assert (cluster.evicted, cluster.placed("wanted")) == ({}, 0)
        await closed(cluster, name)
        await asyncio.sleep(60)
        assert (cluster.evicted, cluster.placed("wanted")) == ({"ann": 8}, 1)


@pytest.mark.parametrize("pods", [1, 2])
async def test_nobody_goes_by_priority_while_another_process_evicts_for_the_demand(
    tmp_path: Path, pods: int
) -> None:
    low, wanted = deployment("bob", "b", gpus=8), job("wanted", "a", pods=pods, priority="high")
    wanted[0]["spec"]["suspend"] = True  # until the record stands
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}, planes="scheduling") as cluster:
        await cluster.runs(low)
        made = await cluster.client.create(KINDS["Job"], wanted[0], dict)
        name = await recorded(cluster, "idle", made)
        go = {"spec": {"suspend": False}}
        await cluster.client.patch(KINDS["Job"], "a", "wanted", go, dict)
        await asyncio.sleep(60)
        assert (cluster.evicted, cluster.placed("wanted")) == ({}, 0)
        await closed(cluster, name)
        await asyncio.sleep(10)
        assert (cluster.evicted, cluster.placed("wanted")) == ({"bob": 8}, pods)


async def test_no_quota_is_taken_back_while_another_process_evicts_for_the_job(
    tmp_path: Path,
) -> None:
    borrower, wanted = job("sweep", "b", queued=True), job("wanted", "a", queued=True)
    wanted[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "later"
    later = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"}
    async with site(tmp_path, [node("n0", 4)], {"a": 4, "b": 0}, planes="quota") as cluster:
        await cluster.runs(borrower)
        made = await cluster.client.create(KINDS["Job"], wanted[0], dict)
        name = await recorded(cluster, "idle", made)
        metadata = {"name": "later", "namespace": "a"}
        await cluster.create({**later, "metadata": metadata, "spec": {"clusterQueue": "queue-a"}})
        await asyncio.sleep(60)
        assert (cluster.evicted, cluster.placed("wanted")) == ({}, 0)
        (said,) = [
            condition["message"]
            for workload in (await cluster.client.list(WORKLOADS, dict)).items
            if workload["metadata"]["namespace"] == "a"
            for condition in workload["status"]["conditions"]
            if condition["type"] == "QuotaReserved"
        ]
        assert "The idle plane of another process evicts for it" in said
        await closed(cluster, name)
        await asyncio.sleep(30)
        assert (cluster.evicted, cluster.placed("wanted")) == ({"sweep": 4}, 1)


async def recorded(cluster: Site, plane: str, made: dict[str, Any]) -> str:
    """Write an open record of another process for a job, and return its name."""
    spec = PreemptionSpec(
        plane=plane,
        plan_id="p",
        attempt=1,
        proof=Proof("Placement"),
        victims=[],
        decided_at="2026-03-04T10:15:00Z",
        preemptor=ObjectRef("v1", "Pod", "wanted-0", "another-object", "a"),
        preemptor_lineage=f"owner/{made['metadata']['uid']}",
    )
    record = Preemption(Metadata(f"{plane}-another-object-1", OPERATOR_NAMESPACE), spec)
    return (await cluster.client.create(PREEMPTIONS, record, Preemption)).metadata.name


async def closed(cluster: Site, name: str) -> None:
    """Close a record."""
    over = {"status": {"phase": "Completed"}}
    await cluster.client.patch(
        PREEMPTIONS, OPERATOR_NAMESPACE, name, over, Preemption, subresource="status"
    )
