"""The scheduling plane asks the governor of disruptions: who is held, from whom, and for how long.

Work comes back as new objects of the same owner, as deleted pods do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.answers.preemptions.recorded import differences
from reprieve.api.reprieve import Preemption
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.disruptions.questions import Enforcement, GovernorPolicy
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.records.scheduling.replay import decide_scheduling_again
from reprieve.records.scheduling.story import pod_story
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod

#: With which also a strictly higher priority is held, as all victims of this plane let it be.
ALL = GovernorPolicy(enforcement=Enforcement.ALL)


def owned(obj: Object, owner: str) -> Object:
    """Return a pod that a ReplicaSet with this uid has made."""
    reference = {"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}


def failed(cluster: Memory, name: str) -> None:
    """A pod's container ends with an error now, and its pod is over."""
    found = cluster.pod(name)
    ended = {"exitCode": 1, "finishedAt": format_instant(cluster.clock.wall())}
    status = {
        **found["status"],
        "phase": "Failed",
        "containerStatuses": [{"name": "c", "state": {"terminated": ended}}],
    }
    cluster.api.put("pods", {**found, "status": status})


def stuck(cluster: Memory, name: str) -> None:
    """A pod's container cannot be started."""
    found = cluster.pod(name)
    waiting = {"waiting": {"reason": "ImagePullBackOff"}}
    status = {**found["status"], "containerStatuses": [{"name": "c", "state": waiting}]}
    cluster.api.put("pods", {**found, "status": status})


async def one_turn(cluster: Memory, number: int, ends: Any = failed) -> bool:
    """Let the victim run again, and the preemptor come; return whether it displaced the victim."""
    victim, crasher = f"victim-{number}", f"crasher-{number}"
    cluster.running(owned(pod(victim, 4, priority="low"), "victims"), "node-0")
    cluster.create(owned(pod(crasher, 4, priority="high"), "crashers"))
    told = len(cluster.events("FailedScheduling"))
    await cluster.until(lambda: cluster.victims() or len(cluster.events("FailedScheduling")) > told)
    await cluster.pass_time(2 * SECOND)
    if not cluster.victims():
        cluster.end(victim, crasher)
        await cluster.pass_time(MINUTE)
        return False
    cluster.end_all()
    await cluster.until(lambda: crasher in cluster.placed())
    await cluster.pass_time(10 * SECOND)
    ends(cluster, crasher)
    await cluster.pass_time(SECOND)
    cluster.end(crasher)
    await cluster.pass_time(MINUTE)
    return True


@pytest.mark.parametrize("ends", [failed, stuck], ids=["crashes", "never-starts"])
async def test_who_fails_after_each_eviction_evicts_nobody_after_the_third_for_an_hour(
    ends: Any,
) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start(governor=Governor(ALL))
        turns = [await one_turn(cluster, number, ends) for number in range(6)]
        assert turns == [True, True, True, False, False, False]
        assert cluster.api.deleted["victim-3"] == 0
        cluster.running(owned(pod("last", 4, priority="low"), "victims"), "node-0")
        cluster.create(owned(pod("again", 4, priority="high"), "crashers"))
        await cluster.until(
            lambda: (
                "failed again and again"
                in str(cluster.condition(cluster.pod("again"), "PodScheduled"))
            )
        )
        # Nothing else happens: it is tried again when it was said to be.
        await cluster.pass_time(50 * MINUTE)
        assert cluster.victims() == set()
        await cluster.until(lambda: cluster.victims() == {"last"}, most=10 * MINUTE)


async def test_who_comes_to_work_after_each_eviction_is_not_held() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        nothing: Any = lambda cluster, name: None  # noqa: E731
        assert [await one_turn(cluster, number, nothing) for number in range(5)] == [True] * 5


async def test_others_displace_the_victims_of_a_crash_loop() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start(governor=Governor(ALL))
        for number in range(3):
            assert await one_turn(cluster, number)
        cluster.running(owned(pod("last", 4, priority="low"), "victims"), "node-0")
        cluster.create(owned(pod("other", 4, priority="middle"), "others"))
        await cluster.until(lambda: cluster.victims() == {"last"})


def _is_placed(cluster: Memory, name: str) -> bool:
    return name in cluster.placed()


