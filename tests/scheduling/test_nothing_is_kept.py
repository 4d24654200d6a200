"""Of work that came and went nothing is kept, however long the process runs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from kubeworld.units.durations import MINUTE, SECOND
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, group, pod


def _kept(cluster: Memory) -> tuple[int, int]:
    """Return how many written statuses, and how many series of events, are remembered."""
    plane = cluster.planes[0]
    return len(vars(plane.statuses)["_sent"]), len(vars(plane.context.events)["_series"])


def _status(cluster: Memory, name: str) -> Any:
    return cluster.group(name)["status"]


async def test_of_gangs_that_are_gone_neither_statuses_nor_events_are_remembered() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        cluster.running(pod("low", 4, priority="low"), "node-0")
        cluster.start()
        for name in ("first", "second", "third"):
            # Too large for the nodes, so that its condition is written, until a pod leaves.
            members = [pod(f"{name}-{i}", 4, group=name, priority="high") for i in range(3)]
            cluster.create(group(name, min_count=3, priority="high"), *members)
            await cluster.until(partial(_status, cluster, name))
            assert _kept(cluster)[1] > 0
            cluster.end(*(f"{name}-{i}" for i in range(3)))
            cluster.api.remove("podgroups.scheduling.k8s.io", NAMESPACE, name)
            await cluster.pass_time(SECOND)
        assert _kept(cluster)[0] == 0
        await cluster.pass_time(7 * MINUTE)
        cluster.create(pod("last", 8, priority="low"))
        await cluster.until(lambda: cluster.pod("last")["status"].get("conditions"))
        statuses, series = _kept(cluster)
        assert (statuses <= 1, series) == (True, 1)


async def test_whoever_looks_at_all_records_holds_none_of_their_victims() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        for number in range(2):
            cluster.running(pod(f"low-{number}", 2, priority="low"), "node-0")
        cluster.start()
        cluster.create(pod("high", 4, priority="high"))
        await cluster.until(lambda: len(cluster.victims()) == 2)
        log = cluster.planes[0].preemptions.book.log
        bare, full = asyncio.create_task(log.list(bare=True)), asyncio.create_task(log.list())
        await cluster.settle()
        ((one,), (other,)) = bare.result(), full.result()
        assert len(other.spec.victims) == 2
        assert (one.spec.victims, one.spec.placement, one.status.victims) == ([], [], [])
        assert one.spec.number_of_victims == other.spec.number_of_victims == 2
        assert one.metadata == other.metadata
