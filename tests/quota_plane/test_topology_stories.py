"""What else happens at the same time to nodes, topologies and flavors of work that has places.

All webhooks are on. Each story asserts who runs where at its end, who was evicted and why, and what
those say who wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve.api.kueue import RESOURCE_IN_USE
from reprieve.engine.quota.model import Gates, Settings
from reprieve.engine.topology.model import TopologyGates
from reprieve.engine.victim_choice import VictimChoice
from reprieve.kube.bodies import Propagation
from reprieve.kube.resource import NODES
from tests.quota_plane.gated_site import gated_site
from tests.quota_plane.kind_stories import ROWS
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    FLAVORS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACE,
    TOPOLOGIES,
    Object,
    Site,
    cluster_queue,
    flavor,
    local_queue,
    priority_class,
)
from tests.quota_plane.test_topologies import HOST, RACK, asking, hosts, lose, queues, racks
from tests.quota_plane.test_topologies import topology as racks_topology

RULES = {"withinClusterQueue": "LowerPriority"}
CLASSES = tuple(
    priority_class(name, value)
    for name, value in (("low", 0), ("mid", 5), ("more", 6), ("high", 10))
)


def slow(name: str, pods: int, **more: Any) -> Object:
    """Return a job whose pods take a minute to end."""
    found = asking(name, pods, **more)
    template = found["spec"]["template"]
    template["metadata"]["annotations"]["sim.reprieve.dev/termination-time"] = "60s"
    template["spec"]["terminationGracePeriodSeconds"] = 120
    return found


@asynccontextmanager
async def plane(
    folder: Path, *objects: Object, nodes: Mapping[str, str], best: bool = False
) -> AsyncIterator[Site]:
    settings = Settings(profile=VictimChoice.BEST) if best else Settings()
    async with gated_site(
        folder,
        *objects,
        kinds=(ROWS["Job"],),
        nodes=racks(**nodes),
        options={"settings": settings},
    ) as cluster:
        yield cluster


async def until_on(cluster: Site, **where: str) -> None:
    """Wait until the pods of each job are on exactly these nodes, one letter a pod."""

    async def there() -> bool:
        return {name: "".join(await hosts(cluster, name)) for name in where} == where

    await cluster.until(f"pods are on {where}", there, 240)


async def until_kept(cluster: Site) -> None:
    """Wait until the topology has the finalizer of what is in use."""

    async def kept() -> bool:
        found = await cluster.client.get(TOPOLOGIES, "", "racks", dict)
        return RESOURCE_IN_USE in (found["metadata"].get("finalizers") or ())

    await cluster.until("the topology has its finalizer", kept)


async def until_waits(cluster: Site, name: str, reason: str, part: str) -> None:
    async def waits() -> bool:
        said = (await cluster.conditions(name)).get("QuotaReserved", ("", "", ""))
        return said[:2] == ("False", reason) and part in said[2]

    await cluster.until(f"{name} waits for {part}", waits, 240)


async def until_ending(cluster: Site, name: str) -> None:
    async def ending() -> bool:
        found = await cluster.pods_of(name)
        return bool(found) and all(each["metadata"].get("deletionTimestamp") for each in found)

    await cluster.until(f"all pods of {name} are ending", ending)


async def evictions(cluster: Site) -> set[tuple[str, str]]:
    """Return who was evicted, by the name of its job, and why, as Workloads count it."""
    found = set()
    for name, each in (await cluster.workloads()).items():
        for row in (each.get("status") or {}).get("schedulingStats", {}).get("evictions") or ():
            found.add((name, row["reason"]))
    return found


async def test_a_plan_whose_rack_loses_a_node_ends_elsewhere(tmp_path: Path) -> None:
    nodes = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
    async with plane(tmp_path, *queues(preemption=RULES), *CLASSES, nodes=nodes) as cluster:
        await cluster.create(asking("keep", 8, priority="mid"))
        await until_on(cluster, keep="aaaabbbb")
        await cluster.create(slow("low", 8, priority="low"))
        await until_on(cluster, low="ccccdddd")
        await cluster.create(asking("urgent", 8, priority="high"))
        await until_ending(cluster, "low")
        assert await evictions(cluster) == {("low", "Preempted")}
        await lose(cluster, "d")
        await until_on(cluster, urgent="aaaabbbb")
        await until_waits(cluster, "low", "WaitingForQuota", "4 out of 8 pod(s)")
        await until_waits(cluster, "keep", "WaitingForQuota", "4 out of 8 pod(s)")
        assert await evictions(cluster) == {("low", "Preempted"), ("keep", "Preempted")}


async def test_a_failed_node_is_replaced_beside_an_open_plan_and_not_in_its_rack(
    tmp_path: Path,
) -> None:
    nodes = {"a": "r1", "b": "r1", "e": "r2", "f": "r2", "g": "r2"}
    async with plane(tmp_path, *queues(preemption=RULES), *CLASSES, nodes=nodes) as cluster:
        await cluster.create(slow("low", 8, priority="low"))
        await until_on(cluster, low="aaaabbbb")
        await cluster.create(asking("third", 8, priority="mid"))
        await until_on(cluster, third="eeeeffff")
        await cluster.create(asking("urgent", 8, priority="high"))
        await until_ending(cluster, "low")
        await lose(cluster, "f")
        await until_on(cluster, third="eeeegggg", urgent="aaaabbbb")
        assert await evictions(cluster) == {("low", "Preempted")}


async def test_a_gang_whose_node_fails_does_not_get_the_room_of_an_open_plan(
    tmp_path: Path,
) -> None:
    nodes = {"a": "r1", "b": "r1", "e": "r2", "f": "r2"}
    async with plane(tmp_path, *queues(preemption=RULES), *CLASSES, nodes=nodes) as cluster:
        await cluster.create(slow("low", 8, priority="low"))
        await until_on(cluster, low="aaaabbbb")
        third = asking("third", 8, priority="mid")
        notes = {"kueue.x-k8s.io/podset-preferred-topology": RACK}
        third["spec"]["template"]["metadata"]["annotations"] = notes
        await cluster.create(third)
        await until_on(cluster, third="eeeeffff")
        await cluster.create(asking("urgent", 8, priority="high"))
        await until_ending(cluster, "low")
        await lose(cluster, "f")
        await until_on(cluster, urgent="aaaabbbb")
        await until_waits(cluster, "third", "WaitingForQuota", "4 out of 8 pod(s)")
        assert await evictions(cluster) == {("low", "Preempted"), ("third", "NodeFailures")}


@pytest.mark.parametrize("best", [False, True], ids=["compatible", "best"])
async def test_two_that_want_the_node_of_one_victim_do_not_both_get_it(
    tmp_path: Path, best: bool
) -> None:
    """The gang's lost pods would fit where the victim of another plan is about to leave."""
    nodes = {"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": "r2"}
    async with plane(
        tmp_path, *queues(preemption=RULES), *CLASSES, nodes=nodes, best=best
    ) as cluster:
        for name, priority, node in (("x", "mid", "a"), ("y", "more", "b")):
            await cluster.create(asking(name, 4, level=HOST, priority=priority))
            await until_on(cluster, **{name: node * 4})
        await cluster.create(asking("gang", 8, priority="high"))
        await until_on(cluster, gang="ccccdddd")
        await cluster.create(slow("small", 4, level=HOST, priority="low"))
        await until_on(cluster, small="eeee")
        await cluster.create(asking("urgent", 4, level=HOST, priority="high"))
        await until_ending(cluster, "small")
        await lose(cluster, "d")
        if best:
            # Who runs comes first: the rest of it would be lost, too.
            await until_on(cluster, urgent="aaaa", gang="cccceeee", x="", y="bbbb")
            expected = {("small", "Preempted"), ("x", "Preempted")}
        else:
            await until_on(cluster, urgent="cccc", gang="aaaabbbb", x="", y="eeee")
            expected = {(name, "Preempted") for name in ("small", "x", "y")}
            expected |= {("gang", "NodeFailures")}
        assert await evictions(cluster) == expected