async def test_a_crash_loop_is_held_by_the_next_process_too_as_far_as_pods_still_say_it() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4, 4, 4])
        cluster.start(governor=Governor(ALL))
        for number in range(3):
            cluster.running(owned(pod(f"victim-{number}", 4, priority="low"), "victims"), "node-0")
            for node in (1, 2, 3):
                if number == 0:
                    cluster.running(pod(f"full-{node}", 4, priority="high"), f"node-{node}")
            cluster.create(owned(pod(f"crasher-{number}", 4, priority="high"), "crashers"))
            await cluster.until(cluster.victims)
            cluster.end_all()
            await cluster.until(partial(_is_placed, cluster, f"crasher-{number}"))
            failed(cluster, f"crasher-{number}")
            await cluster.pass_time(MINUTE)
        await cluster.stop()
        cluster.running(owned(pod("last", 4, priority="low"), "victims"), "node-0")
        cluster.create(owned(pod("again", 4, priority="high"), "crashers"))
        cluster.start(governor=Governor(ALL))
        await cluster.until(lambda: cluster.events("FailedScheduling"))
        await cluster.pass_time(MINUTE)
        assert cluster.victims() == set()


def displaced_thrice(cluster: Memory, actor: Actor, owner: str) -> Governor:
    """Return the governor of a process in which another plane displaced this work three times."""
    governor = Governor(GovernorPolicy(enforcement=Enforcement.ALL))
    for number in range(3):
        at = Nanos(cluster.clock.wall() - (3 - number) * MINUTE)
        victim = Participant(Lineage(f"owner/{owner}"), NAMESPACE)
        governor.record(Displacement(at, actor, None, victim, f"{owner}-{number}"))
    return governor


@pytest.mark.parametrize("actor", [Actor.IDLE, Actor.QUOTA, Actor.OTHER])
async def test_work_that_other_planes_displaced_again_and_again_is_left_alone_for_a_while(
    actor: Actor,
) -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        governor = displaced_thrice(cluster, actor, "weary")
        cluster.running(owned(pod("weary", 4, priority="low"), "weary"), "node-0")
        cluster.running(owned(pod("fresh", 4, priority="middle"), "fresh"), "node-1")
        cluster.create(pod("one", 4, priority="high"))
        cluster.start(governor=governor)
        start = cluster.clock.monotonic()
        # Another victim is found, though of a higher priority.
        await cluster.until(lambda: cluster.victims() == {"fresh"})
        cluster.end("fresh")
        await cluster.until(lambda: cluster.placed().get("one") == "node-1")
        cluster.create(pod("two", 4, priority="high"))
        await cluster.until(lambda: cluster.victims() == {"weary"}, most=3 * MINUTE)
        assert cluster.clock.monotonic() - start >= 2 * MINUTE


async def test_a_group_that_goes_as_a_whole_is_held_as_a_whole() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        governor = displaced_thrice(cluster, Actor.IDLE, "weary")
        cluster.create(group("team", min_count=2, mode="all", priority="low"))
        for number, owner in enumerate(("weary", "else")):
            member = pod(f"team-{number}", 4, group="team", priority="low")
            cluster.running(owned(member, owner), f"node-{number}")
        cluster.create(pod("one", 4, priority="high"))
        cluster.start(governor=governor)
        await cluster.until(lambda: cluster.events("FailedScheduling"))
        await cluster.pass_time(MINUTE)
        assert cluster.victims() == set()
        await cluster.until(lambda: cluster.victims() == {"team-0", "team-1"}, most=2 * MINUTE)


async def test_the_record_says_who_was_held_and_gives_the_same_plan() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        governor = displaced_thrice(cluster, Actor.IDLE, "weary")
        cluster.running(owned(pod("weary", 4, priority="low"), "weary"), "node-0")
        cluster.running(owned(pod("fresh", 4, priority="middle"), "fresh"), "node-1")
        cluster.create(pod("one", 4, priority="high"))
        cluster.start(governor=governor)
        until = cluster.clock.wall() + 2 * MINUTE
        await cluster.until(lambda: cluster.victims() == {"fresh"})
        (intent,) = cluster.intents()
        record = msgspec.convert(intent, Preemption)
        given: Any = record.spec.input
        again = decide_scheduling_again(given, GROUP_POST_FILTERS)
        assert differences(record.spec, again) == ""
        text = "\n".join(pod_story(record, again))
        end = format_instant(Nanos(until))
        assert f"stays: held from the preemptor until {end} (repeated displacement)" in text


async def test_what_the_plane_displaces_counts_for_the_others() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        governor = Governor()
        weary = Participant(Lineage("owner/weary"), NAMESPACE)
        cluster.running(owned(pod("weary", 4, priority="low"), "weary"), "node-0")
        cluster.create(owned(pod("one", 4, priority="high"), "ones"))
        cluster.start(governor=governor)
        await cluster.until(lambda: cluster.victims() == {"weary"})
        now = cluster.clock.wall()
        assert governor.displaced(weary, now) == 1
        assert governor.times(Participant(Lineage("owner/ones")), weary, now) == 1


