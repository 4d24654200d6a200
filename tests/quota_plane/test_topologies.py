"""Jobs that ask for a rack get one, as the API server shows it: admitted, placed and bound."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reprieve.answers.preemptions.recorded import judged
from reprieve.api.reprieve import Preemption
from reprieve.kube.resource import NODES, PODS
from reprieve.planes.quota.deciding.node_view import NodeView
from tests.quota_plane.gated_site import gated_site
from tests.quota_plane.kind_stories import ROWS, manifest, resource
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    NAMESPACE,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    priority_class,
    site,
)

RACK, HOST = "cloud.example/rack", "kubernetes.io/hostname"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
LOST = 'Can\'t admit new workloads: there is no Topology "racks" for TAS flavor "default-flavor".'
GATE = "kueue.x-k8s.io/topology"


def racks(**hosts: str) -> list[Any]:
    """Return nodes of 4 cpus, each in a rack."""
    return [
        node(name, 4, **{"pool": "gpu", RACK: rack, HOST: name}) for name, rack in hosts.items()
    ]


def topology() -> Object:
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": levels},
    }


def queues(cpu: int = 100, **spec: Any) -> tuple[Object, ...]:
    return (
        topology(),
        flavor(topologyName="racks", nodeLabels={"pool": "gpu"}),
        cluster_queue("team", cpu, **spec),
        local_queue("q", "team"),
    )


def asking(name: str, pods: int, cpu: str = "1", level: str = RACK, **more: Any) -> Object:
    found = job(name, pods=pods, cpu=cpu, **more)
    found["spec"]["template"]["metadata"] = {"annotations": {REQUIRED: level}}
    return found


async def hosts(cluster: Site, name: str) -> list[str]:
    """Return the nodes of a job's pods, empty for those without."""
    return sorted(each["spec"].get("nodeName", "") for each in await cluster.pods_of(name))


async def test_a_job_runs_in_one_rack_and_its_pods_are_let_go_with_their_places(
    tmp_path: Path,
) -> None:
    nodes = racks(a="r1", b="r2", c="r2", d="r3")
    async with site(tmp_path, *queues(), nodes=nodes) as cluster:
        await cluster.create(asking("gang", 6))

        async def bound() -> bool:
            return await hosts(cluster, "gang") == ["b"] * 4 + ["c"] * 2

        await cluster.until("the gang runs in the rack that holds it", bound)
        told = cluster.metrics.registry.get_sample_value(
            "kueue_pod_scheduling_gate_removal_seconds_count",
            {"name": GATE, "cluster_queue": "team", "is_group": "false", "replica_role": "leader"},
        )
        assert told == 6
        for pod in await cluster.pods_of("gang"):
            assert pod["spec"]["nodeSelector"][HOST] == pod["spec"]["nodeName"]
            assert not pod["spec"].get("schedulingGates")
        (workload,) = (await cluster.workloads()).values()
        (assigned,) = workload["status"]["admission"]["podSetAssignments"]
        assert assigned["topologyAssignment"] == {
            "levels": [HOST],
            "slices": [
                {
                    "domainCount": 2,
                    "podCounts": {"individual": [4, 2]},
                    "valuesPerLevel": [{"individual": {"roots": ["b", "c"]}}],
                }
            ],
        }


