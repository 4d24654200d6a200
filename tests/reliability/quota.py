"""Work that comes and goes for the quota plane: Jobs in one queue, admitted, evicted and run.

Jobs of low priority want all of the quota, always. Every few seconds one of high priority comes,
for which some of them are evicted, and which ends after a while. kube-controller-manager makes the
pods of Jobs that are not suspended, the operator's own scheduling plane places them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from reprieve.kube.bodies import Propagation
from reprieve.kube.resource import Resource
from tests.quota_plane.site import JOBS, cluster_queue, flavor, job, local_queue, priority_class
from tests.reliability.stand import Stand

__all__ = ["QuotaChurn"]

Object = dict[str, Any]
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_LOWER: Final = {"withinClusterQueue": "LowerPriority"}
_LOW: Final = 20
_PODS: Final = 2


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource("kueue.x-k8s.io", "v1beta2", plural, kind, namespaced)


_RESOURCES: Final = {
    "ResourceFlavor": _kueue("resourceflavors", "ResourceFlavor"),
    "ClusterQueue": _kueue("clusterqueues", "ClusterQueue"),
    "LocalQueue": _kueue("localqueues", "LocalQueue", namespaced=True),
    "WorkloadPriorityClass": _kueue("workloadpriorityclasses", "WorkloadPriorityClass"),
}


@dataclass
class QuotaChurn:
    """`served`: how many Jobs of high priority have come to run, of `made`; `cpus`: the quota."""

    stand: Stand
    every_s: float = 5.0
    life_s: float = 10.0
    seed: int = 1
    cpus: int = 32
    made: int = 0
    served: int = 0
    slowest_s: float = 0.0
    wanted: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    _low: int = 0

    controllers = "quota,scheduling"
    environment: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Create the queue."""
        for obj in (
            flavor(),
            cluster_queue("cq", self.cpus, preemption=_LOWER),
            local_queue("q", "cq"),
            priority_class("low", 100),
            priority_class("high", 10_000),
        ):
            await self.stand.create(_RESOURCES[obj["kind"]], obj)
        yield

    async def run(self) -> None:
        """Come and go until cancelled."""
        random, last = Random(self.seed), time.monotonic()
        while True:
            if self._low < _LOW:
                await self.stand.create(JOBS, self._job(f"low-{self._low}", "low", 2))
                self._low += 1
            await self._leave()
            if time.monotonic() - last >= self.every_s:
                last = time.monotonic()
                await self._want(random)
            await asyncio.sleep(0.3)

    async def until_served(self, patience_s: float) -> bool:
        """Let nobody come any more; return whether all Jobs of high priority have come to run."""
        end = time.monotonic() + patience_s
        while any(since is None for _, since in self.wanted.values()):
            if time.monotonic() > end:
                return False
            await self._leave()
            await asyncio.sleep(0.3)
        return True

    @staticmethod
    def _job(name: str, priority: str, cpus: int) -> Object:
        found = job(name, priority=priority, pods=_PODS, cpu=str(cpus))
        found["spec"]["template"]["spec"]["schedulerName"] = "reprieve-scheduler"
        return found

    async def _want(self, random: Random) -> None:
        if len(self.wanted) * 4 * _PODS > self.cpus / 2:
            return
        self.made += 1
        name = f"high-{self.made}"
        self.wanted[name] = time.monotonic(), None
        await self.stand.create(JOBS, self._job(name, "high", random.choice((1, 2, 4))))

    async def _leave(self) -> None:
        now = time.monotonic()
        running: dict[str, int] = {}
        for pod in self.stand.pods.values():
            if pod["status"].get("phase") == "Running":
                name = (pod["metadata"].get("labels") or {}).get(_JOB_NAME, "")
                running[name] = running.get(name, 0) + 1
        for name, (created, since) in list(self.wanted.items()):
            if since is None and running.get(name, 0) == _PODS:
                self.served += 1
                self.slowest_s = max(self.slowest_s, now - created)
                self.wanted[name] = created, now
            elif since is not None and now - since > self.life_s:
                del self.wanted[name]
                await self.stand.delete(JOBS, [name], propagation=Propagation.BACKGROUND)
