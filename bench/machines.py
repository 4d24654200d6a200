"""`python -m bench.machines [--quick]`: the imitated cluster in its steady state.

`steady`: 5,000 nodes, each with its Lease renewed every 10 s, and 50,000 pods, of which 100 start
and 100 end every second, half of them by themselves, half because they are deleted. Server,
machines and the load run in one process on one core. A transition's lag is the time from the
instant at which it was due (what it waits for has happened, its latency is over) to its write.
Time passes as on a core of its own (`bench.core`). `--quick` takes a small cluster: a smoke test
that asserts results and never times.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Any

from bench.binding import with_binder
from bench.core import CoreClock, CoreLoop
from bench.measuring import peak_mib, print_line
from kubelocal.cluster import EmbeddedCluster
from kubelocal.machines.embedded import EmbeddedObjects
from kubelocal.machines.node.kubelet import KubeletTimes
from kubelocal.machines.node.nodes import NodeSpec
from kubelocal.machines.objects import Change, ChangeType, Object
from kubelocal.machines.run import Machines
from kubeworld.controllers import pod_statuses
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, format_micro
from reprieve.operator.collector import freeze_records, relax_collector

__all__ = ["main"]

_NAMESPACES = 50
_START = 3 * SECOND // 10
_END = SECOND


@dataclass(frozen=True)
class Size:
    """How large the cluster is and how long it is watched; times in seconds."""

    nodes: int
    pods: int
    starts_per_second: int
    life: int
    window: int


_FULL = Size(nodes=5_000, pods=50_000, starts_per_second=100, life=20, window=60)
_QUICK = Size(nodes=20, pods=200, starts_per_second=10, life=1, window=2)


class Lags:
    """Listens to the informer of the machines and notes when each due transition was written."""

    def __init__(self, clock: CoreClock, life: int) -> None:
        self._clock = clock
        self._life = life * SECOND
        # uid -> what is awaited next and since when it is due, monotonic.
        self._due: dict[str, tuple[str, int]] = {}
        self.lags: dict[str, list[int]] = {
            name: [] for name in ("scheduled", "running", "ended", "removed")
        }
        self.counting = False

    def notice(self, change: Change, before: Object | None) -> None:
        pod = change.object
        if change.resource != "pods" or (pod["metadata"].get("labels") or {}).get("load") is None:
            return
        uid, now = pod["metadata"]["uid"], self._clock.monotonic()
        phase = pod["status"].get("phase")
        if before is None:
            self._due[uid] = ("scheduled", now)
        awaited, due = self._due.get(uid, ("", 0))
        if awaited == "scheduled" and pod["spec"].get("nodeName"):
            self._reach(uid, now - due, ("running", now + _START))
        elif awaited == "running" and phase == "Running":
            ends = pod["metadata"]["labels"]["load"] == "ends"
            self._reach(uid, now - due, ("ended", now + self._life) if ends else ("deleted", 0))
        elif awaited == "ended" and phase == "Succeeded":
            self._reach(uid, now - due, None)
        elif awaited == "deleted" and pod["metadata"].get("deletionTimestamp"):
            self._due[uid] = ("removed", now + _END)
        elif awaited == "removed" and change.type is ChangeType.DELETED:
            self._reach(uid, now - due, None)

    def _reach(self, uid: str, lag: int, following: tuple[str, int] | None) -> None:
        awaited, _ = self._due.pop(uid)
        if self.counting:
            self.lags[awaited].append(lag)
        if following is not None:
            self._due[uid] = following


def main(arguments: list[str] | None = None) -> int:
    """Run the case; a wrong result is an AssertionError."""
    parser = argparse.ArgumentParser(prog="python -m bench.machines", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small cluster, a short time")
    chosen = parser.parse_args(arguments)
    relax_collector()
    with asyncio.Runner(loop_factory=CoreLoop) as runner:
        runner.run(_steady(_QUICK if chosen.quick else _FULL))
    return 0


async def _steady(size: Size) -> None:
    clock = CoreClock()
    async with EmbeddedCluster(clock=clock) as cluster:
        objects = EmbeddedObjects(cluster.api)
        await _fill(cluster, objects, size)
        nodes = [
            NodeSpec.of(f"node-{i:05}", {"amd.com/gpu": 8, "cpu": 96, "memory": "1Ti"})
            for i in range(size.nodes)
        ]
        times = KubeletTimes(start_latency=_START, termination_time=_END)
        machines = Machines(objects, clock, nodes, times=times, more=[with_binder])
        lags = Lags(clock, size.life)
        await machines.start()
        machines.informer.listeners.append(lags.notice)
        for _ in range(6_000):
            if cluster.store.count("leases.coordination.k8s.io") == size.nodes:
                break
            await asyncio.sleep(0.1)
        freeze_records()
        load = asyncio.create_task(_load(objects, clock, size))
        await asyncio.sleep(size.life + 5)
        lags.counting = True
        cpu, since, revision = time.process_time(), clock.monotonic(), cluster.store.revision
        wall = time.perf_counter()
        await asyncio.sleep(size.window)
        lags.counting = False
        cpu, core = time.process_time() - cpu, (clock.monotonic() - since) / SECOND
        wall = time.perf_counter() - wall
        writes = cluster.store.revision - revision
        load.cancel()
        everything = sorted(lag for found in lags.lags.values() for lag in found)
        print_line(
            "machines",
            f"steady-{size.nodes}-nodes-{size.pods}-pods",
            lag_p50_ms=_at(everything, 0.5),
            lag_p99_ms=_at(everything, 0.99),
            lag_max_ms=_at(everything, 1.0),
            p99_ms={name: _at(sorted(found), 0.99) for name, found in lags.lags.items()},
            transitions=len(everything),
            writes_per_s=round(writes / core, 1),
            cpu_share=round(cpu / core, 2),
            cpu_ms=round(cpu * 1e3, 1),
            wall_ms=round(wall * 1e3, 1),
            peak_mib=peak_mib(),
        )
        _check(cluster, machines, clock, lags, size)
        await machines.stop()


async def _fill(cluster: EmbeddedCluster, objects: EmbeddedObjects, size: Size) -> None:
    """Store the pods that run all the time, each as the API would have stored it."""
    for number in range(_NAMESPACES):
        metadata = {"name": f"team-{number}"}
        await objects.create(
            "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        )
    first = await objects.create("pods", _pod("pattern", "team-0", 1))
    await objects.delete("pods", "team-0", "pattern")
    now = format_instant(cluster.clock.wall())
    for number in range(size.pods - size.starts_per_second * size.life):
        pod = copy.deepcopy(first)
        pod["metadata"] |= {
            "name": f"steady-{number}",
            "namespace": f"team-{number % _NAMESPACES}",
            "uid": str(uuid.uuid4()),
        }
        pod["spec"]["nodeName"] = f"node-{number % size.nodes:05}"
        if number // size.nodes >= 6:  # six of them have a GPU each, two GPUs are left
            del pod["spec"]["containers"][0]["resources"]
        pod["status"] = pod_statuses.running(pod, "198.18.0.1", now)
        cluster.store.put("pods", pod)
        if number % 500 == 0:
            await asyncio.sleep(0)


async def _load(objects: EmbeddedObjects, clock: CoreClock, size: Size) -> None:
    """Create so many pods a second; delete each a second after it has ended, or to end it."""
    started = clock.monotonic()
    number = deleted = 0
    while True:
        due = (clock.monotonic() - started) * size.starts_per_second // SECOND
        while number < due:
            ends = number % 2 == 0
            await objects.create("pods", _load_pod(number, size.life if ends else None))
            number += 1
        while deleted < due - size.starts_per_second * (size.life + 1):
            namespace, name = _load_name(deleted)
            await objects.delete("pods", namespace, name)
            deleted += 1
        await asyncio.sleep(0.02)


def _load_name(number: int) -> tuple[str, str]:
    return f"team-{number % _NAMESPACES}", f"load-{number}"


def _load_pod(number: int, life: int | None) -> Object:
    namespace, name = _load_name(number)
    pod = _pod(name, namespace, number % 2)
    pod["metadata"]["labels"]["load"] = "stays" if life is None else "ends"
    if life is not None:
        pod["metadata"]["annotations"] = {"sim.reprieve.dev/run-time": f"{life}s"}
    return pod


def _pod(name: str, namespace: str, gpus: int) -> Object:
    requests: dict[str, str] = {"cpu": "2", "memory": "8Gi"}
    container: dict[str, Any] = {"name": "main", "image": "example.com/training:1"}
    limits = {"amd.com/gpu": str(gpus)} if gpus else {}
    container["resources"] = {"requests": {**requests, **limits}, "limits": limits}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "training"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def _check(
    cluster: EmbeddedCluster, machines: Machines, clock: CoreClock, lags: Lags, size: Size
) -> None:
    """Leases are fresh, pods are as many as they should be, each kind of transition was seen."""
    oldest = format_micro(Nanos(clock.wall() - 15 * SECOND))
    leases = [
        stored.decode()["spec"]["renewTime"]
        for stored in cluster.store.range("leases.coordination.k8s.io", "kube-node-lease")
    ]
    assert len(leases) == size.nodes
    assert min(leases) > oldest, f"a lease was renewed at {min(leases)}, it is {oldest} and 15 s"
    phases = Counter(pod["status"]["phase"] for pod in machines.informer.all("pods"))
    expected = size.pods
    assert 0.95 * expected <= phases["Running"] <= 1.05 * expected, phases
    assert phases["Failed"] == 0, phases
    for name, found in lags.lags.items():
        share = 1.0 if name in ("scheduled", "running") else 0.5
        due = size.starts_per_second * size.window * share
        assert len(found) >= 0.8 * due, f"{len(found)} pods {name}, {due} were due"


def _at(values: list[int], share: float) -> float | None:
    """Return the quantile in milliseconds."""
    if not values:
        return None
    return round(values[min(len(values) - 1, int(share * len(values)))] / 1e6, 1)


if __name__ == "__main__":
    raise SystemExit(main())
