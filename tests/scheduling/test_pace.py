"""How long decisions last and how often they are made: neither costs a lease or floods anybody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.kube.client import Client
from reprieve.kube.lease import LeaderElector, LeaseTimes
from reprieve.kube.transport import Transport
from reprieve.planes.common.solve import Solver
from tests.scheduling.memory import LEASE, Memory, Wire, memory
from tests.scheduling.site import group, pod

_LEASES = "leases.coordination.k8s.io"
_EVENTS = "events.events.k8s.io"
_TIMES = LeaseTimes(LEASE, LEASE * 2 // 3, LEASE * 2 // 15)


def _elector(cluster: Memory, identity: str, told: list[bool]) -> LeaderElector:
    return LeaderElector(
        Client(Transport(Wire(cluster.api), cluster.clock)),
        cluster.clock,
        namespace="reprieve-system",
        name="reprieve",
        identity=identity,
        times=_TIMES,
        changed=told.append,
    )


class _Long:
    """A plugin, so a part of a decision, that does not come back before it is told to."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, *facts: Any) -> Any:
        self.entered.set()
        assert self.may_end.wait(60), "nobody let the decision end"
        return GROUP_POST_FILTERS["DefaultPreemption"](*facts)


async def _in_the_thread(event: threading.Event) -> None:
    for _ in range(60_000):
        if event.is_set():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the decision never began")


async def _decided(cluster: Memory, holds: Callable[[], bool]) -> None:
    """Wait for what follows from a decision in the thread."""
    for _ in range(60_000):
        if holds():
            return
        await asyncio.sleep(0.001)
        await cluster.pass_time(SECOND // 100)
    raise AssertionError(cluster.told())


@pytest.mark.real_time  # the decision is in a thread, and waits for the loop
async def test_a_decision_of_thirty_lease_periods_loses_no_lease() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        for index in range(2):
            cluster.running(pod(f"low-{index}", 4, priority="low"), f"node-{index}")
        first: list[bool] = []
        second: list[bool] = []
        elector, rival = _elector(cluster, "one", first), _elector(cluster, "two", second)
        tasks = [asyncio.create_task(elector.run())]
        await cluster.until(lambda: elector.leading)
        tasks.append(asyncio.create_task(rival.run()))
        long = _Long()
        plugins = MappingProxyType({**GROUP_POST_FILTERS, "DefaultPreemption": long})
        try:
            cluster.start(tenure=elector, plugins=plugins, solver=Solver(Plane.SCHEDULING))
            cluster.create(
                group("high", min_count=2, priority="high"),
                *(pod(f"high-{i}", 4, group="high", priority="high") for i in range(2)),
            )
            await cluster.settle()
            await _in_the_thread(long.entered)
            for _ in range(60):
                await cluster.pass_time(LEASE // 2)
                assert elector.leading
            assert not cluster.intents(), "nothing was decided yet"
            long.may_end.set()
            await _decided(cluster, lambda: len(cluster.victims()) == 2)
        finally:
            long.may_end.set()
            for task in tasks:
                task.cancel()
        assert (first, second) == ([True], [])
        (lease,) = cluster.api.objects[_LEASES].values()
        assert lease["spec"]["holderIdentity"] == "one"
        assert {intent["status"].get("epoch", 0) for intent in cluster.intents()} == {elector.epoch}


@pytest.mark.real_time  # the decision is in a thread, and waits for the loop
async def test_a_long_decision_that_no_longer_holds_is_made_again() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        for index in range(2):
            cluster.running(pod(f"low-{index}", 4, priority="low"), f"node-{index}")
        long = _Long()
        plugins = MappingProxyType({**GROUP_POST_FILTERS, "DefaultPreemption": long})
        cluster.start(plugins=plugins, solver=Solver(Plane.SCHEDULING))
        cluster.create(
            group("high", min_count=1, priority="high"),
            pod("high-0", 4, group="high", priority="high"),
        )
        await cluster.settle()
        await _in_the_thread(long.entered)
        cluster.end("low-0", "low-1")
        await cluster.settle()
        long.may_end.set()
        await _decided(cluster, lambda: "high-0" in cluster.placed())
        assert not cluster.api.deleted
        assert cluster.metric("scheduler_stale_decisions_total") == 1


@pytest.mark.parametrize("size", [2, 8, 64])
@pytest.mark.parametrize("victims", [False, True], ids=["nobody to evict", "too few to evict"])
async def test_a_gang_that_cannot_fit_is_tried_at_most_twelve_times_a_minute(
    size: int, victims: bool
) -> None:
    async with memory() as cluster:
        cluster.nodes([4] * (size - 1))
        if victims:
            cluster.running(pod("low-0", 4, priority="low"), "node-0")
        cluster.start()
        cluster.create(
            group("high", min_count=size, priority="high"),
            *(pod(f"high-{i}", 4, group="high", priority="high") for i in range(size)),
        )
        await cluster.pass_time(MINUTE)
        tried = cluster.metric(
            "scheduler_podgroup_schedule_attempts_total",
            result="unschedulable",
            profile="default-scheduler",
        )
        assert 1 <= tried <= 12
        assert not cluster.api.deleted
        await cluster.pass_time(10 * MINUTE)
        writes = [w.name for verb, w in cluster.api.writes if verb == "patch" and w.kind != _EVENTS]
        assert len(writes) == size + 1, "what stands there already is not written again"
