"""The kubelets of all nodes: bound pods start, run, fail, end and are deleted.

| pod | what happens | after |
|---|---|---|
| bound, does not fit | Failed, reason OutOfcpu and the like | - |
| bound, Pending | ContainerCreating, then Running and ready | pull and start latency |
| Running, run time set | exits; restarted as restartPolicy states, else finished | run time |
| Running, set to fail | the same at once, or evicted for good | - |
| being deleted | ends with exit code 143, is removed with grace 0 | termination time |

Latencies come from the pod's `sim.reprieve.dev` annotations, else from `KubeletTimes`. A pod with a
deletionTimestamp never lives longer than its grace period. Containers do nothing: without a run
time they run for ever. Pods of nodes that do not exist, or whose kubelet is configured to be
silent, are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from kubelocal.machines import simulation
from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.node.admission import Admission
from kubelocal.machines.node.latency import Latency
from kubelocal.machines.objects import Change, ChangeType, Object
from kubelocal.machines.simulation import (
    Failure,
    InvalidSetting,
    Readiness,
    Setting,
    effective_readiness,
)
from kubeworld.controllers import pod_statuses
from kubeworld.objects.pods import OVER, is_ready
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant

__all__ = ["Kubelet", "KubeletTimes"]

_OUT_OF_MEMORY = 137  # 128 + SIGKILL

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class KubeletTimes:
    """The duration of a pod without annotations, in nanoseconds or by distribution.

    `apart`: what lies at least between the ends of two pods that are being deleted, on all nodes,
    in the order in which they were; with 0 those of one instant end together.
    """

    start_latency: int | Latency = 3 * SECOND // 10
    termination_time: int | Latency = SECOND
    pull_latency: int | Latency = 0
    apart: int = 0


@dataclass(slots=True)
class _Life:
    """Instants of one pod on the monotonic clock, None until seen."""

    bound: int | None = None
    running: int | None = None
    deleting: int | None = None
    pulls: bool = False  # whether it has an image that its node had not when it came
    failed: Failure | int | None = None  # as it was set last


class Kubelet:
    """Stands for the kubelets of all nodes. `seed` decides what is drawn from distributions."""

    name = "kubelet"

    def __init__(
        self,
        informer: Informer,
        clock: Clock,
        recorder: Recorder,
        times: KubeletTimes,
        seed: int = 0,
    ) -> None:
        self._informer = informer
        self._clock = clock
        self._recorder = recorder
        self._times = times
        self._seed = seed
        self._admission = Admission(informer)
        self._lives: dict[str, _Life] = {}
        self._next_end = 0
        # node -> images that a pod on it has run with.
        self._images: defaultdict[str, set[str]] = defaultdict(set)

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == "pods":
            if change.type is ChangeType.DELETED:
                self._lives.pop(change.object["metadata"]["uid"], None)
                self._admission.forget(change.object["metadata"]["uid"])
                return []
            return [key_of("pods", change.object)] if change.object["spec"].get("nodeName") else []
        if change.resource == "nodes":
            name = change.object["metadata"]["name"]
            if change.type is ChangeType.DELETED:
                self._images.pop(name, None)
                return []
            state = effective_readiness(change.object)
            if before is not None and effective_readiness(before) is state:
                return []
            return [key_of("pods", pod) for pod in self._informer.on_node(name)]
        return simulation.pods_below(self._informer, change, before)

    async def reconcile(self, key: Key) -> int | None:
        pod = self._informer.at(key)
        node = pod and self._informer.get("nodes", "", pod["spec"].get("nodeName") or "")
        if pod is None or node is None or effective_readiness(node) is Readiness.UNKNOWN:
            return None
        life = self._lives.setdefault(pod["metadata"]["uid"], _Life())
        phase = (pod.get("status") or {}).get("phase") or "Pending"
        if pod["metadata"].get("deletionTimestamp"):
            return await self._end(pod, life, phase)
        if phase == "Pending":
            return await self._start(pod, life, node)
        if phase == "Running":
            if effective_readiness(node) is Readiness.TRUE and not is_ready(pod):
                pod = await self._write(pod, pod_statuses.set_ready(pod, True, self._wall()))
            return await self._run(pod, life)
        return None

    async def _start(self, pod: Object, life: _Life, node: Object) -> int | None:
        now = self._clock.monotonic()
        addresses = (node.get("status") or {}).get("addresses") or ()
        address = next((a["address"] for a in addresses if a.get("type") == "InternalIP"), "")
        if self._failure(pod) is Failure.IMAGE_PULL:
            life.bound = None  # its time begins when it may pull
            status = pod_statuses.waiting(pod, address, self._wall(), Failure.IMAGE_PULL)
            if status != pod.get("status"):
                await self._write(pod, status)
            return None
        rejected = self._admission.let_in(pod, node)
        if rejected is not None:
            self._recorder.warning(pod, rejected.reason, rejected.message)
            status = pod_statuses.rejected(pod, rejected.reason, rejected.message, self._wall())
            await self._write(pod, status)
            return None
        if life.bound is None:
            life.bound = now
            life.pulls = not _images(pod) <= self._images[node["metadata"]["name"]]
        length = self._length(pod, Setting.START_LATENCY, self._times.start_latency)
        if life.pulls:
            length += self._length(pod, Setting.PULL_LATENCY, self._times.pull_latency)
        rest = life.bound + length - now
        if rest <= 0:
            status = pod_statuses.running(pod, address, self._wall())
            pod = await self._write(pod, status)
            life.running = self._clock.monotonic()
            self._images[node["metadata"]["name"]] |= _images(pod)
            self._recorder.normal(pod, "Started", "Container started")
            return await self._run(pod, life)
        if not (pod.get("status") or {}).get("startTime"):
            await self._write(pod, pod_statuses.waiting(pod, address, self._wall()))
        return rest

    async def _run(self, pod: Object, life: _Life) -> int | None:
        failure = self._failure(pod)
        if failure is not None and failure is not Failure.IMAGE_PULL and failure != life.failed:
            life.failed = failure
            if failure is Failure.EVICTED:
                self._recorder.warning(pod, "Evicted", "The node was told to evict the pod.")
                await self._write(pod, pod_statuses.evicted(pod, self._wall()))
                return None
            if isinstance(failure, int):
                return await self._exit(pod, life, failure)
            return await self._exit(pod, life, _OUT_OF_MEMORY, failure)
        run_time = self._run_time(pod)
        if run_time is None:
            return None
        now = self._clock.monotonic()
        if life.running is None:
            life.running = now - max(0, self._clock.wall() - pod_statuses.running_since(pod))
        rest = life.running + run_time - now
        if rest > 0:
            return rest
        return await self._exit(pod, life, self._read(pod, simulation.exit_code, 0))

    async def _exit(self, pod: Object, life: _Life, code: int, reason: str = "") -> int | None:
        """Write that the containers have ended, and start them again if the policy states so."""
        policy = pod["spec"].get("restartPolicy") or "Always"
        if policy == "Always" or (policy == "OnFailure" and code != 0):
            pod = await self._write(pod, pod_statuses.restarted(pod, code, self._wall(), reason))
            life.running = self._clock.monotonic()
            run_time = self._run_time(pod)
            return None if run_time is None else max(run_time, SECOND)
        await self._write(pod, pod_statuses.finished(pod, code, self._wall(), reason))
        return None

    async def _end(self, pod: Object, life: _Life, phase: str) -> int | None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds")
        if grace == 0:
            return None  # removed but for finalizers
        now = self._clock.monotonic()
        if life.deleting is None:
            life.deleting = now
            self._recorder.normal(pod, "Killing", "Stopping container")
        if phase not in OVER:
            time = self._length(pod, Setting.TERMINATION_TIME, self._times.termination_time)
            rest = life.deleting + min(time, (30 if grace is None else grace) * SECOND) - now
            rest = max(rest, self._next_end - now)
            if rest > 0:
                return rest
            self._next_end = now + self._times.apart
            status = pod_statuses.finished(pod, pod_statuses.KILLED, self._wall())
            pod = await self._write(pod, status)
        await self._informer.delete("pods", pod, grace_seconds=0)
        return None

    async def _write(self, pod: Object, status: dict[str, object]) -> Object:
        updated = {**pod, "status": status}
        return await self._informer.update("pods", updated, subresource="status")

    def _length(self, pod: Object, name: Setting, usual: int | Latency) -> int:
        latency = self._latency(pod, name) or usual
        if isinstance(latency, int):
            return latency
        metadata = pod["metadata"]
        where = f"{metadata.get('namespace', '')}/{metadata['name']}"
        return latency.draw(f"{self._seed}/{where}/{name}")

    def _run_time(self, pod: Object) -> int | None:
        if self._latency(pod, Setting.RUN_TIME) is None:
            return None
        return self._length(pod, Setting.RUN_TIME, 0)

    def _latency(self, pod: Object, name: Setting) -> Latency | None:
        return self._read(pod, lambda i, p: simulation.latency(i, p, name), None)

    def _failure(self, pod: Object) -> Failure | int | None:
        return self._read(pod, simulation.failure, None)

    def _read(self, pod: Object, read: Callable[[Informer, Object], _T], otherwise: _T) -> _T:
        try:
            return read(self._informer, pod)
        except InvalidSetting as problem:
            self._recorder.warning(pod, "InvalidSimulation", str(problem))
            return otherwise

    def _wall(self) -> str:
        return format_instant(self._clock.wall())


def _images(pod: Object) -> set[str]:
    return {str(c.get("image", "")) for c in pod["spec"].get("containers") or ()}
