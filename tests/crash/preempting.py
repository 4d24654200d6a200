"""Rounds of a story on the quota plane, with the operator as a process that can be killed.

A round of Jobs: two of low priority fill the queue, one of high priority preempts both, ends, and
both come back and end. A round of a pod group: the same, but the two that are preempted are the
pods of one group, which are deleted and come again as others. Rounds follow each other on one
cluster, so that a round costs no new cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from kubelocal.cluster import Stage, Write
from kubelocal.server.errors import StatusError
from reprieve.jobs.pods import GROUP_NAME, GROUP_TOTAL, gated
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import LEASES, PODS, PREEMPTION_PARTS
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, OPERATOR_USER
from reprieve.scenarios.operator import OperatorProcesses
from tests.crash.evicted import evicted, together
from tests.quota_plane.site import CLUSTER_QUEUES, JOBS, NAMESPACE, Object, Site, job, site
from tests.quota_plane.test_jobs import LOWER, base

QUOTA = 4
LOW = ("low-a", "low-b")
HIGH = "high"
GROUP = "low"
_RENEWAL = "/leases/reprieve"
_PATIENCE_S = 120.0
_AT_ONCE = {
    "sim.reprieve.dev/start-latency": "10ms",
    "sim.reprieve.dev/termination-time": "50ms",
}
GATE = "kueue.x-k8s.io/admission"
_VALUES = """\
quota:
  configuration:
    apiVersion: config.kueue.x-k8s.io/v1beta2
    kind: Configuration
    integrations: {frameworks: [batch/job, pod]}
