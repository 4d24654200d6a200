"""`python -m bench.quota_load [--kubeconfig FILE] [--large] [--part FRACTION] [--quick] ...`.

The reference's load test: Workload objects only, created and finished by a runner, through three
processes: the API server, the operator with `--controllers quota`, which knows a kubeconfig and
nothing else, and this one, the runner. With --kubeconfig the cluster is that one, which must have
no Workloads (what is created is removed afterwards, but for definitions and empty namespaces), else
an embedded one. CPU time and memory are the operator's, read from outside; `setup_cpu_ms` is what
it took until all queues were ready. Of an API server that has metrics, its CPU time and the
requests by verb, kind and status code come on top. Shapes: `quota_shapes`.

`useful_share` is the finished cpu seconds over capacity times wall time, `cpu_ms_per_workload` the
operator's CPU time, events that it writes behind included. Checked: a cohort holds more than it has
by no more than what the victims at the time hold (`most_above`, in cpus), every Workload is
finished, and in the end all queues show that nothing is used. `mean_wait_s` is the time from
creation to admission, by class; `large` is the one of the highest priority.

With `--without-disruptions` no Disruption is written (`operator_without_disruptions`): the
difference in `cpu_ms_per_workload` is what Disruptions cost.

`--one-namespace` has all Workloads in one namespace, where all of a class are of one template and
none has an owner. `--large` takes 50,000 Workloads in 1,000 queues, `--part` that fraction of the
Workloads, `--quick` a small shape of its own: a smoke test that asserts results and never times.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.api_server_figures import Figures, read_figures
from bench.lean_client import Endpoint
from bench.measuring import other_process, print_line
from bench.operator import cpu_ms
from bench.quota_generator import Generator
from bench.quota_server import OPERATOR_NAMESPACE, create_all, remove_all
from bench.quota_shapes import BASELINE, LARGE, ONE_NAMESPACE, QUICK, Shape
from kubeworld.units.clock import SystemClock
from reprieve.api.kueue import ClusterQueue
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import EVENTS, Resource
from reprieve.scenarios.operator import OperatorProcesses

__all__ = ["main"]

_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False)
_PATIENCE = 120.0


def main(arguments: list[str] | None = None) -> int:
    """Run one shape."""
    parser = argparse.ArgumentParser(prog="python -m bench.quota_load", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="a cluster; without it an embedded one")
    parser.add_argument("--log", type=Path, help="where the operator's log goes")
    parser.add_argument("--large", action="store_true", help="50,000 Workloads in 1,000 queues")
    parser.add_argument(
        "--one-namespace", action="store_true", help="all Workloads of one tenant, without owners"
    )
    parser.add_argument("--part", type=float, default=1.0, help="fraction of the Workloads")
    parser.add_argument("--without-disruptions", action="store_true", help="write no Disruptions")
    parser.add_argument("--quick", action="store_true", help="a few seconds, times do not matter")
    chosen = parser.parse_args(arguments)
    if not 0 < chosen.part <= 1:
        parser.error(f"--part {chosen.part:g}: accepted: more than 0, at most 1")
    shape = QUICK if chosen.quick else LARGE if chosen.large else BASELINE
    if chosen.one_namespace:
        shape = ONE_NAMESPACE
    load = shape.part(chosen.part) if chosen.part < 1 else shape
    asyncio.run(
        _run(shape, load, chosen.kubeconfig, chosen.log, disruptions=not chosen.without_disruptions)
    )
    return 0


async def _run(
    queues: Shape, load: Shape, given: Path | None, log: Path | None, *, disruptions: bool
) -> None:
    async with AsyncExitStack() as stack:
        kubeconfig = given
        if kubeconfig is None:
            kubeconfig = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "kubeconfig"
            arguments = queues.name, str(kubeconfig)
            stack.enter_context(other_process("bench.quota_server", *arguments))
        credentials = await load_connection(str(kubeconfig))
        client = connect(credentials, SystemClock())
        stack.push_async_callback(client.close)
        if given is not None:
            await create_all(client, queues.objects())
            stack.push_async_callback(remove_all, client, queues.objects())
        lines = stack.enter_context(log.open("w", buffering=1)) if log is not None else None
        operator = OperatorProcesses(
            kubeconfig,
            {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
            arguments=("--controllers", "quota", "--metrics-port", "0"),
            module="reprieve" if disruptions else "bench.operator_without_disruptions",
            on_line=None if lines is None else lambda line: print(line, file=lines),
        )
        await operator.start()
        try:
            generator = Generator(
                client, await Endpoint.of(credentials), load, applies=given is not None
            )
            await _measure(client, operator, generator, load, embedded=given is None)
        except BaseException:
            print(*operator.tail(20), sep="\n")
            raise
        finally:
            await operator.stop()


async def _measure(
    client: Client,
    operator: OperatorProcesses,
    generator: Generator,
    load: Shape,
    *,
    embedded: bool,
) -> None:
    async def ready() -> bool:
        return all(_is_active(queue) for queue in await _queues(client))

    async def idle() -> bool:
        return not any(_shows_work(queue) for queue in await _queues(client))

    pid = operator.pids[0]
    await _until("all queues are ready", ready)
    before = await read_figures(client)
    setup, ready_mib = cpu_ms(pid), _memory_mib(pid, "VmRSS")
    wall = await generator.run(patience=60.0 + load.workloads / 5)
    await _until("no queue shows usage", idle)
    after, events = await _settled(client)
    assert operator.pids == [pid], "the operator ended"
    cpu = cpu_ms(pid) - setup
    server = after.since(before, most=24)
    if server:
        cpu_s = server["api_server_cpu_s"]
        server["api_server_cpu_ms_per_workload"] = round(cpu_s * 1e3 / load.workloads, 2)
    print_line(
        "quota_load",
        load.name,
        api_server="embedded" if embedded else "given",
        cpu_ms=round(cpu, 1),
        wall_ms=round(wall * 1e3, 1),
        peak_mib=_memory_mib(pid, "VmHWM"),
        setup_cpu_ms=setup,
        setup_mib=ready_mib,
        workloads=load.workloads,
        cpu_ms_per_workload=round(cpu / load.workloads, 2),
        workloads_per_s=round(load.workloads / wall, 1),
        useful_share=round(load.work / (load.capacity * wall), 3),
        evictions=generator.evictions,
        most_above=generator.most_above,
        events=events,
        mean_wait_s={name: round(sum(w) / len(w), 2) for name, w in generator.waits.items()},
        **server,
    )


async def _until(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    end = time.perf_counter() + _PATIENCE
    while not await holds():
        assert time.perf_counter() < end, f"never: {what}"
        await asyncio.sleep(0.25)


async def _queues(client: Client) -> list[ClusterQueue]:
    return (await client.list(_QUEUES, ClusterQueue)).items


def _is_active(queue: ClusterQueue) -> bool:
    return any(
        each.type == "Active" and each.status == "True" for each in queue.status.conditions or ()
    )


def _shows_work(queue: ClusterQueue) -> bool:
    status = queue.status
    used = [
        amount.total
        for each in (*(status.flavors_reservation or ()), *(status.flavors_usage or ()))
        for amount in each.resources
    ]
    counts = (status.pending_workloads, status.reserving_workloads, status.admitted_workloads)
    return any(counts) or any(amount not in (None, 0, "0") for amount in used)


async def _settled(client: Client) -> tuple[Figures, int]:
    """Wait until nothing more is written; return the API server's figures and the events."""
    before = -1
    while True:
        figures = await read_figures(client)
        # A long list costs a real server more than a look at its figures.
        if figures.requests:
            events = sum(n for what, n in figures.requests.items() if _is_event(what))
        else:
            found: Any = await client.list(EVENTS, dict)
            events = len(found.items)
        if events == before:
            return figures, events
        before = events
        await asyncio.sleep(2.0)


def _is_event(what: str) -> bool:
    verb, kind, code = what.split(" ")
    return (verb, kind, code) == ("POST", "events", "201")


def _memory_mib(pid: int, figure: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{figure}:"))
    return round(int(line.split()[1]) / 1024, 1)


if __name__ == "__main__":
    raise SystemExit(main())
