"""Nodes of a workload's places that fail: named in its status, replaced, or an eviction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from reprieve.answers.preemptions.recorded import judged
from reprieve.api.reprieve import Preemption
from reprieve.engine.quota.model import Gates, Settings
from reprieve.engine.topology.encoding import decoded
from reprieve.engine.victim_choice import VictimChoice
from reprieve.kube.resource import NODES, PODS
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.gated_site import gated_site
from tests.quota_plane.kind_stories import ROWS
from tests.quota_plane.site import NAMESPACE, Object, Site, priority_class, site
from tests.quota_plane.test_topologies import HOST, asking, hosts, queues, racks

TWO = "Workload eviction triggered due to multiple TAS assigned node failures, including: a, b"

FULL = (
    'topology "racks" doesn\'t allow to fit any of 2 pod(s). Total nodes: 1; '
    'excluded: resource "cpu": 1'
)


async def unhealthy(cluster: Site) -> list[str]:
    return await unhealthy_of(cluster, "gang")


async def unhealthy_of(cluster: Site, name: str) -> list[str]:
    workload = (await cluster.workloads())[name]
    return [each["name"] for each in workload["status"].get("unhealthyNodes") or ()]


async def lose(cluster: Site, *names: str) -> None:
    """Let nodes be gone, and then the pods on them."""
    for name in names:
        await cluster.client.delete(NODES, "", name)
    for pod in (await cluster.client.list(PODS, dict, namespace=NAMESPACE)).items:
        if pod["spec"].get("nodeName") in names:
            await cluster.client.delete(PODS, NAMESPACE, pod["metadata"]["name"], grace_seconds=0)


async def are_on(cluster: Site, *names: str) -> None:
    async def bound() -> bool:
        return await hosts(cluster, "gang") == [*names]

    await cluster.until(f"its pods run on {names}", bound)


async def evictions(cluster: Site) -> set[Any]:
    return {each[4] for each in await cluster.events() if each[3].endswith("NodeFailures")}


def options(settings: Settings) -> QuotaOptions:
    return QuotaOptions(settings=settings)


async def test_who_loses_two_nodes_at_once_is_evicted_and_both_are_named(tmp_path: Path) -> None:
    nodes = racks(a="r1", b="r1", c="r1", d="r1")
    async with site(tmp_path, *queues(), nodes=nodes) as cluster:
        await cluster.create(asking("gang", 4, cpu="2"))
        await are_on(cluster, "a", "a", "b", "b")
        await lose(cluster, "a", "b")
        await are_on(cluster, "c", "c", "d", "d")
        assert await evictions(cluster) == {TWO}
        assert await unhealthy(cluster) == []
        counted = [
            (sample.labels["reason"], sample.value)
            for metric in cluster.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "kueue_evicted_workloads_total"
        ]
        assert counted == [("NodeFailures", 1)]


async def test_with_profile_best_both_are_replaced_and_nobody_is_evicted(tmp_path: Path) -> None:
    nodes = racks(a="r1", b="r1", c="r1", d="r1", e="r1")
    best = options(Settings(profile=VictimChoice.BEST))
    async with site(tmp_path, *queues(), nodes=nodes, options=best) as cluster:
        await cluster.create(asking("gang", 6, cpu="2"))
        await are_on(cluster, "a", "a", "b", "b", "c", "c")
        stay = {
            pod["metadata"]["uid"]
            for pod in await cluster.pods_of("gang")
            if pod["spec"]["nodeName"] == "c"
        }
        await lose(cluster, "a", "b")
        await are_on(cluster, "c", "c", "d", "d", "e", "e")
        assert stay < {pod["metadata"]["uid"] for pod in await cluster.pods_of("gang")}
        assert await evictions(cluster) == set()
        assert await unhealthy(cluster) == []


async def test_webhooks_let_the_new_place_of_a_failed_nodes_pods_be_written(tmp_path: Path) -> None:
    """An admission may not change while it is held; its topology assignment may."""
    nodes = racks(a="r1", b="r1", c="r1")
    kinds = (ROWS["Job"],)
    async with gated_site(tmp_path, *queues(), kinds=kinds, nodes=nodes) as cluster:
        await cluster.create(asking("gang", 4, cpu="2"))
        await are_on(cluster, "a", "a", "b", "b")
        await lose(cluster, "b")
        await are_on(cluster, "a", "a", "c", "c")
        assert await evictions(cluster) == set()
        assert await unhealthy(cluster) == []


async def test_without_fail_fast_the_failed_node_is_named_until_there_is_another_or_a_second_fails(
    tmp_path: Path,
) -> None:
    nodes = racks(a="r1", b="r1")
    gates = Gates(tas_failed_node_replacement_fail_fast=False)
    patient = options(Settings(gates=gates))
    async with site(tmp_path, *queues(), nodes=nodes, options=patient) as cluster:
        await cluster.create(asking("gang", 4, cpu="2"))
        await are_on(cluster, "a", "a", "b", "b")
        await lose(cluster, "b")

        async def named() -> bool:
            return await unhealthy(cluster) == ["b"]

        await cluster.until("the failed node is named", named)

        async def told() -> bool:
            said = [each[4] for each in await cluster.events() if each[3] == "SecondPassFailed"]
            return said == [FULL]

        await cluster.until("an event says why there is no other node", told)
        assert await evictions(cluster) == set()
        await lose(cluster, "a")

        async def evicted() -> bool:
            return bool(await evictions(cluster))

        await cluster.until("the second failed node evicts it", evicted)
        two = TWO.replace("a, b", "b, a")
        assert await evictions(cluster) == {two}
        assert await unhealthy(cluster) == []


async def test_a_taint_that_is_tolerated_for_seconds_alone_fails_a_node_once_no_pod_runs_there(
    tmp_path: Path,
) -> None:
    """The tainted node has capacity and tolerated pods for a while: it is not chosen again."""
    nodes = racks(a="r1", b="r1", d="r1")
    async with site(tmp_path, *queues(), nodes=nodes) as cluster:
        gang = asking("gang", 3, cpu="1500m")
        tolerated = {"key": "repair", "operator": "Exists", "effect": "NoExecute"}
        gang["spec"]["template"]["spec"]["tolerations"] = [{**tolerated, "tolerationSeconds": 3600}]
        await cluster.create(gang)
        await are_on(cluster, "a", "a", "b")
        taint = {"spec": {"taints": [{"key": "repair", "effect": "NoExecute"}]}}
        await cluster.client.patch(NODES, "", "b", taint, dict)
        await cluster.create(asking("other", 1))

        async def runs() -> bool:
            return await hosts(cluster, "other") != [""]

        await cluster.until("another job is placed meanwhile", runs)
        assert await hosts(cluster, "gang") == ["a", "a", "b"]
        for pod in await cluster.pods_of("gang"):
            if pod["spec"]["nodeName"] == "b":
                name = pod["metadata"]["name"]
                await cluster.client.delete(PODS, NAMESPACE, name, grace_seconds=0)
        await are_on(cluster, "a", "a", "d")
        assert await evictions(cluster) == set()


async def test_a_taint_that_its_pods_do_not_tolerate_fails_a_node_once_none_of_them_runs_there(
    tmp_path: Path,
) -> None:
    nodes = racks(a="r1", b="r1", c="r1", d="r1")
    async with site(tmp_path, *queues(), nodes=nodes) as cluster:
        await cluster.create(asking("gang", 4, cpu="2"))
        await are_on(cluster, "a", "a", "b", "b")
        taint = {"spec": {"taints": [{"key": "repair", "effect": "NoSchedule"}]}}
        await cluster.client.patch(NODES, "", "b", taint, dict)
        # Pods that run there stay; the taint is no reason to end them.
        await cluster.create(asking("other", 1))

        async def runs() -> bool:
            return await hosts(cluster, "other") == ["c"]

        await cluster.until("another job is placed meanwhile", runs)
        assert await hosts(cluster, "gang") == ["a", "a", "b", "b"]
        for pod in await cluster.pods_of("gang"):
            if pod["spec"]["nodeName"] == "b":
                name = pod["metadata"]["name"]
                await cluster.client.delete(PODS, NAMESPACE, name, grace_seconds=0)
        await are_on(cluster, "a", "a", "d", "d")


async def placed_on(cluster: Site) -> list[str]:
    """Return the hosts of the gang's assignment."""
    (workload,) = (await cluster.workloads()).values()
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    return sorted(each.values[0] for each in decoded(assigned["topologyAssignment"]).domains)


