"""`reprieve explain` where three planes decide: one line for a demand, and never two answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reprieve.answers.asking import answer
from reprieve.answers.document import Answer, Demand
from reprieve.answers.kinds import asked_of
from reprieve.answers.sources import ClusterSource
from reprieve.cli.sessions.asking_planes import PlanesOfCluster
from tests.together.site import GPU, Site, deployment, job, node, site
from tests.virtual_time import LoopClock

ALL = ["idle", "quota", "scheduling"]


async def explained(cluster: Site, name: str, namespace: str) -> Answer:
    """Return what `reprieve explain` says."""
    clock = LoopClock()
    return await answer(
        ClusterSource(cluster.client, clock),
        asked_of(name),
        namespace,
        operator_namespace="kaiwo-system",
        diagnose=PlanesOfCluster(cluster.client, clock, [namespace]),
    )


def facts(found: Answer) -> dict[str, str]:
    return {each.name: each.text for each in found.evidence}


async def test_a_job_that_its_quota_refuses_has_the_quota_plane_as_its_owner_and_no_other_answer(
    tmp_path: Path,
) -> None:
    notebook = job("notebook", "b")
    async with site(tmp_path, [node("n0")], {"a": 4, "b": 0}) as cluster:
        await cluster.runs(job("tune", "a", priority="high", queued=True), notebook)
        await cluster.idle(notebook)
        await cluster.demand(job("wanted", "a", priority="high", queued=True))
        found = await explained(cluster, "job/wanted", "a")
    assert found.waiting is not None
    assert found.waiting.demand == Demand("quota", ALL, lacks_quota={GPU: 4})
    said = facts(found)
    assert said["demand"] == (
        f"the quota plane decides; it lacks 4 {GPU} of quota; no work is preempted for it"
    )
    assert (said["idle reports"], said.get("idle work")) == ("PendingGpu", None)


async def test_the_return_of_displaced_work_states_why_idle_work_stays(tmp_path: Path) -> None:
    notebook = job("notebook", "b", priority="high", queued=True)
    async with site(tmp_path, [node("n0")], {"a": 4, "b": 4}) as cluster:
        await cluster.runs(notebook, job("tune", "b", queued=True))
        await cluster.idle(notebook)
        wanted = job("wanted", "a", queued=True, opted=False)
        assert await cluster.demand(wanted) == {"tune": 4}
        found = await explained(cluster, "job/tune", "b")
    assert facts(found)["idle reports"] == (
        "PendingGpu; idle work stays that could have been preempted in its place"
    )


async def test_a_pending_job_has_the_scheduling_plane_as_its_owner(tmp_path: Path) -> None:
    busy = deployment("bob", "b", gpus=8, priority="high")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(busy)
        await cluster.demand(job("wanted", "a", priority="high"))
        found = await explained(cluster, "job/wanted", "a")
    assert found.waiting is not None and found.waiting.demand is not None
    assert (found.waiting.demand.owner, found.waiting.demand.planes) == ("scheduling", ALL)
    assert facts(found)["demand"].startswith("the scheduling plane decides, idle work first; ")
    assert facts(found)["demand"].endswith("; no work is preempted for it")


async def test_who_goes_is_told_with_the_stages(tmp_path: Path) -> None:
    slow = deployment("ann", "b", gpus=8, priority="high")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(slow)
        await cluster.idle(slow)
        await cluster.create(*job("wanted", "a", priority="high"))
        for _ in range(600):
            if cluster.evicted:
                break
            await asyncio.sleep(0.1)
        found = await explained(cluster, "job/wanted", "a")
    assert found.waiting is not None and found.waiting.demand is not None
    demand = found.waiting.demand
    assert (demand.owner, demand.stages) == ("scheduling", "idle, then scheduling")
    assert "ann" in demand.evicted and len(found.displaced_others) == 1
