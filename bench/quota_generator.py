"""The runner of the load test: creates Workloads, plays their jobs, and keeps the accounts.

For each queue and class one loop that sleeps the interval and then creates, all loops at once. An
admitted Workload is finished its runtime after its admission was seen; one that is evicted in the
meantime starts from zero when it is admitted again. A finish is a merge patch on the embedded
server, and elsewhere a server-side apply, as the reference's runner writes it. Whoever is evicted
has no job that could be stopped, so the quota plane itself takes its reservation away.

A cohort never holds more than it has, but for what a cycle gave away of the room of its own victims
before they had left it, as the reference does: what is above is checked against the cpus of the
victims that Preemptions name at the time (specification of the quota plane, section 8.3).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from bench.lean_client import Connection, Endpoint, request_bytes
from bench.quota_shapes import NOMINAL, Class, Shape, workload
from reprieve.api.core import ObjectMeta
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import PREEMPTIONS, Resource

__all__ = ["Generator"]

W = TypeVar("W")

_WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload", namespaced=True)
_CONNECTIONS = 32
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_AUTHOR = "?fieldManager=load-runner&force=true"
# For so long before and after more is held than there is, Preemptions explain it.
_BEFORE_S = 15.0
_AFTER_S = 5.0


class _Status(msgspec.Struct):
    conditions: list[dict[str, Any]] = []
    admission: dict[str, Any] | None = None


class _Workload(msgspec.Struct):
    metadata: ObjectMeta
    status: _Status = msgspec.field(default_factory=_Status)


class _Victim(msgspec.Struct):
    subject: ObjectMeta


class _Spec(msgspec.Struct):
    victims: list[_Victim] = []


class _Preemption(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)


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
    """Runs one shape against one API server; `applies`: finishes are applied, not merged."""

    def __init__(
        self, client: Client, endpoint: Endpoint, shape: Shape, *, applies: bool = False
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._applies = applies
        self._shape = shape
        self._jobs: dict[tuple[str, str], _Job] = {}
        self._free: asyncio.Queue[Connection] = asyncio.Queue()
        self._writes: set[asyncio.Task[None]] = set()
        self._all_finished = asyncio.Event()
        self._left = shape.workloads
        self._held: Counter[str] = Counter()
        # By cohort: cpus of victims with the time at which they were named; what is held above.
        self._named: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        self._above: dict[str, int] = {}
        self._unexplained: list[str] = []
        self._records: set[str] = set()
        self.most_above = 0
        self.evictions = 0
        self.waits: defaultdict[str, list[float]] = defaultdict(list)

    async def run(self, patience: float) -> float:
        """Create and finish everything; return the seconds from the first sleep to the last finish.

        Raises:
            AssertionError: quota was exceeded, a write was refused, or it did not end in time.
        """
        page = await self._client.list(_WORKLOADS, _Workload)
        records = await self._client.list(PREEMPTIONS, _Preemption)
        for _ in range(_CONNECTIONS):
            self._free.put_nowait(await self._endpoint.connect())
        started = time.perf_counter()
        watch = asyncio.create_task(
            self._watch(_WORKLOADS, _Workload, page.resource_version, self._see)
        )
        named = asyncio.create_task(
            self._watch(PREEMPTIONS, _Preemption, records.resource_version, self._note)
        )
        loops = [
            asyncio.create_task(self._create(cohort, queue, what))
            for cohort, queue in self._shape.names()
            for what in self._shape.classes
        ]
        done = asyncio.create_task(self._all_finished.wait())
        try:
            # A loop that fails, or the watch, ends the run.
            waiting = {watch, named, done, *loops}
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
            if self._above:
                await asyncio.sleep(_AFTER_S)
            assert not self._unexplained, self._unexplained
            return wall
        finally:
            tasks = (watch, named, done, *loops, *self._writes)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
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
        for number in range(what.count):
            await asyncio.sleep(what.interval_ms / 1e3)
            where = self._shape.where(queue, f"{what.name}-{number}")
            job = self._jobs[where] = _Job(cohort, queue, what)
            body = msgspec.json.encode(workload(where, queue, what))
            path = _WORKLOADS.path(where[0])
            request = request_bytes("POST", path, body, headers=self._endpoint.headers)
            async with self._connection() as connection:
                code, answer = await connection.send(request)
            assert code == 201, answer
            job.created = time.perf_counter()

    async def _watch(
        self, resource: Resource, kind: type[W], version: str, see: Callable[[W], None]
    ) -> None:
        while True:
            events = self._client.watch(
                resource, kind, resource_version=version, timeout_seconds=3_600
            )
            try:
                async with aclosing(events):
                    async for event in events:
                        version = event.resource_version
                        if event.object is not None:
                            see(event.object)
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
            job.holds, cohort = holds, job.cohort
            self._held[cohort] += job.what.cpu if holds else -job.what.cpu
            above = self._held[cohort] - self._shape.queues * NOMINAL
            if above > self._above.get(cohort, 0):
                if cohort not in self._above:
                    since = time.perf_counter() - _BEFORE_S
                    loop = asyncio.get_running_loop()
                    loop.call_later(_AFTER_S, self._judge, cohort, since)
                self._above[cohort] = above

    def _note(self, record: _Preemption) -> None:
        """Note whose room a cycle counted as free, once for each record."""
        if record.metadata.uid in self._records:
            return
        self._records.add(record.metadata.uid)
        for victim in record.spec.victims:
            job = self._jobs[victim.subject.namespace, victim.subject.name]
            self._named[job.cohort].append((time.perf_counter(), job.what.cpu))

    def _judge(self, cohort: str, since: float) -> None:
        """Compare what was held above with what was to become free."""
        above, named = self._above.pop(cohort), self._named[cohort]
        self.most_above = max(self.most_above, above)
        room = sum(cpu for at, cpu in named if at >= since)
        if above > room:
            self._unexplained.append(f"{cohort} held {above} too much, {room} were to be free")

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
        async with self._connection() as connection:
            while job.admitted and not job.finished:
                condition = {
                    "type": "Finished",
                    "status": "True",
                    "reason": "ByTest",
                    "message": "By test runner",
                    "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
                code, answer = await connection.send(self._finish_request(metadata, job, condition))
                if code == 200:
                    return
                assert code == 409, answer
                # Somebody wrote it in between: what they wrote is on its way.
                await asyncio.sleep(0.01)

    def _finish_request(self, metadata: ObjectMeta, job: _Job, condition: dict[str, Any]) -> bytes:
        path = _WORKLOADS.path(metadata.namespace, metadata.name, "status")
        if not self._applies:
            patch: dict[str, Any] = {
                "metadata": {"resourceVersion": job.version},
                "status": {"conditions": [*job.conditions, condition]},
            }
            return request_bytes(
                "PATCH", path, msgspec.json.encode(patch), _MERGE, self._endpoint.headers
            )
        applied = {
            "apiVersion": _WORKLOADS.api_version,
            "kind": _WORKLOADS.kind,
            "metadata": {
                "namespace": metadata.namespace,
                "name": metadata.name,
                "resourceVersion": job.version,
            },
            "status": {"conditions": [condition]},
        }
        return request_bytes(
            "PATCH",
            path + _AUTHOR,
            msgspec.json.encode(applied),
            _APPLY,
            self._endpoint.headers,
        )
