"""The guide's example on the embedded cluster, with the operator as a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.api.gangs import KOORDINATOR
from reprieve.kube.resource import PODS
from reprieve.planes.scheduling.gangs.watches import RESOURCES
from tests.scheduling.site import NAMESPACE, Site, node, pod, priority_class, site

GROUPS = RESOURCES[KOORDINATOR.api_version]


def low(name: str) -> dict[str, Any]:
    return pod(name, 4, priority="low", scheduler="koord-scheduler")


def member(name: str, gang: str = "training", cpu: int = 3, priority: str = "high") -> Any:
    made = pod(name, cpu, priority=priority, scheduler="koord-scheduler")
    made["metadata"]["labels"] = {KOORDINATOR.label: gang}
    return made


def pod_group(name: str = "training", minimum: int = 2, timeout: int = 300) -> dict[str, Any]:
    return {
        "apiVersion": KOORDINATOR.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": minimum, "scheduleTimeoutSeconds": timeout},
    }


async def filled(cluster: Site) -> None:
    await cluster.create(priority_class("low", 1000), priority_class("high", 1_000_000))
    await cluster.create(low("lp-1"), low("lp-2"))
    await cluster.until_placed({"lp-1", "lp-2"})
    await cluster.run()


async def test_both_workers_get_the_nodes_of_both_victims(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await cluster.operator(names=("koord-scheduler",))
        await filled(cluster)
        await cluster.client.create(GROUPS, pod_group(), dict)
        await cluster.create(member("hp-1"))

        async def disturbed() -> bool:
            return bool(await cluster.victims())

        await cluster.never("a victim for half a gang", disturbed, 1.5)
        await cluster.create(member("hp-2"))
        assert await cluster.until_victims(2) == {"lp-1", "lp-2"}
        pods = await cluster.pods()
        (condition,) = [
            each
            for each in pods["lp-1"]["status"]["conditions"]
            if each["type"] == "DisruptionTarget"
        ]
        assert condition["reason"] == "PreemptionByScheduler"
        assert condition["message"] in {
            "koord-scheduler: preempting to accommodate higher priority pods, "
            f"preemptor: {NAMESPACE}/training, triggerpod: {NAMESPACE}/{name}"
            for name in ("hp-1", "hp-2")
        }

        async def nominated() -> bool:
            now = await cluster.pods()
            nodes = {now[n]["status"].get("nominatedNodeName") for n in ("hp-1", "hp-2")}
            return nodes == {"a", "b"}

        await cluster.until("both are nominated", nominated)

        async def told() -> bool:
            notes = [e for e in await cluster.events() if e.get("reason") == "Preempted"]
            return {each["involvedObject"]["name"] for each in notes} == {"lp-1", "lp-2"}

        await cluster.until("both victims are told", told)
        await cluster.end()
        await cluster.until_placed({"hp-1", "hp-2"})
        placed = await cluster.placed()
        assert {placed["hp-1"], placed["hp-2"]} == {"a", "b"}
        await cluster.run()

        async def running() -> bool:
            found: dict[str, Any] = await cluster.client.get(GROUPS, NAMESPACE, "training", dict)
            said = found.get("status") or {}
            shown = (said.get("phase"), said.get("running"), said.get("scheduled"))
            return shown == ("Running", 2, 2)

        await cluster.until("the PodGroup runs", running)


async def test_nobody_is_evicted_when_one_node_cannot_be_freed(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await cluster.operator(names=("koord-scheduler",))
        await cluster.create(priority_class("low", 1000), priority_class("high", 1_000_000))
        stays = low("lp-2")
        stays["metadata"]["labels"] = {"scheduling.koordinator.sh/disable-preemptible": "true"}
        await cluster.create(low("lp-1"), stays)
        await cluster.until_placed({"lp-1", "lp-2"})
        await cluster.client.create(GROUPS, pod_group(), dict)
        await cluster.create(member("hp-1"), member("hp-2"))

        async def told() -> bool:
            now = await cluster.pods()
            return any(
                "preemption: 0/2 nodes are available: " in str(condition.get("message"))
                for name in ("hp-1", "hp-2")
                for condition in now[name].get("status", {}).get("conditions") or ()
            )

        await cluster.until("the failure is told", told)

        async def disturbed() -> bool:
            now = await cluster.pods()
            nominated = [now[n]["status"].get("nominatedNodeName") for n in ("hp-1", "hp-2")]
            return bool(await cluster.victims()) or any(nominated)

        await cluster.never("a victim or a nomination", disturbed, 1.5)


async def test_a_gang_whose_pod_group_goes_half_way_leaves_no_nomination(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await cluster.operator(names=("koord-scheduler",))
        await filled(cluster)
        await cluster.client.create(GROUPS, pod_group(), dict)
        await cluster.create(member("hp-1"), member("hp-2"))
        await cluster.until_victims(2)

        async def nominated() -> set[str]:
            pods = await cluster.pods()
            found = (pods[name].get("status", {}) for name in ("hp-1", "hp-2"))
            return {node for each in found if (node := each.get("nominatedNodeName"))}

        await cluster.until("both are nominated", nominated)
        await cluster.client.delete(GROUPS, NAMESPACE, "training")

        async def free() -> bool:
            return not await nominated()

        await cluster.until("nobody is nominated", free)
        await cluster.end()
        await cluster.create(low("lp-3"), low("lp-4"))
        await cluster.until_placed({"lp-3", "lp-4"})


async def test_a_gang_that_loses_a_member_half_way_leaves_no_nomination(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await cluster.operator(names=("koord-scheduler",))
        await filled(cluster)
        await cluster.client.create(GROUPS, pod_group(), dict)
        await cluster.create(member("hp-1"), member("hp-2"))
        await cluster.until_victims(2)

        async def nominated() -> str:
            pods = await cluster.pods()
            return str(pods["hp-1"].get("status", {}).get("nominatedNodeName") or "")

        await cluster.until("it is nominated", nominated)
        await cluster.client.delete(PODS, NAMESPACE, "hp-2", grace_seconds=0)

        async def free() -> bool:
            return not await nominated()

        await cluster.until("the other is not nominated any more", free)


async def test_a_gang_that_disappears_half_way_leaves_no_nomination(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await cluster.operator(names=("koord-scheduler",))
        await filled(cluster)
        await cluster.client.create(GROUPS, pod_group(), dict)
        await cluster.create(member("hp-1"), member("hp-2"))
        await cluster.until_victims(2)
        for name in ("hp-1", "hp-2"):
            await cluster.client.delete(PODS, NAMESPACE, name, grace_seconds=0)
        await cluster.end()
        # Others of low priority find the nodes free.
        await cluster.create(low("lp-3"), low("lp-4"))
        await cluster.until_placed({"lp-3", "lp-4"})
