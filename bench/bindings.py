"""`python -m bench.bindings [--kubeconfig FILE] [--pods N] [--nodes N]`: pods bound per second.

A cluster without kubelets holds pods that wait; then the operator starts, as a process of its own,
and every pod is bound by a call. Counted is the time from the first binding that was seen to the
last one. With --kubeconfig the cluster is that one (what is created is removed afterwards, but for
the empty namespace), else an embedded one. `--scheduler NAME` starts no operator and leaves the
pods to whom that name is of, such as a kube-scheduler beside it. `--quick` takes few pods and
asserts only that all are bound.

CPU time and memory are the operator's, from its start until the last binding was seen, and until no
more is written; of an API server that has metrics its CPU time and the requests come on top.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.api_server_figures import Figures, read_figures
from bench.measuring import print_line
from bench.operator import cpu_ms, peak_mib_of
from kubeworld.units.clock import SystemClock
from reprieve.api.crds import load
from reprieve.execution.steps import each_of
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import AlreadyExists, NotFound
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, PODS
from reprieve.kube.writes import WriteGate
from reprieve.scenarios.embedded import embedded_stage
from reprieve.scenarios.operator import OperatorProcesses

__all__ = ["main"]

_PATIENCE_S: Final = 300.0
_NAMESPACE: Final = "bindings"
_SCHEDULER: Final = "reprieve-bindings"
_AT_ONCE: Final = 24
_CRDS: Final = ("preemptions.reprieve.dev", "preemptionparts.reprieve.dev")


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


def main(arguments: list[str] | None = None) -> int:
    """Run the case."""
    parser = argparse.ArgumentParser(prog="python -m bench.bindings", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="a cluster; without it an embedded one")
    parser.add_argument("--pods", type=int, default=3_000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--scheduler", default="", help="a scheduler that runs already")
    parser.add_argument("--quick", action="store_true", help="few pods, no figures to rely on")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.pods, chosen.nodes = 40, 4
    if chosen.scheduler and chosen.kubeconfig is None:
        parser.error("--scheduler: accepted: only with --kubeconfig")
    asyncio.run(_run(chosen.pods, chosen.nodes, chosen.kubeconfig, chosen.scheduler))
    return 0


async def _run(pods: int, nodes: int, given: Path | None, scheduler: str) -> None:
    async with AsyncExitStack() as stack:
        kubeconfig = given
        if kubeconfig is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            machines = embedded_stage([], folder, machines_without=("kubelet",), scheduler=False)
            kubeconfig = (await stack.enter_async_context(machines)).kubeconfig
        connected = connect(await load_connection(str(kubeconfig)), SystemClock())
        stack.push_async_callback(connected.close)
        client = Client(connected.transport, gate=WriteGate(_AT_ONCE))
        stack.push_async_callback(_clean, client, nodes)
        await _fill(client, nodes)
        if not scheduler:
            await _create_pods(client, pods, _SCHEDULER)
        seen = _Seen()
        watching = asyncio.create_task(seen.watch(client))
        stack.callback(watching.cancel)
        before = await read_figures(client)
        operator = OperatorProcesses(
            kubeconfig,
            {"GPU_PREEMPTION_OPERATOR_NAMESPACE": _NAMESPACE},
            arguments=(
                *("--controllers", "scheduling", "--scheduler-name", _SCHEDULER),
                *("--metrics-port", "0"),
            ),
        )
        if scheduler:
            await _create_pods(client, pods, scheduler)
        else:
            await operator.start()
        try:
            await seen.until(pods, operator, watching)
            own = _own_figures(operator)
            after = await _settled(client)
            own |= {"cpu_with_events_ms": cpu_ms(operator.pids[0])} if operator.pids else {}
        finally:
            await operator.stop()
    seconds = seen.last - seen.first
    print_line(
        "bindings",
        f"{pods}_pods",
        api_server="embedded" if given is None else "given",
        wall_ms=round(seconds * 1e3),
        pods=pods,
        nodes=nodes,
        pods_per_s=round((pods - 1) / seconds) if seconds else None,
        **own,
        **after.since(before),
    )


def _own_figures(operator: OperatorProcesses) -> dict[str, Any]:
    if not operator.pids:
        return {}
    pid = operator.pids[0]
    return {"cpu_ms": cpu_ms(pid), "peak_mib": peak_mib_of(pid)}


class _Seen:
    """When pods were seen bound."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.first = self.last = 0.0
        self._more = asyncio.Event()

    async def watch(self, client: Client) -> None:
        """Watch until cancelled."""
        page = await client.list(PODS, _Pod, namespace=_NAMESPACE)
        events = client.watch(
            PODS,
            _Pod,
            resource_version=page.resource_version,
            namespace=_NAMESPACE,
            timeout_seconds=3_600,
        )
        async for event in events:
            pod = event.object
            if pod is not None and pod.spec.node_name and pod.metadata.name not in self.bound:
                self.bound.add(pod.metadata.name)
                self.last = time.perf_counter()
                self.first = self.first or self.last
                self._more.set()

    async def until(self, pods: int, operator: OperatorProcesses, watching: Any) -> None:
        """Return when so many are bound."""
        started = time.perf_counter()
        while len(self.bound) < pods:
            waited = time.perf_counter() - started
            assert waited < _PATIENCE_S, (len(self.bound), pods, operator.tail(5))
            if watching.done():
                watching.result()
            self._more.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._more.wait(), 1)


async def _settled(client: Client) -> Figures:
    """Return the API server's figures once nothing more is written."""
    figures = await read_figures(client)
    while figures.requests:
        await asyncio.sleep(3)
        before, figures = figures, await read_figures(client)
        if figures.writes() - before.writes() < 10:  # a lease is renewed all the time
            return figures
    return figures


async def _fill(client: Client, nodes: int) -> None:
    for name in _CRDS:
        with suppress(AlreadyExists):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, load(name), dict)
    with suppress(AlreadyExists):
        await client.create(NAMESPACES, {"metadata": {"name": _NAMESPACE}}, dict)
    objects = (_node(number) for number in range(nodes))
    await each_of(objects, lambda obj: client.create(NODES, obj, dict), _AT_ONCE)


async def _create_pods(client: Client, pods: int, scheduler: str) -> None:
    objects = (_pod(number, scheduler) for number in range(pods))
    await each_of(objects, lambda obj: client.create(PODS, obj, dict), _AT_ONCE)


async def _clean(client: Client, nodes: int) -> None:
    async def remove(resource: Any, namespace: str, name: str) -> None:
        with suppress(NotFound):
            await client.delete(resource, namespace, name, grace_seconds=0)

    found = (await client.list(PODS, _Pod, namespace=_NAMESPACE)).items
    await each_of(found, lambda pod: remove(PODS, _NAMESPACE, pod.metadata.name), _AT_ONCE)
    await each_of(
        range(nodes), lambda number: remove(NODES, "", _node(number)["metadata"]["name"]), _AT_ONCE
    )


def _node(number: int) -> dict[str, Any]:
    name = f"bindings-{number:05}"
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    condition = {"type": "Ready", "status": "True", "reason": "Bench", "message": ""}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    }


def _pod(number: int, scheduler: str) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"}
    container = {
        "name": "c",
        "image": "registry.example/app:1",
        "resources": {"requests": requests},
    }
    return {
        "metadata": {"name": f"p-{number:05}", "namespace": _NAMESPACE},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "automountServiceAccountToken": False,
        },
    }


if __name__ == "__main__":
    raise SystemExit(main())
