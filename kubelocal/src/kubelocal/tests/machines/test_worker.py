"""The loop, the informer and the promises that hold for all machines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from kubelocal.machines.informer import Informer, Key
from kubelocal.machines.objects import Change, Changed, ChangeType, Gone, Object
from kubelocal.machines.run import IN_CONTROLLER_MANAGER, Machines
from kubelocal.machines.worker import Worker
from kubelocal.tests.machines.cluster import gpu_node, job, pod, running, sim, workload
from kubelocal.tests.machines.store import DictObjects
from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND


class Faulty:
    """A machine whose looks do what a table states: wait, fail, or be content."""

    name = "faulty"

    def __init__(self, clock: VirtualClock, plan: dict[str, list[Any]]) -> None:
        self.clock = clock
        self.plan = plan
        self.looks: list[tuple[str, int]] = []

    def concerns(self, change: Change, before: Object | None) -> Iterable[str]:
        return []

    async def reconcile(self, key: str) -> int | None:
        self.looks.append((key, self.clock.monotonic() // SECOND))
        step = self.plan[key].pop(0) if self.plan[key] else None
        if isinstance(step, Exception):
            raise step
        return step


async def test_a_failing_key_is_tried_again_and_holds_up_no_other() -> None:
    clock = VirtualClock()
    machine = Faulty(clock, {"bad": [ValueError("bug"), Changed("conflict"), None], "good": []})
    worker = Worker(machine, clock)
    task = asyncio.create_task(worker.run())
    worker.mark("bad")
    worker.mark("good")
    await clock.advance(0)
    assert [key for key, _ in machine.looks] == ["bad", "good"]
    await clock.advance(SECOND)
    assert [key for key, _ in machine.looks] == ["bad", "good", "bad", "bad"]
    await clock.advance(3600 * SECOND)
    assert len(machine.looks) == 4
    task.cancel()


async def test_a_key_is_looked_at_when_it_asked_for_it_and_only_then() -> None:
    clock = VirtualClock()
    machine = Faulty(clock, {"a": [10 * SECOND, 5 * SECOND], "b": [12 * SECOND]})
    worker = Worker(machine, clock)
    task = asyncio.create_task(worker.run())
    worker.mark("a")
    worker.mark("b")
    await clock.advance(100 * SECOND)
    assert machine.looks == [("a", 0), ("b", 0), ("a", 10), ("b", 12), ("a", 15)]
    task.cancel()


async def test_an_earlier_look_takes_the_place_of_the_timer() -> None:
    clock = VirtualClock()
    machine = Faulty(clock, {"a": [10 * SECOND, None]})
    worker = Worker(machine, clock)
    task = asyncio.create_task(worker.run())
    worker.mark("a")
    await clock.advance(SECOND)
    worker.mark("a")
    await clock.advance(100 * SECOND)
    assert machine.looks == [("a", 0), ("a", 1)]
    task.cancel()


def state(version: int, uid: str = "u1", **metadata: Any) -> Object:
    return {"metadata": {"name": "a", "uid": uid, "resourceVersion": str(version), **metadata}}


@pytest.fixture
def informer() -> Informer:
    return Informer(DictObjects(VirtualClock()))


def applied(informer: Informer, *changes: tuple[str, Object]) -> list[str]:
    """Apply the changes, return what the listeners heard."""
    heard: list[str] = []

    def listen(change: Change, before: Object | None) -> None:
        metadata = change.object["metadata"]
        heard.append(f"{change.type} {metadata['uid']} {metadata['resourceVersion']}")

    informer.listeners.append(listen)
    for kind, obj in changes:
        informer.apply(Change(ChangeType(kind), "configmaps", obj))
    return heard


def test_a_state_older_than_the_one_held_is_dropped(informer: Informer) -> None:
    heard = applied(
        informer, ("ADDED", state(5)), ("MODIFIED", state(4)), ("MODIFIED", state(5)),
        ("MODIFIED", state(10)),
    )  # fmt: skip
    assert heard == ["ADDED u1 5", "MODIFIED u1 10"]


def test_a_deleted_uid_does_not_come_back(informer: Informer) -> None:
    applied(informer, ("ADDED", state(5)), ("DELETED", state(6)), ("MODIFIED", state(7)))
    assert informer.get("configmaps", "", "a") is None
    assert informer.by_uid("u1") is None


def test_a_new_uid_under_an_old_name_ends_the_old_one(informer: Informer) -> None:
    heard = applied(informer, ("ADDED", state(5)), ("ADDED", state(8, "u2")), ("DELETED", state(7)))
    assert heard == ["ADDED u1 5", "DELETED u1 5", "ADDED u2 8"]
    assert informer.by_uid("u2") == (Key("configmaps", "", "a"), state(8, "u2"))


def test_dependents_follow_the_references(informer: Informer) -> None:
    owned = [{"uid": "owner", "controller": True}]
    applied(informer, ("ADDED", state(5, ownerReferences=owned)))
    assert [key.name for key, _ in informer.dependents("owner")] == ["a"]
    assert [o["metadata"]["name"] for o in informer.controlled("owner", "configmaps")] == ["a"]
    applied(informer, ("MODIFIED", state(6)))
    assert informer.dependents("owner") == []


async def test_after_a_conflict_the_present_state_is_known(informer: Informer) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    created = await informer.create("configmaps", body)
    await informer.objects.update("configmaps", {**created, "data": {"k": "theirs"}})
    with pytest.raises(Changed):
        await informer.update("configmaps", {**created, "data": {"k": "ours"}})
    known = informer.get("configmaps", "default", "a")
    assert known is not None
    assert known["data"] == {"k": "theirs"}
    await informer.update("configmaps", {**known, "data": {"k": "ours"}})
    await informer.objects.delete("configmaps", "default", "a")
    with pytest.raises(Gone):
        await informer.update("configmaps", known)
    assert informer.get("configmaps", "default", "a") is None


async def test_nothing_is_written_while_nothing_happens() -> None:
    async with running() as cluster:
        await cluster.create(
            job("train", 1),
            pod("alone", 1),
            pod("waits", 64),
            workload("Deployment", "web", 1, replicas=2),
            workload("StatefulSet", "db", 0),
        )
        await cluster.wait(5)
        before = list(cluster.store.writes)
        await cluster.wait(24 * 3600)
        assert cluster.store.writes == before


async def test_the_same_seed_and_clock_give_the_same_cluster() -> None:
    ends = []
    for _ in range(2):
        async with running([gpu_node("a", 4), gpu_node("b", 4)], seed=7) as cluster:
            fails = {"annotations": sim(run_time="20s", exit_code="1")}
            await cluster.create(
                job("fails", 1, pod_spec=fails),
                job("train", 2, parallelism=3, completions=3),
                workload("Deployment", "web", 1, replicas=3),
                workload("StatefulSet", "db", 1, replicas=2),
            )
            await cluster.wait(120)
            await cluster.delete("jobs.batch", "train")
            await cluster.wait(60)
            ends.append((cluster.store.held, cluster.store.writes))
    assert ends[0] == ends[1]


async def test_a_second_process_takes_over_without_a_trace() -> None:
    """Nothing but a start: what runs continues, nothing is made twice, counts stay."""
    async with running(nodes=None) as cluster:
        timed = {"annotations": sim(run_time="100s")}
        await cluster.create(
            job("train", 1, parallelism=2, completions=4, pod_spec=timed),
            workload("Deployment", "web", 1, replicas=2),
        )
        await cluster.wait(150)
        names = cluster.names("pods")
        await cluster.machines.stop()
        restarted = type(cluster.machines)(cluster.store, cluster.clock, [], seed=1)
        await restarted.start()
        await cluster.wait(10)
        assert cluster.names("pods") == names
        await cluster.wait(100)
        status = cluster.one("jobs.batch", "train")["status"]
        assert status["succeeded"] == 4
        assert len(cluster.all("pods")) == 6
        await restarted.stop()


async def test_a_real_controller_may_stand_in_for_a_machine() -> None:
    async with running(without=IN_CONTROLLER_MANAGER) as cluster:
        await cluster.create(job("train", 1), workload("Deployment", "web", 1), pod("alone", 1))
        await cluster.wait(5)
        assert cluster.phases() == {"alone": "Running"}


def test_a_machine_that_does_not_exist_cannot_be_left_out() -> None:
    clock = VirtualClock()
    with pytest.raises(ValueError, match=r"without: coffee; accepted: nodes, heartbeats, kubelet"):
        Machines(DictObjects(clock), clock, [], without=["coffee"])


async def test_an_object_that_cannot_be_read_does_not_end_the_feed() -> None:
    async with running() as cluster:
        broken = pod("broken", 1)
        broken["metadata"]["ownerReferences"] = [{"controller": True, "uid": "u"}]
        await cluster.create(broken, pod("good", 1))
        await cluster.wait(2)
        assert cluster.phases()["good"] == "Running"