async def test_replicas_of_a_job_set_are_neighbours_by_their_numbers(tmp_path: Path) -> None:
    """Each of eleven replicas numbers its one pod 0; by name the eleventh comes second."""
    many = manifest("JobSet", "many")
    many["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    many["spec"] |= {"suspend": True, "replicatedJobs": many["spec"]["replicatedJobs"][:1]}
    (replicated,) = many["spec"]["replicatedJobs"]
    replicated["replicas"] = 11
    kinds, nodes = (ROWS["JobSet"],), racks(a="r1", b="r1", c="r1")
    async with gated_site(tmp_path, *queues(), kinds=kinds, nodes=nodes) as cluster:
        await cluster.client.create(resource(ROWS["JobSet"]), many, dict)

        async def bound() -> dict[int, str]:
            page = await cluster.client.list(PODS, dict, namespace=NAMESPACE)
            return {
                int(each["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]): each["spec"].get(
                    "nodeName", ""
                )
                for each in page.items
            }

        async def all_bound() -> bool:
            found = await bound()
            return len(found) == 11 and all(found.values())

        await cluster.until("all replicas run", all_bound)
        assert [node for _, node in sorted((await bound()).items())] == [*"aaaabbbbccc"]
        (workload,) = (await cluster.workloads()).values()
        (pod_set,) = workload["spec"]["podSets"]
        assert pod_set["topologyRequest"] == {
            "podIndexLabel": "batch.kubernetes.io/job-completion-index",
            "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
            "subGroupCount": 11,
        }


async def test_who_fits_no_rack_waits_says_so_and_starts_when_one_has_room(tmp_path: Path) -> None:
    nodes = racks(a="r1", b="r2")
    async with site(tmp_path, *queues(), nodes=nodes) as cluster:
        await cluster.create(asking("large", 6))
        text = (
            'couldn\'t assign flavors to pod set main: topology "racks" allows to fit only 4 out '
            "of 6 pod(s)"
        )

        async def told() -> bool:
            said = (await cluster.conditions("large")).get("QuotaReserved")
            return said == ("False", "TopologyPlacementFailed", text)

        await cluster.until("it says that no rack holds it", told)
        moved = {"metadata": {"labels": {RACK: "r1"}}}
        await cluster.client.patch(NODES, "", "b", moved, dict)

        async def bound() -> bool:
            return await hosts(cluster, "large") == ["a"] * 4 + ["b"] * 2

        await cluster.until("it runs once both hosts are in one rack", bound)


async def test_the_job_that_is_in_the_way_is_preempted_and_no_other(tmp_path: Path) -> None:
    nodes = racks(a="r1", b="r2", c="r3")
    rules = {"withinClusterQueue": "LowerPriority"}
    objects = (*queues(preemption=rules), priority_class("high", 10))
    async with site(tmp_path, *objects, nodes=nodes) as cluster:
        for name, pods in (("one", 4), ("two", 2), ("three", 3)):
            await cluster.create(asking(name, pods, level=HOST))

            async def runs(name: str = name, pods: int = pods) -> bool:
                return len([each for each in await hosts(cluster, name) if each]) == pods

            await cluster.until(f"{name} runs", runs)
        where = {name: (await hosts(cluster, name))[0] for name in ("one", "two", "three")}
        await cluster.create(asking("urgent", 3, priority="high"))

        async def bound() -> bool:
            return all(await hosts(cluster, "urgent")) and len(await hosts(cluster, "urgent")) == 3

        await cluster.until("the urgent one runs", bound)
        gone = await cluster.intents()
        assert len(gone) == 1 and len(gone[0]["spec"]["victims"]) == 1
        (place,) = set(await hosts(cluster, "urgent"))
        (victim,) = (name for name, host in where.items() if host == place)
        assert await hosts(cluster, victim) == []
        others = {name for name in where if name != victim}
        assert others <= await cluster.running()
        _, said, upheld = judged(msgspec.convert(gone[0], Preemption, strict=False))
        counts = "1 ClusterQueue, 3 workloads with quota, 1 at the head, 3 nodes"
        assert upheld, said
        assert said == f"Decided again from its stored input ({counts}): the same plan"


async def test_a_queue_whose_topology_is_missing_admits_nobody_and_says_which(
    tmp_path: Path,
) -> None:
    _, *rest = queues()
    async with site(tmp_path, *rest, nodes=racks(a="r1")) as cluster:
        await cluster.create(asking("gang", 1))

        async def told() -> bool:
            team = await cluster.client.get(CLUSTER_QUEUES, "", "team", dict)
            said = (team.get("status") or {}).get("conditions") or ()
            return [(e["status"], e["reason"], e["message"]) for e in said] == [
                (
                    "False",
                    "TopologyNotFound",
                    LOST,
                )
            ]

        await cluster.until("the queue says what is missing", told)
        await cluster.create(topology())

        async def bound() -> bool:
            return await hosts(cluster, "gang") == ["a"]

        await cluster.until("it runs once the topology is there", bound)
        page = await cluster.client.list(PODS, dict, namespace=NAMESPACE)
        assert all(
            GATE not in [gate["name"] for gate in each["spec"].get("schedulingGates") or ()]
            for each in page.items
        )


async def lose(cluster: Site, host: str) -> None:
    """Let a node be gone, with the pods on it, as the node's controllers do."""
    await cluster.client.delete(NODES, "", host)
    page = await cluster.client.list(PODS, dict, namespace=NAMESPACE)
    for pod in page.items:
        if pod["spec"].get("nodeName") == host:
            await cluster.client.delete(PODS, NAMESPACE, pod["metadata"]["name"], grace_seconds=0)


async def test_after_a_start_no_quota_is_given_before_nodes_and_what_is_on_them_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs that wait do not ask for a topology: their queue has no other flavors."""
    listed, read = asyncio.Event(), NodeView.cluster
    objects = (*queues(cpu=3), flavor("plain"), local_queue("beside", "without"))
    without = cluster_queue("without", 100)
    without["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "plain"
    nodes = [*racks(a="r1", b="r1"), node("beside")]
    other = job("other", "beside", pods=1)
    other["spec"]["template"]["spec"]["nodeSelector"] = {HOST: "beside"}
    async with site(tmp_path, *objects, without, nodes=nodes) as cluster:
        await cluster.create(job("first", pods=3))
        await cluster.until_admitted("first")
        await cluster.create(job("second", pods=4), job("third", pods=2, cpu="8"))

        async def queued() -> bool:
            return {"first", "second", "third"} == (await cluster.workloads()).keys()

        await cluster.until("all are queued", queued)
        await cluster.stop()
        await cluster.change_queue("team", cluster_queue("team", 100)["spec"])
        known = lambda view: read(view) if listed.is_set() else None  # noqa: E731
        monkeypatch.setattr(NodeView, "cluster", known)
        await cluster.start()
        await cluster.create(other)
        await cluster.until_admitted("first", "other")
        listed.set()
        await cluster.until_admitted("first", "other", "second")
        assert await hosts(cluster, "second") == ["b"] * 4

        async def told() -> bool:
            said = (await cluster.conditions("third")).get("QuotaReserved", ("", "", ""))
            return said[:2] == ("False", "TopologyPlacementFailed")

        await cluster.until("the third fits no node", told)


async def test_pods_of_a_failed_node_get_another_one_of_their_rack_and_the_others_stay(
    tmp_path: Path,
) -> None:
    nodes = racks(a="r1", b="r1", c="r1", d="r2")
    async with site(tmp_path, *queues(), nodes=nodes) as cluster:
        await cluster.create(asking("gang", 4, cpu="2"))

        async def bound() -> bool:
            return await hosts(cluster, "gang") == ["a", "a", "b", "b"]

        await cluster.until("it runs on two hosts of a rack", bound)
        before = await cluster.pods_of("gang")
        stay = {p["metadata"]["uid"] for p in before if p["spec"]["nodeName"] == "a"}
        await lose(cluster, "b")

        async def moved() -> bool:
            return await hosts(cluster, "gang") == ["a", "a", "c", "c"]

        await cluster.until("the pods of the failed node run on the third", moved)
        assert stay < {p["metadata"]["uid"] for p in await cluster.pods_of("gang")}
        assert "gang" in await cluster.admitted()


async def test_a_gang_whose_rack_has_no_other_node_is_evicted_and_placed_as_a_whole(
    tmp_path: Path,
) -> None:
    nodes = racks(a="r1", b="r1", c="r2", d="r2")
    async with site(tmp_path, *queues(), nodes=nodes) as cluster:
        await cluster.create(asking("gang", 4, cpu="2"))

        async def bound() -> bool:
            return await hosts(cluster, "gang") == ["a", "a", "b", "b"]

        await cluster.until("it runs in the first rack", bound)
        await lose(cluster, "b")

        async def moved() -> bool:
            return await hosts(cluster, "gang") == ["c", "c", "d", "d"]

        await cluster.until("it runs in the other rack", moved)
        why = "Workload was evicted as there was no replacement for unhealthy node(s): b"
        (said,) = {each[4] for each in await cluster.events() if each[3].endswith("NodeFailures")}
        assert said == why
