"""A study on a real API server, in real time, decided about by a real operator process.

What the study of `cluster_study` lacks: an API server, a controller of Jobs and an operator that
are processes of their own, saves and restarts, and time that passes. A container is what this
module plays: a job goes on from its last save, so that its next pod runs as long as the work model
says, and what it loses is worked out by that model from when its pods really ran.

What takes time there and none in a replay is noted step by step (`delayed_replay`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.cluster_study import Notes
from bench.cluster_study_objects import (
    LOCAL_QUEUES,
    job_object,
    job_of,
    large_node,
    local_queue,
    priority_class,
    queue_objects,
    run_time,
)
from bench.delayed_replay import InRealTime, Step
from kubelocal.machines.run import IN_CONTROLLER_MANAGER
from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import MILLISECOND, MINUTE, SECOND
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.each_object import EachObject
from reprieve.kube.reflector import Reflector
from reprieve.kube.resource import NAMESPACES, PODS, PREEMPTIONS
from reprieve.scenarios.embedded import OPERATOR_USER
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.stage import Stage
from reprieve.scenarios.staging import staged
from reprieve.simulation.replaying.quota_cluster import key_of
from reprieve.simulation.replaying.work import Checkpointing, Run, WorkModel
from reprieve.simulation.trace import Job
from tests.integration.control_plane import ADMINISTRATOR, Binaries
from tests.integration.group_plane import group_plane
from tests.quota_plane.site import CLUSTER_QUEUES, JOBS, WORKLOADS

__all__ = [
    "DEVICES",
    "TENANTS",
    "played_in_real_time",
    "timed_study",
]

TENANTS: Final = ("a", "b", "c", "d")
DEVICES: Final = 64
_WIDTHS: Final = (1, 2, 4, 8, 16)
_LOAD: Final = 1.2
#: The part of the time in which jobs arrive; in the rest those that wait come to their end.
_ARRIVING: Final = 0.75
_PATIENCE_S: Final = 180

Object = dict[str, Any]


def timed_study(count: int, minutes: float, seed: int = 0) -> tuple[list[Job], Checkpointing]:
    """Return jobs that take about these minutes, and how they save: all times grow with them.

    With 108 jobs in an hour one comes each 25 s and runs for 310 s in the mean, saves each minute
    and needs 15 s to start again.
    """
    random, found, now = Random(seed), [], 0.0
    gap_ms = minutes * MINUTE / MILLISECOND * _ARRIVING / count
    mean_ms = _LOAD * DEVICES * gap_ms / (sum(_WIDTHS) / len(_WIDTHS))
    for number in range(count):
        found.append(
            Job(
                f"j{number}",
                round(now) * MILLISECOND,
                random.choice(_WIDTHS),
                round(random.uniform(0.1, 1.9) * mean_ms) * MILLISECOND,
                tenant=random.choice(TENANTS),
                priority=random.choice((0, 0, 100)),
            )
        )
        now += random.uniform(0.2, 1.8) * gap_ms
    mean = round(mean_ms) * MILLISECOND
    return found, Checkpointing(mean // 5, mean // 100, mean // 20)


async def played_in_real_time(
    binaries: Binaries, folder: Path, jobs: Sequence[Job], model: WorkModel, most_s: float
) -> InRealTime:
    """Play the jobs on a control plane of its own.

    Raises:
        TimeoutError: they have not finished in time; the operator's last words are added to it.
    """
    with group_plane(binaries, folder) as plane:
        kubeconfig, operator_kubeconfig = folder / "kubeconfig", folder / "operator.kubeconfig"
        plane.write_kubeconfig(kubeconfig, ADMINISTRATOR)
        plane.write_kubeconfig(operator_kubeconfig, OPERATOR_USER)
        async with AsyncExitStack() as stack:
            stage, _ = await stack.enter_async_context(
                staged(
                    kubeconfig,
                    operator_kubeconfig,
                    [large_node(DEVICES)],
                    SystemClock(),
                    operator_arguments=("--controllers", "quota"),
                    machines_without=IN_CONTROLLER_MANAGER if plane.has_controllers else (),
                    kueue=True,
                )
            )
            client = connect(await load_connection(str(kubeconfig)), SystemClock())
            stack.push_async_callback(client.close)
            operator = stage.launch({}, 1)
            await operator.start()
            stack.push_async_callback(operator.stop)
            return await _played(stage, client, operator, jobs, model, most_s)


async def _played(
    stage: Stage,
    client: Client,
    operator: OperatorProcesses,
    jobs: Sequence[Job],
    model: WorkModel,
    most_s: float,
) -> InRealTime:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await _set_up(stage, client, {job.priority or 0 for job in jobs})
        async with asyncio.timeout(most_s):
            return await _submitted(client, jobs, model)
    except TimeoutError as late:
        raise TimeoutError("\n".join(["not in time", *operator.tail(40)])) from late


async def _set_up(stage: Stage, client: Client, priorities: set[int]) -> None:
    """Create queues and priorities, and wait until the operator has taken them up."""
    priority_classes = [priority_class(each) for each in sorted(priorities)]
    for obj in (*queue_objects(TENANTS, DEVICES), *priority_classes):
        resource = stage.objects.resource_of(obj["apiVersion"], obj["kind"])
        assert resource is not None, obj["kind"]
        await stage.objects.create(resource, obj)
    for tenant in TENANTS:
        await client.create(NAMESPACES, {"metadata": {"name": tenant}}, dict)
        await client.create(LOCAL_QUEUES, local_queue(tenant), dict)
    while True:
        queues = (await client.list(CLUSTER_QUEUES, dict)).items
        if sum(_is_true(queue, "Active") for queue in queues) == len(TENANTS):
            return
        await asyncio.sleep(0.25)


async def _submitted(client: Client, jobs: Sequence[Job], model: WorkModel) -> InRealTime:
    loop = asyncio.get_running_loop()
    found, notes = InRealTime(), Notes()
    found.played = notes.found
    steps = _Steps(found.took_s)
    containers = _Containers(client, {key_of(job): job for job in jobs}, model, steps, loop.time())
    sinks = (
        (WORKLOADS, EachObject(_Workloads(notes, steps).take)),
        (PODS, EachObject(containers.take, containers.gone)),
    )
    clock = SystemClock()
    watching = [
        asyncio.create_task(Reflector(client, resource, dict, sink, clock).run())
        for resource, sink in sinks
    ]
    try:
        for job in jobs:
            due = containers.began + job.arrival / SECOND
            await asyncio.sleep(max(0.0, due - loop.time()))
            steps.begin(Step.QUEUE, key_of(job))
            await client.create(JOBS, job_object(job), dict)
        await notes.until_finished(len(jobs))
        found.played.makespan_s = loop.time() - containers.began
        found.played.note_records((await client.list(PREEMPTIONS, dict)).items)
        found.lost_device_s = containers.lost_device_s()
        return found
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, *containers.patches, return_exceptions=True)


def _is_true(obj: Object, condition: str) -> bool:
    said = (obj.get("status") or {}).get("conditions") or ()
    return any(each["type"] == condition and each["status"] == "True" for each in said)


class _Steps:
    """Notes how long each step took; one that began anew counts from then."""

    def __init__(self, took_s: dict[Step, list[float]]) -> None:
        self._took_s = took_s
        self._since: dict[tuple[Step, str], float] = {}

    def begin(self, step: Step, key: str) -> None:
        self._since[step, key] = asyncio.get_running_loop().time()

    def end(self, step: Step, key: str) -> None:
        since = self._since.pop((step, key), None)
        if since is not None:
            self._took_s[step].append(asyncio.get_running_loop().time() - since)


class _Workloads:
    """Notes what Workloads say, and when."""

    def __init__(self, notes: Notes, steps: _Steps) -> None:
        self._notes, self._steps = notes, steps
        self._said: dict[str, frozenset[str]] = {}

    def take(self, obj: Object) -> None:
        """Note what a Workload says now."""
        self._notes.take(obj)
        key = job_of(obj["metadata"])
        conditions = ("QuotaReserved", "Evicted", "Finished")
        now = frozenset(each for each in conditions if _is_true(obj, each))
        before = self._said.get(key, frozenset())
        self._said[key] = now
        self._steps.end(Step.QUEUE, key)
        if "QuotaReserved" in now - before and "Finished" not in now:
            self._steps.begin(Step.START, key)
        if "Finished" in now - before:
            self._steps.end(Step.RELEASE, key)
        if "Evicted" in now - before and "QuotaReserved" in now:
            self._steps.begin(Step.STOP, key)
            self._steps.begin(Step.LEAVE, key)
        if "QuotaReserved" in before - now:
            self._steps.end(Step.LEAVE, key)


@dataclass(slots=True)
class _Container:
    """How far a job is, and what it lost so far, in nanoseconds of each device."""

    job: Job
    kept: int = 0
    again: bool = False
    lost: int = 0
    run: Run | None = None


class _Containers:
    """Does what containers would: save, lose what they did since, go on."""

    def __init__(
        self,
        client: Client,
        jobs: Mapping[str, Job],
        model: WorkModel,
        steps: _Steps,
        began: float,
    ) -> None:
        self._client, self._model, self._steps = client, model, steps
        self._of = {key: _Container(job) for key, job in jobs.items()}
        #: Pods whose container has ended, by uid.
        self._over: set[str] = set()
        self.began = began
        self.patches: list[asyncio.Task[object]] = []

    def lost_device_s(self) -> float:
        return sum(each.lost * each.job.devices for each in self._of.values()) / SECOND

    def take(self, obj: Object) -> None:
        """Do what the container of a pod would do now."""
        metadata, phase = obj["metadata"], (obj.get("status") or {}).get("phase")
        name = (metadata.get("labels") or {}).get("batch.kubernetes.io/job-name", "")
        container = self._of.get(f"{metadata['namespace']}/{name}")
        if container is None or metadata["uid"] in self._over:
            return
        if phase == "Succeeded":
            self._over.add(metadata["uid"])
            self._finished(container)
        elif metadata.get("deletionTimestamp") or phase == "Failed":
            self._over.add(metadata["uid"])
            self._displaced(container)
        elif phase == "Running" and container.run is None:
            container.run = Run(self._now(), container.kept, container.again)
            self._steps.end(Step.START, key_of(container.job))

    def gone(self, obj: Object) -> None:
        """Count a pod as displaced that is gone."""
        obj["metadata"].setdefault("deletionTimestamp", "now")
        self.take(obj)

    def _now(self) -> int:
        return round((asyncio.get_running_loop().time() - self.began) * SECOND)

    def _finished(self, container: _Container) -> None:
        if container.run is not None:
            container.lost += self._model.idle(container.job, container.run, self._now())
            container.run = None
        self._steps.begin(Step.RELEASE, key_of(container.job))

    def _displaced(self, container: _Container) -> None:
        """Fall back to the last save, and let the next pod run for what is left."""
        job, container.again = container.job, True
        self._steps.end(Step.STOP, key_of(job))
        if container.run is not None:
            cost = self._model.displaced(job, container.run, self._now())
            container.kept, container.run = cost.kept, None
            container.lost += cost.lost + cost.idle
        rest = self._model.finishes(job, Run(0, container.kept, True))
        change = {"metadata": {"annotations": run_time(rest)}}
        patch = self._client.patch(JOBS, job.tenant, job.id, change, dict, retry=True)
        self.patches.append(asyncio.create_task(patch))