async def test_a_node_that_is_not_ready_for_the_fixed_time_is_replaced_while_pods_run_there(
    tmp_path: Path,
) -> None:
    """Its pods are ended some five minutes later, by the taint of their node."""
    nodes = racks(a="r1", b="r1", c="r1")
    settings = options(Settings(gates=Gates(tas_replace_node_after_fixed_time=True)))
    async with site(tmp_path, *queues(), nodes=nodes, options=settings) as cluster:
        await cluster.create(asking("gang", 4, cpu="2"))
        await are_on(cluster, "a", "a", "b", "b")
        silent = {"metadata": {"annotations": {"sim.reprieve.dev/ready": "false"}}}
        await cluster.client.patch(NODES, "", "b", silent, dict)

        async def moved() -> bool:
            return await placed_on(cluster) == ["a", "c"]

        await cluster.until("the node is replaced", moved)
        assert await hosts(cluster, "gang") == ["a", "a", "b", "b"]
        assert await evictions(cluster) == set()
        assert await unhealthy(cluster) == []


async def test_a_node_that_is_ready_again_within_the_fixed_time_keeps_its_pods(
    tmp_path: Path,
) -> None:
    """No pod of it runs any more before that, which fails no node where the gate says so."""
    nodes = racks(a="r1", b="r1", c="r1")
    settings = options(Settings(gates=Gates(tas_replace_node_on_pod_termination=False)))
    async with site(tmp_path, *queues(), nodes=nodes, options=settings) as cluster:
        await cluster.create(asking("gang", 4, cpu="2"))
        await are_on(cluster, "a", "a", "b", "b")
        for ready in ("false", "true"):
            said = {"metadata": {"annotations": {"sim.reprieve.dev/ready": ready}}}
            await cluster.client.patch(NODES, "", "b", said, dict)
            for pod in await cluster.pods_of("gang") if ready == "false" else ():
                if pod["spec"]["nodeName"] == "b":
                    name = pod["metadata"]["name"]
                    await cluster.client.delete(PODS, NAMESPACE, name, grace_seconds=0)
            await cluster.create(asking(f"beside-{ready}", 1))

            async def decided(name: str = f"beside-{ready}") -> bool:
                return await hosts(cluster, name) == ["c"]

            await cluster.until("others are placed meanwhile", decided)
            assert await unhealthy_of(cluster, "gang") == []
        await are_on(cluster, "a", "a", "b", "b")
        assert await evictions(cluster) == set()


