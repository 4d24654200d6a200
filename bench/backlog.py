"""`python -m bench.backlog [--kubeconfig FILE] [--gangs N] [--shape SHAPE]`: another's backlog.

A tenant has so many gangs of two pods that wait, on nodes that are full but for one. Pods of 100m
of another namespace, of the same priority, come one by one while the gangs are created and
afterwards; the operator is a process of its own on one core. With --kubeconfig the cluster is that
one (it has to serve PodGroups of scheduling.k8s.io/v1beta1, and is left as it is then), else an
embedded one in a third process.

| shape | the gangs |
| --- | --- |
| `never` | of higher priority than who runs; they fit on no node, whoever goes |
| `equal` | would fit if somebody went, and all who run are of their priority |
| `sizes` | as `never`, and none is as large as another |
| `pods` | single pods, two in place of each gang, as `never` |
| `mixed` | as `never`, of one to four pods; sizes, selectors, minimums and modes differ |

Printed: seconds from the creation of each small pod until it was seen bound, what CPU the operator
took in that time (which is what counts where others use the core, too), its CPU and memory until
then and in the 30 s after, and how many attempts it counts. `--quick` takes few gangs and asserts
results, never times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
import urllib.request
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.api_server_figures import samples
from bench.large_gang import Said
from bench.large_gang_objects import (
    OPERATOR_NAMESPACE,
    POD_GROUPS,
    SCHEDULER,
    low_pod,
    member,
    node,
    objects_first,
)
from bench.measuring import other_process, print_line
from bench.operator import cpu_ms, peak_mib_of
from kubeworld.units.clock import SystemClock
from reprieve.execution.steps import each_of
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import AlreadyExists
from reprieve.kube.resource import NAMESPACES, NODES, PODS, Resource
from reprieve.kube.writes import WriteGate
from reprieve.scenarios.operator import OperatorProcesses
from tests.ports import free_port

__all__ = ["main"]

_TENANT, _OTHER = "backlog", "backlog-other"
_SHAPES: Final = ("never", "equal", "sizes", "pods", "mixed")
_AT_ONCE: Final = 24
_PER_NODE: Final = 8
_PATIENCE_S: Final = 600.0
_AFTERWARDS_S: Final = 30.0
_ATTEMPTS: Final = (
    "scheduler_podgroup_schedule_attempts_total",
    "scheduler_schedule_attempts_total",
)


@dataclass(frozen=True)
class Case:
    """What waits, and how many small pods come while it is created and afterwards."""

    shape: str
    gangs: int
    nodes: int
    small: int

    @property
    def priority(self) -> str:
        """The class of all that waits; who runs has the lower one."""
        return "large-gang-low" if self.shape == "equal" else "large-gang-high"


def main(arguments: list[str] | None = None) -> int:
    """Run one case, or each shape where none is named."""
    parser = argparse.ArgumentParser(prog="python -m bench.backlog", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="a cluster; without it an embedded one")
    parser.add_argument("--gangs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--small", type=int, default=10, help="small pods, twice as many in all")
    parser.add_argument("--shape", choices=_SHAPES, action="append", help="all without it")
    parser.add_argument("--log", type=Path, help="where the operator's log goes")
    parser.add_argument("--quick", action="store_true", help="few gangs, times do not matter")
    chosen = parser.parse_args(arguments)
    if chosen.kubeconfig is not None:
        chosen.shape = chosen.shape or ["sizes"]
        if len(chosen.shape) > 1:
            parser.error("--kubeconfig: accepted: with one --shape, since its gangs stay there")
    if chosen.quick:
        chosen.gangs, chosen.nodes, chosen.small = 30, 5, 2
    for shape in chosen.shape or _SHAPES:
        case = Case(shape, chosen.gangs, chosen.nodes, chosen.small)
        afterwards = 1.0 if chosen.quick else _AFTERWARDS_S
        asyncio.run(_run(case, chosen.kubeconfig, chosen.log, afterwards))
    return 0


async def _run(case: Case, kubeconfig: Path | None, log: Path | None, afterwards: float) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        embedded = kubeconfig is None
        if kubeconfig is None:
            kubeconfig = folder / "kubeconfig"
            numbers = str(case.nodes), str(_PER_NODE)
            stack.enter_context(
                other_process("bench.large_gang_cluster", *numbers, _TENANT, str(kubeconfig))
            )
        plain = connect(await load_connection(str(kubeconfig)), SystemClock())
        stack.push_async_callback(plain.close)
        client = Client(plain.transport, gate=WriteGate(_AT_ONCE))
        await _fill(client, case, embedded=embedded)
        port = free_port()
        said = Said(stack.enter_context(log.open("w", buffering=1)) if log is not None else None)
        operator = OperatorProcesses(
            kubeconfig,
            {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
            arguments=(
                "--controllers",
                "scheduling",
                "--scheduler-name",
                SCHEDULER,
                "--metrics-port",
                str(port),
            ),
            on_line=said.hear,
        )
        await operator.start()
        try:
            await asyncio.wait_for(said.ready.wait(), _PATIENCE_S)
            os.sched_setaffinity(operator.pids[0], {min(os.sched_getaffinity(0))})
            await _measure(case, plain, client, operator.pids[0], port, embedded, afterwards)
        finally:
            await operator.stop()


async def _measure(
    case: Case,
    client: Client,
    tenant: Client,
    pid: int,
    port: int,
    embedded: bool,
    afterwards: float,
) -> None:
    started = time.monotonic()
    creating = asyncio.create_task(_create(tenant, case))
    during = []
    for number in range(case.small):
        await asyncio.sleep(min(1.0, afterwards))
        during.append(await _until_bound(client, case, pid, f"during-{number:03}"))
    await creating
    created = time.monotonic() - started
    after = [await _until_bound(client, case, pid, f"after-{n:03}") for n in range(case.small)]
    cpu, begun = cpu_ms(pid), time.monotonic()
    await asyncio.sleep(afterwards)
    used, passed = cpu_ms(pid) - cpu, time.monotonic() - begun
    print_line(
        "backlog",
        f"{case.gangs}_gangs_{case.shape}_{case.nodes}_nodes",
        api_server="embedded" if embedded else "given",
        created_s=round(created, 1),
        longest_wait_during_s=round(max(during)[0], 2),
        longest_wait_after_s=round(max(after)[0], 2),
        most_cpu_in_a_wait_s=round(max(cpu for _, cpu in (*during, *after)), 2),
        attempts=await _attempts(port),
        operator_cpu_s=round(cpu / 1e3, 1),
        cpu_share_afterwards=round(used / passed / 1e3, 2),
        operator_peak_mib=peak_mib_of(pid),
    )


async def _until_bound(client: Client, case: Case, pid: int, name: str) -> tuple[float, float]:
    """Create a small pod; return the seconds until it was seen bound, and the operator's CPU."""
    started, cpu = time.monotonic(), cpu_ms(pid)
    pod = member(_OTHER, 0, 1)
    pod["metadata"]["name"] = name
    pod["spec"].pop("schedulingGroup")
    pod["spec"]["priorityClassName"] = case.priority
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    await client.create(PODS, pod, dict)
    while True:
        found: Any = await client.get(PODS, _OTHER, name, dict)
        waited = time.monotonic() - started
        if found["spec"].get("nodeName"):
            return waited, (cpu_ms(pid) - cpu) / 1e3
        assert waited < _PATIENCE_S, f"{name} is not bound: {found.get('status')}"
        await asyncio.sleep(0.05)


