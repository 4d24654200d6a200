"""What is freed for a demand that our scheduler places serves it, though evicted work comes again.

Owners make each evicted idle job anew at once, under another name and of the same priority.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from reprieve.api import reprieve as api
from reprieve.kube.bodies import Propagation
from reprieve.kube.resource import PREEMPTIONS, Resource
from tests.background import ended
from tests.together.site import Site, job, node, site

_JOBS: Final = Resource("batch", "v1", "jobs", "Job")
_SECONDS: Final = 90  # of virtual time


async def _owners(cluster: Site, wanted: int, gpus: int) -> None:
    """Keep so many idle jobs in existence until cancelled."""
    made = wanted
    while True:
        jobs = cluster.stage.machines.informer.all("jobs.batch")
        living = [each for each in jobs if each["metadata"]["name"].startswith("idle-")]
        for _ in range(wanted - len(living)):
            again = job(f"idle-{made}", "b", gpus=gpus)
            made += 1
            cluster.use(again, 0.0)
            await cluster.create(*again)
        await asyncio.sleep(0.2)


_SHAPES: Final = {
    "quarters": (3, 2, (8, 4, 2)),
    "halves": (4, 4, (6, 6, 6)),
    "many": (6, 2, (2, 4, 8)),
    "single": (4, 1, (5, 8, 3, 7)),
}
_THOROUGH: Final = (("quarters", 0), ("quarters", 7), ("halves", 15))


def stories() -> Iterator[ParameterSet]:
    """Return each shape with the writes after which the process dies; 0: it lives."""
    for shape, dies in product(_SHAPES, [0, *range(1, 24, 2)]):
        mark = pytest.mark.thorough if (shape, dies) in _THOROUGH else pytest.mark.slow
        yield pytest.param(*_SHAPES[shape], dies, id=f"{shape}-{dies}", marks=mark)


@pytest.mark.parametrize(("nodes", "gpus", "demands", "dies"), list(stories()))
async def test_each_demand_has_one_plan_and_starts(
    nodes: int, gpus: int, demands: tuple[int, ...], dies: int, tmp_path: Path
) -> None:
    count = nodes * 8 // gpus
    quotas = {"a": 8 * nodes, "b": 8 * nodes}
    async with site(tmp_path, [node(f"n{number}") for number in range(nodes)], quotas) as cluster:
        idle = [job(f"idle-{number}", "b", gpus=gpus) for number in range(count)]
        await cluster.runs(*idle)
        await cluster.idle(*idle)
        owners = asyncio.create_task(_owners(cluster, count, gpus))
        try:
            if dies:
                cluster.dies_at = (cluster.writes + dies, "stored")
            for number, wanted in enumerate(demands):
                unit = job(f"demand-{number}", "a", gpus=wanted)
                cluster.use(unit, 90.0)
                await cluster.create(*unit)
            await asyncio.sleep(_SECONDS)
        finally:
            await ended(owners)
        placed = [cluster.placed(f"demand-{number}") for number in range(len(demands))]
        assert placed == [1] * len(demands)
        records = (await cluster.client.list(PREEMPTIONS, api.Preemption)).items
        preemptors = (each.spec.preemptor for each in records)
        plans = Counter(each.name for each in preemptors if each and "demand" in each.name)
        assert set(plans.values()) == {1} and len(plans) == len(demands), plans


@pytest.mark.thorough
async def test_what_a_victim_frees_is_kept_while_another_one_saves_for_minutes(
    tmp_path: Path,
) -> None:
    config = "gpuPreemption: {notice: {max: 10m}}\n"
    async with site(tmp_path, [node("n0")], {"a": 16, "b": 8}, config=config) as cluster:
        (quick,), (slow,) = job("quick", "b"), job("slow", "b")
        slow["metadata"]["annotations"]["reprieve.dev/notice"] = "3m"
        await cluster.runs([quick], [slow])
        await cluster.idle([quick], [slow])
        large, small = job("large", "a", gpus=8), job("small", "a", opted=False)
        for each in (large, small):
            cluster.use(each, 90.0)
        await cluster.create(*large)
        await asyncio.sleep(20)
        await cluster.client.delete(_JOBS, "b", "quick", propagation=Propagation.BACKGROUND)
        await asyncio.sleep(80)  # a reservation lasts a minute
        await cluster.create(*small)
        await asyncio.sleep(200)
        records = (await cluster.client.list(PREEMPTIONS, api.Preemption)).items
        assert (cluster.placed("large"), cluster.placed("small")) == (1, 0)
        evicted = {
            victim.root.name
            for each in records
            for victim, status in zip(each.spec.victims, each.status.victims, strict=True)
            if status.state is api.VictimState.EVICTED
        }
        assert evicted == {"slow"}
