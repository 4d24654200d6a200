"""`preemptionPriority` on a running plane: live, recorded, and told where it has no effect."""

from __future__ import annotations

from typing import Any

import msgspec

from reprieve.answers.preemptions.recorded import differences
from reprieve.api.reprieve import Preemption
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.records.scheduling.replay import decide_scheduling_again
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import Object, group, pod

CLASS = "reprieve.dev/preemption-priority-class"
SECTION = {"preemptionPriority": {"cap": 500_000}}
CLASSES = "priorityclasses.scheduling.k8s.io"


def priority_class(name: str, value: int) -> Object:
    return {"metadata": {"name": name}, "value": value}


def saying(obj: Object, name: str) -> Object:
    obj["metadata"]["annotations"] = {CLASS: name}
    return obj


def replay(cluster: Memory) -> None:
    """What was recorded gives the same plan again."""
    (intent,) = cluster.intents()
    record = msgspec.convert(intent, Preemption)
    given: Any = record.spec.input
    again = decide_scheduling_again(given, GROUP_POST_FILTERS)
    assert differences(record.spec, again) == ""


async def test_protected_work_stays_until_it_says_so_no_longer() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        cluster.api.put(CLASSES, priority_class("steady", 300_000))
        for name, where in (("first", "node-0"), ("second", "node-1")):
            cluster.running(saying(pod(name, 4, priority="low"), "steady"), where)
        cluster.create(pod("waiting", 4, priority="high"))
        cluster.start(section=SECTION)
        await cluster.until(lambda: cluster.events("FailedScheduling"))
        assert cluster.victims() == set()
        cluster.api.put("pods", saying(cluster.pod("second"), ""))
        await cluster.until(lambda: cluster.victims() == {"second"})
        replay(cluster)
        assert cluster.events("PreemptionPriorityIgnored") == []


async def test_a_class_that_changes_counts_at_once() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.api.put(CLASSES, priority_class("steady", 300_000))
        cluster.running(saying(pod("first", 4, priority="low"), "steady"), "node-0")
        cluster.create(pod("waiting", 4, priority="high"))
        cluster.start(section=SECTION)
        await cluster.until(lambda: cluster.events("FailedScheduling"))
        cluster.api.put(CLASSES, priority_class("steady", 1))
        await cluster.until(lambda: cluster.victims() == {"first"})


async def test_what_is_said_for_nothing_is_told() -> None:
    async with memory() as cluster:
        cluster.nodes([16])
        cluster.api.put(CLASSES, priority_class("least", -1))
        cluster.running(saying(pod("unknown", 1, priority="low"), "nowhere"), "node-0")
        cluster.running(saying(pod("below", 1, priority="low"), "least"), "node-0")
        cluster.create(saying(group("gang", min_count=1, priority="low"), "least"))
        cluster.running(saying(pod("member", 1, group="gang", priority="low"), "least"), "node-0")
        cluster.start(section=SECTION)
        await cluster.until(lambda: len(cluster.events("PreemptionPriorityIgnored")) == 4)
        told = {
            each["regarding"]["name"]: each["note"]
            for each in cluster.events("PreemptionPriorityIgnored")
        }
        low = cluster.pod("below")["spec"]["priority"]
        below = (
            "preemption priority class least is ignored: its value -1, of which at most 500000 "
            f"count here, is not above the priority {low}; accepted: a class of a higher value"
        )
        assert told == {
            "unknown": (
                "preemption priority class nowhere is ignored: there is no such PriorityClass; "
                "accepted: the name of one"
            ),
            "below": below,
            "gang": below,
            "member": (
                "preemption priority class least is ignored: the pod is in group gang, whose own "
                "annotation counts"
            ),
        }