async def _create(client: Client, case: Case) -> None:
    await each_of(range(case.gangs), lambda number: _gang(client, case, number), _AT_ONCE // 2)


async def _gang(client: Client, case: Case, number: int) -> None:
    more = {"equal": 0, "sizes": 1 + number, "mixed": 1 + number % 41}.get(case.shape, 1)
    name, mixed = f"gang-{number:05}", case.shape == "mixed"
    count = 1 + number % 4 if mixed else 2
    alone = case.shape == "pods" or (mixed and number % 11 == 0)
    priority, least = case.priority, max(1, count - number % 2) if mixed else 2
    pods = [member(_TENANT, 4 * number + n, _PER_NODE + more) for n in range(count)]
    for pod in pods:
        pod["spec"]["priorityClassName"] = priority
        pod["spec"]["schedulingGroup"] = {"podGroupName": name}
        if alone:
            del pod["spec"]["schedulingGroup"]
        if mixed and number % 3 == 0:
            pod["spec"]["nodeSelector"] = {"zone": f"zone-{number % 50}"}
    if not alone:
        group = {
            "apiVersion": POD_GROUPS.api_version,
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": _TENANT},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": least}},
                "disruptionMode": {"all" if mixed and number % 5 == 0 else "single": {}},
                "priorityClassName": priority,
            },
        }
        await client.create(POD_GROUPS, group, dict)
    for pod in pods:
        await client.create(PODS, pod, dict)


async def _fill(client: Client, case: Case, *, embedded: bool) -> None:
    """Create what is missing: nodes and who runs there, and one node with room for small pods."""

    async def create(resource: Resource, obj: dict[str, Any]) -> None:
        with suppress(AlreadyExists):
            await client.create(resource, obj, dict)

    await create(NAMESPACES, {"metadata": {"name": _OTHER}})
    if not embedded:
        for resource, obj in objects_first(_TENANT):
            await create(resource, obj)
        await asyncio.sleep(2)  # the new kinds are served a moment later
        nodes = (node(number, _PER_NODE) for number in range(case.nodes))
        await each_of(nodes, lambda obj: create(NODES, obj), _AT_ONCE)
        runs = (low_pod(_TENANT, n, _PER_NODE) for n in range(case.nodes * _PER_NODE))
        await each_of(runs, lambda obj: create(PODS, obj), _AT_ONCE)
    await create(NODES, node(99_999, 4))


async def _attempts(port: int) -> int:
    url = f"http://127.0.0.1:{port}/metrics"
    body = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=60).read())
    return round(sum(sum(samples(body.decode(), name).values()) for name in _ATTEMPTS))


if __name__ == "__main__":
    raise SystemExit(main())
