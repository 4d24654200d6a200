"""Topologies, labels of nodes and flavors that change while workloads hold places."""

from __future__ import annotations

from pathlib import Path

from reprieve.kube.resource import NODES
from tests.quota_plane.gated_site import gated_site
from tests.quota_plane.kind_stories import ROWS
from tests.quota_plane.site import (
    FLAVORS,
    TOPOLOGIES,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
)
from tests.quota_plane.test_topologies import HOST, RACK, asking, hosts, lose, queues, racks
from tests.quota_plane.test_topologies import topology as racks_topology

BLOCK = "cloud.example/block"


async def until_on(cluster: Site, name: str, *nodes: str) -> None:
    async def bound() -> bool:
        return await hosts(cluster, name) == [*nodes]

    await cluster.until(f"pods of {name} run on {nodes}", bound)


async def relabel(cluster: Site, node: str, **labels: str | None) -> None:
    changed = {{"rack": RACK, "block": BLOCK}[name]: value for name, value in labels.items()}
    await cluster.client.patch(NODES, "", node, {"metadata": {"labels": changed}}, dict)


async def test_a_level_that_a_topology_gets_admits_who_asked_for_it_and_moves_nobody(
    tmp_path: Path,
) -> None:
    nodes, kinds = racks(a="r1", b="r1", c="r2"), (ROWS["Job"],)
    async with gated_site(tmp_path, *queues(), kinds=kinds, nodes=nodes) as cluster:
        for name in ("a", "b", "c"):
            await relabel(cluster, name, block="b1")
        await cluster.create(asking("first", 4, level=HOST))
        await until_on(cluster, "first", *"aaaa")
        before = {pod["metadata"]["uid"] for pod in await cluster.pods_of("first")}
        await cluster.create(asking("second", 8, level=BLOCK))

        async def waits() -> bool:
            said = (await cluster.conditions("second")).get("QuotaReserved", ("", "", ""))
            return "does not contain the requested level" in said[2]

        await cluster.until("it waits for a level that there is not", waits)
        levels = [{"nodeLabel": each} for each in (BLOCK, RACK, HOST)]
        await cluster.client.patch(TOPOLOGIES, "", "racks", {"spec": {"levels": levels}}, dict)
        await until_on(cluster, "second", *"bbbbcccc")
        assert {pod["metadata"]["uid"] for pod in await cluster.pods_of("first")} == before


async def test_a_node_that_moves_to_another_rack_keeps_its_pods_and_their_place(
    tmp_path: Path,
) -> None:
    """A failed node is replaced in the rack where the others of the gang are now."""
    nodes, kinds = racks(a="r1", b="r1", c="r1", d="r2"), (ROWS["Job"],)
    async with gated_site(tmp_path, *queues(), kinds=kinds, nodes=nodes) as cluster:
        await cluster.create(asking("gang", 6))
        await until_on(cluster, "gang", *"aaaabb")
        await relabel(cluster, "b", rack="r2")
        await cluster.create(asking("other", 2, level=HOST))
        await until_on(cluster, "other", *"bb")
        assert await hosts(cluster, "gang") == [*"aaaabb"]
        await lose(cluster, "a")
        await until_on(cluster, "gang", *"bbdddd")


async def test_pods_from_before_a_flavor_had_a_topology_still_use_their_nodes(
    tmp_path: Path,
) -> None:
    nodes, kinds = racks(a="r1", b="r2"), (ROWS["Job"],)
    plain = (
        racks_topology(),
        flavor(nodeLabels={"pool": "gpu"}),
        cluster_queue("team", 100),
        local_queue("q", "team"),
    )
    async with gated_site(tmp_path, *plain, kinds=kinds, nodes=nodes) as cluster:
        await cluster.create(job("early", pods=2, cpu="1"))

        async def runs() -> bool:
            found = await hosts(cluster, "early")
            return len(found) == 2 and all(found)

        await cluster.until("the first runs", runs)
        taken = await hosts(cluster, "early")
        changed = {"spec": {"topologyName": "racks"}}
        await cluster.client.patch(FLAVORS, "", "default-flavor", changed, dict)
        await cluster.create(asking("late", 6, level=RACK))
        await cluster.create(asking("small", 2, level=HOST))

        async def placed() -> bool:
            found = await hosts(cluster, "small")
            return len(found) == 2 and all(found)

        await cluster.until("who fits is placed", placed)
        used = taken + await hosts(cluster, "small")
        assert max(used.count("a"), used.count("b")) <= 4
        assert await hosts(cluster, "early") == taken
        assert "late" not in await cluster.admitted()