"""
_ARGUMENTS = ("--controllers", "quota", "--metrics-port", "0")


@dataclass
class Preempting:
    """The cluster, the process, and at which write of the round it dies."""

    cluster: Site
    values: Path
    module: str = "reprieve"
    log: deque[str] = field(default_factory=lambda: deque(maxlen=40))
    at: int = 0
    of: str = ""
    stage: Stage = Stage.STORED
    written: int = 0
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    #: At what it died, in all rounds.
    deaths: Counter[tuple[str, Stage]] = field(default_factory=Counter)
    #: What was written in the round.
    kinds: Counter[str] = field(default_factory=Counter)
    #: How often the round's Workloads were marked, by uid: stored writes of `Evicted`.
    marks: Counter[str] = field(default_factory=Counter)
    #: How often each pod was deleted by the operator, by name.
    deleted: Counter[str] = field(default_factory=Counter)
    excess: list[str] = field(default_factory=list)
    _operator: OperatorProcesses = field(init=False)

    async def keep_running(self) -> None:
        """Start the process, and the next one whenever it has ended, until cancelled."""
        while True:
            self._operator = OperatorProcesses(
                self.cluster.embedded.operator_kubeconfig,
                {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
                arguments=(*_ARGUMENTS, "--config", str(self.values)),
                on_line=self.log.append,
                module=self.module,
            )
            try:
                await self._operator.start()
                await self._operator.stopped_by_itself()
            finally:
                await self._operator.stop()
            await self._free_leases()

    async def _free_leases(self) -> None:
        """Let the lease of the process that is dead run out at once."""
        client = self.cluster.client
        page = await client.list(LEASES, dict, namespace=OPERATOR_NAMESPACE)
        for lease in page.items:
            name, free = lease["metadata"]["name"], {"spec": {"holderIdentity": ""}}
            await client.patch(LEASES, OPERATOR_NAMESPACE, name, free, dict)

    async def on_write(self, write: Write, stage: Stage) -> None:
        path = write.path.split("?")[0]
        # Renewals of the process lease come with time, not with progress.
        if write.user != OPERATOR_USER or path.endswith(_RENEWAL):
            return
        kind = _kind(write.verb, path, write.body)
        if stage is Stage.STORED:
            await self._judge(kind, path)
        if stage is not self.stage:
            return
        # Counted where it dies: what is refused, as after a conflict, is never stored.
        self.written += 1
        self.kinds[kind] += 1
        number = self.kinds[self.of] if self.of else self.written
        if self.of in (kind, "") and number == self.at:
            self.deaths[kind, stage] += 1
            self.dead.set()
            os.kill(self._operator.pids[0], signal.SIGKILL)
            if stage is Stage.BEFORE:
                # What a dead process has not sent is not stored either.
                raise StatusError(503, "ServiceUnavailable", "the process that asked is dead")

    async def _judge(self, kind: str, path: str) -> None:
        """What is stored never holds more than the quota, whoever reads it in this moment."""
        if kind == "delete pods":
            self.deleted[path.rpartition("/")[2]] += 1
        if "/workloads/" not in path:
            return
        held = {_owner(each): _held(each) for each in await self._stored_workloads()}
        if sum(held.values()) > QUOTA:
            self.excess.append(f"after write {self.written}: {held}")
        if kind == "mark":
            self.marks[path.split("/workloads/")[1].split("/")[0]] += 1

    async def _stored_workloads(self) -> list[Object]:
        cluster = self.cluster.embedded.cluster
        kind = cluster.registry.stored("kueue.x-k8s.io", "workloads")
        assert kind is not None
        listed: list[Object] = (await cluster.api.list(kind, NAMESPACE)).objects
        return listed

    async def play(self, at: int, stage: Stage, of: str = "", *, group: bool = False) -> bool:
        """Play a round in which the process dies at its `at`-th write, `of` that kind if given.

        Returns whether there were so many.
        """
        self.at, self.of, self.stage, self.written = at, of, stage, 0
        self.dead.clear()
        self.kinds.clear()
        self.marks.clear()
        self.deleted.clear()
        await (self._group_story() if group else self._story())
        return self.dead.is_set()

    async def _story(self) -> None:
        create = self.cluster.create
        await create(*(_job(name, "low", 2) for name in LOW))
        await self._until(f"{LOW} run", lambda: self._run(*LOW))
        await create(_job(HIGH, "high", QUOTA))
        await self._until("high runs", lambda: self._run(HIGH))
        await self._until("the queue says so", lambda: self._shown(4, 2, 1))
        await self._end(HIGH)
        await self._until(f"{LOW} run again", lambda: self._run(*LOW))
        await self._until("the queue says so", lambda: self._shown(4, 0, 2))
        await self._end(*LOW)
        await self._until("all are finished", self._finished)
        await self._until("nothing is held", lambda: self._shown(0, 0, 0))
        await self._until("intents are closed", self._closed)
        await self._check()
        for name in (*LOW, HIGH):
            await self.cluster.client.delete(JOBS, NAMESPACE, name)
        await self._until("Workloads are gone", self._gone)

    async def _group_story(self) -> None:
        create = self.cluster.client.create
        for name in LOW:
            await create(PODS, _member(name), dict)
        await self._until(f"{GROUP} runs", lambda: self._pods_run(*LOW))
        await self.cluster.create(_job(HIGH, "high", QUOTA))
        await self._until("high runs", lambda: self._pods_run(HIGH))
        again = [f"{name}-again" for name in LOW]
        for name in again:
            await create(PODS, _member(name), dict)
        await self._until("the queue says so", lambda: self._shown(4, 1, 1))
        await self._end(HIGH)
        await self._until(f"{GROUP} runs again", lambda: self._pods_run(*again))
        for name in again:
            await self._succeed(name)
        await self._until("nothing is held", lambda: self._shown(0, 0, 0))
        await self._until("intents are closed", self._closed)
        assert not self.excess, f"more quota was held than there is: {self.excess}"
        assert self.deleted == dict.fromkeys(LOW, 1), "not each pod was deleted once"
        assert self.marks == {GROUP: 1}, "the group was not marked once"
        await self.cluster.client.delete(JOBS, NAMESPACE, HIGH)
        for name in again:
            await self.cluster.client.delete(PODS, NAMESPACE, name)
        await self._until("Workloads are gone", self._gone)

    async def _pods_run(self, *names: str) -> bool:
        """Tell whether pods whose names begin so run, and no others."""
        page = await self.cluster.client.list(PODS, dict, namespace=NAMESPACE)
        running = {
            next((n for n in names if (pod["metadata"]["name"] + "-").startswith(f"{n}-")), "other")
            for pod in page.items
            if (pod.get("status") or {}).get("phase") == "Running"
        }
        return running == set(names)

    async def _succeed(self, pod: str) -> None:
        await self.cluster.client.patch_status(PODS, NAMESPACE, pod, {"phase": "Succeeded"}, dict)

    async def _check(self) -> None:
        found = await self.cluster.workloads()
        assert not self.excess, f"more quota was held than there is: {self.excess}"
        uids = {name: each["metadata"]["uid"] for name, each in found.items()}
        for name in LOW:
            evictions = found[name]["status"]["schedulingStats"]["evictions"]
            assert [each["count"] for each in evictions] == [1], (name, evictions)
        assert "schedulingStats" not in found[HIGH]["status"]
        marks = {name.removeprefix("job-").rsplit("-", 1)[0]: n for name, n in self.marks.items()}
        assert marks == dict.fromkeys(LOW, 1), "a victim was marked twice"
        parts = await self.cluster.client.list(PREEMPTION_PARTS, dict, namespace=OPERATOR_NAMESPACE)
        records = together(await self.cluster.intents(), parts.items)
        named = {u: n for u, n in evicted(records).items() if u in uids.values()}
        assert named == {uids[name]: 1 for name in LOW}, "not each victim is in one intent"

    async def _run(self, *names: str) -> bool:
        return await self.cluster.admitted() == set(names) == await self.cluster.running()

    async def _shown(self, used: int, pending: int, admitted: int) -> bool:
        queue: Object = await self.cluster.client.get(CLUSTER_QUEUES, "", "cq", dict)
        status = queue.get("status") or {}
        if not status.get("flavorsReservation"):
            return False
        total = status["flavorsReservation"][0]["resources"][0]["total"]
        shown = (total, status["pendingWorkloads"], status["admittedWorkloads"])
        return shown == (str(used), pending, admitted)

    async def _finished(self) -> bool:
        found = {name: await self.cluster.conditions(name) for name in (*LOW, HIGH)}
        return all(said.get("Finished", ("",))[0] == "True" for said in found.values())

    async def _closed(self) -> bool:
        phases = {(each.get("status") or {}).get("phase") for each in await self.cluster.intents()}
        return phases <= {"Completed", "Abandoned"}

    async def _gone(self) -> bool:
        return not await self.cluster.workloads()

    async def _end(self, *names: str) -> None:
        for name in names:
            for pod in await self.cluster.pods_of(name):
                with contextlib.suppress(NotFound):
                    await self._succeed(pod["metadata"]["name"])

    async def _until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        end = asyncio.get_running_loop().time() + _PATIENCE_S
        while not await holds():
            if asyncio.get_running_loop().time() > end:
                said = {
                    name: [f"{c['type']}={c['status']} {c['reason']}" for c in status["conditions"]]
                    for name, each in (await self.cluster.workloads()).items()
                    if (status := each.get("status"))
                }
                where = f"killed at {self.of or 'write'} {self.at}, {self.stage}"
                raise AssertionError("\n".join((f"{where}: not {what}: {said}", *self.log)))
            await asyncio.sleep(0.05)


@asynccontextmanager
async def preempting(folder: Path, module: str = "reprieve") -> AsyncIterator[Preempting]:
    """A queue of four cpus and the operator's process, which knows a kubeconfig."""
    objects = base(QUOTA, preemption=LOWER)
    async with site(folder, *objects, start=False) as cluster:
        values = folder / "values.yaml"
        values.write_text(_VALUES)
        story = Preempting(cluster, values, module)
        cluster.embedded.cluster.on_write = story.on_write
        process = asyncio.create_task(story.keep_running())
        try:
            yield story
        finally:
            cluster.embedded.cluster.on_write = None
            process.cancel()
            await asyncio.gather(process, return_exceptions=True)


