"""One tenant's backlog is in nobody else's way, and nothing is looked for again without a change.

A search for victims takes 0.2 s of virtual time here, and is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MILLISECOND, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod

_SEARCH = 200 * MILLISECOND


class _Meter(VirtualClock):
    """The clock of one slice: it moves on by what each search takes."""

    def __init__(self, start: int, work: Work) -> None:
        super().__init__()
        self._start, self._work, self._before = start, work, len(work.searched)

    @property
    def spent(self) -> int:
        return (len(self._work.searched) - self._before) * _SEARCH

    def monotonic(self) -> Nanos:
        return Nanos(self._start + self.spent)


class Work:
    """Decides in the loop's thread, and lets pass the time that this takes."""

    def __init__(self, clock: VirtualClock, patch: pytest.MonkeyPatch) -> None:
        self.clock = clock
        self.searched: list[str] = []
        self.on_search: Callable[[], object] = lambda: None
        attempt = Session.attempt

        def counted(session: Session, unit: Unit) -> Attempt | None:
            found = attempt(session, unit)
            if found is not None and found.preemption is not None and found.preemption.evaluated:
                self.searched.append(unit.name)
                self.on_search()
            return found

        patch.setattr(Session, "attempt", counted)

    async def run(self, decide: Callable[..., Any], *args: Any) -> Any:
        meter = _Meter(self.clock.monotonic(), self)
        await asyncio.sleep(0)
        found = decide(*(meter if each is self.clock else each for each in args))
        await self.clock.sleep(meter.spent)
        return found

    def close(self) -> None:
        pass


def filled(cluster: Memory, nodes: int = 4) -> None:
    """Fill nodes of 8 cpus with pods of low priority, but for a cpu each."""
    cluster.nodes([8] * nodes)
    for number in range(nodes):
        cluster.running(pod(f"runs-{number}", 7, priority="low"), f"node-{number}")


def gang(cluster: Memory, name: str, cpu: int = 9, space: str = NAMESPACE) -> None:
    """Create a gang of two, by default one that fits on no node, victims or not."""
    members = [pod(f"{name}-{n}", cpu, group=name, priority="middle") for n in range(2)]
    for each in members:
        each["metadata"]["labels"] = {"app": "gang"}
    cluster.create(group(name, min_count=2, priority="middle"), *members, namespace=space)


def small(name: str) -> Object:
    """Return a pod for which there is room, as important as the gangs."""
    return pod(name, 1, priority="middle")


def bound(cluster: Memory, space: str, name: str) -> bool:
    return bool(cluster.api.objects["pods"][space, name]["spec"].get("nodeName"))


def attempts(cluster: Memory) -> float:
    """Return how many attempts at gangs found nothing."""
    return cluster.metric(
        "scheduler_podgroup_schedule_attempts_total",
        result="unschedulable",
        profile="default-scheduler",
    )


@pytest.fixture
async def cluster() -> AsyncIterator[Memory]:
    async with memory() as found:
        yield found


async def begin(cluster: Memory, patch: pytest.MonkeyPatch) -> Work:
    work = Work(cluster.clock, patch)
    cluster.start(solver=work)
    await cluster.settle()
    return work