async def test_a_topology_that_is_deleted_in_use_stays_and_moves_nobody(tmp_path: Path) -> None:
    nodes = {"a": "r1", "b": "r1", "c": "r1"}
    async with plane(tmp_path, *queues(), nodes=nodes) as cluster:
        await cluster.create(asking("gang", 8))
        await until_on(cluster, gang="aaaabbbb")
        before = await uids(cluster, "gang")
        await until_kept(cluster)
        await cluster.client.delete(TOPOLOGIES, "", "racks")
        # It is in use: whoever comes later is placed, and a failed node is replaced.
        await cluster.create(asking("late", 2, level=HOST))
        await until_on(cluster, late="cc")
        assert await uids(cluster, "gang") == before
        left = await cluster.client.get(TOPOLOGIES, "", "racks", dict)
        assert left["metadata"]["finalizers"] == [RESOURCE_IN_USE]
        for name in ("gang", "late"):
            await cluster.client.delete(JOBS, NAMESPACE, name, propagation=Propagation.BACKGROUND)
        await cluster.client.delete(LOCAL_QUEUES, NAMESPACE, "q")
        await cluster.client.delete(CLUSTER_QUEUES, "", "team")
        await cluster.client.delete(FLAVORS, "", "default-flavor")

        async def gone() -> bool:
            return not (await cluster.client.list(TOPOLOGIES, dict)).items

        await cluster.until("it ends with the last flavor that has it", gone)


