"""Three planes of one process, and one demand that wants all of its pods in one rack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reprieve.scenarios.model import NodeSpec
from tests.oracle.racks import Held, fits_in_a_rack, least_by_rack
from tests.together.site import KINDS, UNIT, Site, job, node, site

LEVELS = ("rack", "kubernetes.io/hostname")
HOST = "kubernetes.io/hostname"
QUOTAS = {"a": 32, "b": 0}


def racks(*gpus: Sequence[int]) -> list[NodeSpec]:
    """Return nodes by rack: r0-0, r0-1, r1-0 and so on."""
    return [
        node(
            f"r{rack}-{number}",
            each,
            {"gpu": "gpus", "rack": f"r{rack}", HOST: f"r{rack}-{number}"},
        )
        for rack, nodes in enumerate(gpus)
        for number, each in enumerate(nodes)
    ]


def on(name: str, host: str, **given: Any) -> list[dict[str, Any]]:
    """Return a job of the other team on a node."""
    return job(name, "b", nodeSelector={HOST: host}, **{"gpus": 8, **given})


def wanted(name: str = "wanted", **given: Any) -> list[dict[str, Any]]:
    """Return a gang of two pods that want a node each, in one rack."""
    given = {"pods": 2, "gpus": 8, "priority": "high", "within": "rack", **given}
    return job(name, "a", queued=True, **given)


def nodes_of(cluster: Site, unit: str) -> set[str]:
    """Return the nodes of a unit's pods."""
    return {pod["spec"]["nodeName"] for name, pod in cluster.running() if name == unit}


async def test_idle_work_goes_in_the_rack_that_can_be_completed(tmp_path: Path) -> None:
    """The older idle job is in a rack that busy work of high priority keeps from being emptied."""
    older, newer = (
        on(name, host, priority="high") for name, host in (("o", "r0-0"), ("n", "r1-0"))
    )
    busy = on("busy", "r0-1", priority="high")
    async with site(tmp_path, racks((8, 8), (8, 8)), QUOTAS, levels=LEVELS) as cluster:
        await cluster.runs(older, newer, busy)
        await cluster.idle(older)
        await cluster.idle(newer)
        evicted = await cluster.demand(wanted())
        assert (evicted, nodes_of(cluster, "wanted")) == ({"n": 8}, {"r1-0", "r1-1"})


@pytest.mark.thorough
async def test_lower_priorities_go_in_the_rack_that_can_be_completed(tmp_path: Path) -> None:
    one, other = on("one", "r0-0"), on("other", "r1-0")
    busy = on("busy", "r0-1", priority="high")
    async with site(tmp_path, racks((8, 8), (8, 8)), QUOTAS, levels=LEVELS) as cluster:
        await cluster.runs(one, other, busy)
        evicted = await cluster.demand(wanted())
        assert (evicted, nodes_of(cluster, "wanted")) == ({"other": 8}, {"r1-0", "r1-1"})


@pytest.mark.thorough
async def test_lower_priorities_go_in_the_rack_where_fewest_devices_do(tmp_path: Path) -> None:
    full = [on(f"full-{number}", f"r0-{number}") for number in range(2)]
    half = [on(f"half-{number}", f"r1-{number}", gpus=4) for number in range(2)]
    async with site(tmp_path, racks((8, 8), (8, 8)), QUOTAS, levels=LEVELS) as cluster:
        await cluster.runs(*full, *half)
        evicted = await cluster.demand(wanted())
        assert evicted == {"half-0": 4, "half-1": 4}
        assert nodes_of(cluster, "wanted") == {"r1-0", "r1-1"}


@pytest.mark.thorough
async def test_idle_work_and_lower_priorities_complete_a_rack_together(tmp_path: Path) -> None:
    idle, lower = on("idle", "r1-0", priority="high"), on("lower", "r1-1")
    busy, beside = on("busy", "r0-1", priority="high"), on("beside", "r0-0", gpus=4)
    async with site(tmp_path, racks((8, 8), (8, 8)), QUOTAS, levels=LEVELS) as cluster:
        await cluster.runs(idle, lower, busy, beside)
        await cluster.idle(idle)
        evicted = await cluster.demand(wanted())
        assert evicted == {"idle": 8, "lower": 8}
        assert nodes_of(cluster, "wanted") == {"r1-0", "r1-1"}


