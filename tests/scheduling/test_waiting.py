"""Who waits is told why in an event, counted in a metric, and answered for when asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant
from reprieve.answers.preemptions.decided_again import decided_again
from reprieve.api.gangs import KOORDINATOR, SCHEDULER_PLUGINS, Door
from reprieve.engine.diagnosis.model import Change, Fix
from reprieve.engine.diagnosis.reasons import REASONS
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.outcome import Unit
from reprieve.telemetry.decision_log import DecisionLog
from reprieve.units.ids import Uid
from tests.scheduling.memory import Inline, Memory, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod


def _told(cluster: Memory) -> list[tuple[str, str, str, int]]:
    """Return kind, name, reason's word and count of our events about who waits."""
    found = []
    for each in cluster.events("Waiting"):
        count = (each.get("series") or {}).get("count", 1)
        about = each["regarding"]
        found.append((about["kind"], about["name"], each["note"].partition(":")[0], count))
    return sorted(found)


def _counted(cluster: Memory) -> dict[str, float]:
    """Return how many units wait, by reason, without those of nobody."""
    registry = cluster.planes[-1].context.metrics.registry
    found = {}
    for reason in REASONS[Plane.SCHEDULING]:
        labels = {"plane": "scheduling", "reason": str(reason)}
        number = registry.get_sample_value("reprieve_waiting_units", labels)
        if number:
            found[str(reason)] = number
    return found


def _reason(cluster: Memory, kind: str, name: str) -> str:
    unit = cluster.planes[-1].waiting.unit(kind, NAMESPACE, name)
    return "" if unit is None else str(unit.diagnosis.reason)


async def test_a_gang_that_lacks_members_is_told_once_on_its_group() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        cluster.create(group("g", min_count=3), *(pod(f"g-{n}", 1, group="g") for n in range(2)))
        await cluster.pass_time(3 * SECOND)
        assert _told(cluster) == []
        await cluster.pass_time(60 * SECOND)
        assert _told(cluster) == [("PodGroup", "g", "GroupIncomplete", 1)]
        (event,) = cluster.events("Waiting")
        assert event["note"] == "GroupIncomplete: 2 of 3 pods exist: 1 is missing"
        assert _counted(cluster) == {"GroupIncomplete": 1}
        assert _reason(cluster, "PodGroup", "g") == "GroupIncomplete"
        assert _reason(cluster, "Pod", "g-1") == "GroupIncomplete"
        cluster.create(pod("g-2", 1, group="g"))
        await cluster.until(lambda: len(cluster.placed()) == 3)
        await cluster.pass_time(10 * SECOND)
        assert _counted(cluster) == {}
        assert _reason(cluster, "PodGroup", "g") == ""


async def test_pods_that_name_a_group_that_is_not_there_are_told_each() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        cluster.create(*(pod(f"g-{n}", 1, group="g") for n in range(2)))
        await cluster.pass_time(20 * SECOND)
        assert _told(cluster) == [("Pod", f"g-{n}", "GroupMissing", 1) for n in range(2)]
        assert _counted(cluster) == {"GroupMissing": 1}
        cluster.create(group("g", min_count=3))
        await cluster.pass_time(20 * SECOND)
        assert _told(cluster)[2:] == [("PodGroup", "g", "GroupIncomplete", 1)]


async def test_a_pod_is_told_each_new_reason_once_and_keeps_the_words_of_kube_scheduler() -> None:
    async with memory() as cluster:
        cluster.nodes([4], zone="a")
        cluster.start()
        cluster.running(pod("old", 4), "node-0")
        cluster.create(pod("p", 4))
        await cluster.pass_time(30 * SECOND)
        assert _told(cluster) == [("Pod", "p", "Full", 1)]
        said = cluster.condition(cluster.pod("p"), "PodScheduled")[2]
        assert said.startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert _counted(cluster) == {"Full": 1}
        cluster.create(pod("q", 8))
        await cluster.pass_time(30 * SECOND)
        assert _told(cluster) == [("Pod", "p", "Full", 1), ("Pod", "q", "NoNodeMatches", 1)]
        assert _counted(cluster) == {"Full": 1, "NoNodeMatches": 1}
        cluster.end("old")
        await cluster.until(lambda: "p" in cluster.placed())
        await cluster.pass_time(10 * SECOND)
        assert _counted(cluster) == {"NoNodeMatches": 1}


