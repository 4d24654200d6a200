"""The kubelets of all nodes: bound pods start, run, end and go.

| pod | what happens | after |
|---|---|---|
| bound, Pending | ContainerCreating, then Running and ready | start latency |
| Running, run time set | exits; restarted as restartPolicy says, else finished | run time |
| being deleted | ends with exit code 143, is removed with grace 0 | termination time |

Latencies come from the pod's `sim.reprieve.dev` annotations, else from `KubeletTimes`. A pod with a
deletionTimestamp never lives longer than its grace period. Containers do nothing: without a run
time they run for ever. Pods of nodes that do not exist are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reprieve.local.machines import podstatus, simulation
from reprieve.local.machines.events import Recorder
from reprieve.local.machines.informer import Informer, Key, key_of
from reprieve.local.machines.objects import Change, ChangeType, Object
from reprieve.local.machines.simulation import InvalidSetting, Setting
from reprieve.units.clock import Clock
from reprieve.units.durations import SECOND
from reprieve.units.instants import format_instant

__all__ = ["Kubelet", "KubeletTimes"]


@dataclass(frozen=True, slots=True)
class KubeletTimes:
    """What a pod without annotations takes, in nanoseconds."""

    start_latency: int = 3 * SECOND // 10
    termination_time: int = SECOND


@dataclass(slots=True)
class _Life:
    """Instants of one pod on the monotonic clock, None until seen."""

    bound: int | None = None
    running: int | None = None
    deleting: int | None = None


class Kubelet:
    """Stands for the kubelets of all nodes."""

    name = "kubelet"

    def __init__(
        self, informer: Informer, clock: Clock, recorder: Recorder, times: KubeletTimes
    ) -> None:
        self._informer = informer
        self._clock = clock
        self._recorder = recorder
        self._times = times
        self._lives: dict[str, _Life] = {}

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == "pods":
            if change.type is ChangeType.DELETED:
                self._lives.pop(change.object["metadata"]["uid"], None)
                return []
            return [key_of("pods", change.object)] if change.object["spec"].get("nodeName") else []
        if change.resource == "nodes":
            name = change.object["metadata"]["name"]
            appeared = before is None and change.type is not ChangeType.DELETED
            pods = self._informer.all("pods") if appeared else ()
            return [key_of("pods", p) for p in pods if p["spec"].get("nodeName") == name]
        return simulation.pods_below(self._informer, change, before)

    async def look(self, key: Key) -> int | None:
        pod = self._informer.at(key)
        node = pod and self._informer.get("nodes", "", pod["spec"].get("nodeName") or "")
        if pod is None or node is None:
            return None
        life = self._lives.setdefault(pod["metadata"]["uid"], _Life())
        phase = (pod.get("status") or {}).get("phase") or "Pending"
        if pod["metadata"].get("deletionTimestamp"):
            return await self._end(pod, life, phase)
        if phase == "Pending":
            return await self._start(pod, life, node)
        if phase == "Running":
            return await self._run(pod, life)
        return None

    async def _start(self, pod: Object, life: _Life, node: Object) -> int | None:
        now = self._clock.monotonic()
        life.bound = now if life.bound is None else life.bound
        latency = await self._duration(pod, Setting.START_LATENCY)
        rest = life.bound + (self._times.start_latency if latency is None else latency) - now
        addresses = (node.get("status") or {}).get("addresses") or ()
        address = next((a["address"] for a in addresses if a.get("type") == "InternalIP"), "")
        if rest <= 0:
            status = podstatus.running(pod, address, self._wall())
            pod = await self._write(pod, status)
            life.running = self._clock.monotonic()
            await self._recorder.normal(pod, "Started", "Container started")
            return await self._run(pod, life)
        if not (pod.get("status") or {}).get("startTime"):
            await self._write(pod, podstatus.creating(pod, address, self._wall()))
        return rest

    async def _run(self, pod: Object, life: _Life) -> int | None:
        run_time = await self._duration(pod, Setting.RUN_TIME)
        if run_time is None:
            return None
        now = self._clock.monotonic()
        if life.running is None:
            life.running = now - max(0, self._clock.wall() - podstatus.running_since(pod))
        rest = life.running + run_time - now
        if rest > 0:
            return rest
        exit_code = await self._exit_code(pod)
        policy = pod["spec"].get("restartPolicy") or "Always"
        if policy == "Always" or (policy == "OnFailure" and exit_code != 0):
            pod = await self._write(pod, podstatus.restarted(pod, exit_code, self._wall()))
            life.running = self._clock.monotonic()
            return max(run_time, SECOND)
        await self._write(pod, podstatus.finished(pod, exit_code, self._wall()))
        return None

    async def _end(self, pod: Object, life: _Life, phase: str) -> int | None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds")
        if grace == 0:
            return None  # removed but for finalizers
        now = self._clock.monotonic()
        if life.deleting is None:
            life.deleting = now
            await self._recorder.normal(pod, "Killing", "Stopping container")
        if phase not in ("Succeeded", "Failed"):
            asked = await self._duration(pod, Setting.TERMINATION_TIME)
            time = self._times.termination_time if asked is None else asked
            rest = life.deleting + min(time, (30 if grace is None else grace) * SECOND) - now
            if rest > 0:
                return rest
            status = podstatus.finished(pod, podstatus.KILLED, self._wall())
            pod = await self._write(pod, status)
        await self._informer.delete("pods", pod, grace_seconds=0)
        return None

    async def _write(self, pod: Object, status: dict[str, object]) -> Object:
        updated = {**pod, "status": status}
        return await self._informer.update("pods", updated, subresource="status")

    async def _duration(self, pod: Object, name: Setting) -> int | None:
        try:
            return simulation.duration(self._informer, pod, name)
        except InvalidSetting as problem:
            await self._recorder.warning(pod, "InvalidSimulation", str(problem))
            return None

    async def _exit_code(self, pod: Object) -> int:
        try:
            return simulation.exit_code(self._informer, pod)
        except InvalidSetting as problem:
            await self._recorder.warning(pod, "InvalidSimulation", str(problem))
            return 0

    def _wall(self) -> str:
        return format_instant(self._clock.wall())
