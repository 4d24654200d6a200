"""What a demand that cannot be served costs the idle plane on a large cluster whose pods change.

Every node is full, and a fifth of the pods is idle. Measured from outside: the CPU time of
`reprieve run` while a pod comes and ends each second, without a demand and with one that needs more
GPUs than a node has.
Checked: the demand is pending at the end, and no work was evicted.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from bench.api_server import namespace_of
from bench.cluster import OPERATOR_NAMESPACE, opted_in
from bench.measuring import other_process, print_line
from bench.operator import cpu_ms
from kubeworld.units.clock import SystemClock
from reprieve.api.kaiwo import GpuWorkload
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import GPU_WORKLOADS, PODS, PREEMPTIONS
from reprieve.scenarios.operator import OperatorProcesses

__all__ = ["run_pressure"]

_PATIENCE_SECONDS = 200.0


async def run_pressure(nodes: int, pods: int, seconds: float) -> None:
    """Measure and print one line; each of the two phases lasts so many seconds.

    Raises:
        AssertionError: a result is wrong.
    """
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        with other_process("bench.cluster", str(pods), str(kubeconfig), str(nodes), "-1") as port:
            client = connect(await load_connection(str(kubeconfig)), SystemClock())
            operator = OperatorProcesses(
                kubeconfig,
                {
                    "GPU_PREEMPTION_ENABLED": "true",
                    "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "1s",
                    "GPU_PREEMPTION_METRICS_ENDPOINT": f"http://127.0.0.1:{port}/metrics",
                    "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
                },
                arguments=("--metrics-port", "0", "--controllers", "idle"),
            )
            await operator.start()
            changes = None
            try:
                await _until(client, operator, "Idle", len(opted_in(pods)))
                changes = asyncio.create_task(_come_and_end(client, nodes))
                without = await _cpu_of(operator, seconds)
                await _demand(client, 2 * pods // nodes)
                await _until(client, operator, "PendingGpu", 1)
                beside = await _cpu_of(operator, seconds)
                await _until(client, operator, "PendingGpu", 1)
                assert not (await client.list(PREEMPTIONS, dict)).items
            finally:
                if changes is not None:
                    changes.cancel()
                await operator.stop()
                await client.close()
    print_line(
        "idle",
        f"pressure-{nodes}-nodes-{pods}-pods",
        cpu_ms_per_s_without_demand=without,
        cpu_ms_per_s_beside_demand=beside,
        share_of_a_core=round((beside - without) / 1e3, 3),
    )


async def _cpu_of(operator: OperatorProcesses, seconds: float) -> float:
    before, began = cpu_ms(operator.pids[0]), time.perf_counter()
    await asyncio.sleep(seconds)
    return round((cpu_ms(operator.pids[0]) - before) / (time.perf_counter() - began), 1)


async def _come_and_end(client: Client, nodes: int) -> None:
    worker = {"name": "main", "image": "registry.example/m:1"}
    asked = {"resources": {"requests": {"cpu": "1"}}}
    for turn in range(1_000_000):
        name, node = f"passer-{turn}", f"node-{turn * 997 % nodes:05}"
        spec = {"nodeName": node, "containers": [{**worker, **asked}]}
        metadata = {"name": name, "namespace": namespace_of(turn)}
        await client.create(PODS, {"metadata": metadata, "spec": spec}, dict)
        await asyncio.sleep(1)
        await client.delete(PODS, namespace_of(turn), name, grace_seconds=0)


async def _demand(client: Client, gpus: int) -> None:
    asked = {"requests": {"amd.com/gpu": str(gpus)}, "limits": {"amd.com/gpu": str(gpus)}}
    spec = {"containers": [{"name": "main", "image": "registry.example/m:1", "resources": asked}]}
    metadata = {
        "name": "demand",
        "namespace": namespace_of(0),
        "annotations": {"kaiwo.silogen.ai/gpu-preemption.enabled": "true"},
    }
    unplaced = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/9 nodes are available: 9 Insufficient amd.com/gpu.",
    }
    await client.create(PODS, {"metadata": metadata, "spec": spec}, dict)
    status = {"status": {"phase": "Pending", "conditions": [unplaced]}}
    await client.patch(PODS, namespace_of(0), "demand", status, dict, subresource="status")


async def _until(client: Client, operator: OperatorProcesses, phase: str, wanted: int) -> None:
    began = time.perf_counter()
    while True:
        page = await client.list(GPU_WORKLOADS, GpuWorkload)
        found = sum(item.status.phase == phase for item in page.items)
        if found == wanted:
            return
        waited = time.perf_counter() - began
        assert waited < _PATIENCE_SECONDS, (phase, found, wanted, operator.tail(5))
        await asyncio.sleep(1)
