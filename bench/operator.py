"""The operator itself, as its own process, over a cluster of 50,000 pods with GPUs.

Measured from outside: the peak resident memory of `reprieve run` and the CPU time that it needs
from its start until a GpuWorkload of every opted-in Job is Active. Checked: the GpuWorkloads are
those of the opted-in Jobs, each with the GPUs of its ten pods.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from bench.api_server import PODS_PER_JOB, namespace_of
from bench.cluster import OPERATOR_NAMESPACE, opted_in
from bench.measuring import other_process, print_line
from kubeworld.units.clock import SystemClock
from reprieve.api.kaiwo import GpuWorkload
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import GPU_WORKLOADS
from reprieve.scenarios.operator import OperatorProcesses

__all__ = ["cpu_ms", "peak_mib_of", "run_operator"]

PATIENCE_SECONDS = 300.0


async def run_operator(pods: int, afterwards: float) -> None:
    """Measure and print one line.

    `afterwards`: seconds that it runs on, for polls and re-reads of all roots to raise the peak.

    Raises:
        AssertionError: a result is wrong.
    """
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        with other_process("bench.cluster", str(pods), str(kubeconfig)) as port:
            client = connect(await load_connection(str(kubeconfig)), SystemClock())
            operator = OperatorProcesses(
                kubeconfig,
                {
                    "GPU_PREEMPTION_ENABLED": "true",
                    "GPU_PREEMPTION_METRICS_ENDPOINT": f"http://127.0.0.1:{port}/metrics",
                    "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
                },
                arguments=("--metrics-port", "0"),
            )
            started = time.perf_counter()
            await operator.start()
            try:
                wall_ms = await _until_active(client, operator, pods, started)
                cpu = cpu_ms(operator.pids[0])
                peak_then = peak_mib_of(operator.pids[0])
                await asyncio.sleep(afterwards)
                assert operator.pids, "the operator ended"
                cpu_later = cpu_ms(operator.pids[0])
                peak = peak_mib_of(operator.pids[0])
            finally:
                await operator.stop()
                await client.close()
    print_line(
        "idle",
        f"operator-{pods}-pods",
        cpu_ms=cpu,
        wall_ms=round(wall_ms, 1),
        peak_mib=peak,
        peak_until_active_mib=peak_then,
        steady_cpu_ms_per_s=round((cpu_later - cpu) / afterwards, 1),
        gpu_workloads=len(opted_in(pods)),
    )


async def _until_active(
    client: Client, operator: OperatorProcesses, pods: int, started: float
) -> float:
    """Return the milliseconds until all is as it should be."""
    meant = {
        (namespace_of(number), f"training-0-{number}"): {"amd.com/gpu": PODS_PER_JOB}
        for number in opted_in(pods)
    }
    while True:
        await asyncio.sleep(0.25)
        page = await client.list(GPU_WORKLOADS, GpuWorkload)
        active = {
            (item.metadata.namespace, item.spec.workload_ref.name): item.spec.gpu_resources
            for item in page.items
            if item.status.phase == "Active"
        }
        if active == meant:
            return (time.perf_counter() - started) * 1e3
        waited = time.perf_counter() - started
        assert waited < PATIENCE_SECONDS, (len(active), len(meant), operator.tail(5))


def cpu_ms(pid: int) -> float:
    """Return the CPU time that a process has taken, in milliseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return round(ticks * 1e3 / os.sysconf("SC_CLK_TCK"), 1)


def peak_mib_of(pid: int) -> float:
    """Return the largest resident size of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return round(int(line.split()[1]) / 1024, 1)
