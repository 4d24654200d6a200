"""Jobs that come and go: what the loads of the idle and of the quota plane have in common.

A load keeps the cluster full, and demands Jobs every few seconds which have to come to run. Each of
these ends when it has run for a while. kube-controller-manager makes the pods, the operator's own
scheduling plane places them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final

from reprieve.kube.bodies import Propagation
from reprieve.kube.resource import Resource
from tests.reliability.stand import Stand

__all__ = ["JOBS", "Demand", "JobChurn", "Object", "job_of"]

Object = dict[str, Any]
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
_JOB_NAME: Final = "batch.kubernetes.io/job-name"


def job_of(pod: Object) -> str:
    """Return the name of the Job that a pod is of, empty for none."""
    return str((pod["metadata"].get("labels") or {}).get(_JOB_NAME, ""))


@dataclass
class Demand:
    """A Job that has to come to run; `size` as its load counts it, `since` when it runs."""

    size: int
    created: float
    since: float | None = None


@dataclass
class JobChurn:
    """`served`: how many demands have come to run, of `made`; `life_s`: how long each runs then."""

    stand: Stand
    every_s: float = 5.0
    life_s: float = 10.0
    seed: int = 1
    made: int = 0
    served: int = 0
    slowest_s: float = 0.0
    demands: dict[str, Demand] = field(default_factory=dict)

    #: Of each demand; it runs when all of them do.
    pods: ClassVar[int] = 1
    #: How long those that are preempted have to run before they do.
    rests_s: ClassVar[float] = 0.0

    def small(self, name: str, size: int) -> Object:
        """Return a Job of one pod that is preempted."""
        raise NotImplementedError

    def large(self, name: str, pods: int, size: int) -> Object:
        """Return a Job for which others are preempted; `size`: of each of its pods."""
        raise NotImplementedError

    async def fill(self) -> None:
        """Keep the cluster full of Jobs that are preempted."""
        raise NotImplementedError

    async def demand(self, random: Random) -> None:
        """Have one more Job come, if there could be room for it."""
        raise NotImplementedError

    async def settle(self, namespace: str) -> None:
        """Make Jobs in another namespace that preempt others, and that are preempted then."""
        raise NotImplementedError

    async def run(self) -> None:
        """Come and go until cancelled."""
        random, last = Random(self.seed), time.monotonic()
        await self.stand.look_again()
        while True:
            await self.fill()
            await self._leave()
            if time.monotonic() - last >= self.every_s:
                last = time.monotonic()
                await self.demand(random)
            await asyncio.sleep(0.3)

    async def until_served(self, patience_s: float) -> bool:
        """Let nobody come any more; return whether all demands have come to run."""
        end = time.monotonic() + patience_s
        while any(demand.since is None for demand in self.demands.values()):
            if time.monotonic() > end:
                return False
            await self._leave()
            await asyncio.sleep(0.3)
        return True

    async def come(self, size: int, job: Object) -> None:
        """Create a Job that has to come to run."""
        self.demands[job["metadata"]["name"]] = Demand(size, time.monotonic())
        await self.stand.create(JOBS, job)

    async def _leave(self) -> None:
        now = time.monotonic()
        running = Counter(
            job_of(pod)
            for pod in self.stand.pods.values()
            if pod["status"].get("phase") == "Running"
        )
        for name, demand in list(self.demands.items()):
            if demand.since is None and running[name] == self.pods:
                self.served += 1
                self.slowest_s = max(self.slowest_s, now - demand.created)
                demand.since = now
            elif demand.since is not None and now - demand.since > self.life_s:
                del self.demands[name]
                await self.stand.delete(JOBS, [name], propagation=Propagation.BACKGROUND)
