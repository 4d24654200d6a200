"""What idle work is evicted for work that returns after it was displaced: no more than is owed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from kubeworld.units.durations import HOUR, SECOND
from reprieve.api import reprieve as api
from reprieve.engine.plan import Plane
from reprieve.engine.quota.model import Policy, Preemption
from reprieve.kube.resource import PREEMPTIONS
from reprieve.planes.common.histories import Histories
from reprieve.settings.idle import FALLBACK
from reprieve.simulation.idle_policy import IdlePolicy
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Preempted
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.trace import Job
from tests.simulation.building import work
from tests.together.site import deployment, job, node, site

_LONG: Final = 1_000_000 * SECOND


@pytest.mark.parametrize(
    ("team", "idle", "wanted", "reclaims"),
    [
        ("b", "high", "", "Any"),
        ("b", "low", "high", "LowerPriority"),
        ("a", "low", "high", "Never"),
    ],
    ids=["reclaimed at any priority", "reclaimed", "in its own queue"],
)
async def test_idle_work_that_a_queue_could_preempt_stays_for_the_return_of_another_victim(
    tmp_path: Path, team: str, idle: str, wanted: str, reclaims: str
) -> None:
    """The demand has not opted in; the rules of its queue choose busy work in its place."""
    notebook = job("notebook", team, queued=True, priority=idle)
    quotas = {"a": 8, "b": 0} if team == "a" else {"a": 4, "b": 4}
    rules = {"reclaimWithinCohort": reclaims}
    async with site(tmp_path, [node("n0")], quotas, rules=rules) as cluster:
        await cluster.runs(notebook, job("tune", team, queued=True))
        await cluster.idle(notebook)
        demand = job("wanted", "a", queued=True, priority=wanted, opted=False)
        evicted = await cluster.demand(demand)
        assert (evicted, cluster.placed("wanted"), cluster.placed("notebook")) == (
            {"tune": 4},
            1,
            1,
        )
        (record,) = (await cluster.client.list(PREEMPTIONS, api.Preemption)).items
        said = (record.spec.preemptor_priority, record.spec.reclaims_any)
        assert said == (1000 if wanted else 0, reclaims == "Any")


async def test_nobody_goes_before_the_displacements_of_a_former_process_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here its quota plane does not come to know them; after a minute it is waited for no more."""
    monkeypatch.setattr(Histories, "known", _all_but_quota)
    idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        cluster.die()
        await cluster.create(*job("wanted", "a", priority="high"))
        await asyncio.sleep(55)
        assert (cluster.evicted, cluster.placed("wanted")) == ({}, 0)
        await asyncio.sleep(20)
        assert (cluster.evicted, cluster.placed("wanted")) == ({"ann": 4}, 1)


def _all_but_quota(histories: Histories, plane: Plane) -> None:
    if plane is not Plane.QUOTA:
        histories._begun.pop(plane)


async def test_idle_work_that_its_queue_could_not_preempt_goes_for_the_return_of_its_victim(
    tmp_path: Path,
) -> None:
    """In its own queue it has the priority of the demand, and other queues are left alone."""
    notebook = job("notebook", "a", queued=True, priority="high")
    rules = {"reclaimWithinCohort": "Never"}
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}, rules=rules) as cluster:
        await cluster.runs(notebook, job("tune", "a", queued=True))
        await cluster.idle(notebook)
        demand = job("wanted", "a", queued=True, priority="high", opted=False)
        assert await cluster.demand(demand) == {"tune": 4, "notebook": 4}
        assert (cluster.placed("wanted"), cluster.placed("tune")) == (1, 1)


async def test_idle_work_that_could_not_go_for_the_demand_goes_for_the_return_of_its_victim(
    tmp_path: Path,
) -> None:
    """The demand has not opted in, so that no idle work went for it; its victim takes as much."""
    idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", priority="high", opted=False))
        assert (evicted, cluster.placed("wanted"), cluster.placed("bob")) == (
            {"bob": 4, "ann": 4},
            1,
            1,
        )


async def test_idle_work_of_a_lower_priority_than_the_demand_stays_for_the_return_of_its_victim(
    tmp_path: Path,
) -> None:
    """Priority allowed to evict it for the demand in the place of bob."""
    idle, busy = deployment("ann", "b", priority="low"), deployment("bob", "b")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", priority="high", opted=False))
        assert (evicted, cluster.placed("wanted"), cluster.placed("ann")) == ({"bob": 4}, 1, 1)
        (record,) = (await cluster.client.list(PREEMPTIONS, api.Preemption)).items
        assert record.spec.preemptor_priority == 1000


@pytest.mark.thorough
async def test_no_more_idle_work_goes_for_a_return_than_was_lost(tmp_path: Path) -> None:
    idle, busy = deployment("ann", "b", gpus=6, priority="high"), deployment("bob", "b", gpus=2)
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", gpus=2, priority="high", opted=False))
        assert (evicted, cluster.placed("wanted"), cluster.placed("ann")) == ({"bob": 2}, 1, 1)


@pytest.mark.thorough
async def test_a_second_return_has_no_idle_work_evicted_for_it(tmp_path: Path) -> None:
    """First displaces bob, bob's return displaces cat by priority, and there the chain ends."""
    labels = {"rack": "1"}
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    bob, cat = deployment("bob", "b", priority="high", opted=False), deployment("cat", "b")
    idle = job("ann", "b", priority="top", nodeSelector={"rack": "2"})
    nodes = [node("n0", 4, labels), node("n1", 4), node("n2", 4, {"rack": "2"})]
    async with site(tmp_path, nodes, {"a": 8, "b": 0}) as cluster:
        await cluster.create({**made, "metadata": {"name": "top"}, "value": 2000})
        await cluster.runs(bob, cat, idle)
        await cluster.idle(idle)
        wanted = job("wanted", "a", priority="top", opted=False, nodeSelector=labels)
        evicted = await cluster.demand(wanted)
        assert (evicted, cluster.placed("ann")) == ({"bob": 4, "cat": 4}, 1)


@pytest.mark.parametrize(("reclaims", "goes"), [(Policy.ANY, False), (Policy.LOWER_PRIORITY, True)])
def test_a_study_bounds_the_return_of_a_victim_of_quota_alike(reclaims: Policy, goes: bool) -> None:
    """Ann is idle a while after bob was displaced; reclaim by priority leaves ann alone."""
    jobs = [
        Job("ann", 0, 4, _LONG, "", "b", priority=1000, idle_from=400 * SECOND),
        Job("bob", 10 * SECOND, 4, _LONG, "", "b", priority=0),
        Job("wanted", 200 * SECOND, 4, _LONG, "", "a", priority=100),
    ]
    policy = PolicySpec(
        "three",
        preemption=Preemption(Policy.LOWER_PRIORITY, reclaims),
        planes=("idle", "quota", "scheduling"),
        places=True,
        idle=IdlePolicy(replace(FALLBACK, grace_period=5 * SECOND)),
    )
    done = replay(jobs, policy, work(evict=1), ("a", "b"), (1, 8))
    within = [each for each in done.decisions if isinstance(each, Preempted) and each.at < HOUR]
    found = [(each.preemptor, [victim.job for victim in each.victims]) for each in within]
    taken = [("b/bob", ["b/ann"])] if goes else []
    assert found == [("a/wanted", ["b/bob"]), *taken]
