"""`nonUniformGroups` on a running plane: annotations are read live, recorded, and told when bad."""

from __future__ import annotations

from typing import Any

import msgspec

from reprieve.answers.preemptions.recorded import differences
from reprieve.api.reprieve import Preemption
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.records.scheduling.replay import decide_scheduling_again
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import Object, group, pod

FLOOR, DISRUPTION = "reprieve.dev/disruption-floor", "reprieve.dev/disruption"
SECTION = {"nonUniformGroups": True}
ALL = {"serving-0", "serving-1", "serving-2"}


def saying(obj: Object, key: str, value: str) -> Object:
    obj["metadata"]["annotations"] = {key: value}
    return obj


def serving(cluster: Memory, floor: str = "", leader: str = "", **spec: Any) -> None:
    """A group on three nodes, and a pod that waits for one of them."""
    cluster.nodes([4, 4, 4])
    cluster.create(saying(group("serving", min_count=1, priority="low"), FLOOR, floor))
    for number in range(3):
        name = f"serving-{number}"
        said = "with-group" if name == leader else ""
        row = pod(name, 4, group="serving", priority="low")
        cluster.running(saying(row, DISRUPTION, said), f"node-{number}")
    cluster.create(pod("waiting", 4, priority="high", **spec))


def replay(cluster: Memory) -> None:
    """What was recorded gives the same plan again."""
    (intent,) = cluster.intents()
    record = msgspec.convert(intent, Preemption)
    given: Any = record.spec.input
    again = decide_scheduling_again(given, GROUP_POST_FILTERS)
    assert differences(record.spec, again) == ""


async def test_above_the_floor_one_pod_goes_and_below_it_all_do() -> None:
    async with memory() as cluster:
        serving(cluster, "2")
        cluster.start(section=SECTION)
        await cluster.until(lambda: len(cluster.victims()) == 1)
        replay(cluster)
    async with memory() as cluster:
        serving(cluster, "3")
        cluster.start(section=SECTION)
        await cluster.until(lambda: cluster.victims() == ALL)
        replay(cluster)


async def test_a_leader_stays_where_another_may_go_and_else_goes_with_all() -> None:
    async with memory() as cluster:
        serving(cluster, leader="serving-0")
        cluster.start(section=SECTION)
        await cluster.until(lambda: len(cluster.victims()) == 1)
        assert "serving-0" not in cluster.victims()
    async with memory() as cluster:
        there = {"kubernetes.io/hostname": "node-0"}
        serving(cluster, leader="serving-0", nodeSelector=there)
        cluster.start(section=SECTION)
        await cluster.until(lambda: cluster.victims() == ALL)
        replay(cluster)


async def test_without_the_option_nothing_changes() -> None:
    async with memory() as cluster:
        serving(cluster, "3")
        cluster.start()
        await cluster.until(lambda: len(cluster.victims()) == 1)


async def test_what_is_not_accepted_is_told() -> None:
    async with memory() as cluster:
        cluster.nodes([16])
        cluster.create(saying(group("gang", min_count=1, priority="low"), FLOOR, "most"))
        row = pod("member", 1, group="gang", priority="low")
        cluster.running(saying(row, DISRUPTION, "alone"), "node-0")
        row = pod("single", 1, priority="low")
        cluster.running(saying(row, DISRUPTION, "with-group"), "node-0")
        cluster.start(section=SECTION)
        await cluster.until(lambda: len(cluster.events("DisruptionIgnored")) == 3)
        assert {
            each["regarding"]["name"]: each["note"] for each in cluster.events("DisruptionIgnored")
        } == {
            "gang": f"{FLOOR} is ignored; accepted: a whole number from 1 on",
            "member": f"{DISRUPTION}: alone is ignored; accepted: with-group",
            "single": (
                f"{DISRUPTION} is ignored: the pod is in no group; accepted: on pods of a group"
            ),
        }
