"""Gangs that lack members, or name a group that is not there, are told so after some seconds."""

from __future__ import annotations

from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from reprieve.api.gangs import KOORDINATOR, SCHEDULER_PLUGINS, Door
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod

_SHORT = "waiting for minCount pods from a gang to appear in scheduling queue"
_MISSING = 'waiting for pods\'s pod group "g" to appear in scheduling queue'


def _told(cluster: Memory, name: str) -> str:
    return cluster.condition(cluster.pod(name), "PodScheduled")[2]


def _events(cluster: Memory) -> list[tuple[str, str, str, int]]:
    """Return kind, name, note and count of what FailedScheduling events say."""
    found = []
    for each in cluster.events("FailedScheduling"):
        count = (each.get("series") or {}).get("count", 1)
        about = each["regarding"]
        found.append((about["kind"], about["name"], each["note"], count))
    return sorted(found)


def _groups(cluster: Memory, door: Door) -> str:
    return f"podgroups.{door.api_version.partition('/')[0]}"


async def test_a_gang_that_lacks_members_is_told_once_on_its_pods_and_its_group() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        cluster.create(group("g", min_count=3), *(pod(f"g-{n}", 1, group="g") for n in range(2)))
        await cluster.pass_time(4 * SECOND)
        assert (_told(cluster, "g-0"), _events(cluster)) == ("", [])
        await cluster.pass_time(3 * SECOND)
        standing = ("False", "Unschedulable", _SHORT)
        for name in ("g-0", "g-1"):
            assert cluster.condition(cluster.pod(name), "PodScheduled") == standing
        type = "PodGroupInitiallyScheduled"
        assert cluster.condition(cluster.group("g"), type) == standing
        await cluster.pass_time(60 * SECOND)
        assert _events(cluster) == [("Pod", "g-0", _SHORT, 1), ("Pod", "g-1", _SHORT, 1)]
        cluster.create(pod("g-2", 1, group="g"))
        await cluster.until(lambda: len(cluster.placed()) == 3)
        assert cluster.condition(cluster.group("g"), type) == ("True", "Scheduled", "")


async def test_a_gang_that_is_completed_within_seconds_is_told_nothing() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        cluster.create(pod("g-0", 1, group="g"))
        await cluster.pass_time(2 * SECOND)
        cluster.create(group("g", min_count=2))
        await cluster.pass_time(4 * SECOND)
        assert (_told(cluster, "g-0"), _events(cluster)) == ("", [])
        cluster.create(pod("g-1", 1, group="g"))
        await cluster.until(lambda: len(cluster.placed()) == 2)
        await cluster.pass_time(20 * SECOND)
        assert _events(cluster) == []


async def test_a_pod_whose_group_is_not_there_is_told_and_then_what_else_is_missing() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        cluster.create(pod("g-0", 1, group="g"))
        await cluster.pass_time(7 * SECOND)
        assert _told(cluster, "g-0") == _MISSING
        cluster.create(group("g", min_count=2))
        await cluster.pass_time(7 * SECOND)
        assert _told(cluster, "g-0") == _SHORT
        assert sorted(note for _, _, note, _ in _events(cluster)) == [_SHORT, _MISSING]


async def test_a_condition_that_was_overwritten_is_written_again_without_an_event() -> None:
    async with memory() as cluster:
        cluster.start()
        cluster.create(pod("g-0", 1, group="g"))
        await cluster.pass_time(7 * SECOND)
        found = cluster.pod("g-0")
        cluster.api.put("pods", {**found, "status": {**found["status"], "conditions": []}})
        await cluster.pass_time(60 * SECOND)
        assert _told(cluster, "g-0") == _MISSING
        assert _events(cluster) == [("Pod", "g-0", _MISSING, 1)]


async def test_the_next_process_repeats_no_event() -> None:
    async with memory() as cluster:
        cluster.start()
        cluster.create(pod("g-0", 1, group="g"))
        await cluster.pass_time(7 * SECOND)
        await cluster.stop()
        cluster.start()
        await cluster.pass_time(60 * SECOND)
        assert _events(cluster) == [("Pod", "g-0", _MISSING, 1)]


async def test_events_name_their_scheduler_where_kube_scheduler_does() -> None:
    """Its recorded events have an empty `source` as well, and `reportingComponent`."""
    async with memory() as cluster:
        cluster.start("mine")
        cluster.create(pod("g-0", 1, group="g", scheduler="mine"), pod("p", 1, scheduler="mine"))
        await cluster.pass_time(7 * SECOND)
        found = {e["regarding"]["name"]: e for e in cluster.events("FailedScheduling")}
        assert found.keys() == {"g-0", "p"}
        for each in found.values():
            assert each["reportingController"] == "mine"
            assert "deprecatedSource" not in each


async def test_a_pod_with_scheduling_gates_is_left_to_the_api_server() -> None:
    async with memory() as cluster:
        cluster.start()
        cluster.create(pod("g-0", 1, group="g", schedulingGates=[{"name": "later"}]))
        await cluster.pass_time(10 * SECOND)
        assert (_told(cluster, "g-0"), _events(cluster)) == ("", [])


def _member(name: str, door: Door) -> Object:
    made = pod(name, 1)
    made["metadata"]["labels"] = {door.label: "g"}
    return made


@pytest.mark.parametrize("door", [KOORDINATOR, SCHEDULER_PLUGINS], ids=lambda door: door.label)
async def test_a_gang_of_an_older_front_door_is_told_in_the_words_of_its_gate(door: Door) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        cluster.create(_member("g-0", door))
        await cluster.pass_time(8 * SECOND)
        missing = f"gang has not init, gangName: {NAMESPACE}/g, podName: {NAMESPACE}/g-0"
        assert _told(cluster, "g-0") == missing
        made: dict[str, Any] = {
            "apiVersion": door.api_version,
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": NAMESPACE},
            "spec": {"minMember": 2},
        }
        cluster.api.put(_groups(cluster, door), made)
        await cluster.pass_time(8 * SECOND)
        gang = f"{NAMESPACE}/g"
        short = (
            f"gangGroup [{gang}] basic check: memberGangs [{gang}] child pod not collect enough, "
            f"current gang: {gang}, podName: {NAMESPACE}/g-0"
        )
        assert _told(cluster, "g-0") == short
        await cluster.pass_time(40 * SECOND)
        assert _events(cluster) == sorted(
            [("Pod", "g-0", missing, 1), ("Pod", "g-0", short, 1), ("PodGroup", "g", short, 1)]
        )
        cluster.create(_member("g-1", door))
        await cluster.until(lambda: len(cluster.placed()) == 2)
