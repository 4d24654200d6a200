"""Many Jobs of random priority that come, preempt each other, end and are deleted.

They run on two queues of a cohort, each with a quota of its own that the other may borrow. What is
stored is judged version by version: a watch of the test's own sees every one of them, in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from reprieve.kube.errors import NotFound
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    priority_class,
    site,
)

QUEUES = ("left", "right")
QUOTA = 40  # of each queue
PRIORITIES = {f"p{value}": value for value in (0, 10, 100, 1000)}
_PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
_WAITING = 250  # Jobs that have not ended, above which no more come
_PATIENCE_S = 120.0


@dataclass
class _Excess:
    """By how much too much is held, and who holds it."""

    amount: int
    holders: dict[str, int]

    def leaves(self, name: str) -> None:
        """One of them is on the way out."""
        self.amount -= self.holders.pop(name, 0)


@dataclass
class Crowd:
    """The Jobs that came, and what became of them."""

    cluster: Site
    random: Random
    submitted: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    evictions: Counter[str] = field(default_factory=Counter)
    versions: int = 0
    most: int = 0
    _held: dict[str, int] = field(default_factory=dict)
    _excesses: list[_Excess] = field(default_factory=list)
    _evicted: set[str] = field(default_factory=set)
    _watch: asyncio.Task[None] | None = None

    async def submit(self, count: int) -> None:
        """Let so many Jobs come, a few at once, and some of them be deleted at a random time."""
        start = len(self.submitted)
        for index in range(start, start + count):
            await self._until("some have ended", self._has_room)
            name = f"job-{index}"
            await self.cluster.create(self._job(name))
            self.submitted.add(name)
            if self.random.random() < 0.2:
                await self._delete_one()

    async def until_over(self) -> None:
        """Wait until every Job has ended or was deleted, and nothing is held any more."""
        await self._until("all have ended", self._all_ended)
        await self._until("nothing is held", self._free)
        await self._until("intents are closed", self._closed)

    async def _until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it holds; patience begins anew with everyone who ends."""
        now = asyncio.get_running_loop().time
        ended, end = -1, 0.0
        while not await holds():
            if ended != len(self.finished):
                ended, end = len(self.finished), now() + _PATIENCE_S
            for task in (*self.cluster._tasks, self._watch):
                if task is not None and task.done():
                    task.result()
            if now() > end:
                raise AssertionError("\n".join((f"not {what}", *await self._left())))
            await asyncio.sleep(0.1)

    async def _left(self) -> list[str]:
        """Say what is in the way."""
        found = await self.cluster.workloads()
        left = sorted(self.submitted - self.finished - self.deleted)
        return [
            *(f"{name}: {(found.get(name) or {}).get('status')}" for name in left[:10]),
            *(f"{name} holds {amount}" for name, amount in self._held.items() if amount),
            *(str(each.get("status")) for each in await self.cluster.intents() if not _over(each)),
        ]

    async def _has_room(self) -> bool:
        return len(self.submitted - self.finished - self.deleted) < _WAITING

    async def _all_ended(self) -> bool:
        return self.submitted == self.finished | self.deleted

    def _job(self, name: str) -> Object:
        pods = self.random.choice((1, 1, 2, 3, 6))
        queue, priority = self.random.choice(QUEUES), self.random.choice(sorted(PRIORITIES))
        found = job(name, f"to-{queue}", priority=priority, pods=pods)
        run_time = self.random.choice(("100ms", "500ms", "2s"))
        found["spec"]["template"]["metadata"] = {
            "annotations": {
                "sim.reprieve.dev/start-latency": "10ms",
                "sim.reprieve.dev/termination-time": self.random.choice(("0s", "300ms")),
                "sim.reprieve.dev/run-time": run_time,
            }
        }
        return found

    async def _delete_one(self) -> None:
        # One that ends in this moment may be among them: it has ended or is deleted, or both.
        name = self.random.choice(sorted(self.submitted - self.finished - self.deleted) or [""])
        try:
            await self.cluster.client.delete(JOBS, NAMESPACE, name)
        except NotFound:
            return
        self.deleted.add(name)

    async def _free(self) -> bool:
        for name in QUEUES:
            queue: Object = await self.cluster.client.get(CLUSTER_QUEUES, "", name, dict)
            status = queue.get("status") or {}
            counts = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
            totals = [
                resource["total"]
                for said in ("flavorsReservation", "flavorsUsage")
                for each in status.get(said) or ()
                for resource in each["resources"]
            ]
            if totals != ["0", "0"] or any(status.get(count) for count in counts):
                return False
        return True

    async def _closed(self) -> bool:
        return all(map(_over, await self.cluster.intents()))

    # What is stored

    @property
    def excess(self) -> list[_Excess]:
        """The versions in which more was held than there is, but for who was being preempted.

        As in the reference, room may be given away in the cycle that takes it from its holder.
        """
        return [each for each in self._excesses if each.amount > 0]

    async def watch(self, version: str) -> None:
        """Judge every stored version of a Workload, until cancelled."""
        events = self.cluster.client.watch(
            WORKLOADS, dict, resource_version=version, timeout_seconds=3_000
        )
        async for event in events:
            if event.object is not None:
                self._seen(event.object, gone=str(event.type) == "DELETED")

    def _seen(self, workload: Object, gone: bool) -> None:
        name = workload["metadata"]["ownerReferences"][0]["name"]
        status = workload.get("status") or {}
        said = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        over = gone or said.get("Finished") == "True"
        self.versions += 1
        self._held[name] = 0 if over else _held(status)
        total = sum(self._held.values())
        self.most = max(self.most, total)
        if total > QUOTA * len(QUEUES):
            excess = _Excess(total - QUOTA * len(QUEUES), dict(self._held))
            for each in self._evicted:
                excess.leaves(each)
            self._excesses.append(excess)
        if said.get("Evicted") == "True":
            self._evicted.add(name)
            for excess in self._excesses:
                excess.leaves(name)
        else:
            self._evicted.discard(name)
            if not self._held[name]:
                for excess in self._excesses:
                    excess.holders.pop(name, None)
        if over:
            self.finished.add(name)
        counts = (status.get("schedulingStats") or {}).get("evictions") or ()
        self.evictions[name] = max(self.evictions[name], sum(each["count"] for each in counts))


def _over(intent: Object) -> bool:
    return (intent.get("status") or {}).get("phase") in ("Completed", "Abandoned")


def _held(status: Object) -> int:
    given = (status.get("admission") or {}).get("podSetAssignments") or ()
    over = sum(each["count"] for each in status.get("reclaimablePods") or ())
    return sum(int(each["resourceUsage"]["cpu"]) for each in given) - (over if given else 0)


@asynccontextmanager
async def crowd(folder: Path, seed: int, start: bool = True) -> AsyncIterator[Crowd]:
    """Start the cluster and, with `start`, the plane in this process; nobody has come yet."""
    objects = [
        flavor(),
        *(cluster_queue(name, QUOTA, "all", preemption=_PREEMPTION) for name in QUEUES),
        *(local_queue(f"to-{name}", name) for name in QUEUES),
        *(priority_class(name, value) for name, value in PRIORITIES.items()),
    ]
    async with site(folder, *objects, nodes=[node("node-0", 3 * QUOTA)], start=start) as cluster:
        found = Crowd(cluster, Random(seed))
        page = await cluster.client.list(WORKLOADS, dict)
        watch = found._watch = asyncio.create_task(found.watch(page.resource_version))
        try:
            yield found
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
