"""The Lease `gpu-preemption-eval`, as Kaiwo's own operators would meet it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_micro
from reprieve.kube.bodies import Json
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import LEASES
from reprieve.planes.idle.evaluating.evaluation_lease import evaluation_lease

NAMESPACE = "default"
NAME = "gpu-preemption-eval"
CLOCK = SystemClock()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with EmbeddedCluster() as cluster:
        kubeconfig = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        made = connect(await load_connection(str(kubeconfig)), CLOCK)
        yield made
        await made.close()


async def lease_of(client: Client) -> Json:
    found: Json = await client.get(LEASES, NAMESPACE, NAME, dict)
    return found


async def test_it_is_held_for_the_block_and_released_after_it(client: Client) -> None:
    async with evaluation_lease(client, NAMESPACE, "one", CLOCK) as held:
        assert held
        spec = (await lease_of(client))["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("one", 30)
        async with evaluation_lease(client, NAMESPACE, "two", CLOCK) as also:
            assert not also, "two evaluations at a time"
    assert (await lease_of(client))["spec"]["holderIdentity"] == ""
    async with evaluation_lease(client, NAMESPACE, "two", CLOCK) as held:
        assert held, "a released lease is free at once"


@pytest.mark.parametrize(("age", "obtained"), [(29 * SECOND, False), (31 * SECOND, True)])
async def test_a_foreign_lease_is_respected_until_it_runs_out(
    client: Client, age: int, obtained: bool
) -> None:
    renewed = format_micro(Nanos(CLOCK.wall() - age))
    body = {
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"holderIdentity": "kaiwo", "leaseDurationSeconds": 30, "renewTime": renewed},
    }
    await client.create(LEASES, body, dict)
    async with evaluation_lease(client, NAMESPACE, "one", CLOCK) as held:
        assert held is obtained
    holder = (await lease_of(client))["spec"]["holderIdentity"]
    assert holder == ("" if obtained else "kaiwo")


async def test_of_several_at_once_one_obtains_it(client: Client) -> None:
    obtained: list[str] = []
    everybody_asked = asyncio.Barrier(5)

    async def evaluate(holder: str) -> None:
        async with evaluation_lease(client, NAMESPACE, holder, CLOCK) as held:
            if held:
                obtained.append(holder)
            await everybody_asked.wait()

    await asyncio.gather(*(evaluate(f"holder-{n}") for n in range(5)))
    assert len(obtained) == 1