async def test_a_backlog_of_another_namespace_holds_up_nobody_for_whom_there_is_room(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(cluster)
    await begin(cluster, monkeypatch)
    for number in range(200):
        gang(cluster, f"gang-{number}", cpu=9 + number)  # none is like another
    await cluster.pass_time(3 * SECOND)
    cluster.create(small("late"), namespace="other")
    await cluster.pass_time(SECOND)
    assert bound(cluster, "other", "late")


async def test_backlogs_of_many_namespaces_do_so_neither(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(cluster)
    work = await begin(cluster, monkeypatch)
    for space in range(40):
        for number in range(3):
            gang(cluster, f"gang-{number}", cpu=9 + 3 * space + number, space=f"space-{space}")
    cluster.create(small("late"), namespace="zz-other")
    await cluster.pass_time(SECOND)
    assert bound(cluster, "zz-other", "late")
    assert len(work.searched) <= 6


async def test_a_stream_of_small_pods_does_not_keep_a_gang_from_its_turn(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(cluster, nodes=40)
    work = await begin(cluster, monkeypatch)
    gang(cluster, "waits", cpu=8)
    for number in range(40):
        cluster.create(small(f"small-{number:02}"), namespace=f"space-{number % 4}")
    taken: list[int] = []
    work.on_search = lambda: taken.append(cluster.planes[0].state.cluster.progress.joined)
    before = cluster.planes[0].state.cluster.progress.joined
    await cluster.until(cluster.victims, 2 * SECOND)
    assert work.searched[0] == f"{NAMESPACE}/waits"
    # Of each namespace one pod took room before it, or was bound there as well by then.
    assert taken[0] - before <= 8


async def test_who_is_more_important_comes_next_whatever_was_taken_from_the_queue(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(cluster)
    work = await begin(cluster, monkeypatch)
    for number in range(50):
        gang(cluster, f"gang-{number}", cpu=9 + number)
    await cluster.pass_time(SECOND)
    cluster.create(pod("urgent", 8, priority="high"))
    before = len(work.searched)
    await cluster.pass_time(SECOND)
    uid = cluster.pod("urgent")["metadata"]["uid"]
    assert uid in work.searched[before : before + 2]


async def test_nothing_is_looked_for_again_until_something_changes_that_could_help(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(cluster)
    work = await begin(cluster, monkeypatch)
    for number in range(20):
        gang(cluster, f"gang-{number}", cpu=9 + number)
    cluster.create(pod("never", 99, priority="middle"))
    await cluster.pass_time(MINUTE)
    assert (len(work.searched), attempts(cluster)) == (21, 20)
    await cluster.pass_time(10 * MINUTE)
    assert attempts(cluster) == 20
    # Neither who comes, nor what takes room, nor what a kubelet writes is of use to them.
    gang(cluster, "another", cpu=60)
    cluster.create(small("takes-room"))
    await cluster.pass_time(MINUTE)
    runs = cluster.pod("runs-0")
    cluster.api.put("pods", {**runs, "status": {**runs["status"], "hostIP": "192.0.2.1"}})
    await cluster.pass_time(MINUTE)
    assert len(work.searched) == 22
    cluster.end("runs-0")
    await cluster.pass_time(MINUTE)
    assert len(work.searched) == 44


async def test_of_gangs_that_are_alike_one_is_looked_for_and_all_are_told(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(cluster)
    work = await begin(cluster, monkeypatch)
    for number in range(100):
        gang(cluster, f"gang-{number:02}")
    await cluster.pass_time(2 * MINUTE)
    assert len(work.searched) == 1
    said = {
        cluster.condition(each, "PodGroupInitiallyScheduled")
        for each in cluster.api.objects["podgroups.scheduling.k8s.io"].values()
    }
    assert len(said) == 1 and ("", "", "") not in said
    told = {
        cluster.condition(each, "PodScheduled")
        for name, each in cluster.pods.items()
        if name.startswith("gang-")
    }
    assert ("", "", "") not in told
    cluster.end("runs-0")
    await cluster.pass_time(30 * SECOND)
    assert len(work.searched) == 2


async def test_gangs_that_are_alike_are_all_placed_once_there_is_room(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.nodes([8])
    cluster.running(pod("runs", 8, priority="high"), "node-0")
    await begin(cluster, monkeypatch)
    for number in range(4):
        gang(cluster, f"gang-{number}", cpu=1)
    await cluster.pass_time(30 * SECOND)
    assert not any(name.startswith("gang-") for name in cluster.placed())
    cluster.end("runs")
    await cluster.pass_time(5 * SECOND)
    assert sum(name.startswith("gang-") for name in cluster.placed()) == 8