async def test_what_a_pod_is_refused_on_is_sampled_and_can_be_decided_again() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        written: list[bytes] = []
        cluster.start(decision_log=DecisionLog(cluster.clock, written.append))
        cluster.running(pod("first", 4, priority="high"), "node-0")
        cluster.create(pod("second", 4, priority="high"))
        await cluster.pass_time(20 * SECOND)
        (sample,) = [each for line in written if "input" in (each := json.loads(line))]
        assert (sample["plane"], sample["kind"], sample["name"]) == ("scheduling", "Pod", "second")
        said = [each for line in written if "sentence" in (each := json.loads(line))]
        assert decided_again("scheduling", sample["input"]) == f"{said[0]['sentence']}."
        assert sample["reason"] == said[0]["reason"]


async def test_the_decision_log_has_a_line_for_each_reason_and_one_for_the_start() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        written: list[bytes] = []
        cluster.start(decision_log=DecisionLog(cluster.clock, written.append))
        cluster.running(pod("low", 4, priority="low"), "node-0")
        cluster.create(pod("g-0", 1, group="g"), pod("high", 4, priority="high"))
        await cluster.pass_time(20 * SECOND)
        cluster.create(group("g", min_count=2))
        await cluster.pass_time(20 * SECOND)
        cluster.end_all()
        await cluster.until(lambda: "high" in cluster.placed())
        await cluster.pass_time(10 * SECOND)
        cluster.end("high")
        cluster.create(pod("g-1", 1, group="g"))
        await cluster.until(lambda: {"g-0", "g-1"} <= set(cluster.placed()))
        await cluster.pass_time(20 * SECOND)
        found = [json.loads(line) for line in written]
        of_group = [each for each in found if each["name"] == "g"]
        assert [(each["kind"], each["previous"], each["reason"]) for each in of_group] == [
            ("PodGroup", "", "GroupMissing"),
            ("PodGroup", "GroupMissing", "GroupIncomplete"),
            ("PodGroup", "GroupIncomplete", ""),
        ]
        uid = cluster.group("g")["metadata"]["uid"]
        assert [each["uid"] for each in of_group] == ["", uid, uid]
        of_pod = [each for each in found if each["name"] == "high"]
        assert [(each["previous"], each["reason"]) for each in of_pod] == [
            ("", "VictimsLeaving"),
            ("VictimsLeaving", ""),
        ]
        assert {each["kind"] for each in of_pod} == {"Pod"}
        assert "they are to have ended by" in of_pod[0]["sentence"]
        assert len(found) == len(of_group) + len(of_pod)


async def test_who_waits_for_victims_is_told_so_and_until_when() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        plane = cluster.start()
        cluster.running(pod("low", 4, priority="low"), "node-0")
        cluster.create(pod("high", 4, priority="high"))
        await cluster.pass_time(15 * SECOND)
        assert cluster.victims() == {"low"}
        assert _told(cluster) == [("Pod", "high", "VictimsLeaving", 1)]
        (event,) = cluster.events("Waiting")
        found = plane.diagnosis("Pod", NAMESPACE, "high", fixes=True)
        assert found is not None and found.earliest is not None
        until = format_instant(found.earliest)
        assert f"1 pod on the way out; they are to have ended by {until}" in event["note"]
        assert found.fixes == (Fix(Change.WAIT, "", "", until),)
        cluster.end_all()
        await cluster.until(lambda: "high" in cluster.placed())
        await cluster.pass_time(10 * SECOND)
        assert _counted(cluster) == {}


async def test_the_next_process_tells_only_whose_reason_changes() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        cluster.running(pod("old", 4), "node-0")
        cluster.create(pod("p", 4), pod("g-0", 1, group="g"))
        await cluster.pass_time(30 * SECOND)
        before = [("Pod", "g-0", "GroupMissing", 1), ("Pod", "p", "Full", 1)]
        assert _told(cluster) == before
        await cluster.stop()
        cluster.start()
        await cluster.pass_time(30 * SECOND)
        assert _told(cluster) == before
        assert _counted(cluster) == {"GroupMissing": 1, "Full": 1}
        cluster.create(group("g", min_count=2))
        await cluster.pass_time(30 * SECOND)
        assert _told(cluster) == [*before, ("PodGroup", "g", "GroupIncomplete", 1)]


