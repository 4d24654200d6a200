"""Work that comes and goes while faults happen, for the scheduling plane.

The nodes are filled with pods of low priority, which come again as often as they are evicted. Gangs
of high priority come one after the other, each needs victims, is bound, runs a while and leaves;
gangs of middle priority, which go as a whole, are evicted or bound as it happens. High gangs never
want more than half of all nodes at once, so that each of them has to come to its nodes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from reprieve.kube.resource import PODS, Resource
from tests.reliability.stand import NAMESPACE, Stand

__all__ = ["POD_GROUPS", "Churn", "gang_of", "pod"]

Object = dict[str, Any]
POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")


def pod(
    name: str, cpus: int, priority: str, *, group: str = "", namespace: str = NAMESPACE
) -> Object:
    """Return a pod for the operator's scheduler."""
    spec: Object = {
        "schedulerName": "reprieve-scheduler",
        "priorityClassName": priority,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "image": "registry.example/main:1",
                "resources": {"requests": {"cpu": str(cpus)}},
            }
        ],
    }
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def gang_of(
    stand: Stand,
    name: str,
    size: int,
    cpus: int,
    priority: str,
    *,
    mode: str = "single",
    namespace: str = NAMESPACE,
) -> list[str]:
    """Create a gang that wants all its pods; return their names."""
    group = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": size}},
            "disruptionMode": {mode: {}},
            "priorityClassName": priority,
        },
    }
    names = [f"{name}-{i}" for i in range(size)]
    await stand.create(POD_GROUPS, group)
    await stand.create(
        PODS, *(pod(each, cpus, priority, group=name, namespace=namespace) for each in names)
    )
    return names


@dataclass
class _Gang:
    size: int
    cpus: int
    high: bool
    created: float
    whole: bool = False  # all of it was made
    bound: float | None = None


@dataclass
class Churn:
    """`every_s`: between two gangs; `life_s`: how long one runs; `low_cpus`: of each low pod.

    `served`: how many high gangs have come to their nodes, of `wanted`.
    """

    stand: Stand
    every_s: float = 3.0
    life_s: float = 12.0
    low_cpus: int = 2
    gang_cpus: int = 4
    sizes: tuple[int, ...] = (2, 3, 4)
    seed: int = 1
    most_gangs: int = 1_000_000
    gangs: dict[str, _Gang] = field(default_factory=dict)
    made: int = 0
    served: int = 0
    slowest_s: float = 0.0
    _low: int = 0

    controllers = "scheduling"
    environment: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Everything is there."""
        yield

    async def run(self) -> None:
        """Come and go until cancelled."""
        async with asyncio.TaskGroup() as together:
            together.create_task(self._keep_full())
            together.create_task(self._keep_coming())

    async def _keep_full(self) -> None:
        while True:
            await self._fill()
            await asyncio.sleep(0.2)

    async def _keep_coming(self) -> None:
        random, due = Random(self.seed), time.monotonic()
        while True:
            await self._leave()
            now = time.monotonic()
            # What a slow look has held up is made up for, ten gangs at most.
            due = max(due, now - 10 * self.every_s)
            while due <= now and self.made < self.most_gangs:
                due += self.every_s
                await self._gang(random)
            await asyncio.sleep(0.2)

    async def until_served(self, patience_s: float) -> bool:
        """Let nobody come any more; return whether all high gangs have come to their nodes.

        One that was still being made is none.
        """
        end = time.monotonic() + patience_s
        while any(gang.high and gang.whole and gang.bound is None for gang in self.gangs.values()):
            if time.monotonic() > end:
                return False
            await self._leave()
            await asyncio.sleep(0.2)
        return True

    async def _fill(self) -> None:
        """Keep as many low pods as fill all nodes, whether they have a node or not."""
        there = sum(
            name.startswith("low-") and not each["metadata"].get("deletionTimestamp")
            for name, each in self.stand.pods.items()
        )
        if not self.stand.looks:
            return
        wanted = int(sum(self.stand.nodes.values())) // self.low_cpus
        missing = range(self._low, self._low + max(0, wanted - there))
        self._low = missing.stop
        await self.stand.create(PODS, *(pod(f"low-{i}", self.low_cpus, "low") for i in missing))
        if missing:
            # What was made is to be seen before more is.
            await self.stand.look_again()

    async def _gang(self, random: Random) -> None:
        size, high = random.choice(self.sizes), random.random() < 0.75
        wanted = size * self.gang_cpus
        held = sum(each.size * each.cpus for each in self.gangs.values() if each.high)
        if high and held + wanted > sum(self.stand.nodes.values()) / 2:
            return
        self.made += 1
        priority = "high" if high else "middle"
        name = f"{priority}-{self.made}"
        mode = random.choice(("single", "all"))
        self.gangs[name] = _Gang(size, self.gang_cpus, high, time.monotonic())
        await gang_of(self.stand, name, size, self.gang_cpus, priority, mode=mode)
        self.gangs[name].whole = True

    async def _leave(self) -> None:
        """Let gangs go that have run long enough, and middle ones that nobody binds."""
        now = time.monotonic()
        for name, gang in list(self.gangs.items()):
            members = [f"{name}-{i}" for i in range(gang.size)]
            pods = [self.stand.pods.get(each) for each in members]
            nodes = [each and each["spec"].get("nodeName") for each in pods]
            if gang.bound is None and all(nodes):
                gang.bound = now
                self.served += gang.high
                self.slowest_s = max(self.slowest_s, now - gang.created)
            patience = self.life_s if gang.bound is not None else 4 * self.life_s
            over = now - (gang.bound or gang.created) > patience
            if over and (gang.bound is not None or not gang.high):
                del self.gangs[name]
                await self.stand.delete(PODS, members)
                await self.stand.delete(POD_GROUPS, [name])
