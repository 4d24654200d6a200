"""`python -m bench.large_gang [--kubeconfig FILE] [--gang N] [--victims N] [--nodes N]`.

A gang comes into a full cluster: each member needs a whole node, all pods of which have to be
evicted. The operator runs as a process of its own; kubelets are stood in for by this one, which
ends each pod that is being deleted. With --kubeconfig the cluster is that one (it has to serve
PodGroups of scheduling.k8s.io/v1beta1; what is created is removed afterwards), else an embedded
one in a third process.

One line is printed: seconds from the creation of the last member until the first and the last
victim were seen to go, and the first and the last member bound; the operator's own measure of the
decision; how many Disruptions were written when all were bound; its CPU until then and until ten
seconds later, when events are out; its peak memory; the sizes of the record's objects; and, of an
API server that has metrics, its CPU and the requests by verb. `--cores 0.5` lets the operator run
for that part of each tenth of a second, once it schedules. `--quick` takes a small cluster and
asserts results, never times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
import urllib.request
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from bench.api_server_figures import read_figures, samples
from bench.large_gang_objects import (
    GROUP,
    MEMBER,
    OPERATOR_NAMESPACE,
    POD_GROUPS,
    SCHEDULER,
    gang,
    low_pod,
    member,
    node,
    objects_first,
)
from bench.measuring import other_process, print_line
from bench.operator import cpu_ms, peak_mib_of
from bench.part_of_a_core import part_of_a_core
from kubeworld.units.clock import SystemClock
from reprieve.execution.steps import each_of
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import AlreadyExists, NotFound
from reprieve.kube.resource import (
    DISRUPTIONS,
    NODES,
    PODS,
    PREEMPTION_PARTS,
    PREEMPTIONS,
    Resource,
)
from reprieve.kube.writes import WriteGate
from reprieve.scenarios.operator import OperatorProcesses
from tests.ports import free_port

__all__ = ["main"]

_NAMESPACE: Final = "large-gang"
_PATIENCE_S: Final = 900.0
_AFTERWARDS_S: Final = 10.0
_AT_ONCE: Final = 24
_DECISION: Final = "scheduler_podgroup_preemption_attempt_duration_seconds_sum"


@dataclass(frozen=True)
class Size:
    """How many there are; each member takes the room of `per_node` victims."""

    nodes: int
    victims: int
    gang: int

    @property
    def per_node(self) -> int:
        return self.victims // self.gang


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    resource_version: str = ""
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


@dataclass
class Kubelets:
    """Ends pods that are being deleted, and notes who is bound and who goes, and when."""

    client: Client
    going: dict[str, float] = field(default_factory=dict)  # monotonic, by name
    bound: dict[str, float] = field(default_factory=dict)
    ended: int = 0
    _due: asyncio.Queue[_Meta] = field(default_factory=asyncio.Queue)

    async def run(self) -> None:
        """Watch and end pods until cancelled."""
        page = await self.client.list(PODS, _Pod, namespace=_NAMESPACE)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(self._end())
            version = page.resource_version
            while True:
                watch = self.client.watch(
                    PODS, _Pod, resource_version=version, namespace=_NAMESPACE
                )
                async for event in watch:
                    version = event.resource_version or version
                    if event.object is not None:
                        self._see(event.object)

    def _see(self, pod: _Pod) -> None:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp and name not in self.going:
            self.going[name] = time.monotonic()
            self._due.put_nowait(pod.metadata)
        elif name.startswith(MEMBER) and pod.spec.node_name:
            self.bound.setdefault(name, time.monotonic())

    async def _end(self) -> None:
        while True:
            pod = await self._due.get()
            with suppress(NotFound):
                await self.client.delete(
                    PODS, _NAMESPACE, pod.name, uid=pod.uid, grace_seconds=0, retry=True
                )
            self.ended += 1


@dataclass
class Said:
    """What the operator says, and whether it has begun to schedule."""

    log: TextIO | None
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, line: str) -> None:
        """Take in one line."""
        if self.log is not None:
            self.log.write(line + "\n")
        if "scheduling pods of" in line:
            self.ready.set()


def main(arguments: list[str] | None = None) -> int:
    """Run the case."""
    parser = argparse.ArgumentParser(prog="python -m bench.large_gang", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="a cluster; without it an embedded one")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--victims", type=int, default=4_000)
    parser.add_argument("--gang", type=int, default=500, help="members")
    parser.add_argument("--cores", type=float, default=1.0, help="part of a core for the operator")
    parser.add_argument("--log", type=Path, help="where the operator's log goes")
    parser.add_argument("--quick", action="store_true", help="few pods, no figures to rely on")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.nodes, chosen.victims, chosen.gang = 20, 120, 15
    if not 0 < chosen.cores <= 1:
        parser.error(f"--cores {chosen.cores:g}: accepted: more than 0, at most 1")
    size = Size(chosen.nodes, chosen.victims, chosen.gang)
    if size.victims % size.gang or size.gang > size.nodes:
        parser.error("--victims: accepted: a multiple of --gang, which is at most --nodes")
    asyncio.run(_run(size, chosen.kubeconfig, chosen.log, chosen.cores))
    return 0


async def _run(size: Size, kubeconfig: Path | None, log: Path | None, cores: float) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        embedded = kubeconfig is None
        if kubeconfig is None:
            kubeconfig = folder / "kubeconfig"
            numbers = str(size.nodes), str(size.per_node)
            stack.enter_context(
                other_process("bench.large_gang_cluster", *numbers, _NAMESPACE, str(kubeconfig))
            )
        clock = SystemClock()
        client = connect(await load_connection(str(kubeconfig)), clock)
        stack.push_async_callback(client.close)
        # As many requests at a time as a hundred kubelets would have on their way.
        kubelets = Kubelets(Client(client.transport, gate=WriteGate(_AT_ONCE)))
        if not embedded:
            stack.push_async_callback(_clean, kubelets.client, size)
            await _fill(kubelets.client, size)
        said = Said(stack.enter_context(log.open("w", buffering=1)) if log is not None else None)
        watching = asyncio.create_task(kubelets.run())
        stack.callback(watching.cancel)
        port = free_port()
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
        await asyncio.wait_for(said.ready.wait(), _PATIENCE_S)
        bound_by = stack.enter_context(part_of_a_core(operator.pids[0], cores))
        measuring = asyncio.create_task(
            _measured(size, client, kubelets, operator, port, embedded, (cores, bound_by))
        )
        try:
            await asyncio.wait({measuring, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not measuring.done():
                await watching  # it never ends but by a fault
            await measuring
        finally:
            measuring.cancel()
            await operator.stop()


async def _measured(
    size: Size,
    client: Client,
    kubelets: Kubelets,
    operator: OperatorProcesses,
    port: int,
    embedded: bool,
    cores: tuple[float, str],
) -> None:
    pid = operator.pids[0]
    before, cpu_before = await read_figures(client), cpu_ms(pid)
    await client.create(POD_GROUPS, gang(_NAMESPACE, size.gang), dict)
    members = (member(_NAMESPACE, number, size.per_node) for number in range(size.gang))
    await each_of(members, lambda obj: kubelets.client.create(PODS, obj, dict), _AT_ONCE)
    started = time.monotonic()
    while len(kubelets.bound) < size.gang:
        await asyncio.sleep(0.1)
        waited = time.monotonic() - started
        assert waited < _PATIENCE_S, (len(kubelets.bound), len(kubelets.going), operator.tail(5))
    bound_cpu = cpu_ms(pid)
    written = (await client.list(DISRUPTIONS, dict, namespace=_NAMESPACE)).items
    await asyncio.sleep(_AFTERWARDS_S if size.gang > 100 else 1)
    after = await read_figures(client)
    assert len(kubelets.going) == size.victims, (len(kubelets.going), size.victims)
    assert not any(name.startswith(MEMBER) for name in kubelets.going)
    sizes = await _check_record(client, size)
    going, bound = sorted(kubelets.going.values()), sorted(kubelets.bound.values())
    print_line(
        "large_gang",
        f"{size.gang}_members_{size.victims}_victims_{size.nodes}_nodes",
        api_server="embedded" if embedded else "given",
        cores=cores[0],
        bound_by=cores[1],
        load=round(os.getloadavg()[0], 1),
        decision_ms=await _decision_ms(port),
        first_victim_s=round(going[0] - started, 2),
        last_victim_s=round(going[-1] - started, 2),
        first_bound_s=round(bound[0] - started, 2),
        bound_s=round(bound[-1] - started, 2),
        disruptions_until_bound=len(written),
        operator_cpu_s=round((bound_cpu - cpu_before) / 1e3, 1),
        operator_cpu_with_events_s=round((cpu_ms(pid) - cpu_before) / 1e3, 1),
        operator_peak_mib=peak_mib_of(pid),
        **sizes,
        **after.since(before),
    )


async def _check_record(client: Client, size: Size) -> dict[str, Any]:
    """Return the sizes of the record's objects; every victim stands in it, once."""
    heads = (await client.list(PREEMPTIONS, dict, namespace=OPERATOR_NAMESPACE)).items
    head: Any
    (head,) = heads
    listed = await client.list(PREEMPTION_PARTS, dict, namespace=OPERATOR_NAMESPACE)
    parts: dict[str, Any] = {part["metadata"]["name"]: part for part in listed.items}
    named = [parts[name] for name in head["spec"].get("parts", ())]
    uids = [victim["root"]["uid"] for victim in head["spec"]["victims"]]
    lines = [line for part in named for line in part["spec"].get("victims", "").splitlines()]
    uids += [msgspec.json.decode(line)[1] for line in lines]
    assert len(set(uids)) == len(uids) == size.victims, len(uids)
    sizes = [len(msgspec.json.encode(each)) for each in (head, *parts.values())]
    assert max(sizes) <= 1024 * 1024, sizes
    victims = sum(len(msgspec.json.encode(line)) for line in lines)
    return {
        "record_objects": len(sizes),
        "largest_object_bytes": max(sizes),
        "bytes_per_victim": round(victims / size.victims) if named else None,
    }


