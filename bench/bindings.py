"""`python -m bench.bindings [--pods N] [--nodes N]`: pods bound per second, end to end.

An embedded cluster without kubelets holds pods that wait; then the operator starts, as a process of
its own, and every pod is bound by a call. Counted is the time from the first binding that the API
server took to the last one. `--quick` takes few pods and asserts only that all are bound.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measuring import print_line
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import PODS
from reprieve.scenarios.embedded import embedded_stage
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.units.clock import SystemClock

__all__ = ["main"]

_PATIENCE_SECONDS = 120


def main(arguments: list[str] | None = None) -> int:
    """Run the case."""
    parser = argparse.ArgumentParser(prog="python -m bench.bindings", description=__doc__)
    parser.add_argument("--pods", type=int, default=3_000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="few pods, no figures to rely on")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.pods, chosen.nodes = 40, 4
    asyncio.run(_run(chosen.pods, chosen.nodes))
    return 0


async def _run(pods: int, nodes: int) -> None:
    amounts: dict[str, Any] = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    specs = [NodeSpec(f"node-{number:04}", amounts) for number in range(nodes)]
    with tempfile.TemporaryDirectory() as folder:
        async with embedded_stage(
            specs, Path(folder), machines_without=("kubelet",), scheduler=False
        ) as stage:
            connection = await load_connection(str(stage.kubeconfig))
            client = connect(connection, SystemClock())
            for number in range(pods):
                await client.create(PODS, _pod(f"p-{number:05}"), dict)
            operator = OperatorProcesses(
                stage.operator_kubeconfig,
                {},
                arguments=("--controllers", "scheduling", "--scheduler-name", "default-scheduler"),
            )
            await operator.start()
            try:
                first, seconds = 0, 0.0
                started = time.perf_counter()
                bound = 0
                while bound < pods:
                    assert time.perf_counter() - started < _PATIENCE_SECONDS, (bound, pods)
                    await asyncio.sleep(0.1)
                    found: Any = await client.list(PODS, dict)
                    bound = sum("nodeName" in each["spec"] for each in found.items)
                    if bound and not first:
                        first, began = bound, time.perf_counter()
                    elif bound:
                        seconds = time.perf_counter() - began
            finally:
                await operator.stop()
                await client.close()
    rate = round((pods - first) / seconds) if seconds else None
    print_line("bindings", f"{pods}_pods", wall_ms=round(seconds * 1e3), pods=pods, pods_per_s=rate)


def _pod(name: str) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"}
    container = {
        "name": "c",
        "image": "registry.example/app:1",
        "resources": {"requests": requests},
    }
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container]},
    }


if __name__ == "__main__":
    raise SystemExit(main())
