"""Work that comes and goes for the quota plane: Jobs in one queue, admitted, evicted and run.

Jobs of low priority want all of the quota, always. Every few seconds one of high priority comes,
for which some of them are evicted, and which ends after a while. kube-controller-manager makes the
pods of Jobs that are not suspended, the operator's own scheduling plane places them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from reprieve.kube.resource import Resource
from tests.quota_plane.site import cluster_queue, flavor, job, local_queue, priority_class
from tests.reliability.job_churn import JOBS, JobChurn, Object

__all__ = ["QuotaChurn"]

_LOWER: Final = {"withinClusterQueue": "LowerPriority"}
_LOW: Final = 20
_PODS: Final = 2
_MOST_CPUS: Final = 4


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource("kueue.x-k8s.io", "v1beta2", plural, kind, namespaced)


_RESOURCES: Final = {
    "ResourceFlavor": _kueue("resourceflavors", "ResourceFlavor"),
    "ClusterQueue": _kueue("clusterqueues", "ClusterQueue"),
    "LocalQueue": _kueue("localqueues", "LocalQueue", namespaced=True),
    "WorkloadPriorityClass": _kueue("workloadpriorityclasses", "WorkloadPriorityClass"),
}


@dataclass
class QuotaChurn(JobChurn):
    """`cpus`: the quota."""

    cpus: int = 32
    _low: int = 0

    pods = _PODS
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
            priority_class("middle", 1_000),
            priority_class("high", 10_000),
        ):
            await self.stand.create(_RESOURCES[obj["kind"]], obj)
        yield

    def small(self, name: str, size: int) -> Object:
        return self._job(name, "low", size, 1)

    def large(self, name: str, pods: int, size: int) -> Object:
        return self._job(name, "high", size, pods)

    async def fill(self) -> None:
        if self._low < _LOW:
            await self.stand.create(JOBS, self._job(f"low-{self._low}", "low", 2))
            self._low += 1

    async def demand(self, random: Random) -> None:
        if len(self.demands) * _MOST_CPUS * _PODS > self.cpus / 2:
            return
        self.made += 1
        cpus = random.choice((1, 2, _MOST_CPUS))
        await self.come(cpus * _PODS, self._job(f"high-{self.made}", "high", cpus))

    async def settle(self, namespace: str) -> None:
        """They hold all that higher ones leave, so that the next of these wants theirs."""
        queue = local_queue("q", "cq")
        queue["metadata"]["namespace"] = namespace
        await self.stand.create(_RESOURCES["LocalQueue"], queue)
        jobs = [self._job(f"{namespace}-{i}", "middle", 2) for i in range(self.cpus // 2 // _PODS)]
        for each in jobs:
            each["metadata"]["namespace"] = namespace
        await self.stand.create(JOBS, *jobs)

    @staticmethod
    def _job(name: str, priority: str, cpus: int, pods: int = _PODS) -> Object:
        found = job(name, priority=priority, pods=pods, cpu=str(cpus))
        found["spec"]["template"]["spec"]["schedulerName"] = "reprieve-scheduler"
        return found
