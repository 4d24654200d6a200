"""Harm budgets in the scheduling plane: who is spared, and what the preemptor is told."""

from __future__ import annotations

from typing import Any

from reprieve.planes.scheduling.plane import SchedulingPlane
from reprieve.units.durations import MINUTE
from reprieve.units.instants import parse_instant
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod


def budget(name: str = "batch-day", **spec: Any) -> Object:
    """Return a HarmBudget of two displacements within 20 minutes for each tenant."""
    found = {"limits": {"displacements": 2}, "window": "20m", **spec}
    return {"metadata": {"name": name}, "spec": found}


def put(cluster: Memory, obj: Object) -> None:
    """Store a budget."""
    cluster.api.put("harmbudgets.reprieve.dev", obj)


async def started(cluster: Memory) -> SchedulingPlane:
    """Start a plane that follows budgets."""
    plane = cluster.start(budgets=True)
    await cluster.until(lambda: plane.context.governor.harm)
    return plane


async def displaced(cluster: Memory, number: int) -> None:
    """Let one pod run and another one displace it, which then ends."""
    cluster.running(pod(f"victim-{number}", 4, priority="low"), "node-0")
    cluster.create(pod(f"urgent-{number}", 4, priority="high"))
    await cluster.until(lambda: cluster.victims() == {f"victim-{number}"})
    cluster.end_all()
    await cluster.until(lambda: f"urgent-{number}" in cluster.placed())
    cluster.end(f"urgent-{number}")
    await cluster.pass_time(MINUTE)


def told(cluster: Memory, name: str) -> str:
    """Return the condition of a pod that waits."""
    return str(cluster.condition(cluster.pod(name), "PodScheduled"))


async def test_a_third_displacement_is_held_and_passes_when_the_window_has_passed() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget())
        plane = await started(cluster)
        await displaced(cluster, 0)
        first = cluster.clock.wall()
        await displaced(cluster, 1)
        cluster.running(pod("spared", 4, priority="low"), "node-0")
        cluster.create(pod("waits", 4, priority="high"))
        await cluster.until(lambda: "harm budget batch-day is used up" in told(cluster, "waits"))
        assert not cluster.victims()
        free = told(cluster, "waits").split(" before ")[1].split(": ")[0]
        assert first + 15 * MINUTE <= parse_instant(free) <= first + 25 * MINUTE
        found = plane.diagnosis("Pod", NAMESPACE, "waits")
        assert found is not None
        assert found.refused == {"harm budget batch-day": 1}
        assert found.earliest == parse_instant(free)
        await cluster.pass_time(parse_instant(free) - cluster.clock.wall() - MINUTE)
        assert not cluster.victims()
        await cluster.until(lambda: cluster.victims() == {"spared"}, most=3 * MINUTE)
        assert cluster.clock.wall() >= parse_instant(free)


async def test_another_victim_is_looked_for() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        metadata = {"name": NAMESPACE, "labels": {"tier": "batch"}}
        cluster.api.put("namespaces", {"metadata": metadata})
        put(
            cluster,
            budget(
                limits={"displacements": 0},
                selector={"namespaces": {"matchLabels": {"tier": "batch"}}, "priorityBelow": 5000},
            ),
        )
        await started(cluster)
        cluster.running(pod("spared", 4, priority="low"), "node-0")
        cluster.running(pod("other", 4, priority="middle"), "node-1")
        cluster.create(pod("urgent", 4, priority="high"))
        await cluster.until(cluster.victims)
        assert cluster.victims() == {"other"}


async def test_a_plan_of_several_victims_takes_from_a_budget_as_a_whole_or_not_at_all() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget(limits={"displacements": 1}))
        await started(cluster)
        for number in range(2):
            cluster.running(pod(f"small-{number}", 2, priority="low"), "node-0")
        cluster.create(pod("urgent", 4, priority="high"))
        await cluster.until(lambda: "harm budget" in told(cluster, "urgent"))
        assert not cluster.victims()
        # Half of the room is one displacement.
        cluster.create(pod("half", 2, priority="high"))
        await cluster.until(cluster.victims)
        assert len(cluster.victims()) == 1


async def test_an_exempt_priority_passes_and_counts() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget(limits={"displacements": 0}, exempt={"priorityFrom": 100_000}))
        plane = await started(cluster)
        await displaced(cluster, 0)
        (use,) = plane.context.governor.harm.used("batch-day", cluster.clock.wall())
        assert (use.account, use.displacements) == (NAMESPACE, 1)
        cluster.running(pod("spared", 4, priority="low"), "node-0")
        cluster.create(pod("waits", 4, priority="middle"))
        await cluster.until(lambda: "harm budget" in told(cluster, "waits"))
        assert not cluster.victims()


async def test_a_restart_knows_what_records_say() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget())
        await started(cluster)
        await displaced(cluster, 0)
        await displaced(cluster, 1)
        await cluster.stop()
        plane = await started(cluster)
        cluster.running(pod("spared", 4, priority="low"), "node-0")
        cluster.create(pod("waits", 4, priority="high"))
        await cluster.until(lambda: "harm budget" in told(cluster, "waits"))
        assert not cluster.victims()
        (use,) = plane.context.governor.harm.used("batch-day", cluster.clock.wall())
        assert use.displacements == 2


async def test_a_group_that_goes_as_a_whole_counts_once() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget(limits={"displacements": 1}))
        plane = await started(cluster)
        cluster.create(group("gang", min_count=2, priority="low", mode="all"))
        for number in range(2):
            member = pod(f"member-{number}", 2, priority="low", group="gang")
            cluster.running(member, "node-0")
        cluster.create(pod("urgent", 4, priority="high"))
        await cluster.until(lambda: len(cluster.victims()) == 2)
        (use,) = plane.context.governor.harm.used("batch-day", cluster.clock.wall())
        assert use.displacements == 1
