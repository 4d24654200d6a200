"""What Kueue, Volcano and KAI evict is in the ledger once, whatever says it, and nobody's fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.kube.client import Client
from reprieve.kube.transport import Transport
from reprieve.planes.common.disruptions.other_actors import OtherActors
from reprieve.planes.common.mirrors.mirror import Mirror
from tests.scheduling.memory import MemoryApi, Wire
from tests.scheduling.site import Object

WORKLOADS = "workloads.kueue.x-k8s.io"
OWNER = {"kind": "Job", "name": "train", "uid": "train-uid", "controller": True}


class Others:
    """An API server, a governor, and what is told."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.api = MemoryApi(self.clock)
        self.governor = Governor()
        self.told: list[Displacement] = []
        self.start()

    def start(self) -> None:
        client = Client(Transport(Wire(self.api), self.clock, jitter=Random(7)))
        mirror = Mirror(client, self.clock)
        self.actors = OtherActors(client, mirror, self.clock, self.governor, self.told.append)

    def displaced(self, owner: str = "train-uid") -> int:
        work = Participant(Lineage(f"owner/{owner}"), "team")
        return self.governor.displaced(work, self.clock.wall())

    def workload(
        self, reason: str, status: str = "True", *, seconds: int = 0, name: str = "w"
    ) -> Object:
        at = format_instant(Nanos(self.clock.wall() - seconds * SECOND))
        said = {"type": "Evicted", "status": status, "reason": reason, "lastTransitionTime": at}
        said["message"] = ""
        metadata = {"name": name, "namespace": "team", "uid": name, "ownerReferences": [OWNER]}
        spec = {"queueName": "q", "podSets": []}
        stored = {"metadata": metadata, "spec": spec, "status": {"conditions": [said]}}
        return self.api.put(WORKLOADS, stored)

    def event(
        self,
        kind: str,
        version: str,
        name: str,
        uid: str,
        reason: str = "Evict",
        *,
        seconds: int = 0,
    ) -> None:
        about = {"apiVersion": version, "kind": kind, "namespace": "team", "name": name, "uid": uid}
        metadata = {"name": f"{name}.{self.clock.wall()}.{kind}", "namespace": "team"}
        at = format_instant(Nanos(self.clock.wall() - seconds * SECOND))
        body = {
            "metadata": metadata,
            "involvedObject": about,
            "reason": reason,
            "lastTimestamp": at,
        }
        self.api.put("events", body)

    def object(self, kind: str, name: str) -> None:
        metadata = {
            "name": name,
            "namespace": "team",
            "uid": f"{name}-uid",
            "ownerReferences": [OWNER],
        }
        self.api.put(kind, {"metadata": metadata, "spec": {}})

    async def settle(self, seconds: int = 2) -> None:
        for _ in range(seconds):
            for _ in range(100):
                await asyncio.sleep(0)
            await self.clock.advance(SECOND)


@asynccontextmanager
async def followed() -> AsyncIterator[Others]:
    others = Others()
    running = asyncio.ensure_future(others.actors.run())
    await others.settle()
    try:
        yield others
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_what_is_said_to_happen_in_the_future_forgets_nothing_and_keeps_nothing_out() -> None:
    # Tenants may write events: a row of a later day would make all others too old for the ledger.
    year = 365 * 24 * HOUR // SECOND
    async with followed() as others:
        others.workload("Preempted")
        await others.settle(60)
        before = others.governor.rows
        assert len(before) == 1
        others.event("Pod", "v1", "forged", "forged-uid", seconds=-year)
        others.workload("Preempted", seconds=-year, name="later")
        await others.settle(60)
        assert set(before) < set(others.governor.rows)
        assert all(row.at <= others.clock.wall() for row in others.governor.rows)
        others.workload("Preempted", name="next")
        await others.settle(60)
        assert len(others.governor.rows) == 4


async def test_what_kueue_preempts_counts_each_time_and_is_nobodys_fault() -> None:
    async with followed() as others:
        for number in range(3):
            others.workload("Preempted")
            await others.settle(60)
            assert others.displaced() == number + 1
            others.workload("Preempted", status="False")
            await others.settle()
        assert len(others.told) == 3
        assert all(row.actor is Actor.OTHER and row.preemptor is None for row in others.told)


@pytest.mark.parametrize(
    "reason", ["PodsReadyTimeout", "NodeFailures", "ClusterQueueStopped", "Deactivated"]
)
async def test_what_kueue_stops_for_other_reasons_is_no_displacement(reason: str) -> None:
    async with followed() as others:
        others.workload(reason)
        await others.settle()
        assert others.told == []


async def test_what_the_quota_plane_of_this_process_writes_is_its_own_doing() -> None:
    async with followed() as others:
        others.actors.decides = lambda: True
        others.workload("Preempted")
        await others.settle()
        assert others.told == []


