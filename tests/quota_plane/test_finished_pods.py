"""Pods that have finished, and are not needed any more, leave their nodes to others."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reprieve.engine.quota.model import Settings
from reprieve.engine.topology.encoding import decoded
from reprieve.engine.topology.model import HOSTNAME, Domain, TopologyAssignment
from reprieve.engine.topology.releasing import still_needed
from reprieve.engine.victim_choice import VictimChoice
from reprieve.kube.resource import PODS
from tests.quota_plane.gated_site import gated_site
from tests.quota_plane.kind_stories import ROWS
from tests.quota_plane.site import NAMESPACE, Site
from tests.quota_plane.test_topologies import HOST, asking, hosts, queues, racks


async def places(cluster: Site, name: str) -> dict[str, int]:
    found = (await cluster.workloads())[name]
    (assigned,) = found["status"]["admission"]["podSetAssignments"]
    read = decoded(assigned["topologyAssignment"])
    return {each.values[0]: each.count for each in read.domains}


async def active(cluster: Site, name: str) -> list[str]:
    """Return the nodes of a job's pods that have not finished."""
    found = await cluster.pods_of(name)
    left = [pod for pod in found if pod["status"].get("phase") not in ("Succeeded", "Failed")]
    return sorted(pod["spec"].get("nodeName", "") for pod in left)


@pytest.mark.parametrize("profile", VictimChoice)
async def test_the_node_of_finished_pods_is_given_to_others_and_a_pod_made_anew_finds_its_own(
    tmp_path: Path, profile: VictimChoice
) -> None:
    nodes, settings = racks(a="r1", b="r1"), Settings(profile=profile)
    async with gated_site(
        tmp_path,
        *queues(),
        kinds=(ROWS["Job"],),
        nodes=nodes,
        options={"settings": settings},
    ) as cluster:
        await cluster.create(asking("gang", 4, cpu="2"))

        async def runs() -> bool:
            return await active(cluster, "gang") == ["a", "a", "b", "b"]

        await cluster.until("the gang runs", runs)
        await cluster.create(asking("late", 2, cpu="2", level=HOST))
        over = {"metadata": {"annotations": {"sim.reprieve.dev/run-time": "1s"}}}
        for pod in await cluster.pods_of("gang"):
            if pod["spec"]["nodeName"] == "a":
                await cluster.client.patch(PODS, NAMESPACE, pod["metadata"]["name"], over, dict)

        async def counted() -> bool:
            status = (await cluster.workloads())["gang"]["status"]
            return bool(status.get("reclaimablePods") == [{"name": "main", "count": 2}])

        await cluster.until("two pods are not needed any more", counted)
        if profile is VictimChoice.COMPATIBLE:
            await cluster.create(asking("beside", 1, cpu="8"))

            async def told() -> bool:
                return "QuotaReserved" in await cluster.conditions("beside")

            await cluster.until("a cycle was decided since", told)
            assert await places(cluster, "gang") == {"a": 2, "b": 2}
            assert await hosts(cluster, "late") == []
            return

        async def placed() -> bool:
            return await active(cluster, "late") == ["a", "a"]

        await cluster.until("the other job has the node", placed)
        assert await places(cluster, "gang") == {"b": 2}
        one = next(p for p in await cluster.pods_of("gang") if p["spec"]["nodeName"] == "b")
        name = one["metadata"]["name"]
        await cluster.client.delete(PODS, NAMESPACE, name, grace_seconds=0)

        async def made_anew() -> bool:
            names = {pod["metadata"]["name"] for pod in await cluster.pods_of("gang")}
            return name not in names and await active(cluster, "gang") == ["b", "b"]

        await cluster.until("its pod is on the node that it kept", made_anew)
        assert await active(cluster, "late") == ["a", "a"]


def test_every_pod_that_is_left_keeps_its_place_and_nothing_else_is_kept() -> None:
    released = 0
    for number in range(300):
        draw = random.Random(number)
        counts = {host: draw.randint(1, 4) for host in "abcd"[: draw.randint(1, 4)]}
        slots = [(host,) for host, count in counts.items() for _ in range(count)]
        domains = tuple(Domain((host,), count) for host, count in counts.items())
        assignment = TopologyAssignment((HOSTNAME,), domains)
        left: list[tuple[str, ...] | None] = [*draw.sample(slots, draw.randint(0, len(slots)))]
        needed = draw.choice((len(left), draw.randint(0, len(slots))))
        if draw.random() < 0.2 and left:
            left[0] = None
        found = still_needed(assignment, left, needed)
        if found is None:
            assert None in left or len(left) != needed or needed in (0, len(slots))
            continue
        released += 1
        kept = [each.values for each in found.domains for _ in range(each.count)]
        assert sorted(kept) == sorted(each for each in left if each) and len(kept) == needed
        assert found.pods < assignment.pods
    assert released >= 80
