"""What nobody should write or do, but somebody will: it loses nothing and stops nobody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.kube.errors import Forbidden
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, group, node, pod, site

GROUPS = "podgroups.scheduling.k8s.io"
INITIALLY = "PodGroupInitiallyScheduled"


def _gang(name: str, count: int, cpu: int = 2, priority: str = "high", **facts: Any) -> list[Any]:
    return [
        group(name, min_count=facts.get("min_count", count), priority=priority),
        *(pod(f"{name}-{i}", cpu, group=name, priority=priority) for i in range(count)),
    ]


async def _others_go_on(cluster: Memory, name: str = "other") -> None:
    """A pod and a gang that come now are placed within seconds."""
    cluster.create(pod(name, 1), *_gang(f"{name}-gang", 2, 1, "low"))
    wanted = {name, f"{name}-gang-0", f"{name}-gang-1"}
    await cluster.until(lambda: wanted <= cluster.placed().keys(), 10 * SECOND)


async def test_pods_wait_for_a_group_that_is_missing() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        cluster.start()
        missing, *pods = _gang("late", 2)
        cluster.create(*pods)
        await _others_go_on(cluster)
        await cluster.pass_time(10 * MINUTE)
        assert not cluster.placed().keys() & {"late-0", "late-1"}
        assert cluster.metric("scheduler_pending_pods", queue="incomplete") == 2
        cluster.create(missing)
        await cluster.until(lambda: {"late-0", "late-1"} <= cluster.placed().keys(), 10 * SECOND)
        assert not cluster.api.deleted


async def test_a_group_that_is_deleted_while_its_victims_end_evicts_nobody_more() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4, 4])
        for index in range(3):
            cluster.running(pod(f"low-{index}", 4, priority="low"), f"node-{index}")
        cluster.start()
        cluster.create(*_gang("gone", 2, 4))
        await cluster.until(lambda: len(cluster.victims()) == 2)
        cluster.api.remove(GROUPS, NAMESPACE, "gone")
        victims = cluster.victims()
        cluster.end_all()
        await cluster.pass_time(MINUTE)
        assert not cluster.placed().keys() & {"gone-0", "gone-1"}
        assert cluster.api.deleted == Counter(victims)
        await _others_go_on(cluster)
        for name in ("gone-0", "gone-1"):
            cluster.api.remove("pods", NAMESPACE, name)
        await cluster.until(
            lambda: all(i["status"]["phase"] == "Completed" for i in cluster.intents())
        )


async def test_a_minimum_above_the_number_of_pods_waits_without_evicting() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        cluster.running(pod("low-0", 3, priority="low"), "node-0")
        cluster.start()
        cluster.create(*_gang("short", 2, 3, min_count=3))
        await _others_go_on(cluster)
        await cluster.pass_time(10 * MINUTE)
        assert not cluster.api.deleted
        assert not cluster.placed().keys() & {"short-0", "short-1"}
        assert cluster.metric("scheduler_queued_entities", queue="gated", type="podgroup") == 1


async def test_mixed_priorities_are_told_and_evict_nobody() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        cluster.running(pod("low-0", 4, priority="low"), "node-0")
        cluster.start()
        odd, first, _ = _gang("odd", 2, 3)
        cluster.create(odd, first, pod("odd-1", 3, group="odd", priority="middle"))
        await cluster.pass_time(MINUTE)
        text = (
            "all pods in a single pod group should have the same priority as the pod group's "
            "priority, got 10000 and 100000"
        )
        for name in ("odd-0", "odd-1"):
            told = cluster.condition(cluster.pod(name), "PodScheduled")
            assert told == ("False", "SchedulerError", text)
        assert cluster.condition(cluster.group("odd"), INITIALLY) == (
            "False",
            "SchedulerError",
            text,
        )
        assert not cluster.api.deleted
        cluster.create(pod("small", 1), pod("smaller", 1))
        await cluster.until(lambda: {"small", "smaller"} <= cluster.placed().keys(), 10 * SECOND)
        cluster.end("odd-1", "small", "smaller")
        cluster.create(pod("odd-1", 3, group="odd", priority="high"))
        await cluster.until(lambda: bool(cluster.victims()), MINUTE)
        cluster.end_all()
        await cluster.until(lambda: {"odd-0", "odd-1"} <= cluster.placed().keys(), MINUTE)


async def test_an_unknown_priority_class_is_refused_and_the_next_pod_goes_on(
    tmp_path: Path,
) -> None:
    async with site([node("node-0")], tmp_path) as cluster:
        await cluster.operator()
        with pytest.raises(Forbidden, match="no PriorityClass with name nowhere was found"):
            await cluster.create(pod("p", 1, priority="nowhere"))
        with pytest.raises(Forbidden, match="no PriorityClass with name nowhere was found"):
            await cluster.create(group("g", min_count=1, priority="nowhere"))
        await cluster.create(pod("p", 1))
        await cluster.until_placed({"p"})


async def test_a_node_that_goes_while_it_is_nominated_is_replaced() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4, 4])
        for index in range(3):
            cluster.running(pod(f"low-{index}", 4, priority="low"), f"node-{index}")
        cluster.start()
        cluster.create(*_gang("high", 2, 4))
        await cluster.until(lambda: len(cluster.nominated()) == 2)
        first, second = sorted(cluster.nominated().values())
        cluster.api.remove("nodes", "", first)
        cluster.end(*(name for name, where in cluster.placed().items() if where == first))
        await cluster.pass_time(5 * SECOND)
        cluster.end_all()
        await cluster.until(lambda: len(cluster.api.deleted) == 3, MINUTE)
        cluster.end_all()
        await cluster.until(lambda: {"high-0", "high-1"} <= cluster.placed().keys(), MINUTE)
        left = {"node-0", "node-1", "node-2"} - {first}
        assert {cluster.placed()[f"high-{i}"] for i in range(2)} == left
        assert cluster.api.deleted == Counter(["low-0", "low-1", "low-2"])
        assert second in left


@pytest.mark.parametrize("gang", [False, True], ids=["pod", "gang"])
async def test_a_victim_that_never_ends_is_planned_around_with_event_and_metric(
    gang: bool,
) -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4, 4])
        for index in range(3):
            low = pod(f"low-{index}", 4, priority="low", terminationGracePeriodSeconds=10)
            cluster.running(low, f"node-{index}")
        cluster.start(section={"victimDeadline": "20s"})
        wanted = {"high-0", "high-1"} if gang else {"high"}
        cluster.create(*(_gang("high", 2, 4) if gang else [pod("high", 4, priority="high")]))
        await cluster.until(lambda: len(cluster.victims()) == len(wanted))
        (stuck, *rest) = sorted(cluster.victims())
        cluster.end(*rest)
        await cluster.pass_time(25 * SECOND)
        assert cluster.victims() == {stuck}, cluster.told()
        await cluster.until(lambda: len(cluster.victims()) == 2, 10 * SECOND)
        assert cluster.metric("scheduler_preemption_overdue_victims_total") == 1
        overdue = cluster.events("VictimOverdue")
        assert [event["regarding"]["name"] for event in overdue] == [stuck]
        cluster.end(*(cluster.victims() - {stuck}))
        await cluster.until(lambda: wanted <= cluster.placed().keys(), MINUTE)
        await cluster.pass_time(5 * MINUTE)
        assert cluster.metric("scheduler_preemption_overdue_victims_total") == 1
        assert len(cluster.api.deleted) == len(wanted) + 1
        assert stuck in cluster.pods


def _broken_for(name: str) -> Mapping[str, Any]:
    """The usual plugins, of which one fails for a group of that name."""
    usual = GROUP_POST_FILTERS["DefaultPreemption"]

    def plugin(simulation: Any, row: Any, *rest: Any) -> Any:
        if row.name == name:
            raise RuntimeError("the plugin is broken")
        return usual(simulation, row, *rest)

    return MappingProxyType({**GROUP_POST_FILTERS, "DefaultPreemption": plugin})


async def test_a_plugin_that_fails_costs_its_group_a_pause_and_nobody_else_anything() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        for index in range(2):
            cluster.running(pod(f"low-{index}", 4, priority="low"), f"node-{index}")
        cluster.start(plugins=_broken_for("bad"))
        cluster.create(*_gang("bad", 1, 4), *_gang("good", 1, 4))
        await cluster.until(lambda: bool(cluster.victims()))
        cluster.end_all()
        await cluster.until(lambda: "good-0" in cluster.placed())
        status, reason, message = cluster.condition(cluster.group("bad"), INITIALLY)
        assert (status, reason) == ("False", "SchedulerError")
        assert 'error in "DefaultPreemption" PodGroupPostFilter plugins' in message
        assert "the plugin is broken" in message
        errors = cluster.metric("scheduler_podgroup_preemption_attempts_total", result="error")
        assert errors >= 1
        await cluster.pass_time(MINUTE)
        more = cluster.metric("scheduler_podgroup_preemption_attempts_total", result="error")
        assert errors < more <= errors + 12, "the group backs off"
        assert len(cluster.api.deleted) == 1
        cluster.nodes([4, 4, 4])
        await cluster.until(lambda: "bad-0" in cluster.placed(), 30 * SECOND)
