"""From nothing to every GPU pod's root owner: the initial list, the cache, the way up.

Each of 50,000 pods asks for a GPU and belongs to one of 5,000 Jobs, which are listed too. Checked
after each run: every pod is held with its GPUs, and its root is the Job with its annotations. The
garbage collector is set as the operator sets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import aiohttp

from bench.api_server import PODS_PER_JOB, job_uid, namespace_of, pod_uid
from bench.measuring import Stopwatch, best_of, other_process, peak_mib, print_line
from kubeworld.units.clock import SystemClock
from reprieve.api.core import Pod
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.idle.vendors import AMD
from reprieve.kube.cache import Cache
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import Connection, Headers
from reprieve.kube.discovery import RestMapper
from reprieve.kube.reflector import Reflector
from reprieve.kube.resource import PODS
from reprieve.operator.collector import relax_collector
from reprieve.planes.idle.ownership import BY_OWNER, Ownership, pod_found
from reprieve.planes.idle.records import PodRecord, pod_converter
from reprieve.planes.idle.roots import Roots

__all__ = ["run_discovery"]

AT_ONCE = 16
ENABLED = "kaiwo.silogen.ai/gpu-preemption.enabled"


class Discovered:
    """What one run holds."""

    def __init__(self, client: Client, clock: SystemClock) -> None:
        self.pods: Cache[Pod, PodRecord] = Cache(pod_converter((AMD,)), {BY_OWNER: _owners})
        self.reflector = Reflector(client, PODS, Pod, self.pods, clock)
        self.roots = Roots(client, RestMapper(client, clock), LiteralSwitches(), lambda _: None)
        self.ownership = Ownership(self.pods, self.roots.knows)

    async def list_pods(self) -> None:
        running = asyncio.create_task(self.reflector.run())
        await self.reflector.synced.wait()
        running.cancel()

    async def find_roots(self) -> None:
        async def work(pods: Iterator[PodRecord]) -> None:
            for pod in pods:
                self.ownership.learn(pod, await self.roots.resolve(pod_found(pod)))

        await self.roots.expect(pod_found(pod) for pod in self.pods if pod.row.gpus)
        pods = iter([pod for pod in self.pods if pod.row.gpus])
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work(pods))


async def run_discovery(pods: int, runs: int) -> None:
    """Measure and print one line.

    Raises:
        AssertionError: a result is wrong.
    """
    relax_collector()
    clock = SystemClock()
    with other_process("bench.api_server", str(pods)) as port:
        server = f"http://127.0.0.1:{port}"
        client = connect(Connection(server, None, Headers(lambda: None)), clock)
        state = {"run": 0, "pod_bytes": 0}
        held: list[Discovered] = []
        async with aiohttp.ClientSession() as control:

            async def prepare(run: int) -> None:
                held.clear()
                state["run"] = run + 1
                async with control.get(f"{server}/run/{run + 1}") as answer:
                    state["pod_bytes"] = int(await answer.text())

            async def measured(stopwatch: Stopwatch) -> Discovered:
                discovered = Discovered(client, clock)
                held.append(discovered)
                with stopwatch.part("list_pods"):
                    await discovered.list_pods()
                with stopwatch.part("find_roots"):
                    await discovered.find_roots()
                return discovered

            def check(discovered: Discovered) -> None:
                _check(discovered, state["run"], pods)

            best = await best_of(runs, prepare, measured, check)
        await client.close()
    print_line(
        "idle",
        f"discovery-{pods}-pods",
        cpu_ms=best.cpu_ms,
        wall_ms=best.wall_ms,
        peak_mib=peak_mib(),
        parts_ms=best.parts_ms,
        runs=best.runs,
        roots=pods // PODS_PER_JOB,
        pod_bytes=state["pod_bytes"],
    )


def _owners(pod: PodRecord) -> Iterable[str]:
    return (owner.uid for owner in pod.owners)


def _check(discovered: Discovered, run: int, pods: int) -> None:
    assert len(discovered.pods) == pods
    for index in range(pods):
        record = discovered.pods.get(pod_uid(run, index))
        assert record is not None, index
        assert (record.row.gpus, record.row.phase) == ({"amd.com/gpu": 1}, "Running")
        number = index // PODS_PER_JOB
        root = discovered.ownership.root_of(record.uid)
        assert root is not None, index
        assert (root.ref.kind, root.ref.namespace, root.ref.name, root.ref.uid) == (
            "Job",
            namespace_of(number),
            f"training-{run}-{number}",
            job_uid(run, number),
        )
        facts = discovered.roots.facts(root.ref.uid)
        assert facts is not None
        assert facts.annotations == {ENABLED: "true"}