def _job(name: str, priority: str, pods: int) -> Object:
    found = job(name, priority=priority, pods=pods)
    found["spec"]["template"]["metadata"] = {"annotations": dict(_AT_ONCE)}
    return found


def _member(name: str) -> Object:
    """Return a pod of the group, as the webhook leaves it."""
    found = _job(name, "low", 1)
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["requests"]["cpu"] = str(QUOTA // len(LOW))
    labels = {**found["metadata"]["labels"], GROUP_NAME: GROUP}
    annotations = {**_AT_ONCE, GROUP_TOTAL: str(len(LOW))}
    metadata = {
        "name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations
    }  # fmt: skip
    spec = found["spec"]["template"]["spec"]
    return dict(gated({"metadata": metadata, "spec": spec}, GATE, topology=False))


def _owner(workload: Object) -> str:
    owners = workload["metadata"].get("ownerReferences") or [workload["metadata"]]
    return str(owners[0]["name"])


def _held(workload: Object) -> int:
    """Return the cpus that a Workload holds: one for each pod that is still needed."""
    status = workload.get("status") or {}
    if any(c["type"] == "Finished" and c["status"] == "True" for c in status.get("conditions", ())):
        return 0
    given = (status.get("admission") or {}).get("podSetAssignments") or ()
    over = sum(each["count"] for each in status.get("reclaimablePods") or ())
    return sum(int(each["resourceUsage"]["cpu"]) for each in given) - (over if given else 0)


def _kind(verb: str, path: str, body: bytes) -> str:
    """Return what a write is: a step of the story, or else verb, plural and subresource."""
    parts = re.sub(r"^/(api/[^/]+|apis/[^/]+/[^/]+)/(namespaces/[^/]+/)?", "", path).split("/")
    kind = " ".join((verb, parts[0], *parts[2:]))
    if kind != "patch workloads status":
        return kind
    status = orjson.loads(body)["status"]
    if "schedulingStats" in status:  # it counts evictions, and is written with each
        return "mark"
    if "admission" in status:
        return "reserve" if status["admission"] else "release"
    types = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
    return "finish" if "Finished" in types else kind
