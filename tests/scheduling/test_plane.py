"""The plane as a whole: bad input, gates, metrics, what happens around a gang that waits."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest

from reprieve.kube.resource import NODES
from tests.scheduling.site import NAMESPACE, POD_GROUPS, Object, Site, group, node, pod, site

_NODES = [node("node-0"), node("node-1")]


async def condition(cluster: Site, name: str) -> tuple[str, str, str]:
    found = (await cluster.pods())[name]["status"].get("conditions") or ()
    for each in found:
        if each["type"] == "PodScheduled":
            return each["status"], each.get("reason", ""), each.get("message", "")
    return "", "", ""


async def group_condition(cluster: Site, name: str) -> tuple[str, str, str]:
    found: Object = await cluster.client.get(POD_GROUPS, NAMESPACE, name, dict)
    for each in found.get("status", {}).get("conditions", ()):
        if each["type"] == "PodGroupInitiallyScheduled":
            return each["status"], each["reason"], each.get("message", "")
    return "", "", ""


async def until_scheduled(cluster: Site, name: str) -> None:
    async def told() -> bool:
        return await group_condition(cluster, name) == ("True", "Scheduled", "")

    await cluster.until(f"group {name} is told that it is scheduled", told)


async def metrics(cluster: Site) -> dict[str, float]:
    (port,) = [m[1] for line in cluster.lines if (m := re.search(r"telemetry on port (\d+)", line))]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://localhost:{port}/metrics") as response,
    ):
        text = await response.text()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


async def test_a_pod_waits_for_its_group_and_a_gang_for_all_its_pods(tmp_path: Path) -> None:
    async with site(_NODES, tmp_path) as cluster:
        await cluster.operator()
        await cluster.create(pod("g-0", 1, group="g"), pod("plain", 1))
        await cluster.until_placed({"plain"})
        assert (await cluster.placed()).keys() == {"plain"}
        await cluster.create(group("g", min_count=2))

        async def placed() -> bool:
            return "g-0" in await cluster.placed()

        await cluster.never("a gang of one is placed", placed, 1)
        await cluster.create(pod("g-1", 1, group="g"))
        await cluster.until_placed({"g-0", "g-1"})
        await until_scheduled(cluster, "g")


async def test_pods_of_different_priorities_in_one_group_are_refused(tmp_path: Path) -> None:
    async with site(_NODES, tmp_path) as cluster:
        await cluster.operator()
        await cluster.classes()
        await cluster.create(
            group("g", min_count=2, priority="high"),
            pod("g-0", 1, group="g", priority="high"),
            pod("g-1", 1, group="g", priority="low"),
        )
        refused = (
            "False",
            "SchedulerError",
            (
                "all pods in a single pod group should have the same priority as the pod group's "
                "priority, got 1000 and 100000"
            ),
        )

        async def told() -> bool:
            pods = [await condition(cluster, name) for name in ("g-0", "g-1")]
            return [*pods, await group_condition(cluster, "g")] == [refused] * 3

        await cluster.until("the refusal", told)
        assert not await cluster.placed()


async def test_a_gang_whose_node_goes_while_it_waits_finds_another(tmp_path: Path) -> None:
    nodes = [*_NODES, node("node-2")]
    async with site(nodes, tmp_path) as cluster:
        await cluster.operator()
        await cluster.filled(count=6)
        members = await cluster.gang(1)
        victims = await cluster.until_victims(2)
        (target,) = {(await cluster.placed())[name] for name in victims}
        await cluster.client.delete(NODES, "", target)
        for name in victims:
            await cluster.end(name)

        async def over() -> bool:
            await cluster.end()
            return members <= (await cluster.placed()).keys()

        await cluster.until("the gang is bound", over)
        assert (await cluster.placed())["high-0"] != target


async def test_victims_that_end_one_after_another_are_enough(tmp_path: Path) -> None:
    async with site([*_NODES, node("node-2")], tmp_path) as cluster:
        await cluster.operator()
        await cluster.filled(count=6)
        members = await cluster.gang(2)
        victims = await cluster.until_victims(4)
        for name in sorted(victims):
            await cluster.end(name)
            await asyncio.sleep(0.2)
        await cluster.until_placed(members)
        assert len(cluster.deleted) == 4


async def test_a_preemption_that_is_waited_for_ends_alike(tmp_path: Path) -> None:
    async with site(_NODES, tmp_path) as cluster:
        await cluster.operator("--feature-gates", "SchedulerAsyncPreemption=false")
        await cluster.filled(mode="all")
        members = await cluster.gang()
        await cluster.until_victims(4)
        await cluster.end()
        await cluster.until_placed(members)
        await until_scheduled(cluster, "high")


async def test_a_dry_run_binds_and_evicts_nobody(tmp_path: Path) -> None:
    async with site(_NODES, tmp_path) as cluster:
        operator = await cluster.operator()
        await cluster.filled()
        await operator.stop()
        await cluster.operator("--dry-run")
        await cluster.gang()

        async def recorded() -> bool:
            return bool(await cluster.intents())

        await cluster.until("a record of what would be done", recorded)
        (intent,) = await cluster.intents()
        assert intent["spec"]["dryRun"]
        assert len(intent["spec"]["victims"]) == 4

        async def said() -> bool:
            return any("for PodGroup team/high, proof" in line for line in cluster.lines)

        await cluster.until("it says so", said)
        assert not await cluster.victims()
        assert len(await cluster.placed()) == 4


@pytest.mark.parametrize("on", [True, False])
async def test_off_the_gate_groups_count_for_nothing(on: bool, tmp_path: Path) -> None:
    async with site(_NODES, tmp_path) as cluster:
        await cluster.operator("--feature-gates", f"GenericWorkload={str(on).lower()}")
        await cluster.filled(mode="all")
        await cluster.create(pod("high-0", 2, priority="high"))
        victims = await cluster.until_victims(4 if on else 1)
        assert len(victims) == (4 if on else 1)


@pytest.mark.real_time
async def test_an_unknown_gate_ends_the_process_with_a_line(tmp_path: Path) -> None:
    async with site(_NODES, tmp_path) as cluster:
        operator = await cluster.operator_process("--feature-gates", "Nonsense=true")
        said = await asyncio.wait_for(operator.stopped_by_itself(), 60)
        assert "with code 2" in said
        assert "Nonsense" in said


async def test_both_sets_of_metrics_count_a_preemption(tmp_path: Path) -> None:
    async with site(_NODES, tmp_path) as cluster:
        await cluster.operator()
        await cluster.filled()
        members = await cluster.gang()
        await cluster.until_victims(4)
        await cluster.end()
        await cluster.until_placed(members)
        wanted = {
            "scheduler_workload_preemption_victims_sum": 4,
            'scheduler_preemption_workload_disruptions_sum{preemptor="podgroup"}': 4,
            'scheduler_preemption_execution_duration_seconds_count{preemptor="podgroup",'
            'result="success"}': 1,
            "scheduler_podgroup_preemption_victims_sum": 4,
            'scheduler_queued_entities{queue="active",type="podgroup"}': 0,
            'scheduler_pending_entities{queue="gated",type="podgroup"}': 0,
            'scheduler_pending_pods{queue="unschedulable"}': 0,
            'scheduler_placement_evaluations_total{profile="default-scheduler",'
            'result="feasible"}': 2,
            'reprieve_intents_open{plane="scheduling"}': 0,
        }

        async def shown() -> bool:
            found = await metrics(cluster)
            return {name: found.get(name) for name in wanted} == wanted

        await cluster.until("the metrics show it", shown)
        found = await metrics(cluster)
        # While the victims end one by one, attempts find the preemption under way and succeed too.
        ongoing = (
            'scheduler_workload_preemption_attempts_total{result="Success"}',
            'scheduler_podgroup_preemption_attempts_total{result="success"}',
            (
                'scheduler_podgroup_schedule_attempts_total{profile="default-scheduler",'
                'result="waiting_on_preemption"}'
            ),
        )
        assert len({found[name] for name in ongoing}) == 1
        assert found[ongoing[0]] >= 1
