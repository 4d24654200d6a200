"""What pods of gangs are told when they do not fit, wait, or have to leave Permit.

The gangs are those of annotations where it is no matter, so that no PodGroup has to be there.
"""

from __future__ import annotations

from typing import Any

from kubeworld.units.durations import SECOND
from reprieve.api.gangs import SCHEDULER_PLUGINS
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, pod

NAME = "koord-scheduler"
PREFIX = "gang.scheduling.koordinator.sh/"


def member(name: str, cpu: int, **said: str) -> Object:
    made = pod(name, cpu, priority="low", scheduler=NAME)
    notes = {"name": "g", "min-available": "2", **said}
    made["metadata"]["annotations"] = {f"{PREFIX}{key}": text for key, text in notes.items()}
    return made


def start(cluster: Memory, **arguments: Any) -> None:
    args = {"kind": "CoschedulingArgs", **arguments}
    profile = {"schedulerName": NAME, "pluginConfig": [{"name": "Coscheduling", "args": args}]}
    cluster.start(
        section={
            "configuration": {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [profile],
            }
        }
    )


def message(cluster: Memory, name: str) -> str:
    return cluster.condition(cluster.pod(name), "PodScheduled")[2]


async def test_the_member_that_does_not_fit_is_told_that_its_strict_gang_is_rejected() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.create(member("g-0", 3), member("g-1", 3))
        start(cluster, enablePreemption=False)
        await cluster.until(lambda: message(cluster, "g-0"))
        fit = "0/1 nodes are available: 1 Insufficient cpu."
        gang = f"{NAMESPACE}/g"
        assert message(cluster, "g-1") == (
            f'{fit} Gang "{gang}" gets rejected due to pod is unschedulable'
        )
        assert message(cluster, "g-0") == (
            f'GangGroup "{gang}" gets rejected due to member Pod "{NAMESPACE}/g-1" is '
            f'unschedulable with reason "{fit}", alreadyWaitForBound: 1'
        )


async def test_a_pod_group_of_scheduler_plugins_is_rejected_in_its_own_words() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        group = {
            "apiVersion": SCHEDULER_PLUGINS.api_version,
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": NAMESPACE},
            "spec": {"minMember": 2},
        }
        cluster.api.put("podgroups.scheduling.x-k8s.io", group)
        for name in ("g-0", "g-1"):
            made = pod(name, 3, priority="low", scheduler=NAME)
            made["metadata"]["labels"] = {SCHEDULER_PLUGINS.label: "g"}
            cluster.create(made)
        start(cluster, enablePreemption=False)
        await cluster.until(lambda: message(cluster, "g-1"))
        assert message(cluster, "g-1") == (
            "0/1 nodes are available: 1 Insufficient cpu. "
            f"PodGroup {NAMESPACE}/g gets rejected due to Pod g-1 is unschedulable even after "
            "PostFilter"
        )


async def test_a_gang_that_is_not_strict_is_not_told_that_it_is_rejected() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.create(*(member(f"g-{i}", 3, mode="NonStrict") for i in range(2)))
        start(cluster, enablePreemption=False)
        await cluster.until(lambda: message(cluster, "g-1"))
        assert message(cluster, "g-1") == "0/1 nodes are available: 1 Insufficient cpu."


def _waits_in_permit(cluster: Memory) -> None:
    """A gang of which one runs, and the other waits for more on node-0: its room is taken."""
    cluster.nodes([4, 2])
    policy = {"match-policy": "only-waiting", "waiting-time": "600s"}
    cluster.running(member("g-0", 2, **policy), "node-1")
    cluster.create(member("g-1", 4, **policy))


async def test_a_victim_that_waits_in_permit_is_only_rejected_there() -> None:
    async with memory() as cluster:
        _waits_in_permit(cluster)
        start(cluster)
        await cluster.until(lambda: "waits for members" in message(cluster, "g-1"))
        cluster.create(pod("alone", 4, priority="high", scheduler=NAME))
        await cluster.until(lambda: "alone" in cluster.placed(), 5 * SECOND)
        assert cluster.placed()["alone"] == "node-0"
        assert not cluster.victims() and not cluster.api.deleted
        (told,) = cluster.events("Preempted")
        uid = cluster.pod("alone")["metadata"]["uid"]
        assert told["note"] == f"Preempted by pod {uid} on node node-0"
        assert told["regarding"]["name"] == "g-1"
        await cluster.pass_time(SECOND)
        assert "0/2 nodes are available" in message(cluster, "g-1")


async def test_the_room_of_those_whose_time_in_permit_is_over_is_offered_to_others() -> None:
    async with memory() as cluster:
        _waits_in_permit(cluster)
        start(cluster)
        await cluster.until(lambda: "waits for members" in message(cluster, "g-1"))
        waiting = pod("waiting", 4, priority="low", scheduler=NAME, preemptionPolicy="Never")
        cluster.create(waiting)
        await cluster.pass_time(590 * SECOND)
        assert "waiting" not in cluster.placed()
        # It goes before the gang among equals, which comes back into the queue later.
        await cluster.until(lambda: "waiting" in cluster.placed(), 20 * SECOND)


async def test_pods_that_are_bound_together_say_with_whom() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.create(member("g-0", 2), member("g-1", 2))
        start(cluster)
        await cluster.until(lambda: len(cluster.placed()) == 2)
        cluster.nodes([4, 4])
        cluster.create(member("g-2", 2))
        await cluster.until(lambda: len(cluster.placed()) == 3)
        # One that was made from a pod that went with others goes alone.
        again = pod("again", 2, scheduler=NAME)
        again["metadata"]["annotations"] = {
            **cluster.pod("g-0")["metadata"]["annotations"],
            "example.com/kept": "yes",
        }
        cluster.create(again)
        await cluster.until(lambda: len(cluster.placed()) == 4)
        own = member("again", 2)["metadata"]["annotations"]
        kept = {**own, "example.com/kept": "yes"}
        assert cluster.pod("again")["metadata"]["annotations"] == kept
        for name, said in (("g-0", (f"{NAMESPACE}/g", "2")), ("g-2", (None, None))):
            notes = cluster.pod(name)["metadata"]["annotations"]
            for prefix in ("internal.scheduling.koordinator.sh", "scheduling.koordinator.sh"):
                keys = ("bind-gang-group-id", "bind-gang-member-count")
                assert tuple(notes.get(f"{prefix}/{key}") for key in keys) == said
