"""A demand whose freed capacity other work uses does not have idle work evicted plan by plan.

Nodes are full of idle jobs. Their owners make each anew as soon as it is evicted, so that it
requests the GPUs that were freed, and a scheduler that is not ours may bind it first. Two plans are
made for a demand at once, and further ones are spaced out, whichever process makes them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import Preemption
from reprieve.planes.idle.evaluating.spacing import next_plan, plans_of_demands
from reprieve.scenarios.model import NodeSpec
from reprieve.units.ids import Uid
from tests.background import ended
from tests.idle.site import Site, container, job, open_site
from tests.tiers import first_of

_WATCHED_S: Final = 20  # of virtual time
_MOST: Final = 2  # plans
_TOLD: Final = "other work uses what plans for it freed"
_POLLS: Final = {"GPU_PREEMPTION_POLLING_INTERVAL": "1s"}


@dataclass(frozen=True)
class Shape:
    """How many nodes of 8 GPUs are full of idle jobs of one size, and what demands request."""

    nodes: int
    idle: int
    demands: tuple[int, ...]


class Owners:
    """Make each idle job anew that was evicted, under another name."""

    def __init__(self, site: Site, shape: Shape) -> None:
        self._site, self._shape = site, shape
        self._chance, self._made = random.Random(7), 0

    async def submit(self) -> None:
        self._made += 1
        gpus = container(gpu=self._shape.idle)
        await self._site.create(job(f"idle-{self._made}", gpus, enabled="true"))

    async def run(self) -> None:
        wanted = self._shape.nodes * 8 // self._shape.idle
        while True:
            jobs = await self._site.all("jobs.batch")
            living = [each for each in jobs if each["metadata"]["name"].startswith("idle-")]
            for _ in range(wanted - len(living)):
                await self.submit()
            await asyncio.sleep(self._chance.choice((0.1, 0.5, 1)))


async def plans(site: Site) -> Counter[str]:
    """Return how many plans each demand had, by the name of its GpuWorkload."""
    return Counter(each["spec"]["preemptor"]["name"] for each in await site.records())


async def play(folder: Path, shape: Shape, *, restart: bool) -> None:
    specs = [NodeSpec(f"gpu-{number}", {"amd.com/gpu": "8"}) for number in range(shape.nodes)]
    async with open_site(folder, specs) as site:
        owners = Owners(site, shape)
        for _ in range(shape.nodes * 8 // shape.idle):
            await owners.submit()
        operator = await site.run(_POLLS)
        for number in range(shape.nodes * 8 // shape.idle):
            await site.until_phase(f"Job/idle-{number + 1}", "Idle")
        work = asyncio.create_task(owners.run())
        try:
            for number, gpus in enumerate(shape.demands):
                site.busy(f"Job/demand-{number}", 90)
                await site.create(job(f"demand-{number}", container(gpu=gpus), enabled="true"))
            if restart:
                await site.until(site.records)
                await operator.stop()
                await site.run(_POLLS)
            await asyncio.sleep(_WATCHED_S)
        finally:
            await ended(work)
        found = await plans(site)
        assert found
        assert max(found.values()) <= _MOST, found
        for name, number in found.items():
            if number == _MOST and name.startswith("job-demand"):
                await site.until_event(f"GpuWorkload/{name[:12]}", "NobodyMakesWay", _TOLD)


_SHAPES: Final = {
    "halves": Shape(4, 4, (6, 6, 6)),
    "mixed": Shape(6, 2, (2, 4, 8)),
    "single": Shape(2, 1, (8, 8)),
    "odd": Shape(4, 2, (3, 5, 7)),
}


@pytest.mark.parametrize("name", first_of(_SHAPES, 0, 1))
@pytest.mark.parametrize("restart", [False, True], ids=["one process", "a restart"])
async def test_a_demand_whose_freed_capacity_others_use_has_two_plans_at_the_most(
    name: str, restart: bool, tmp_path: Path
) -> None:
    await play(tmp_path, _SHAPES[name], restart=restart)


def test_plans_are_spaced_out_from_the_third_on_and_begin_anew_once_it_ran() -> None:
    decided = [Nanos(second * SECOND) for second in (100, 110, 800, 2_100)]
    since = Nanos(90 * SECOND)
    found = [next_plan(decided[:number], since) // SECOND for number in range(5)]
    assert found == [90, 90, 110 + 600, 800 + 1_200, 2_100 + 2_400]
    assert next_plan(decided, Nanos(2_000 * SECOND)) == 2_000 * SECOND
    many = [Nanos(second * SECOND) for second in range(100, 200)]
    assert next_plan(many, since) // SECOND == 199 + 3_600


def record(**status: Any) -> Preemption:
    """Return a record of a plan for the demand `d`, decided at 00:01:40."""
    spec = {
        "plane": "idle",
        "planId": "0123456789abcdef",
        "attempt": 1,
        "decidedAt": "1970-01-01T00:01:40Z",
        "proof": {"level": "Sum", "need": {}, "freed": {}},
        "preemptor": {"apiVersion": "v1", "kind": "Pod", "name": "d", "uid": "d"},
        "victims": [],
    }
    metadata = {"name": "idle-d-1", "namespace": "operator"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Preemption)


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        ({"phase": "Evicting"}, True),
        ({"phase": "Completed", "victimsByState": {"Evicted": 2, "Gone": 1}}, True),
        ({"phase": "Completed", "victimsByState": {"Evicted": 2, "Failed": 1}}, False),
        ({"phase": "Completed", "victimsByState": {"Evicted": 2, "Spared": 1}}, False),
        ({"phase": "Abandoned"}, False),
    ],
)
def test_a_plan_whose_victims_stayed_does_not_delay_the_next(
    status: dict[str, Any], counts: bool
) -> None:
    found = plans_of_demands([record(**status)], {Uid("d")})
    assert found == ({"d": [100 * SECOND]} if counts else {})
    assert plans_of_demands([record(**status)], {Uid("another")}) == {}