async def test_a_topology_that_is_gone_by_force_admits_nobody_and_comes_back_with_its_usage(
    tmp_path: Path,
) -> None:
    nodes = {"a": "r1", "b": "r1", "c": "r1"}
    async with plane(tmp_path, *queues(), nodes=nodes) as cluster:
        await cluster.create(asking("gang", 8))
        await until_on(cluster, gang="aaaabbbb")
        before = await uids(cluster, "gang")
        await until_kept(cluster)
        await cluster.client.delete(TOPOLOGIES, "", "racks")
        force = {"metadata": {"finalizers": None}}
        await cluster.client.patch(TOPOLOGIES, "", "racks", force, dict)

        async def inactive() -> bool:
            team = await cluster.client.get(CLUSTER_QUEUES, "", "team", dict)
            said = (team.get("status") or {}).get("conditions") or ()
            return [(e["status"], e["reason"]) for e in said] == [("False", "TopologyNotFound")]

        await cluster.until("the queue says that its topology is missing", inactive)
        await cluster.create(asking("late", 6, level=RACK))
        await until_waits(cluster, "late", "Suspended", "ClusterQueue team is inactive")
        # Nothing says where else pods of a node might go: who runs is left alone.
        await lose(cluster, "b")
        await cluster.client.create(NODES, node_of("d", "r2"), dict)
        await cluster.create(racks_topology())
        await until_on(cluster, gang="aaaacccc")
        await cluster.create(asking("small", 4, level=HOST))
        await until_on(cluster, gang="aaaacccc", small="dddd")
        stay = await uids(cluster, "gang", "a")
        assert stay < before and len(stay) == 4
        await until_waits(cluster, "late", "WaitingForQuota", "4 out of 6 pod(s)")
        assert await evictions(cluster) == set()


def node_of(name: str, rack: str) -> Object:
    """Return a node like those of `racks`."""
    labels = {"pool": "gpu", RACK: rack, HOST: name}
    status = {
        "capacity": {"cpu": "4", "memory": "32Gi", "pods": "110"},
        "allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": status,
    }


async def uids(cluster: Site, name: str, node: str = "") -> set[str]:
    """Return the uids of a job's pods, or of those on a node."""
    return {
        each["metadata"]["uid"]
        for each in await cluster.pods_of(name)
        if node in ("", each["spec"].get("nodeName"))
    }


def two_flavors(**spec: Any) -> tuple[Object, ...]:
    """Return two queues without a cohort, each with a flavor of its own over the same nodes."""
    found: list[Object] = [racks_topology()]
    for name in ("one", "two"):
        found.append(flavor(name, topologyName="racks", nodeLabels={"pool": "gpu"}))
        group = {
            "coveredResources": ["cpu"],
            "flavors": [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "100"}]}],
        }
        found.append(cluster_queue(f"team-{name}", 0, resourceGroups=[group], **spec))
        found.append(local_queue(name, f"team-{name}"))
    return tuple(found)


