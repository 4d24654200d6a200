"""`python -m bench.start`: what the start of the operator takes on large clusters.

`reprieve run --controllers scheduling`, as its own process, reads all nodes, pods and groups of a
cluster page by page from another process that makes them as they are asked for, and then binds the
one pod that waits; only the last node has room for it. `cpu_ms` runs from the start of the process
until that binding, `peak_mib` is the largest resident size until `held_mib` was read, which is what
stays: the resident size a while later. Both count the operator alone, not its lease keeper.

`--nodes N,N...` for other sizes than 65,000, ten pods each. `--controllers NAME,NAME...` for other
planes beside the one that binds: what they read counts in `settled_cpu_ms`, which is read with
`held_mib`. `--frameworks NAME,NAME...`: the integrations of the quota plane, such as `pod`, with
which it looks for queued pods among all. `pod_lists`, `node_lists`, `pod_watches`: how often each
was begun. `--quick`: 20 nodes, which asserts results only.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from bench.measuring import other_process, print_line
from bench.operator import cpu_ms, peak_mib_of
from bench.start_objects import PODS_PER_NODE, SCHEDULER, WAITING, groups_of, node_name
from reprieve.scenarios.operator import OperatorProcesses

__all__ = ["main"]

_PATIENCE_S: Final = 3_600.0


def main(arguments: list[str] | None = None) -> int:
    """Run the cases."""
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("--nodes", default="65000", help="numbers of nodes, separated by commas")
    parser.add_argument("--controllers", default="scheduling", help="planes, with scheduling")
    parser.add_argument("--frameworks", default="", help="integrations of the quota plane")
    parser.add_argument("--quick", action="store_true", help="20 nodes")
    chosen = parser.parse_args(arguments)
    try:
        sizes = [20] if chosen.quick else [int(each) for each in chosen.nodes.split(",")]
    except ValueError:
        parser.error(f"--nodes {chosen.nodes}: accepted are whole numbers, separated by commas")
    for nodes in sizes:
        afterwards = 1 if chosen.quick else 15
        asyncio.run(_start(nodes, chosen.controllers, chosen.frameworks, afterwards))
    return 0


async def _start(nodes: int, controllers: str, frameworks: str, afterwards: float) -> None:
    """Measure and print one line.

    `afterwards`: seconds for what the start leaves behind to be let go.

    Raises:
        AssertionError: the pod was bound elsewhere, or the operator ended.
    """
    with (
        tempfile.TemporaryDirectory() as directory,
        other_process("bench.start_server", str(nodes)) as port,
    ):
        server = f"http://127.0.0.1:{port}"
        kubeconfig = Path(directory) / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(server)))
        operator = OperatorProcesses(
            kubeconfig,
            {
                "GPU_PREEMPTION_OPERATOR_NAMESPACE": "reprieve",
                "GPU_PREEMPTION_ENABLED": str("idle" in controllers).lower(),
                "GPU_PREEMPTION_METRICS_ENDPOINT": f"{server}/metrics",
            },
            arguments=(
                *("--controllers", controllers, "--scheduler-name", SCHEDULER),
                *("--metrics-port", "0"),
                *(_integrations(Path(directory), frameworks) if frameworks else ()),
            ),
        )
        started = time.perf_counter()
        await operator.start()
        try:
            bound = await _bound(server, operator)
            wall_ms = (time.perf_counter() - started) * 1e3
            assert bound == f"{WAITING} {node_name(nodes - 1)}", bound
            pid = operator.pids[0]
            cpu = cpu_ms(pid)
            await asyncio.sleep(afterwards)
            assert operator.pids == [pid], operator.tail(5)
            held, peak, settled = _resident_mib(pid), peak_mib_of(pid), cpu_ms(pid)
            begun = await _begun(server)
        finally:
            await operator.stop()
    pods = nodes * PODS_PER_NODE
    print_line(
        "start",
        "_".join((f"start_{nodes}_{pods}", *_asked(controllers, frameworks))),
        cpu_ms=cpu,
        settled_cpu_ms=settled,
        pod_lists=begun.get("list /api/v1/pods", 0),
        node_lists=begun.get("list /api/v1/nodes", 0),
        pod_watches=begun.get("watch /api/v1/pods", 0),
        wall_ms=round(wall_ms, 1),
        peak_mib=peak,
        held_mib=held,
        peak_per_held=round(peak / held, 2),
        cpu_us_per_pod=round(cpu * 1e3 / pods, 1),
        held_bytes_per_pod=round(held * 2**20 / pods),
        groups=groups_of(nodes),
    )


async def _bound(server: str, operator: OperatorProcesses) -> str:
    """Return the pod that was bound first, and its node."""
    patience = aiohttp.ClientTimeout(total=_PATIENCE_S)
    async with aiohttp.ClientSession(timeout=patience) as session:

        async def asked() -> str:
            async with session.get(f"{server}/bound") as answer:
                return await answer.text()

        tasks = (
            asyncio.create_task(asked()),
            asyncio.create_task(operator.stopped_by_itself()),
        )
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        return done.pop().result()


async def _begun(server: str) -> dict[str, int]:
    """Return how often each kind was listed and watched, by verb and path."""
    async with aiohttp.ClientSession() as session, session.get(f"{server}/begun") as answer:
        found: dict[str, int] = await answer.json()
        return found


def _integrations(directory: Path, frameworks: str) -> tuple[str, str]:
    """Return the flag for a configuration of the quota plane with these integrations."""
    path = directory / "quota.yaml"
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": frameworks.split(",")},
    }
    path.write_text(yaml.safe_dump(configuration))
    return "--quota-config", str(path)


def _asked(controllers: str, frameworks: str) -> tuple[str, ...]:
    """Return what the case is beside the scheduling plane alone."""
    planes = "" if controllers == "scheduling" else controllers
    return tuple(filter(None, (planes, frameworks)))


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return round(int(line.split()[1]) / 1024, 1)


def _kubeconfig(server: str) -> dict[str, Any]:
    name = "bench"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


if __name__ == "__main__":
    raise SystemExit(main())