async def test_a_process_that_takes_over_knows_what_workloads_still_say() -> None:
    others = Others()
    others.workload("Preempted", seconds=600)
    others.workload("Preempted", seconds=25 * HOUR // SECOND, name="long ago")
    for _ in range(2):
        others.start()
        running = asyncio.ensure_future(others.actors.run())
        await others.settle()
        running.cancel()
    # The one that was told twice is one.
    assert others.displaced() == 1 and {row.uid for row in others.told} == {"w"}


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("Pod", "v1"),
        ("PodGroup", "scheduling.volcano.sh/v1beta1"),
        ("PodGroup", "scheduling.run.ai/v2alpha2"),
    ],
    ids=["volcano-pod", "volcano-group", "kai"],
)
async def test_an_event_that_says_evict_counts_for_the_line_of_work_of_its_object(
    kind: str, version: str
) -> None:
    async with followed() as others:
        stored = "pods" if kind == "Pod" else f"podgroups.{version.partition('/')[0]}"
        others.object(stored, "p")
        others.event(kind, version, "p", "p-uid")
        others.event(kind, version, "p", "p-uid", reason="Unschedulable")
        others.event("ConfigMap", "v1", "p", "p-uid")
        await others.settle()
        assert others.displaced() == 1 and [row.uid for row in others.told] == ["p-uid"]


async def test_one_eviction_that_several_tell_of_is_one() -> None:
    async with followed() as others:
        others.object("pods", "p")
        others.object("podgroups.scheduling.volcano.sh", "g")
        others.event("Pod", "v1", "p", "p-uid")
        others.event("PodGroup", "scheduling.volcano.sh/v1beta1", "g", "g-uid")
        await others.settle()
        # The pod says it by a condition, too.
        work = Participant(Lineage("owner/train-uid"), "team")
        row = Displacement(others.clock.wall(), Actor.OTHER, None, work, "p-uid")
        assert not others.actors.displaced(row)
        assert others.displaced() == 1
        # Another pod of it, later, is another time.
        await others.clock.advance(MINUTE)
        others.object("pods", "p2")
        others.event("Pod", "v1", "p2", "p2-uid")
        await others.settle()
        assert others.displaced() == 2


async def test_of_an_object_that_is_gone_the_work_is_one_of_its_own() -> None:
    async with followed() as others:
        others.event("Pod", "v1", "gone", "gone-uid")
        await others.settle()
        (row,) = others.told
        assert row.victim.lineage == "object/gone-uid"


async def test_an_event_of_the_future_or_of_no_time_counts_once_at_many_looks() -> None:
    others = Others()
    others.object("podgroups.scheduling.volcano.sh", "g")
    version = "scheduling.volcano.sh/v1beta1"
    others.event("PodGroup", version, "g", "g-uid", seconds=-600)
    others.api.put(
        "events",
        {
            "metadata": {"name": "timeless", "namespace": "team"},
            "involvedObject": {
                "apiVersion": version,
                "kind": "PodGroup",
                "namespace": "team",
                "name": "g",
                "uid": "g-uid",
            },
            "reason": "Evict",
        },
    )
    for _ in range(3):
        # Each follows anew, as after a watch that cannot go on.
        task = asyncio.ensure_future(others.actors.run())
        await others.settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(others.told) == 2, others.told


async def test_a_flood_of_events_of_one_namespace_is_bounded_and_leaves_others_theirs() -> None:
    others = Others()
    for number in range(1_200):
        others.event("Pod", "v1", f"p-{number}", f"forged-{number}")
    task = asyncio.ensure_future(others.actors.run())
    await others.settle(10)
    assert len(others.told) == 1_000
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "else", "name": "p", "uid": "p"}
    metadata = {"name": "p.1", "namespace": "else"}
    others.api.put("events", {"metadata": metadata, "involvedObject": about, "reason": "Evict"})
    await others.settle()
    assert len(others.told) == 1_001 and others.told[-1].victim.tenant == "else"
    await others.clock.advance(25 * HOUR)
    others.event("Pod", "v1", "late", "late")
    await others.settle()
    assert others.told[-1].uid == "late"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("kind", "version", "name", "namespace", "uid"),
    [
        ("Pod", "v1", "p", "", "u"),
        ("Pod", "v1", "", "team", "u"),
        ("Pod", "v1", "..", "team", "u"),
        ("Pod", "v1", "p" * 5_000, "team", "u"),
        ("Pod", "v1", "p", "../../nodes", "u"),
        ("PodGroup", "scheduling.run.ai/../../../api/v1", "g", "team", "u"),
        ("PodGroup", "scheduling.run.ai", "g", "team", "u"),
        ("PodGroup", "scheduling.run.ai/v1?watch=1", "g", "team", "u"),
        ("Pod", "v1", "p", "team", "u" * 5_000),
        ("Pod", "v1", "p", "team", ""),
    ],
)
async def test_an_event_about_what_has_no_address_asks_nobody_and_stops_nothing(
    kind: str, version: str, name: str, namespace: str, uid: str
) -> None:
    # Tenants may write events, of which the API server checks neither name nor version.
    async with followed() as others:
        about = {"kind": kind, "apiVersion": version, "name": name, "namespace": namespace}
        metadata = {"name": "odd", "namespace": "team"}
        odd = {"metadata": metadata, "involvedObject": about | {"uid": uid}, "reason": "Evict"}
        asked: list[str] = []
        get = others.actors._client.get

        async def counted(resource: Any, *where: Any) -> Any:
            asked.append(resource.path(*where[:2]))
            return await get(resource, *where)

        with patch.object(others.actors._client, "get", counted):
            others.api.put("events", odd)
            await others.settle()
            assert asked == []
            others.object("pods", "p")
            others.event("Pod", "v1", "p", "p-uid")
            await others.settle()
        assert asked == ["/api/v1/namespaces/team/pods/p"]
        assert others.displaced() == 1
        assert [row.uid for row in others.told] == ["p-uid"]
