"""The runner of the load test: creates Workloads, plays their jobs, and keeps the accounts.

For each queue and class one loop that sleeps the interval and then creates, all loops at once. An
admitted Workload is finished its runtime after its admission was seen; one that is evicted in the
meantime starts from zero when it is admitted again. Whoever is evicted has no job that could be
stopped, so the quota plane itself takes its reservation away.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from bench.lean_client import Connection, request_bytes
from bench.quota_shapes import NOMINAL, Class, Shape, workload
from reprieve.api.core import ObjectMeta
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import Resource

__all__ = ["Generator"]

_WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload", namespaced=True)
_CONNECTIONS = 32
_MERGE = "application/merge-patch+json"


class _Status(msgspec.Struct):
    conditions: list[dict[str, Any]] = []
    admission: dict[str, Any] | None = None


class _Workload(msgspec.Struct):
    metadata: ObjectMeta
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass(slots=True)
class _Job:
    """One Workload as the runner knows it; `version` is that of `conditions`."""

    cohort: str
    queue: str
    what: Class
    created: float = 0.0
    version: str = ""
    conditions: list[dict[str, Any]] = field(default_factory=list)
    holds: bool = False
    evicted: bool = False
    admitted: bool = False
    finished: bool = False
    timer: asyncio.TimerHandle | None = None


class Generator:
    """Runs one shape against one API server, `host` and `port`."""

    def __init__(self, client: Client, port: int, shape: Shape) -> None:
        self._client = client
        self._port = port
        self._shape = shape
        self._jobs: dict[tuple[str, str], _Job] = {}
        self._free: asyncio.Queue[Connection] = asyncio.Queue()
        self._writes: set[asyncio.Task[None]] = set()
        self._all_finished = asyncio.Event()
        self._left = shape.workloads
        self._held: Counter[str] = Counter()
        self.evictions = 0
        self.waits: defaultdict[str, list[float]] = defaultdict(list)

    async def run(self, patience: float) -> float:
        """Create and finish everything; return the seconds from the first sleep to the last finish.

        Raises:
            AssertionError: quota was exceeded, a write was refused, or it did not end in time.
        """
        page = await self._client.list(_WORKLOADS, _Workload)
        loop = asyncio.get_running_loop()
        for _ in range(_CONNECTIONS):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
            self._free.put_nowait(connection)
        started = time.perf_counter()
        watch = asyncio.create_task(self._watch(page.resource_version))
        loops = [
            asyncio.create_task(self._create(cohort, queue, what))
            for cohort, queue in self._shape.names()
            for what in self._shape.classes
        ]
        done = asyncio.create_task(self._all_finished.wait())
        try:
            # A loop that fails, or the watch, ends the run.
            waiting = {watch, done, *loops}
            while not done.done():
                left = patience - (time.perf_counter() - started)
                assert left > 0, f"{self._left} of {self._shape.workloads} are not finished"
                ended, waiting = await asyncio.wait(
                    waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                for task in ended:
                    task.result()
            wall = time.perf_counter() - started
            await asyncio.gather(*self._writes)
            return wall
        finally:
            for task in (watch, done, *loops, *self._writes):
                task.cancel()
            await asyncio.gather(watch, done, *loops, *self._writes, return_exceptions=True)
            while not self._free.empty():
                self._free.get_nowait().transport.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        connection = await self._free.get()
        try:
            yield connection
        finally:
            self._free.put_nowait(connection)

    async def _create(self, cohort: str, queue: str, what: Class) -> None:
        path = _WORKLOADS.path(queue)
        for number in range(what.count):
            await asyncio.sleep(what.interval_ms / 1e3)
            name = f"{what.name}-{number}"
            job = self._jobs[queue, name] = _Job(cohort, queue, what)
            body = msgspec.json.encode(workload(name, queue, what))
            async with self._connection() as connection:
                code, answer = await connection.send(request_bytes("POST", path, body))
            assert code == 201, answer
            job.created = time.perf_counter()

    async def _watch(self, version: str) -> None:
        while True:
            events = self._client.watch(
                _WORKLOADS, _Workload, resource_version=version, timeout_seconds=3_600
            )
            try:
                async with aclosing(events):
                    async for event in events:
                        version = event.resource_version
                        if event.object is not None:
                            self._see(event.object)
            except ApiError as failure:
                raise AssertionError(f"the runner's watch failed: {failure}") from failure

    def _see(self, obj: _Workload) -> None:
        metadata = obj.metadata
        job = self._jobs[metadata.namespace, metadata.name]
        job.version, job.conditions = metadata.resource_version, obj.status.conditions
        true = {each["type"] for each in job.conditions if each["status"] == "True"}
        finished = "Finished" in true
        self._account(job, obj.status.admission is not None and not finished)
        if finished:
            if not job.finished:
                job.finished = True
                self._left -= 1
                if not self._left:
                    self._all_finished.set()
            return
        if "Evicted" in true:
            if not job.evicted:
                self.evictions += 1
            job.evicted, job.admitted = True, False
            if job.timer is not None:
                job.timer.cancel()
                job.timer = None
            return
        job.evicted = False
        if "Admitted" in true and not job.admitted:
            job.admitted = True
            self.waits[job.what.name].append(
                time.perf_counter() - (job.created or time.perf_counter())
            )
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(job.what.runtime_ms / 1e3, self._over, metadata, job)

    def _account(self, job: _Job, holds: bool) -> None:
        if holds != job.holds:
            job.holds = holds
            self._held[job.cohort] += job.what.cpu if holds else -job.what.cpu
            most = self._shape.queues * NOMINAL
            assert self._held[job.cohort] <= most, (job.cohort, self._held[job.cohort], most)

    def _over(self, metadata: ObjectMeta, job: _Job) -> None:
        job.timer = None
        task = asyncio.create_task(self._finish(metadata, job))
        self._writes.add(task)
        task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writes.discard(task)
        if not task.cancelled() and task.exception() is not None:
            task.get_loop().call_exception_handler(
                {"message": "a finish was not written", "exception": task.exception()}
            )

    async def _finish(self, metadata: ObjectMeta, job: _Job) -> None:
        path = _WORKLOADS.path(metadata.namespace, metadata.name, "status")
        async with self._connection() as connection:
            while job.admitted and not job.finished:
                condition = {
                    "type": "Finished",
                    "status": "True",
                    "reason": "ByTest",
                    "message": "By test runner",
                    "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
                patch = {
                    "metadata": {"resourceVersion": job.version},
                    "status": {"conditions": [*job.conditions, condition]},
                }
                body = msgspec.json.encode(patch)
                code, answer = await connection.send(request_bytes("PATCH", path, body, _MERGE))
                if code == 200:
                    return
                assert code == 409, answer
                # Somebody wrote it in between: what they wrote is on its way.
                await asyncio.sleep(0.01)