async def test_a_rack_of_two_flavors_is_given_away_once(tmp_path: Path) -> None:
    nodes = {"a": "r1", "b": "r1", "c": "r2"}
    async with plane(tmp_path, *two_flavors(), nodes=nodes) as cluster:
        await cluster.create(asking("first", 8, queue="one"), asking("second", 8, queue="two"))
        await until_waits(cluster, "second", "WaitingForQuota", "4 out of 8 pod(s)")
        await until_on(cluster, first="aaaabbbb", second="")
        await cluster.create(asking("small", 4, queue="two"))
        await until_on(cluster, small="cccc")
        await cluster.client.delete(JOBS, NAMESPACE, "first", propagation=Propagation.BACKGROUND)
        await until_on(cluster, second="aaaabbbb", small="cccc")
        assert await evictions(cluster) == set()


async def test_pods_that_wait_for_a_failed_node_are_ended_and_made_again_for_another(
    tmp_path: Path,
) -> None:
    """Nobody binds pods here: they have a node by their selector, and none of them runs."""
    nodes = {"a": "r1", "b": "r1", "c": "r1"}
    gang = asking("gang", 8)
    gang["spec"]["template"]["spec"]["schedulerName"] = "nobody"
    async with plane(tmp_path, *queues(), nodes=nodes) as cluster:
        await cluster.create(gang)
        await until_pinned(cluster, "aaaabbbb")
        stay = {pod["metadata"]["uid"] for pod in await cluster.pods_of("gang") if at(pod) == "a"}
        await cluster.client.delete(NODES, "", "b")
        await until_pinned(cluster, "aaaacccc")
        left = {pod["metadata"]["uid"] for pod in await cluster.pods_of("gang") if at(pod) == "a"}
        assert left == stay and len(stay) == 4
        ended = [each for each in await cluster.events() if each[3] == "PodTerminatedByKueue"]
        why = "Pod terminated by Kueue NodeController due to node taint"
        assert len(ended) == 4
        assert {(kind, level, text) for kind, _, level, _, text in ended} == {
            ("Pod", "Normal", why)
        }
        assert await evictions(cluster) == set()
        assert (await cluster.job("gang"))["status"].get("failed", 0) == 0


def at(pod: Object) -> str:
    """Return the host that a pod selects, empty while it is gated."""
    host: str = pod["spec"].get("nodeSelector", {}).get(HOST, "")
    return host


async def until_pinned(cluster: Site, nodes: str) -> None:
    """Wait until the gang's pods that stay select exactly these hosts, one letter a pod."""

    async def pinned() -> bool:
        found = await cluster.pods_of("gang")
        stay = [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]
        return "".join(sorted(map(at, stay))) == nodes

    await cluster.until(f"pods wait for {nodes}", pinned)


@pytest.mark.parametrize("gate", [True, False])
async def test_written_assignments_have_slices_by_prefix_unless_the_gate_is_off(
    tmp_path: Path, gate: bool
) -> None:
    """At the admission, and when a node is replaced."""
    pools = ("north-of-the-river-in-hall-seven", "south-of-the-river-in-hall-nine")
    nodes = {f"{pool}-{number}": "r1" for pool in pools for number in range(4)}
    gates = Gates(topology=TopologyGates(encode_by_prefix=gate))
    async with gated_site(
        tmp_path,
        *queues(),
        kinds=(ROWS["Job"],),
        nodes=racks(**nodes),
        options={"settings": Settings(gates=gates)},
    ) as cluster:
        await cluster.create(asking("gang", 7, cpu="4"))

        async def runs() -> bool:
            found = await hosts(cluster, "gang")
            return len(found) == 7 and all(found)

        await cluster.until("the gang runs", runs)
        assert await slices(cluster, "gang") == (2 if gate else 1)
        lost, *rest = await hosts(cluster, "gang")
        (spare,) = {*nodes} - {lost, *rest}
        await lose(cluster, lost)

        async def moved() -> bool:
            return await hosts(cluster, "gang") == sorted([*rest, spare])

        await cluster.until("its lost pod is on the other node", moved)
        assert await slices(cluster, "gang") == (2 if gate else 1)


async def slices(cluster: Site, name: str) -> int:
    """Return how many slices the assignment of a job's Workload is written in."""
    found = (await cluster.workloads())[name]
    (assigned,) = found["status"]["admission"]["podSetAssignments"]
    return len(assigned["topologyAssignment"]["slices"])
