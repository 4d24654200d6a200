"""A rack is freed by the quota plane and others together, in two stages of one demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.together.site import Site, site
from tests.together.test_disturbed_racks import BEST, low
from tests.together.test_racks import LEVELS, nodes_of, on, racks, wanted
from tests.together.test_records import records

FREE = {"a": 64, "b": 0}
FULL = {"a": 16, "b": 0}  # of two jobs of the queue, or of one gang


async def stages(cluster: Site) -> list[tuple[str, list[str], list[tuple[str, bool]]]]:
    """Return of each record its plane, its victims, and the stages that it names."""
    return [
        (
            each.spec.plane,
            [v.root.name.removeprefix("job-").split("-")[0] for v in each.spec.victims],
            [(stage.plane, bool(stage.preemption)) for stage in each.spec.stages],
        )
        for each in await records(cluster)
    ]


@pytest.mark.parametrize(
    "quotas", [FREE, pytest.param(FULL, marks=pytest.mark.thorough)], ids=["free", "lacking"]
)
async def test_a_rack_loses_work_of_the_queue_and_then_work_in_no_queue(
    tmp_path: Path, quotas: dict[str, int]
) -> None:
    queued = [low("queued-0", "r0-0"), low("queued-1", "r1-0")]
    plain, busy = on("plain", "r1-1"), on("busy", "r0-1", priority="high")
    nodes = racks((8, 8), (8, 8))
    async with site(tmp_path, nodes, quotas, levels=LEVELS, config=BEST) as cluster:
        await cluster.runs(*queued, plain, busy)
        evicted = await cluster.demand(wanted())
        assert nodes_of(cluster, "wanted") == {"r1-0", "r1-1"}, "\n".join(cluster.lines[-40:])
        lacking = {"queued-0": 8} if quotas is FULL else {}
        assert evicted == {"queued-1": 8, "plain": 8, **lacking}
        assert await stages(cluster) == [
            ("quota", ["queued"] * (1 + len(lacking)), [("quota", False), ("scheduling", False)]),
            ("scheduling", ["plain"], [("quota", True), ("scheduling", False)]),
        ]


@pytest.mark.thorough
async def test_a_rack_loses_work_of_the_queue_and_then_idle_work(tmp_path: Path) -> None:
    queued = [low("queued-0", "r0-0"), low("queued-1", "r1-0")]
    idle, busy = on("idle", "r1-1", priority="high"), on("busy", "r0-1", priority="high")
    nodes = racks((8, 8), (8, 8))
    async with site(tmp_path, nodes, FREE, levels=LEVELS, config=BEST) as cluster:
        await cluster.runs(*queued, idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(wanted())
        assert nodes_of(cluster, "wanted") == {"r1-0", "r1-1"}, "\n".join(cluster.lines[-40:])
        assert evicted == {"queued-1": 8, "idle": 8}


@pytest.mark.thorough
async def test_no_rack_loses_work_of_the_queue_where_other_work_in_it_stays(tmp_path: Path) -> None:
    """The rules of Kueue evict nobody either where pods in no queue have to go as well."""
    queued = [low(f"queued-{rack}", f"r{rack}-0") for rack in range(2)]
    busy, plain = on("busy", "r0-1", priority="high"), on("plain", "r1-1", priority="high")
    nodes = racks((8, 8), (8, 8))
    async with site(tmp_path, nodes, FREE, levels=LEVELS, config=BEST) as cluster:
        await cluster.runs(*queued, plain, busy)
        assert (await cluster.demand(wanted()), cluster.placed("wanted")) == ({}, 0)


@pytest.mark.thorough
async def test_with_the_rules_of_kueue_no_rack_loses_work_of_both(tmp_path: Path) -> None:
    queued, plain = low("queued", "r0-0"), on("plain", "r0-1")
    async with site(tmp_path, racks((8, 8)), FREE, levels=LEVELS) as cluster:
        await cluster.runs(queued, plain)
        assert (await cluster.demand(wanted()), cluster.placed("wanted")) == ({}, 0)


@pytest.mark.thorough
async def test_two_gangs_get_a_rack_each_of_which_both_planes_evict(tmp_path: Path) -> None:
    nodes = racks((8, 8), (8, 8), (8, 8))
    units = [low(f"queued-{rack}", f"r{rack}-0") for rack in range(3)]
    units += [on(f"plain-{rack}", f"r{rack}-1") for rack in range(2)]
    busy = on("busy", "r2-1", priority="high")
    async with site(tmp_path, nodes, FREE, levels=LEVELS, config=BEST) as cluster:
        await cluster.runs(*units, busy)
        cluster.evicted.clear()
        cluster.stored.clear()
        await cluster.create(*wanted("first"), *wanted("second"))
        await cluster.rest()
        await cluster.rest()
        lines = "\n".join(cluster.lines[-40:])
        assert (cluster.placed("first"), cluster.placed("second")) == (2, 2), lines
        gone = ("queued-0", "queued-1", "plain-0", "plain-1")
        assert cluster.evicted == dict.fromkeys(gone, 8), lines
        assert set(cluster.stored.values()) == {1}, lines
