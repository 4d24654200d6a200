"""Plays the demo until it is cancelled: submits work, ends it, and reports what is in progress.

The stories come in an order that a seed decides, each of them once in every round. Nothing is
asserted: a story that lasts longer than it may is followed by the next. What is done stays bounded:
finished work is deleted, and work that is pending for too long is withdrawn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from kubelocal.machines.objects import Unanswered
from kubeworld.objects.pods import is_over
from kubeworld.units.durations import SECOND
from reprieve.scenarios.creating import create_or_update
from reprieve.scenarios.demo.cast import GPU, GROUP_VERSION, PLATFORM, Pace, furniture
from reprieve.scenarios.observer import WORKLOADS
from reprieve.scenarios.stage import Stage
from reprieve.units.counts import counted

__all__ = ["Director"]

Object = Mapping[str, Any]
T = TypeVar("T")
_HELD: Final = ("PreemptionLoop", "PreemptionPairHeld")
_DISRUPTIONS: Final = "disruptions.reprieve.dev"
_OVER: Final = ("Complete", "Failed")
_VERSIONS: Final = {"Job": "batch/v1", "Pod": "v1", "PodGroup": GROUP_VERSION}
_NAMED: Final = 3  # jobs that are withdrawn


class Director:
    """What stories do on the stage. `report` is called with one line for each event."""

    def __init__(self, stage: Stage, pace: Pace, seed: int, report: Callable[[str], None]) -> None:
        self.stage, self.pace, self.report = stage, pace, report
        self.random = Random(seed)
        self.round = 0
        self._numbers: dict[str, int] = {}
        # In the order in which they were submitted.
        self._jobs: dict[tuple[str, str], None] = {}
        # How often in turn they were seen without pods.
        self._groups: dict[tuple[str, str], int] = {}

    def numbered(self, name: str) -> str:
        """Return the name with a number that it had not before."""
        self._numbers[name] = self._numbers.get(name, 0) + 1
        return f"{name}-{self._numbers[name]}"

    async def furnish(self) -> None:
        """Create queues, classes, namespaces and the service."""
        for each in furniture(self.pace):
            await self._create(dict(each))

    async def submit(self, *objects: dict[str, Any]) -> None:
        """Create objects, one after the other."""
        for each in objects:
            await self._create(each)
            # Known once it is there: what is not there has ended, for `clear`.
            key = each["metadata"].get("namespace", ""), each["metadata"]["name"]
            if each["kind"] == "Job":
                self._jobs[key] = None
            elif each["kind"] == "PodGroup":
                self._groups[key] = 0

    async def _create(self, manifest: dict[str, Any]) -> None:
        objects, metadata = self.stage.objects, manifest["metadata"]
        resource = objects.resource_of(manifest["apiVersion"], manifest["kind"]) or ""
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        tried = False

        async def create() -> None:
            # A request without an answer may have created it; a Job cannot be written again.
            nonlocal tried
            if not tried or await objects.get(resource, namespace, name) is None:
                tried = True
                await create_or_update(objects, manifest)

        await self._answered(create)

    async def _answered(self, request: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until it is answered: a machine that is busy does not end the demo."""
        while True:
            try:
                return await request()
            except Unanswered:
                await self.stage.clock.sleep(SECOND)

    async def end(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object; one that is deleted already is no error."""
        self._jobs.pop((namespace, name), None)
        # Several groups serve a PodGroup: those of the others are not there.
        resource = self.stage.objects.resource_of(_VERSIONS[kind], kind)
        if resource is not None:
            delete = partial(self.stage.objects.delete, resource, namespace, name)
            await self._answered(delete)

    async def rest(self, seconds: float) -> None:
        """Wait for so many seconds of the demo."""
        await self.stage.clock.sleep(round(self.pace.seconds(seconds) * SECOND))

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Return whether something came about within so many seconds, which are real time."""
        return bool(await self.stage.observer.until(lambda: True if condition() else None, seconds))

    async def run(self, namespace: str, prefix: str, pods: int, seconds: float) -> bool:
        """Return whether so many pods run within so many seconds."""
        return await self.until(lambda: self.running(namespace, prefix) == pods, seconds)

    def use(self, namespace: str, root: str, percent: float) -> None:
        """Have the pods of a root use their GPUs so much from now on."""
        self.stage.exporter.set_utilization(namespace, root, percent, gpu=None, pod_index=None)

    # Seeing.

    def pods(self, namespace: str, prefix: str = "") -> list[Object]:
        """Return the pods whose names begin so."""
        pods = self.stage.observer.all("pods", namespace)
        return [each for each in pods if each["metadata"]["name"].startswith(prefix)]

    def running(self, namespace: str, prefix: str) -> int:
        """Return how many of them run."""
        return sum(_phase(each) == "Running" for each in self.pods(namespace, prefix))

    def preempted(self, namespace: str) -> set[str]:
        """Return the jobs of a namespace that have been preempted and have no quota now."""
        found = set()
        for each in self.stage.observer.all(WORKLOADS, namespace):
            if _is_true(each, "Evicted"):
                found |= {owner["name"] for owner in each["metadata"].get("ownerReferences", ())}
        return found

    async def lost(self, namespace: str, job: str, seconds: float) -> int | None:
        """Return the GPU-seconds that a queued job lost, None if that is not reported in time."""
        return await self.stage.observer.until(lambda: self._lost(namespace, job), seconds)

    def _lost(self, namespace: str, job: str) -> int | None:
        specs = (each["spec"] for each in self.stage.observer.all(_DISRUPTIONS, namespace))
        reported = [each for each in specs if each["subject"]["name"].startswith(f"job-{job}-")]
        return sum(int(each["lostDeviceSeconds"]) for each in reported) if reported else None

    def is_held(self, namespace: str) -> bool:
        """Return whether work of a namespace is held from other work that it would displace."""
        events = self.stage.observer.all("events", namespace)
        return any(each.get("reason") in _HELD for each in events)

    def in_use(self) -> tuple[int, int]:
        """Return how many GPUs pods hold, and how many there are."""
        nodes = self.stage.observer.all("nodes")
        total = sum(int(each["status"]["allocatable"].get(GPU, 0)) for each in nodes)
        return sum(_gpus(each) for each in self._live() if each["spec"].get("nodeName")), total

    def free_nodes(self) -> int:
        """Return how many nodes have all of their GPUs free."""
        chosen = {each["spec"].get("nodeName") for each in self._live() if _gpus(each)}
        nodes = {each["metadata"]["name"] for each in self.stage.observer.all("nodes")}
        return len(nodes - chosen)

    def _live(self) -> list[Object]:
        pods = self.stage.observer.all("pods")
        return [each for each in pods if not is_over(each)]

    def status(self) -> str:
        """Return how much is in use, and how many wait."""
        used, total = self.in_use()
        live = self._live()
        waiting = sum(not each["spec"].get("nodeName") for each in live)
        queued = sum(
            not _is_true(each, "QuotaReserved") and not _is_true(each, "Finished")
            for each in self.stage.observer.all(WORKLOADS)
        )
        waits = f"waiting: {counted(queued, 'job')} for quota, {counted(waiting, 'pod')} for nodes"
        return f"{used} of {total} GPUs in use; {waits}"

    async def clear(self) -> None:
        """Delete what has ended, so that the cluster stays as large as it is."""
        for namespace, name in sorted(self._jobs):
            job = await self._job(namespace, name)
            if job is None or any(_is_true(job, each) for each in _OVER):
                await self.end("Job", namespace, name)
        for pod in self.pods(PLATFORM):
            if is_over(pod) and not _owned(pod):
                await self.end("Pod", PLATFORM, pod["metadata"]["name"])
        for key in [*self._groups]:
            # A group that was just created has no pods yet.
            self._groups[key] = 0 if self._has_pods(*key) else self._groups[key] + 1
            if self._groups[key] > 1:
                del self._groups[key]
                await self.end("PodGroup", *key)

    def _has_pods(self, namespace: str, group: str) -> bool:
        named = (each["spec"].get("schedulingGroup") or {} for each in self.pods(namespace))
        return any(each.get("podGroupName") == group for each in named)

    def pending(self) -> list[tuple[str, str]]:
        """Return the jobs of which no pod runs, the oldest first."""
        return [(space, name) for space, name in self._jobs if not self.running(space, f"{name}-")]

    async def settle(self, most: int, seconds: float) -> None:
        """Wait so long until no more jobs are pending than this; their teams withdraw the others.

        A machine that is slow ends less work than the stories submit: the backlog stays bounded.
        """
        if await self.until(lambda: len(self.pending()) <= most, seconds):
            return
        withdrawn = self.pending()[:-most]
        for namespace, name in withdrawn:
            await self.end("Job", namespace, name)
        if withdrawn:
            named = ", ".join(f"{namespace}/{name}" for namespace, name in withdrawn[:_NAMED])
            more = (
                f" and {counted(len(withdrawn) - _NAMED, 'other')}"
                if len(withdrawn) > _NAMED
                else ""
            )
            self.report(f"pending for too long, withdrawn by their teams: {named}{more}")

    async def exists(self, namespace: str, name: str) -> bool:
        """Return whether a Job is there and has not ended."""
        job = await self._job(namespace, name)
        return job is not None and not any(_is_true(job, each) for each in _OVER)

    async def _job(self, namespace: str, name: str) -> Object | None:
        return await self._answered(partial(self.stage.objects.get, "jobs.batch", namespace, name))

    def shuffled(self, stories: Iterable[Any]) -> Iterator[Any]:
        """Yield the stories in the order of this round."""
        order = list(stories)
        self.random.shuffle(order)
        self.round += 1
        yield from order


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _owned(pod: Object) -> bool:
    return bool(pod["metadata"].get("ownerReferences"))


def _gpus(pod: Object) -> int:
    requests = [each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"]]
    return sum(int(each.get(GPU, 0)) for each in requests)


def _is_true(obj: Object, type: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each["type"] == type and each["status"] == "True" for each in conditions)
