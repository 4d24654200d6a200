"""`preemptionDelay`: nobody is evicted for who has waited less, over a clock turned by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.engine.diagnosis.causes import Cause
from reprieve.engine.disruptions.questions import GovernorPolicy
from tests.scheduling.memory import PRIORITIES, Memory, memory
from tests.scheduling.queues import in_queue, queued
from tests.scheduling.site import NAMESPACE, Object, composite, group, pod

SECTION = {"preemptionDelay": "60s"}
CLASSES = "priorityclasses.scheduling.k8s.io"


async def filled(cluster: Memory, nodes: int = 1, section: Any = SECTION) -> None:
    """Each node is filled by a pod of low priority."""
    cluster.nodes([4] * nodes)
    for number in range(nodes):
        cluster.running(pod(f"old-{number}", 4, priority="low"), f"node-{number}")
    cluster.start(section=section)
    await cluster.pass_time(SECOND)


def created(cluster: Memory, name: str = "new") -> Nanos:
    return parse_instant(cluster.pod(name)["metadata"]["creationTimestamp"])


async def until_evicted(cluster: Memory) -> Nanos:
    await cluster.until(cluster.victims, most=11 * MINUTE)
    return Nanos(cluster.clock.wall())


def told(cluster: Memory, kind: str = "Pod", name: str = "new") -> tuple[Cause | None, str]:
    found = cluster.planes[0].diagnosis(kind, NAMESPACE, name)
    assert found is not None
    return found.cause, found.values.get("until", "")


async def test_nobody_is_evicted_before_it_has_waited_and_the_instant_wakes_it() -> None:
    async with memory() as cluster:
        await filled(cluster)
        cluster.create(pod("new", 4, priority="high"))
        due = created(cluster) + MINUTE
        await cluster.pass_time(due - cluster.clock.wall() - 1)

        assert not cluster.victims()
        assert not cluster.intents()
        cause, until = told(cluster)
        assert (cause, parse_instant(until)) == (Cause.NOT_YET, due)
        assert due <= await until_evicted(cluster) <= due + SECOND


async def test_where_room_comes_meanwhile_nobody_is_evicted() -> None:
    async with memory() as cluster:
        await filled(cluster)
        cluster.create(pod("new", 4, priority="high"))
        await cluster.pass_time(MINUTE // 2)
        cluster.nodes([4, 4])
        await cluster.pass_time(2 * MINUTE)

        assert "new" in cluster.placed()
        assert not cluster.victims()
        assert not cluster.intents()


async def test_a_gang_counts_from_when_it_was_whole() -> None:
    async with memory() as cluster:
        await filled(cluster, nodes=2)
        cluster.create(group("train", min_count=2, priority="high"))
        cluster.create(pod("train-0", 4, group="train", priority="high"))
        await cluster.pass_time(5 * MINUTE)
        cluster.create(pod("train-1", 4, group="train", priority="high"))
        due = created(cluster, "train-1") + MINUTE
        await cluster.pass_time(due - cluster.clock.wall() - 1)

        assert not cluster.victims()
        assert told(cluster, "PodGroup", "train")[0] is Cause.NOT_YET
        assert due <= await until_evicted(cluster) <= due + SECOND
        assert cluster.victims() == {"old-0", "old-1"}


async def test_a_pod_more_than_the_minimum_does_not_delay_its_gang() -> None:
    async with memory() as cluster:
        await filled(cluster, nodes=2)
        cluster.create(group("train", min_count=2, priority="high"))
        cluster.create(*(pod(f"train-{n}", 4, group="train", priority="high") for n in "01"))
        due = created(cluster, "train-1") + MINUTE
        await cluster.pass_time(MINUTE // 2)
        cluster.create(pod("train-2", 4, group="train", priority="high"))

        assert due <= await until_evicted(cluster) <= due + SECOND


async def test_a_tree_counts_from_when_all_of_its_groups_were_whole() -> None:
    section = {**SECTION, "featureGates": {"CompositePodGroup": True}}
    async with memory() as cluster:
        await filled(cluster, nodes=2, section=section)
        cluster.create(composite("tree", min_count=2, priority="high"))
        for name in ("a", "b"):
            cluster.create(group(name, min_count=1, priority="high", parent="tree"))
        cluster.create(pod("a-0", 4, group="a", priority="high"))
        await cluster.pass_time(5 * MINUTE)
        cluster.create(pod("b-0", 4, group="b", priority="high"))
        due = created(cluster, "b-0") + MINUTE

        assert due <= await until_evicted(cluster) <= due + SECOND


async def test_a_pod_counts_from_the_end_of_its_last_gate() -> None:
    async with memory() as cluster:
        await filled(cluster)
        gated = pod("new", 4, priority="high")
        gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        cluster.create(gated)
        await cluster.pass_time(5 * MINUTE)
        opened = cluster.clock.wall()
        found = cluster.pod("new")
        spec = {key: said for key, said in found["spec"].items() if key != "schedulingGates"}
        cluster.api.put("pods", {**found, "spec": spec})

        evicted = await until_evicted(cluster)
        assert opened + MINUTE <= evicted <= opened + MINUTE + 2 * SECOND


def saying(name: str, delay: str) -> Object:
    annotations = {"reprieve.dev/preemption-delay": delay}
    return {"metadata": {"name": name, "annotations": annotations}, "value": PRIORITIES[name]}


@pytest.mark.parametrize(
    ("delay", "waits"), [("10s", 10), ("5m", 300), ("0s", 0), ("soon", 60), ("2h", 60)]
)
async def test_the_class_of_the_preemptor_says_otherwise(delay: str, waits: int) -> None:
    async with memory() as cluster:
        cluster.api.put(CLASSES, saying("high", delay))
        await filled(cluster)
        cluster.create(pod("new", 4, priority="high"))
        due = created(cluster) + waits * SECOND

        assert due <= await until_evicted(cluster) <= due + 2 * SECOND


async def test_a_class_that_asks_for_less_wakes_who_waits() -> None:
    async with memory() as cluster:
        cluster.api.put(CLASSES, saying("high", "5m"))
        await filled(cluster)
        cluster.create(pod("new", 4, priority="high"))
        await cluster.pass_time(2 * MINUTE)
        assert not cluster.victims()
        cluster.api.put(CLASSES, saying("high", "90s"))
        await cluster.pass_time(2 * SECOND)

        assert cluster.victims() == {"old-0"}


@pytest.mark.parametrize(
    ("of_class", "waits"), [(None, 90), ("10s", 10)], ids=["queue alone", "class as well"]
)
async def test_the_queue_of_the_preemptor_says_otherwise_where_its_class_is_silent(
    of_class: str | None, waits: int
) -> None:
    async with memory() as cluster:
        queued(cluster, cluster_queue={"reprieve.dev/preemption-delay": "90s"})
        if of_class is not None:
            cluster.api.put(CLASSES, saying("high", of_class))
        await filled(cluster)
        cluster.create(in_queue(pod("new", 4, priority="high")))
        due = created(cluster) + waits * SECOND

        assert due <= await until_evicted(cluster) <= due + 2 * SECOND


@pytest.mark.parametrize("late", [False, True], ids=["annotation", "queue made later"])
async def test_a_queue_that_asks_for_less_wakes_who_waits(late: bool) -> None:
    section = {"preemptionDelay": "5m"}
    async with memory() as cluster:
        if not late:
            queued(cluster)
        await filled(cluster, section=section)
        cluster.create(in_queue(pod("new", 4, priority="high")))
        await cluster.pass_time(2 * MINUTE)
        assert not cluster.victims()
        queued(cluster, cluster_queue={"reprieve.dev/preemption-delay": "90s"})
        await cluster.pass_time(2 * SECOND)

        assert cluster.victims() == {"old-0"}


async def test_emergencies_do_not_wait() -> None:
    async with memory() as cluster:
        await filled(cluster)
        governor = cluster.planes[0].context.governor
        governor.policy = replace(GovernorPolicy(), emergency_priority=PRIORITIES["high"])
        cluster.create(pod("new", 4, priority="high"))
        await cluster.pass_time(2 * SECOND)

        assert cluster.victims() == {"old-0"}


async def test_who_waits_for_pods_that_end_takes_their_room_and_nobody_elses() -> None:
    async with memory() as cluster:
        await filled(cluster, nodes=2)
        cluster.create(pod("new", 4, priority="high"))
        await cluster.pass_time(50 * SECOND)
        found = cluster.pod("old-1")
        metadata = {
            **found["metadata"],
            "deletionTimestamp": format_instant(cluster.clock.wall()),
        }
        cluster.api.put("pods", {**found, "metadata": metadata})
        await cluster.pass_time(MINUTE // 3)
        assert cluster.victims() == {"old-1"}
        cluster.end_all()
        await cluster.until(lambda: cluster.placed().get("new") == "node-1")

        assert not cluster.intents()
