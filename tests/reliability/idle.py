"""Work that comes and goes for the idle plane: Jobs that hold GPUs and do nothing, and demands.

kube-controller-manager makes the pods of Jobs and takes away what is left of them; the operator's
own scheduling plane places them. All GPUs are held by idle Jobs, which come again as often as they
are evicted; every few seconds a Job comes that uses what it gets, for which idle ones are
preempted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from aiohttp import web

from tests.reliability.job_churn import JOBS, JobChurn, Object, job_of
from tests.reliability.stand import NAMESPACE
from tests.scraper.servers import serving

__all__ = ["IdleChurn"]

_BUSY: Final = ("demand-", "high-")
_PREFIX: Final = "kaiwo.silogen.ai/gpu-preemption."


def _job(name: str, gpus: int, policy: str, namespace: str = NAMESPACE) -> Object:
    """Return a Job of one pod."""
    amounts = {"cpu": str(gpus), "amd.com/gpu": str(gpus)}
    container = {
        "name": "main",
        "image": "registry.example/main:1",
        "resources": {"requests": amounts, "limits": amounts},
    }
    annotations = {f"{_PREFIX}enabled": "true", f"{_PREFIX}policy": policy}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {
            "backoffLimit": 100,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "schedulerName": "reprieve-scheduler",
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container],
                }
            },
        },
    }


@dataclass
class IdleChurn(JobChurn):
    """Demands are counted in GPUs."""

    every_s: float = 6.0
    endpoint: str = ""
    _idle: int = 0

    controllers = "idle,scheduling"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "GPU_PREEMPTION_ENABLED": "true",
            "GPU_PREEMPTION_POLLING_INTERVAL": "1s",
            "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "2s",
            "GPU_PREEMPTION_METRICS_ENDPOINT": f"{self.endpoint}/metrics",
        }

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Serve what an exporter says: demands work, all others do nothing."""
        async with serving(self._metrics) as self.endpoint:
            yield

    rests_s = 15.0  # they are idle for longer than the grace period

    def small(self, name: str, size: int) -> Object:
        return _job(name, size, "OnPressure")

    def large(self, name: str, pods: int, size: int) -> Object:
        found = _job(name, size, "OnPressure")
        found["spec"] |= {"parallelism": pods, "completions": pods}
        return found

    async def fill(self) -> None:
        there = {
            job_of(pod)
            for pod in self.stand.pods.values()
            if not pod["metadata"].get("deletionTimestamp")
        }
        idle = sum(name.startswith("idle-") for name in there)
        missing = range(
            self._idle, self._idle + max(0, int(sum(self.stand.nodes.values())) // 2 - idle)
        )
        if missing:
            self._idle = missing.stop
            await self.stand.create(JOBS, *(_job(f"idle-{i}", 2, "OnPressure") for i in missing))
            for _ in range(4):  # the Job's controller comes in between
                await self.stand.look_again()

    async def demand(self, random: Random) -> None:
        gpus = random.choice((2, 4, 8))
        held = sum(demand.size for demand in self.demands.values())
        if held + gpus > sum(self.stand.nodes.values()) / 2:
            return
        self.made += 1
        await self.come(gpus, _job(f"demand-{self.made}", gpus, "OnPressure"))

    async def settle(self, namespace: str) -> None:
        jobs = (_job(f"{namespace}-{i}", 2, "OnPressure", namespace) for i in range(8))
        await self.stand.create(JOBS, *jobs)

    async def _metrics(self, request: web.Request) -> web.Response:
        lines = ["# TYPE gpu_gfx_activity gauge"]
        for pod in self.stand.pods.values():
            if pod["status"].get("phase") != "Running":
                continue
            metadata, spec = pod["metadata"], pod["spec"]
            percent = 95 if metadata["name"].startswith(_BUSY) else 0
            gpus = int(spec["containers"][0]["resources"]["requests"].get("amd.com/gpu", "0"))
            lines += [
                f'gpu_gfx_activity{{container="main",gpu_id="{number}",hostname="{spec["nodeName"]}"'
                f',namespace="{metadata["namespace"]}",pod="{metadata["name"]}"}} {percent}'
                for number in range(gpus)
            ]
        return web.Response(text="\n".join(lines) + "\n", content_type="text/plain")