@pytest.mark.thorough
async def test_idle_work_that_holds_places_goes_in_the_rack_that_it_completes(
    tmp_path: Path,
) -> None:
    one, other, busy = (
        on(name, host, priority="high", queued=True)
        for name, host in (("one", "r0-0"), ("other", "r1-0"), ("busy", "r0-1"))
    )
    async with site(tmp_path, racks((8, 8), (8, 8)), {"a": 16, "b": 24}, levels=LEVELS) as cluster:
        await cluster.runs(one, other, busy)
        await cluster.idle(one, other)
        evicted = await cluster.demand(wanted())
        assert (evicted, nodes_of(cluster, "wanted")) == ({"other": 8}, {"r1-0", "r1-1"})


@pytest.mark.thorough
async def test_nobody_goes_where_no_rack_can_be_completed(tmp_path: Path) -> None:
    """Two racks have room for one pod each once idle work and lower priorities are gone."""
    idle, lower = on("idle", "r0-0", priority="high"), on("lower", "r1-0")
    busy = [on(f"busy-{rack}", f"r{rack}-1", priority="high") for rack in range(2)]
    async with site(tmp_path, racks((8, 8), (8, 8)), QUOTAS, levels=LEVELS) as cluster:
        await cluster.runs(idle, lower, *busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(wanted())
        assert (evicted, cluster.placed("wanted")) == ({}, 0)


@pytest.mark.thorough
async def test_work_that_asks_for_no_level_gets_the_nodes_where_fewest_devices_go(
    tmp_path: Path,
) -> None:
    """The queue has no flavors but those with a topology."""
    full = [on(f"full-{number}", f"r0-{number}") for number in range(2)]
    half = [on(f"half-{number}", f"r1-{number}", gpus=4) for number in range(2)]
    async with site(tmp_path, racks((8, 8), (8, 8)), QUOTAS, levels=LEVELS) as cluster:
        await cluster.runs(*full, *half)
        evicted = await cluster.demand(wanted(within=""))
        assert (evicted, cluster.placed("wanted")) == ({"half-0": 4, "half-1": 4}, 2)


@pytest.mark.thorough
async def test_a_placed_pod_that_the_scheduling_plane_preempts_waits_for_its_node(
    tmp_path: Path,
) -> None:
    """Its gang keeps its quota and its places; nobody else is placed where it waits."""
    gang = job("gang", "b", queued=True, pods=2, gpus=8, within="rack", priority="low")
    urgent = job("urgent", "a", gpus=8, priority="high", nodeSelector={HOST: "r0-0"})
    planes, quotas = "scheduling,quota", {"a": 0, "b": 32}
    nodes = racks((8, 8), (8, 8))
    async with site(tmp_path, nodes, quotas, levels=LEVELS, planes=planes) as cluster:
        await cluster.runs(gang)
        assert nodes_of(cluster, "gang") == {"r0-0", "r0-1"}
        (stays,) = (p for _, p in cluster.running() if p["spec"]["nodeName"] == "r0-1")
        evicted = await cluster.demand(urgent)
        assert (evicted, nodes_of(cluster, "urgent")) == ({"gang": 8}, {"r0-0"})
        assert await waiting(cluster, "gang") == [{HOST: "r0-0"}]
        evicted = await cluster.demand(job("other", "b", queued=True, gpus=8, within=HOST))
        assert (evicted, nodes_of(cluster, "other")) == ({}, {"r1-0"})
        await cluster.client.delete(KINDS["Job"], "a", "urgent")
        await cluster.rest()
        assert nodes_of(cluster, "gang") == {"r0-0", "r0-1"}
        kept = [p for _, p in cluster.running() if p["spec"]["nodeName"] == "r0-1"]
        assert [p["metadata"]["uid"] for p in kept] == [stays["metadata"]["uid"]]
        assert await waiting(cluster, "gang") == []


async def waiting(cluster: Site, unit: str) -> list[dict[str, str]]:
    """Return what the pods of a unit that have no node select nodes by."""
    page = await cluster.client.list(KINDS["Pod"], dict, label_selector=f"{UNIT}={unit}")
    return [
        {key: value for key, value in pod["spec"].get("nodeSelector", {}).items() if key == HOST}
        for pod in page.items
        if not pod["spec"].get("nodeName")
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("priority", ["high", "low"], ids=["idle work", "lower priorities"])
async def test_two_gangs_get_a_rack_each(tmp_path: Path, priority: str) -> None:
    others = [on(f"other-{n}", f"r{n}-0", priority=priority) for n in range(3)]
    busy = on("busy", "r0-1", priority="high")
    async with site(tmp_path, racks((8, 8), (8, 8), (8, 8)), QUOTAS, levels=LEVELS) as cluster:
        await cluster.runs(*others, busy)
        if priority == "high":
            await cluster.idle(*others)
        cluster.evicted.clear()
        await cluster.create(*wanted("first"), *wanted("second"))
        await cluster.rest()
        assert cluster.evicted == {"other-1": 8, "other-2": 8}
        assert (cluster.placed("first"), cluster.placed("second")) == (2, 2)


@pytest.mark.thorough
async def test_a_gang_that_prefers_a_rack_gets_one_where_others_make_room(tmp_path: Path) -> None:
    """It would fit in two racks with as many devices evicted, and in one."""
    gang = wanted(within="")
    notes = {"kueue.x-k8s.io/podset-preferred-topology": "rack"}
    gang[0]["spec"]["template"]["metadata"]["annotations"] = notes
    halves = [on(f"half-{host}", host, gpus=4) for host in ("r0-0", "r1-0", "r1-1")]
    busy = on("busy", "r0-1", priority="high")
    async with site(tmp_path, racks((8, 8), (8, 8)), QUOTAS, levels=LEVELS) as cluster:
        await cluster.runs(*halves, busy)
        evicted = await cluster.demand(gang)
        assert evicted == {"half-r1-0": 4, "half-r1-1": 4}
        assert nodes_of(cluster, "wanted") == {"r1-0", "r1-1"}


def drawn(random: Random) -> tuple[list[list[int]], list[Held], int, int]:
    """Return racks that are in use, and how many pods of how many GPUs a gang has."""
    shape = [[8] * random.randint(1, 2) for _ in range(random.randint(2, 3))]
    held: list[Held] = []
    for spec in racks(*shape):
        left = 8
        while left and random.random() < 0.85 and len(held) < 9:
            gpus = random.choice([each for each in (2, 4, 8) if each <= left])
            held.append(Held(f"u{len(held)}", spec.name, gpus, random.choice((0, 1, 2, 2))))
            left -= gpus
    return shape, held, random.choice((1, 2)), random.choice((4, 8))


@pytest.mark.slow
async def test_exactly_those_go_that_a_rack_needs(tmp_path: Path) -> None:
    """Random racks beside every set of pods that may go: idle work first, then lower priorities."""
    random, seen = Random("racks"), 0
    for number in range(100):
        if seen >= 15:
            break
        shape, held, pods, gpus = drawn(random)
        nodes = {spec.name: (spec.labels["rack"], 8) for spec in racks(*shape)}
        if fits_in_a_rack(nodes, held, pods, gpus):
            continue
        seen += 1
        known = least_by_rack(nodes, held, pods, gpus)
        units = [
            on(e.name, e.node, gpus=e.gpus, priority="low" if e.may_go == 2 else "high")
            for e in held
        ]
        folder = tmp_path / str(number)
        folder.mkdir()
        async with site(folder, racks(*shape), {"a": 64, "b": 0}, levels=LEVELS) as cluster:
            await cluster.runs(*units)
            idle = [unit for unit, each in zip(units, held, strict=True) if each.may_go == 1]
            await cluster.idle(*idle)
            evicted = await cluster.demand(wanted(pods=pods, gpus=gpus))
            found = (sum(evicted.values()), cluster.placed("wanted"))
        assert found == ((0, 0) if known is None else (known[1], pods)), (number, held, known)
    assert seen >= 15