def low(name: str, pods: int, cpu: str) -> Object:
    return asking(name, pods, cpu=cpu, level=HOST, priority="low")


async def test_with_profile_best_lower_priorities_make_way_for_pods_of_a_failed_node(
    tmp_path: Path,
) -> None:
    """No other node of the rack has room: the job there goes, and no pod of the gang that runs."""
    nodes = racks(a="r1", b="r1", c="r1", d="r2")
    best = options(Settings(profile=VictimChoice.BEST))
    rules: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    classes = (priority_class("low", 0), priority_class("high", 100))
    async with site(tmp_path, *queues(**rules), *classes, nodes=nodes, options=best) as cluster:
        await cluster.create(asking("gang", 4, cpu="2", priority="high"))
        await are_on(cluster, "a", "a", "b", "b")
        await cluster.create(low("small", 1, "3"))
        await cluster.create(low("other", 1, "3"))

        async def placed() -> bool:
            return {*await hosts(cluster, "small"), *await hosts(cluster, "other")} == {"c", "d"}

        await cluster.until("both small jobs run", placed)
        (victim,) = [n for n in ("small", "other") if await hosts(cluster, n) == ["c"]]
        await lose(cluster, "b")
        await are_on(cluster, "a", "a", "c", "c")
        assert await evictions(cluster) == set()
        conditions = await cluster.conditions(victim)
        assert conditions["Preempted"][:2] == ("True", "InClusterQueue")
        (record,) = await cluster.intents()
        assert len(record["spec"]["victims"]) == 1
        _, said, upheld = judged(msgspec.convert(record, Preemption, strict=False))
        assert upheld, said
