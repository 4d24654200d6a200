"""Faults on demand: seeded, for one user or all, and distinct from what the server means."""

from __future__ import annotations

import asyncio

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.server.wire import streaming
from kubelocal.server.wire.faults import InvalidFaults, parse_faults
from kubelocal.tests.server.builders import CONFIG_MAPS, Client, config_map, seen, until
from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant


async def test_a_share_of_requests_is_answered_503_the_same_for_the_same_seed(
    cluster: EmbeddedCluster, client: Client
) -> None:
    async def codes() -> list[int]:
        cluster.faults.configure(user="admin", seed=3, unavailable=0.5)
        return [(await client.request("GET", CONFIG_MAPS))[0] for _ in range(40)]

    first, second = await codes(), await codes()
    cluster.faults.configure(user="admin", seed=3, unavailable=1.0)
    async with client.session.get(CONFIG_MAPS) as response:
        refused = response.headers["Retry-After"], await response.json()

    assert first == second
    assert {200, 503} == set(first)
    assert (refused[0], refused[1]["reason"]) == ("1", "ServiceUnavailable")


async def test_everybody_has_the_faults_of_the_star_but_who_has_others(
    cluster: EmbeddedCluster, client: Client
) -> None:
    cluster.faults.configure(user="*", seed=1, error=1.0)
    cluster.faults.configure(user="alice", seed=1)
    async with Client(cluster, "alice") as alice:
        codes = [(await user.request("GET", CONFIG_MAPS))[0] for user in (client, alice)]

    assert codes == [500, 200]


async def test_latency_delays_a_request_by_the_servers_clock() -> None:
    clock = VirtualClock()
    async with EmbeddedCluster(clock=clock) as cluster, Client(cluster) as client:
        cluster.faults.configure(user="admin", seed=1, latency=10 * SECOND)
        asked = asyncio.create_task(client.get(CONFIG_MAPS))
        await until(lambda: bool(cluster.requests))
        for _ in range(9):
            await clock.advance(SECOND)
            await asyncio.sleep(0.001)
        before = asked.done()
        await clock.advance(SECOND)
        async with asyncio.timeout(60):
            answer = await asked

    assert (before, answer["items"]) == (False, [])


async def test_a_frozen_watch_stays_open_and_says_no_more(
    cluster: EmbeddedCluster, client: Client
) -> None:
    cluster.faults.configure(user="admin", seed=1, freeze_watch=1.0)
    frozen = await client.watch(CONFIG_MAPS)
    await client.create(CONFIG_MAPS, config_map("a"))
    first = await frozen.take(1)
    cluster.faults.clear()
    healthy = await client.watch(CONFIG_MAPS)
    await client.create(CONFIG_MAPS, config_map("b"))
    others = await healthy.take(2)
    cluster.store.end_watches()
    rest = await frozen.rest()

    assert seen(first) == [("ADDED", "a")]
    assert seen(others) == [("ADDED", "a"), ("ADDED", "b")]
    assert (rest, cluster.faults.counts) == ([], {"freeze_watch": 1})


async def test_the_clock_jumps_for_what_the_server_writes(
    cluster: EmbeddedCluster, client: Client
) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a"))
    cluster.jump_clock(-3_600 * SECOND)
    second = await client.create(CONFIG_MAPS, config_map("b"))
    times = [parse_instant(one["metadata"]["creationTimestamp"]) for one in (first, second)]

    assert times[1] < times[0] - 3_000 * SECOND


async def test_a_watcher_that_does_not_read_is_closed_and_nobody_else_is_kept_waiting(
    cluster: EmbeddedCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubelocal.subscription.BACKLOG_PER_WATCHER", 8)
    monkeypatch.setattr(streaming, "LAST_WORDS", 0)
    stuck = await client.watch(CONFIG_MAPS)
    reading = await client.watch(CONFIG_MAPS)
    names = []
    # More than the buffers of both ends of a connection hold.
    for index in range(40):
        await client.create(CONFIG_MAPS, config_map(f"c{index}", text="x" * 500_000))
        names += [name for _, name in seen(await reading.take(1))]
    await until(lambda: len(cluster.store.subscriptions()) == 1)
    await client.create(CONFIG_MAPS, config_map("last"))
    names += [name for _, name in seen(await reading.take(1))]
    stuck.close()
    reading.close()

    assert names == [*(f"c{index}" for index in range(40)), "last"]


def test_faults_are_read_from_a_text() -> None:
    assert parse_faults("seed=7, user=reprieve, conflict=0.05, latency=20ms") == {
        "user": "reprieve",
        "seed": 7,
        "conflict": 0.05,
        "latency": SECOND // 50,
    }
    assert parse_faults("error=1") == {"user": "*", "seed": 0, "error": 1.0}


@pytest.mark.parametrize(
    "text", ["conflict", "conflict=2", "confict=0.1", "latency=fast", "seed=x"]
)
def test_what_is_no_fault_is_said_with_what_is_accepted(text: str) -> None:
    with pytest.raises(InvalidFaults, match=f"'{text}' is no fault; accepted, .*seed=NUMBER"):
        parse_faults(f"error=0.1,{text}")