async def test_a_pod_with_scheduling_gates_waits_for_nothing_of_ours() -> None:
    async with memory() as cluster:
        cluster.start()
        gated = pod("p", 1)
        gated["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
        cluster.create(gated)
        await cluster.pass_time(20 * SECOND)
        assert (_told(cluster), _counted(cluster)) == ([], {})


def _pod_group(door: Door, minimum: int) -> Object:
    metadata = {"name": "g", "namespace": NAMESPACE}
    spec = {"minMember": minimum, "scheduleTimeoutSeconds": 60}
    return {
        "apiVersion": door.api_version,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


def _member(door: Door, name: str, cpus: int = 1) -> Object:
    found = pod(name, cpus)
    label = "pod-group.scheduling.sigs.k8s.io"
    if door is SCHEDULER_PLUGINS:
        label = "scheduling.x-k8s.io/pod-group"
    found["metadata"]["labels"] = {**found["metadata"].get("labels", {}), label: "g"}
    return found


@pytest.mark.parametrize("door", [KOORDINATOR, SCHEDULER_PLUGINS], ids=["koordinator", "plugins"])
async def test_gangs_of_the_older_front_doors_are_told_in_the_same_words(door: Door) -> None:
    async with memory() as cluster:
        cluster.nodes([2])
        cluster.start()
        kind = f"podgroups.{door.api_version.partition('/')[0]}"
        cluster.create(_member(door, "g-0"))
        await cluster.pass_time(20 * SECOND)
        assert _told(cluster) == [("Pod", "g-0", "GroupMissing", 1)]
        cluster.api.put(kind, _pod_group(door, 3))
        await cluster.pass_time(20 * SECOND)
        assert _told(cluster)[1:] == [("PodGroup", "g", "GroupIncomplete", 1)]
        assert _reason(cluster, "PodGroup", "g") == "GroupIncomplete"
        cluster.create(_member(door, "g-1"), _member(door, "g-2"))
        await cluster.pass_time(20 * SECOND)
        assert _counted(cluster) == {"Full": 1}
        assert ("PodGroup", "g", "Full", 1) in _told(cluster)


async def test_a_waiting_gang_is_answered_for_with_figures_and_a_change_that_helps() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        plane = cluster.start()
        cluster.running(pod("old", 2), "node-0")
        cluster.create(group("g", min_count=4), *(pod(f"g-{n}", 2, group="g") for n in range(4)))
        await cluster.pass_time(10 * SECOND)
        found = plane.diagnosis("Pod", NAMESPACE, "g-2", fixes=True)
        assert found is not None
        assert found == plane.diagnosis("PodGroup", NAMESPACE, "g", fixes=True)
        assert (found.reason, found.deficit) == ("Full", {("", "cpu"): 2_000})
        assert [each.holder.name for each in found.blockers] == ["old"]
        path = "spec.schedulingPolicy.gang.minCount"
        assert found.fixes == (Fix(Change.FEWER_PODS, path, "4", "3"),)
        assert plane.diagnosis("Pod", NAMESPACE, "old") is None
        cluster.api.put("podgroups.scheduling.k8s.io", _with_minimum(cluster.group("g"), 3))
        await cluster.until(lambda: len(cluster.placed()) == 4)


async def test_a_waiting_gang_of_koordinator_is_answered_for_in_the_same_way() -> None:
    async with memory() as cluster:
        cluster.nodes([2])
        plane = cluster.start()
        kind = f"podgroups.{KOORDINATOR.api_version.partition('/')[0]}"
        cluster.api.put(kind, _pod_group(KOORDINATOR, 3))
        cluster.create(*(_member(KOORDINATOR, f"g-{n}") for n in range(3)))
        await cluster.pass_time(20 * SECOND)
        found = plane.diagnosis("PodGroup", NAMESPACE, "g")
        assert found is not None
        assert (found.reason, found.deficit) == ("Full", {("", "cpu"): 1_000})


def _with_minimum(obj: Object, minimum: int) -> Object:
    return {**obj, "spec": {**obj["spec"], "schedulingPolicy": {"gang": {"minCount": minimum}}}}


class _Failing(Inline):
    """Fails whatever it is to decide."""

    async def run(self, decide: Any, *args: Any) -> Any:
        await asyncio.sleep(0)
        raise RuntimeError("a fault of ours")


async def test_a_pod_about_which_nothing_was_decided_waits_for_the_end_of_its_pause() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        plane = cluster.start(solver=_Failing())
        cluster.create(pod("p", 1))
        await cluster.until(lambda: _reason(cluster, "Pod", "p") == "Backoff")
        found = plane.diagnosis("Pod", NAMESPACE, "p", fixes=True)
        assert found is not None and found.earliest is not None
        assert found.values == {"until": format_instant(found.earliest)}
        assert found.fixes == ()


async def test_a_pod_that_is_set_aside_says_until_when() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        plane = cluster.start()
        cluster.running(pod("old", 4), "node-0")
        cluster.create(pod("p", 4))
        await cluster.pass_time(5 * SECOND)
        assert _reason(cluster, "Pod", "p") == "Full"
        uid = Uid(cluster.pod("p")["metadata"]["uid"])
        plane.unrecorded.add_unrecorded(Unit((uid,)), OSError("no space"))
        found = plane.diagnosis("Pod", NAMESPACE, "p")
        assert found is not None and found.earliest is not None
        assert found.reason == "SetAside"
        assert found.earliest - cluster.clock.wall() == 10 * SECOND