async def _decision_ms(port: int) -> float | None:
    """Return the operator's own measure of the time that its decisions about the gang took."""
    url = f"http://127.0.0.1:{port}/metrics"
    body = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())
    found = samples(body.decode(), _DECISION)
    return round(sum(found.values()) * 1e3, 1) if found else None


async def _fill(client: Client, size: Size) -> None:
    for resource, obj in objects_first(_NAMESPACE):
        with suppress(AlreadyExists):
            await client.create(resource, obj, dict)
    await asyncio.sleep(2)  # the new kinds are served a moment later
    await _remove_group(client)

    async def create(resource: Resource, obj: dict[str, Any]) -> None:
        with suppress(AlreadyExists):  # of a run that was broken off
            await client.create(resource, obj, dict)

    nodes = (node(number, size.per_node) for number in range(size.nodes))
    await each_of(nodes, lambda obj: create(NODES, obj), _AT_ONCE)
    numbers = range(size.nodes * size.per_node)
    pods = (low_pod(_NAMESPACE, number, size.per_node) for number in numbers)
    await each_of(pods, lambda obj: create(PODS, obj), _AT_ONCE)


async def _remove_group(client: Client) -> None:
    """Remove the PodGroup, which its finalizer would keep where no controller takes that away."""
    with suppress(NotFound):
        await client.delete(POD_GROUPS, _NAMESPACE, GROUP)
        await client.patch(POD_GROUPS, _NAMESPACE, GROUP, {"metadata": {"finalizers": None}}, dict)


async def _clean(client: Client, size: Size) -> None:
    """Remove what was created, but for definitions, PriorityClasses and the empty namespaces."""

    async def remove(resource: Any, namespace: str, name: str) -> None:
        with suppress(NotFound):
            await client.delete(resource, namespace, name, grace_seconds=0)

    await _remove_group(client)
    pods = (await client.list(PODS, _Pod, namespace=_NAMESPACE)).items
    await each_of(pods, lambda pod: remove(PODS, _NAMESPACE, pod.metadata.name), _AT_ONCE)
    for kind in (PREEMPTIONS, PREEMPTION_PARTS):
        kept: Any = (await client.list(kind, dict, namespace=OPERATOR_NAMESPACE)).items
        for each in kept:
            await remove(kind, OPERATOR_NAMESPACE, each["metadata"]["name"])
    reported: Any = (await client.list(DISRUPTIONS, dict, namespace=_NAMESPACE)).items
    for each in reported:
        await remove(DISRUPTIONS, _NAMESPACE, each["metadata"]["name"])
    names = [node(number, 1)["metadata"]["name"] for number in range(size.nodes)]
    await each_of(names, lambda name: remove(NODES, "", name), _AT_ONCE)


if __name__ == "__main__":
    raise SystemExit(main())
