"""KEP-5710's manual test of upgrade, downgrade and upgrade again, in both of its sequences.

Server and operator are started anew with the gate GenericWorkload off, on, off and on, over the
objects that the ones before have left. Each pod takes a whole node, and names it. On a real API
server tests/integration plays the same.
"""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reprieve.kube.errors import NotFound
from reprieve.kube.resource import EVENTS
from tests.scheduling.site import NAMESPACE, POD_GROUPS, Object, Site, group, node, pod, site

NODES = [node(f"node-{number}") for number in range(9)]
#: Starts the cluster and the operator with the gate off or on, over what is there.
Starts = Callable[[bool], AbstractAsyncContextManager["Version"]]
GATE = "GenericWorkload"
_GROUPS = "scheduler_podgroup_preemption_attempts_total"
_PODS = "scheduler_preemption_attempts_total"


@dataclass
class Version:
    """The cluster and the operator between two restarts; counters start at 0 with each."""

    cluster: Site

    def on(self, name: str, number: int, priority: str, group: str = "") -> Object:
        """Return a pod for a whole node."""
        hostname = {"kubernetes.io/hostname": f"node-{number}"}
        return pod(name, 4, priority=priority, group=group, nodeSelector=hostname)

    async def create(self, *objects: Object) -> None:
        await self.cluster.create(*objects)

    async def runs(self, *names: str) -> None:
        """Wait until these pods run."""

        async def running() -> bool:
            pods = await self.cluster.pods()
            return all(
                name in pods and pods[name]["status"].get("phase") == "Running" for name in names
            )

        await self.cluster.until(f"{names} run", running)

    async def pending(self, name: str) -> None:
        """Fail when the pod gets a node within two seconds."""

        async def placed() -> bool:
            return name in await self.cluster.placed()

        await self.cluster.never(f"{name} is placed", placed, 2)

    async def group_of(self, name: str) -> Any:
        return (await self.cluster.pods())[name]["spec"].get("schedulingGroup")

    async def evicted(self, *names: str) -> None:
        """Wait until events name these as preempted, ever, and nobody else."""

        async def told() -> bool:
            events = await self.cluster.client.list(EVENTS, dict, namespace=NAMESPACE)
            found = {
                e["involvedObject"]["name"] for e in events.items if e["reason"] == "Preempted"
            }
            return found == set(names)

        await self.cluster.until(f"{names} preempted, and nobody else", told)

    async def metric(self, name: str, **labels: str) -> float:
        """Return the sum over all samples of a metric that have these labels."""

        async def port() -> str:
            found = re.search(r"telemetry on port (\d+)", "\n".join(self.cluster.lines))
            return found[1] if found else ""

        await self.cluster.until("the operator says its port", port)
        url = f"http://127.0.0.1:{await port()}/metrics"
        text = await asyncio.to_thread(_read, url)
        total = 0.0
        for line in text.splitlines():
            sample, _, value = line.rpartition(" ")
            said = dict(re.findall(r'(\w+)="([^"]*)"', sample))
            if sample.partition("{")[0] == name and labels.items() <= said.items():
                total += float(value)
        return total

    async def succeeded(self) -> None:
        """Wait until a preemption for a group has been counted."""

        async def counted() -> bool:
            return await self.metric(_GROUPS, result="success") >= 1

        await self.cluster.until("a preemption for a group is counted", counted)

    async def counts(self, name: str, value: float, **labels: str) -> None:
        """Wait until a metric has this value."""

        async def equal() -> bool:
            return await self.metric(name, **labels) == value

        await self.cluster.until(f"{name} is {value}", equal)


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


@asynccontextmanager
async def version(folder: Path, *, gate: bool) -> AsyncIterator[Version]:
    """Start server and operator with the gate; stop both afterwards, the objects stay."""
    async with site(
        NODES, folder, kubelet=True, data=folder / "data", feature_gates={GATE: gate}
    ) as cluster:
        await cluster.operator("--feature-gates", f"{GATE}={str(gate).lower()}")
        yield Version(cluster)


def _low(numbers: Iterable[int], at: Version) -> list[Object]:
    brief = [at.on(f"low-{number}", number, "low") for number in numbers]
    for each in brief:
        each["spec"]["terminationGracePeriodSeconds"] = 1
    return brief


async def test_gate_upgrade_downgrade_of_a_preemptor(tmp_path: Path) -> None:
    await of_a_preemptor(lambda gate: version(tmp_path, gate=gate))


async def test_gate_upgrade_downgrade_of_victims(tmp_path: Path) -> None:
    await of_victims(lambda gate: version(tmp_path, gate=gate))


