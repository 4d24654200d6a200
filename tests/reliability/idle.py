"""Work that comes and goes for the idle plane: Jobs that hold GPUs and do nothing, and demands.

kube-controller-manager makes the pods of Jobs and takes away what is left of them; the operator's
own scheduling plane places them. All GPUs are held by idle Jobs, which come again as often as they
are evicted; every few seconds a Job comes that uses what it gets, for which idle ones make way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from aiohttp import web

from reprieve.kube.bodies import Propagation
from reprieve.kube.resource import Resource
from tests.reliability.stand import NAMESPACE, Stand

__all__ = ["IdleChurn"]

Object = dict[str, Any]
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
_PREFIX: Final = "kaiwo.silogen.ai/gpu-preemption."
_JOB_NAME: Final = "batch.kubernetes.io/job-name"


def _job(name: str, gpus: int, policy: str) -> Object:
    """Return a Job of one pod."""
    amounts = {"cpu": str(gpus), "amd.com/gpu": str(gpus)}
    container = {
        "name": "main",
        "image": "registry.example/main:1",
        "resources": {"requests": amounts, "limits": amounts},
    }
    annotations = {f"{_PREFIX}enabled": "true", f"{_PREFIX}policy": policy}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
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
class IdleChurn:
    """`served`: how many demands have come to run, of `made`."""

    stand: Stand
    every_s: float = 6.0
    life_s: float = 10.0
    seed: int = 1
    made: int = 0
    served: int = 0
    demands: dict[str, tuple[int, float, float | None]] = field(default_factory=dict)
    slowest_s: float = 0.0
    port: int = 0
    _idle: int = 0

    controllers = "idle,scheduling"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "GPU_PREEMPTION_ENABLED": "true",
            "GPU_PREEMPTION_POLLING_INTERVAL": "1s",
            "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "2s",
            "GPU_PREEMPTION_METRICS_ENDPOINT": f"http://127.0.0.1:{self.port}/metrics",
        }

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Serve what an exporter says: demands work, all others do nothing."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()

    async def run(self) -> None:
        """Come and go until cancelled."""
        random, last = Random(self.seed), time.monotonic()
        await self.stand.look_again()
        while True:
            await self._fill()
            await self._leave()
            if time.monotonic() - last >= self.every_s:
                last = time.monotonic()
                await self._demand(random)
            await asyncio.sleep(0.3)

    async def until_served(self, patience_s: float) -> bool:
        """Let nobody come any more; return whether all demands have come to run."""
        end = time.monotonic() + patience_s
        while any(since is None for _, _, since in self.demands.values()):
            if time.monotonic() > end:
                return False
            await self._leave()
            await asyncio.sleep(0.3)
        return True

    async def _fill(self) -> None:
        there = {
            (pod["metadata"].get("labels") or {}).get(_JOB_NAME, "")
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

    async def _demand(self, random: Random) -> None:
        gpus = random.choice((2, 4, 8))
        held = sum(gpus for gpus, _, _ in self.demands.values())
        if held + gpus > sum(self.stand.nodes.values()) / 2:
            return
        self.made += 1
        name = f"demand-{self.made}"
        self.demands[name] = gpus, time.monotonic(), None
        await self.stand.create(JOBS, _job(name, gpus, "OnPressure"))

    async def _leave(self) -> None:
        now = time.monotonic()
        running = {
            (pod["metadata"].get("labels") or {}).get(_JOB_NAME, "")
            for pod in self.stand.pods.values()
            if pod["status"].get("phase") == "Running"
        }
        for name, (gpus, created, since) in list(self.demands.items()):
            if since is None and name in running:
                self.served += 1
                self.slowest_s = max(self.slowest_s, now - created)
                self.demands[name] = gpus, created, now
            elif since is not None and now - since > self.life_s:
                del self.demands[name]
                await self.stand.delete(JOBS, [name], propagation=Propagation.BACKGROUND)

    async def _metrics(self, request: web.Request) -> web.Response:
        lines = ["# TYPE gpu_gfx_activity gauge"]
        for pod in self.stand.pods.values():
            if pod["status"].get("phase") != "Running":
                continue
            metadata, spec = pod["metadata"], pod["spec"]
            percent = 95 if metadata["name"].startswith("demand-") else 0
            gpus = int(spec["containers"][0]["resources"]["requests"].get("amd.com/gpu", "0"))
            lines += [
                f'gpu_gfx_activity{{container="main",gpu_id="{number}",hostname="{spec["nodeName"]}"'
                f',namespace="{metadata["namespace"]}",pod="{metadata["name"]}"}} {percent}'
                for number in range(gpus)
            ]
        return web.Response(text="\n".join(lines) + "\n", content_type="text/plain")
