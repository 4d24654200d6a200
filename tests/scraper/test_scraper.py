"""Polls: when they happen, what they hold, and that one bad endpoint harms only itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubeworld.units.clock import SystemClock, VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.engine.idle.vendors import AMD
from reprieve.intake.exposition import Defect, parse_exposition
from reprieve.planes.idle.measures.metric_sources import (
    Failure,
    MetricReader,
    Reading,
    ReadyAddress,
    Target,
    metric_source,
    open_session,
)
from reprieve.planes.idle.measures.scraper import MAXIMUM_PER_POD, Conflict, PodKey, Poll, Scraper
from tests.scraper.servers import busy, serving, text

A, B = "http://a/metrics", "http://b/metrics"


class Services:
    """A Service whose addresses the test changes."""

    def __init__(self, *addresses: str) -> None:
        self.present = list(addresses)

    def addresses(self, namespace: str, name: str) -> Sequence[ReadyAddress]:
        return [ReadyAddress(address, {"": 5000}) for address in self.present]


class Bodies:
    """A reader that answers from a table of bodies; None fails, and `takes` says how long."""

    def __init__(self, clock: VirtualClock, bodies: dict[str, str | None], takes: int = 0) -> None:
        self._clock = clock
        self.bodies = bodies
        self.takes = takes
        self.active = 0
        self.most_active = 0

    async def read(self, target: Target) -> Reading:
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        if self.takes:
            await self._clock.sleep(self.takes)
        self.active -= 1
        body = self.bodies.get(target.url) if target.url else None
        if body is None:
            return Reading(target, None, Failure.UNREACHABLE, "refused")
        return Reading(target, parse_exposition(body.encode(), [AMD]))


def scraper(
    clock: VirtualClock, reader: Bodies, *urls: str, services: Services | None = None
) -> tuple[Scraper, list[Poll]]:
    polls: list[Poll] = []
    sources = [metric_source(url) for url in urls]
    return (
        Scraper(sources, services or Services(), reader, clock, 15 * SECOND, polls.append),
        polls,
    )


def seen(poll: Poll) -> dict[str, list[float]]:
    return {pod.name: [s.utilization for s in samples] for pod, samples in poll.samples.items()}


async def test_a_poll_comes_at_once_and_then_every_interval() -> None:
    clock = VirtualClock()
    started = clock.wall()
    poller, polls = scraper(clock, Bodies(clock, {A: busy("a")}), A)
    running = asyncio.create_task(poller.run())
    await clock.advance(45 * SECOND)
    running.cancel()
    assert [(poll.at - started) // SECOND for poll in polls] == [0, 15, 30, 45]


async def test_polls_never_overlap_and_missed_ones_are_not_made_up_for() -> None:
    clock = VirtualClock()
    started = clock.wall()
    reader = Bodies(clock, {A: busy("a")}, takes=20 * SECOND)
    poller, polls = scraper(clock, reader, A)
    running = asyncio.create_task(poller.run())
    await clock.advance(40 * SECOND)
    reader.takes = 0
    await clock.advance(40 * SECOND)
    running.cancel()
    assert [(poll.at - started) // SECOND for poll in polls] == [0, 20, 40, 60, 75]
    assert reader.most_active == 1


async def test_a_wall_clock_that_is_set_back_delays_no_poll() -> None:
    clock = VirtualClock()
    poller, polls = scraper(clock, Bodies(clock, {A: busy("a")}), A)
    running = asyncio.create_task(poller.run())
    await clock.advance(15 * SECOND)
    clock.set_wall(polls[0].at)
    await clock.advance(15 * SECOND)
    running.cancel()
    assert len(polls) == 3


async def test_one_poll_holds_the_samples_of_all_sources_by_pod() -> None:
    clock = VirtualClock()
    bodies: dict[str, str | None] = {
        A: busy("a", "1") + busy("a", "2", gpu="1") + busy("bad", "NaN") + busy("", "3"),
        B: busy("b", "4") + busy("a", "5"),
    }
    poller, _ = scraper(clock, Bodies(clock, bodies), A, B)
    poll = await poller.poll()
    assert seen(poll) == {"a": [1.0, 2.0, 5.0], "b": [4.0]}
    assert set(poll.invalid) == {PodKey("team", "bad")}
    assert (poll.unassigned, poll.failing, poll.unreachable) == (1, False, frozenset())
    assert [(h.targets, h.samples, h.answered) for h in poll.sources] == [
        (1, 2, True),
        (1, 2, True),
    ]


async def test_a_failing_endpoint_makes_only_its_own_pods_unknown() -> None:
    clock = VirtualClock()
    reader = Bodies(clock, {A: busy("a") + busy("both"), B: busy("b") + busy("both")})
    poller, _ = scraper(clock, reader, A, B)
    assert (await poller.poll()).unreachable == frozenset()
    reader.bodies[A] = None
    for _ in range(3):
        poll = await poller.poll()
        assert seen(poll) == {"b": [5.0], "both": [5.0]}
        assert poll.unreachable == {PodKey("team", "a")}
        assert [(h.source.shown, h.answered) for h in poll.sources] == [(A, False), (B, True)]
        assert poll.failing
    reader.bodies[A] = busy("a")
    assert (await poller.poll()).unreachable == frozenset()


async def test_a_pod_that_its_exporter_no_longer_shows_is_not_unreachable() -> None:
    clock = VirtualClock()
    reader = Bodies(clock, {A: busy("a")})
    poller, _ = scraper(clock, reader, A)
    await poller.poll()
    reader.bodies[A] = ""
    await poller.poll()
    reader.bodies[A] = None
    poll = await poller.poll()
    assert (poll.samples, poll.unreachable) == ({}, frozenset())


async def test_a_service_is_followed_as_its_addresses_change() -> None:
    clock = VirtualClock()
    services = Services("10.0.0.1", "10.0.0.2")
    reader = Bodies(
        clock,
        {f"http://10.0.0.{n}:5000/metrics": busy(f"p{n}") for n in (1, 2, 3)},
    )
    poller, _ = scraper(clock, reader, "service://gpu/exporter:5000/metrics", services=services)
    assert set(seen(await poller.poll())) == {"p1", "p2"}
    services.present = ["10.0.0.2", "10.0.0.3"]
    assert set(seen(await poller.poll())) == {"p2", "p3"}
    reader.bodies = {}
    poll = await poller.poll()
    assert poll.unreachable == {PodKey("team", "p2"), PodKey("team", "p3")}
    assert [(h.targets, len(h.failures)) for h in poll.sources] == [(2, 2)]
    services.present = []
    poll = await poller.poll()
    assert (poll.unreachable, poll.failing) == (frozenset(), True)


async def test_real_endpoints_are_polled_side_by_side() -> None:
    polls: list[Poll] = []
    arrived = asyncio.Event()

    def on_poll(poll: Poll) -> None:
        polls.append(poll)
        arrived.set()

    async with (
        serving(text(busy("a", "1"))) as first,
        serving(text("<html>")) as second,
        serving(text(busy("b", "2"))) as third,
        open_session() as session,
    ):
        clock = SystemClock()
        reader = MetricReader(session, (AMD,), clock)
        sources = [metric_source(f"{url}/metrics") for url in (first, second, third)]
        poller = Scraper(sources, Services(), reader, clock, 15 * SECOND, on_poll)
        running = asyncio.create_task(poller.run())
        await asyncio.wait_for(arrived.wait(), 60)
        running.cancel()
    assert [seen(poll) for poll in polls] == [{"a": [1.0], "b": [2.0]}]
    assert [[f.failure for f in h.failures] for h in polls[0].sources] == [
        [],
        [Failure.MALFORMED],
        [],
    ]


async def test_samples_of_one_gpu_that_contradict_each_other_are_named() -> None:
    clock = VirtualClock()
    bodies: dict[str, str | None] = {
        A: busy("a", "97") + busy("b", "40") + busy("c", "50", gpu="0"),
        B: busy("a", "0") + busy("b", "44") + busy("c", "0", gpu="1"),
    }
    poller, _ = scraper(clock, Bodies(clock, bodies), A, B)
    poll = await poller.poll()
    assert poll.conflicts == {PodKey("team", "a"): Conflict("0", 0.0, 97.0)}
    assert seen(poll)["a"] == [97.0, 0.0]


def process(number: int, value: str, **labels: str) -> str:
    """Return the sample of one process that uses GPU 0 of pod `a`."""
    told = {"namespace": "team", "pod": "a", "gpu_id": "0", "kfd_process_id": str(number), **labels}
    inner = ",".join(f'{name}="{text}"' for name, text in told.items())
    return f"gpu_gfx_activity{{{inner}}} {value}\n"


async def test_two_processes_of_one_gpu_are_nobody_elses() -> None:
    clock = VirtualClock()
    bodies: dict[str, str | None] = {A: process(1, "97") + process(2, "0"), B: busy("b")}
    poller, _ = scraper(clock, Bodies(clock, bodies), A, B)
    poll = await poller.poll()
    assert poll.conflicts == {}
    assert seen(poll)["a"] == [97.0, 0.0]
    bodies[B] = process(1, "20")
    poll = await poller.poll()
    assert poll.conflicts == {PodKey("team", "a"): Conflict("0", 20.0, 97.0)}


async def test_exporters_behind_one_collector_are_told_apart_by_job_and_instance() -> None:
    clock = VirtualClock()
    for name in ("job", "instance"):
        lines = process(1, "97", **{name: "one"}) + process(2, "0", **{name: "other"})
        poller, _ = scraper(clock, Bodies(clock, {A: lines}), A)
        poll = await poller.poll()
        assert poll.conflicts == {PodKey("team", "a"): Conflict("0", 0.0, 97.0)}


async def test_a_pod_with_more_samples_than_a_node_has_gpus_is_not_believed() -> None:
    clock = VirtualClock()
    flood = "".join(busy("a", "0", gpu=str(gpu)) for gpu in range(MAXIMUM_PER_POD + 1))
    most = "".join(busy("b", "0", gpu=str(gpu)) for gpu in range(MAXIMUM_PER_POD))
    poller, _ = scraper(clock, Bodies(clock, {A: flood + most}), A)
    poll = await poller.poll()
    assert seen(poll).keys() == {"b"}
    assert [(pod.name, bad.defect) for pod, (bad,) in poll.invalid.items()] == [
        ("a", Defect.TOO_MANY)
    ]
