"""`python -m bench.quota_load [--large] [--part FRACTION] [--quick]`: the reference's load test.

Workload objects only, created and finished by a runner, through three processes: the embedded API
server, the operator with `--controllers quota`, which knows a kubeconfig and nothing else, and this
one, the runner. CPU time and memory are the operator's, read from outside; `setup_cpu_ms` is what
it took until all queues were ready. Shapes: `quota_shapes`.

`useful_share` is the finished cpu seconds over capacity times wall time, `cpu_ms_per_workload` the
operator's CPU time, events that it writes behind included. Checked: a cohort holds more than it has
by no more than what the victims at the time hold (`most_above`, in cpus), every Workload is
finished, and in the end all queues show that nothing is used.

`--large` takes 50,000 Workloads in 1,000 queues, `--part` that fraction of the Workloads, `--quick`
a small shape of its own: a smoke test that asserts results and never times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.measuring import other_process, print_line
from bench.quota_generator import Generator
from bench.quota_server import OPERATOR_NAMESPACE
from bench.quota_shapes import BASELINE, LARGE, QUICK, Shape
from reprieve.api.kueue import ClusterQueue
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import EVENTS, Resource
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.units.clock import SystemClock

__all__ = ["main"]

_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False)
_PATIENCE = 120.0


def main(arguments: list[str] | None = None) -> int:
    """Run one shape."""
    parser = argparse.ArgumentParser(prog="python -m bench.quota_load", description=__doc__)
    parser.add_argument("--large", action="store_true", help="50,000 Workloads in 1,000 queues")
    parser.add_argument("--part", type=float, default=1.0, help="fraction of the Workloads")
    parser.add_argument("--quick", action="store_true", help="a few seconds, times do not matter")
    chosen = parser.parse_args(arguments)
    if not 0 < chosen.part <= 1:
        parser.error(f"--part {chosen.part:g}: accepted: more than 0, at most 1")
    shape = QUICK if chosen.quick else LARGE if chosen.large else BASELINE
    asyncio.run(_run(shape, shape.part(chosen.part) if chosen.part < 1 else shape))
    return 0


async def _run(queues: Shape, load: Shape) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        with other_process("bench.quota_server", queues.name, str(kubeconfig)) as port:
            client = connect(await load_connection(str(kubeconfig)), SystemClock())
            operator = OperatorProcesses(
                kubeconfig,
                {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
                arguments=("--controllers", "quota", "--metrics-port", "0"),
            )
            await operator.start()
            try:
                await _measure(client, operator, port, load)
            except BaseException:
                print(*operator.tail(20), sep="\n")
                raise
            finally:
                await operator.stop()
                await client.close()


async def _measure(client: Client, operator: OperatorProcesses, port: int, load: Shape) -> None:
    async def ready() -> bool:
        return all(_is_active(queue) for queue in await _queues(client))

    async def idle() -> bool:
        return not any(_shows_work(queue) for queue in await _queues(client))

    pid = operator.pids[0]
    await _until("all queues are ready", ready)
    setup, ready_mib = _cpu_ms(pid), _memory_mib(pid, "VmRSS")
    generator = Generator(client, port, load)
    wall = await generator.run(patience=60.0 + load.workloads / 15)
    await _until("no queue shows usage", idle)
    events = await _settled(client)
    assert operator.pids == [pid], "the operator ended"
    cpu = _cpu_ms(pid) - setup
    print_line(
        "quota_load",
        load.name,
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


async def _settled(client: Client) -> int:
    """Wait until no more events are written; return how many there are."""
    before = -1
    while True:
        found: Any = await client.list(EVENTS, dict)
        if len(found.items) == before:
            return before
        before = len(found.items)
        await asyncio.sleep(1.0)


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return round(ticks * 1e3 / os.sysconf("SC_CLK_TCK"), 1)


def _memory_mib(pid: int, figure: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{figure}:"))
    return round(int(line.split()[1]) / 1024, 1)


if __name__ == "__main__":
    raise SystemExit(main())