@pytest.mark.parametrize(
    ("policy", "times"), [(ALL, 2), (GovernorPolicy(), 6)], ids=["all-held", "strict"]
)
async def test_a_preemptor_whose_room_others_take_each_time_stops_after_two_where_all_are_held(
    policy: GovernorPolicy, times: int
) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start(governor=Governor(policy))
        cluster.create(owned(pod("one", 4, priority="high"), "ones"))
        for number in range(6):
            cluster.running(owned(pod(f"low-{number}", 4, priority="low"), "lows"), "node-0")
            await cluster.pass_time(MINUTE)
            if not cluster.victims():
                break
            # Another scheduler, which knows of no nomination, is quicker each time.
            cluster.end_all()
        assert cluster.api.deleted == {f"low-{number}": 1 for number in range(times)}
        _, _, said = cluster.condition(cluster.pod("one"), "PodScheduled")
        held = "preempted for it before, and it got nothing of it" in said
        assert held == (policy is ALL)


async def test_a_restart_knows_of_each_displacement_what_the_former_process_knew() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(owned(pod("low", 4, priority="low"), "lows"), "node-0")
        cluster.create(owned(pod("one", 4, priority="high"), "ones"))
        former, later = Governor(), Governor()
        cluster.start(governor=former)
        await cluster.until(lambda: cluster.victims() == {"low"})
        cluster.end_all()
        await cluster.until(lambda: "one" in cluster.placed())
        await cluster.stop()
        cluster.start(governor=later)
        await cluster.pass_time(MINUTE)
        (before,), (after,) = former.rows, later.rows
        assert before.victim.weak and before.preemptor is not None and before.above > 0
        assert replace(after, at=before.at) == before
        assert abs(after.at - before.at) < SECOND


async def evicted_by_others(cluster: Memory, name: str, reason: str) -> None:
    """Somebody else evicts a pod, as its condition says, and it is gone."""
    cluster.running(owned(pod(name, 4, priority="low"), "weary"), "node-0")
    await cluster.pass_time(SECOND)
    found = cluster.pod(name)
    said = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    cluster.api.put("pods", {**found, "status": {**found["status"], "conditions": [said]}})
    await cluster.pass_time(SECOND)
    cluster.end(name)
    await cluster.pass_time(MINUTE)


@pytest.mark.parametrize(
    ("reason", "watched", "cordoned", "times"),
    [
        ("PreemptionByScheduler", True, False, 3),
        ("EvictionByEvictionAPI", True, False, 3),
        ("EvictionByEvictionAPI", True, True, 0),
        ("DeletionByTaintManager", True, False, 0),
        ("PreemptionByScheduler", False, False, 0),
    ],
    ids=["other-scheduler", "eviction", "drain", "node-failure", "not-watched"],
)
async def test_what_others_evict_counts_for_its_protection_where_that_is_watched(
    reason: str, watched: bool, cordoned: bool, times: int
) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        if cordoned:
            node = cluster.api.objects["nodes"]["", "node-0"]
            cluster.api.put("nodes", {**node, "spec": {"unschedulable": True}})
        governor = Governor()
        cluster.start(governor=governor, watch_others=watched)
        for number in range(3):
            await evicted_by_others(cluster, f"pod-{number}", reason)
        weary = Participant(Lineage("owner/weary"), NAMESPACE)
        assert governor.displaced(weary, cluster.clock.wall()) == times
        assert all(row.actor is Actor.OTHER and row.preemptor is None for row in governor.rows)


async def test_what_the_plane_evicts_itself_is_no_other_actors_doing() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        governor = Governor()
        cluster.running(owned(pod("low", 4, priority="low"), "lows"), "node-0")
        cluster.create(owned(pod("one", 4, priority="high"), "ones"))
        cluster.start(governor=governor, watch_others=True)
        await cluster.until(lambda: cluster.victims() == {"low"})
        await cluster.pass_time(10 * SECOND)
        assert [row.actor for row in governor.rows] == [Actor.SCHEDULING]


async def test_after_a_restart_own_evictions_are_no_other_actors_doing() -> None:
    """The victim is still there, and says that it is evicted, when the next process lists pods."""
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(owned(pod("low", 4, priority="low"), "lows"), "node-0")
        cluster.create(owned(pod("one", 4, priority="high"), "ones"))
        cluster.start(governor=Governor(), watch_others=True)
        await cluster.until(lambda: cluster.victims() == {"low"})
        await cluster.pass_time(SECOND)
        found = cluster.pod("low")
        said = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        cluster.api.put("pods", {**found, "status": {**found["status"], "conditions": [said]}})
        await cluster.stop()
        governor = Governor()
        cluster.start(governor=governor, watch_others=True)
        await cluster.pass_time(10 * SECOND)
        assert [row.actor for row in governor.rows] == [Actor.SCHEDULING]
