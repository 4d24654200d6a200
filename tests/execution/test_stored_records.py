"""A record of thousands of victims, as the embedded cluster stores it, is of bounded objects.

The planes' own names, reasons and guards; what the API server adds is counted, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import SystemClock
from reprieve.api.crds import all_crds
from reprieve.api.reprieve import (
    Guard,
    IntentPhase,
    ObjectRef,
    Preemption,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.execution.fence import Fence
from reprieve.execution.records.intents import IntentLog
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    PREEMPTION_PARTS,
    PREEMPTIONS,
)
from reprieve.records.victim_states import victim_states
from tests.execution.stored_records import bounded
from tests.execution.test_parts import NAME, idle_victims, quota_victims, spec, victims
from tests.scheduling.memory import LEASE, Held

_NAMESPACE = "reprieve-system"
_NUMBER = 4_000
#: The largest that is recorded.
_INPUT = {"version": 1, "encoding": "zlib+base64", "data": "x" * (512 * 1024), "sha256": "0"}


@asynccontextmanager
async def written(folder: Path) -> AsyncIterator[tuple[Client, IntentLog]]:
    """Start a cluster with our kinds; give a client, and a log of intents on it."""
    clock = SystemClock()
    async with EmbeddedCluster() as cluster:
        cluster.write_kubeconfig(folder / "kubeconfig")
        client = connect(await load_connection(str(folder / "kubeconfig")), clock)
        for crd in all_crds():
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd, dict)
        await client.create(NAMESPACES, {"metadata": {"name": _NAMESPACE}}, dict)
        yield client, IntentLog(client, _NAMESPACE, Fence(Held(clock), clock, LEASE), clock)
        await client.close()


async def _stored(client: Client) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    (head,) = (await client.list(PREEMPTIONS, dict, namespace=_NAMESPACE)).items
    parts = await client.list(PREEMPTION_PARTS, dict, namespace=_NAMESPACE)
    return head, parts.items


@pytest.mark.parametrize("made", [idle_victims, quota_victims, victims])
async def test_no_object_of_a_record_exceeds_one_mebibyte_as_it_is_stored(
    made: Callable[[int], list[Victim]], tmp_path: Path
) -> None:
    found = made(_NUMBER)
    demand = Guard(ObjectRef("v1", "Pod", "demand", "uid-demand", "team-a"), ["PendingGpu"])
    guards = [demand, *(Guard(victim.subject, ["Idle"]) for victim in found)]
    planned = spec(found, guards=guards if found[0].reason else guards[1:], input=_INPUT)
    async with written(tmp_path) as (client, log):
        intent = await log.start(await log.create(NAME, planned))
        assert bounded(*await _stored(client)) == planned
        # The longest of all: everybody has another state than the next, and a long message.
        both = (VictimState.GONE, VictimState.EVICTED)
        states = [
            VictimStatus(victim.root.uid, both[number % 2], "2026-03-04T10:15:00Z", "why " * 100)
            for number, victim in enumerate(found)
        ]
        await log.finish(intent, IntentPhase.COMPLETED, "half of them", states)
        head, parts = await _stored(client)
        assert bounded(head, parts) == planned
        assert head["status"]["victimsByState"] == {"Evicted": _NUMBER // 2, "Gone": _NUMBER // 2}
        record = await log.whole(msgspec.convert(head, Preemption))
        wanted = {each.uid: each.state for each in states}
        assert {u: each.state for u, each in victim_states(record).items()} == wanted
        await log.remove(record)
        assert not (await client.list(PREEMPTION_PARTS, dict, namespace=_NAMESPACE)).items
