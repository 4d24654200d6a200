"""`gpuPreemption.preemptionDelay`: idle work goes for who has waited, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.scenarios.model import NodeSpec
from tests.idle.queues import bound, limited
from tests.idle.site import NAMESPACE, Object, Site, container, job, open_site
from tests.virtual_time import LoopClock

CONFIG = "gpuPreemption: {preemptionDelay: 60s}\n"
# Polls are rare, so that none of them wakes who waits.
RARELY = {"GPU_PREEMPTION_POLLING_INTERVAL": "100s"}
FLAGS = ("--controllers", "idle")
DELAY = "reprieve.dev/preemption-delay"
VICTIM, DEMAND = "Job/victim", "Job/demand"
GPUS: dict[str, str | int] = {"amd.com/gpu": "4"}
AMOUNTS = {**GPUS, "cpu": "16", "memory": "64Gi", "pods": "110"}
NODE: Object = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "gpu-1", "labels": {"kubernetes.io/hostname": "gpu-1"}},
    "status": {
        "capacity": AMOUNTS,
        "allocatable": AMOUNTS,
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


async def waiting(
    site: Site, demand: Object | None = None, environment: dict[str, str] | None = None
) -> tuple[Nanos, LoopClock]:
    """The victim is idle, and the demand waits; return until when it has to."""
    await site.create(job("victim", container(gpu=4), enabled="true"))
    site.busy(DEMAND, 90)
    await site.run(environment, *FLAGS, config=CONFIG)
    await site.until_phase(VICTIM, "Idle")
    await LoopClock().sleep(MINUTE)
    await site.create(demand or job("demand", container(gpu=4), enabled="true"))
    await site.until_phase(DEMAND, "PendingGpu")
    pods = await site.all("pods", NAMESPACE)
    (made,) = [
        each["metadata"]["creationTimestamp"]
        for each in pods
        if each["metadata"]["name"].startswith("demand")
    ]
    return Nanos(parse_instant(made) + MINUTE), LoopClock()


async def test_idle_work_stays_until_the_demand_has_waited(tmp_path: Path) -> None:
    async with open_site(tmp_path, [NodeSpec("gpu-0", GPUS)]) as site:
        due, clock = await waiting(site)
        told = "nothing is evicted for it before"
        await site.until_event("GpuWorkload/job-demand", "NobodyMakesWay", told)
        await site.until_event("GpuWorkload/job-demand", "Waiting", told)
        await clock.sleep(due - clock.wall() - 1)
        assert await site.phase(VICTIM) == "Idle"
        assert not await site.records()

        await site.until_phase(DEMAND, "Active")
        (record,) = await site.records()
        assert due <= parse_instant(record["spec"]["decidedAt"]) <= due + 2 * SECOND


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("of_class", "of_queue", "waits"),
    [(None, "30s", 30), ("30s", "45s", 30), ("90s", None, 90)],
    ids=["queue", "class before queue", "class alone"],
)
async def test_the_class_or_queue_of_the_demand_says_otherwise(
    tmp_path: Path, of_class: str | None, of_queue: str | None, waits: int
) -> None:
    async with open_site(tmp_path, [NodeSpec("gpu-0", GPUS)]) as site:
        await limited(site, DELAY, of_class=of_class, of_queue=of_queue)
        due, clock = await waiting(site, bound(job("demand", container(gpu=4), enabled="true")))
        due = Nanos(due - MINUTE + waits * SECOND)
        await clock.sleep(max(0, due - clock.wall() - 1))
        assert not await site.records()

        await site.until_phase(DEMAND, "Active")
        (record,) = await site.records()
        assert due <= parse_instant(record["spec"]["decidedAt"]) <= due + 2 * SECOND


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("resource", "name"),
    [("priorityclasses.scheduling.k8s.io", "urgent"), ("clusterqueues.kueue.x-k8s.io", "team")],
    ids=["class", "queue"],
)
async def test_a_class_or_queue_that_asks_for_less_wakes_who_waits(
    tmp_path: Path, resource: str, name: str
) -> None:
    of_queue = "30m" if name == "team" else None
    async with open_site(tmp_path, [NodeSpec("gpu-0", GPUS)]) as site:
        await limited(site, DELAY, of_class=None if of_queue else "30m", of_queue=of_queue)
        demand = bound(job("demand", container(gpu=4), enabled="true"))
        _, clock = await waiting(site, demand, RARELY)
        await clock.sleep(2 * MINUTE)
        assert not await site.records()
        changed = clock.wall()
        await site.annotate(resource, name, namespace="", **{DELAY: "0s"})

        await site.until_phase(DEMAND, "Active")
        (record,) = await site.records()
        assert parse_instant(record["spec"]["decidedAt"]) <= changed + SECOND


async def test_where_a_node_comes_meanwhile_idle_work_stays(tmp_path: Path) -> None:
    async with open_site(tmp_path, [NodeSpec("gpu-0", GPUS)]) as site:
        due, clock = await waiting(site)
        await clock.sleep(MINUTE // 2)
        await site.create(NODE)
        await site.until_phase(DEMAND, "Active")
        await clock.sleep(due + MINUTE - clock.wall())

        assert await site.phase(VICTIM) == "Idle"
        assert not await site.records()
