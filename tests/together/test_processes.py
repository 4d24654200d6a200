"""Planes of several processes: an open record owns its demand, whoever wrote it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reprieve.api.reprieve import Metadata, ObjectRef, Preemption, PreemptionSpec, Proof
from reprieve.kube.resource import PREEMPTIONS
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from tests.together.site import KINDS, deployment, job, node, site

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
        spec = PreemptionSpec(
            plane="scheduling",
            plan_id="p",
            attempt=1,
            proof=Proof("Placement"),
            victims=[],
            decided_at="2026-03-04T10:15:00Z",
            preemptor=ObjectRef("v1", "Pod", "wanted-0", "another-object", "a"),
            preemptor_lineage=f"owner/{made['metadata']['uid']}",
        )
        record = Preemption(Metadata("scheduling-another-object-1", OPERATOR_NAMESPACE), spec)
        stored = await cluster.client.create(PREEMPTIONS, record, Preemption)
        await asyncio.sleep(60)
        assert (cluster.evicted, cluster.placed("wanted")) == ({}, 0)
        over = {"status": {"phase": "Completed"}}
        name = stored.metadata.name
        await cluster.client.patch(
            PREEMPTIONS, OPERATOR_NAMESPACE, name, over, Preemption, subresource="status"
        )
        await asyncio.sleep(60)
        assert (cluster.evicted, cluster.placed("wanted")) == ({"ann": 8}, 1)