async def of_a_preemptor(start: Starts) -> None:
    """Play the first sequence."""
    async with start(False) as at:
        await at.cluster.classes()
        await at.create(*_low(range(6), at))
        await at.runs(*(f"low-{number}" for number in range(6)))
        await at.create(at.on("early", 0, "high", group="gang-test-a"))
        assert await at.group_of("early") is None
        await at.runs("early")
        await at.evicted("low-0")
        await at.counts(_PODS, 1)
        assert await at.metric(_GROUPS) == 0

    async with start(True) as at:
        await at.create(*(group(f"gang-test-{x}", min_count=2, priority="high") for x in "ab"))
        await at.create(at.on("test-pod-1", 1, "high", group="gang-test-a"))
        assert await at.group_of("test-pod-1") == {"podGroupName": "gang-test-a"}
        await at.pending("test-pod-1")
        await at.counts("scheduler_pending_entities", 1, type="podgroup", queue="gated")
        await at.evicted("low-0")
        await at.create(at.on("test-pod-2", 2, "high", group="gang-test-a"))
        await at.runs("test-pod-1", "test-pod-2")
        await at.evicted("low-0", "low-1", "low-2")
        plans = [
            {v["root"]["name"] for v in i["spec"]["victims"]} for i in await at.cluster.intents()
        ]
        assert {"low-1", "low-2"} in plans, "one plan for both"
        await at.succeeded()
        assert await at.metric(_PODS) == 0

    async with start(False) as at:
        with pytest.raises(NotFound):
            await at.create(group("gang-test-c", min_count=2, priority="high"))
        stored = (await at.cluster.pods())["test-pod-1"]["spec"]
        assert stored["schedulingGroup"] == {"podGroupName": "gang-test-a"}, "fields stay"
        await at.create(at.on("test-pod-3", 3, "high", group="gang-test-b"))
        assert await at.group_of("test-pod-3") is None
        await at.runs("test-pod-3")
        await at.evicted("low-0", "low-1", "low-2", "low-3")
        await at.counts(_PODS, 1)
        assert await at.metric(_GROUPS) == 0

    async with start(True) as at:
        kept = await at.cluster.client.get(POD_GROUPS, NAMESPACE, "gang-test-b", dict)
        assert kept["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
        await at.create(at.on("test-pod-4", 4, "high", group="gang-test-b"))
        await at.pending("test-pod-4")
        await at.counts("scheduler_pending_entities", 1, type="podgroup", queue="gated")
        await at.create(at.on("test-pod-5", 5, "high", group="gang-test-b"))
        await at.runs("test-pod-4", "test-pod-5")
        await at.evicted(*(f"low-{number}" for number in range(6)))
        await at.succeeded()
        assert await at.metric(_PODS) == 0
        assert {"early", *(f"test-pod-{n}" for n in range(1, 6))} == set(await at.cluster.placed())


async def of_victims(start: Starts) -> None:
    """Play the second sequence."""

    def member(at: Version, name: str, where: int, of: str) -> Object:
        found = at.on(name, where, "low", group=f"gang-test-{of}")
        found["spec"]["terminationGracePeriodSeconds"] = 1
        return found

    async with start(False) as at:
        await at.cluster.classes()
        await at.create(member(at, "early-0", 0, "a"), member(at, "early-1", 1, "a"))
        assert await at.group_of("early-1") is None
        await at.runs("early-0", "early-1")
        await at.create(at.on("high-0", 0, "high"))
        await at.runs("high-0")
        await at.evicted("early-0")
        await at.counts(_PODS, 1)
        await at.counts("scheduler_preemption_victims_sum", 1)

    async with start(True) as at:
        await at.create(
            *(group(f"gang-test-{x}", min_count=2, mode="all", priority="low") for x in "ab")
        )
        await at.create(member(at, "test-pod-1", 2, "a"), member(at, "test-pod-2", 3, "a"))
        await at.runs("test-pod-1", "test-pod-2")
        await at.create(at.on("high-1", 2, "high"))
        await at.runs("high-1")
        await at.evicted("early-0", "test-pod-1", "test-pod-2")
        await at.counts(_PODS, 1)
        await at.counts("scheduler_preemption_victims_sum", 2)
        await at.counts("scheduler_preemption_workload_disruptions_sum", 1, preemptor="pod")
        assert await at.metric(_GROUPS) == 0

    async with start(False) as at:
        await at.create(member(at, "test-pod-3", 4, "b"), member(at, "test-pod-4", 5, "b"))
        assert await at.group_of("test-pod-3") is None
        await at.runs("test-pod-3", "test-pod-4")
        await at.create(at.on("high-2", 4, "high"))
        await at.runs("high-2", "test-pod-4")
        await at.evicted("early-0", "test-pod-1", "test-pod-2", "test-pod-3")
        await at.counts(_PODS, 1)
        await at.counts("scheduler_preemption_victims_sum", 1)
        assert await at.metric("scheduler_preemption_workload_disruptions_sum") == 0

    async with start(True) as at:
        await at.create(member(at, "test-pod-5", 6, "b"), member(at, "test-pod-6", 7, "b"))
        await at.runs("test-pod-5", "test-pod-6")
        await at.create(at.on("high-3", 6, "high"))
        await at.runs("high-3", "test-pod-4")
        await at.evicted("early-0", *(f"test-pod-{number}" for number in (1, 2, 3, 5, 6)))
        await at.counts(_PODS, 1)
        await at.counts("scheduler_preemption_victims_sum", 2)
        assert await at.metric(_GROUPS) == 0
