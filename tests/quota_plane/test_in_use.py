"""Queues and flavors that are in use are not deleted until they are not."""

from __future__ import annotations

from pathlib import Path

from reprieve.api.kueue import RESOURCE_IN_USE
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import Resource
from reprieve.planes.quota.watches import FLAVORS
from tests.quota_plane.site import CLUSTER_QUEUES, JOBS, NAMESPACE, Object, Site, job, site
from tests.quota_plane.test_jobs import base


async def stored(cluster: Site, resource: Resource, name: str) -> Object | None:
    try:
        found: Object = await cluster.client.get(resource, "", name, dict)
    except NotFound:
        return None
    return found


async def test_a_queue_goes_after_its_workloads_and_a_flavor_after_its_queues(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, *base(4)) as cluster:

        async def held() -> bool:
            both = [
                await stored(cluster, FLAVORS, "default-flavor"),
                await stored(cluster, CLUSTER_QUEUES, "cq"),
            ]
            return all(each is not None and "finalizers" in each["metadata"] for each in both)

        await cluster.until("both are held", held, 60)
        await cluster.create(job("first", pods=2))
        await cluster.until_admitted("first")
        await cluster.client.delete(FLAVORS, "", "default-flavor")
        await cluster.client.delete(CLUSTER_QUEUES, "", "cq")

        queue = await stored(cluster, CLUSTER_QUEUES, "cq")
        assert queue is not None and queue["metadata"]["finalizers"] == [RESOURCE_IN_USE]
        assert await stored(cluster, FLAVORS, "default-flavor") is not None
        assert await cluster.admitted() == {"first"}
        await cluster.client.delete(JOBS, NAMESPACE, "first")

        async def gone() -> bool:
            queue = await stored(cluster, CLUSTER_QUEUES, "cq")
            return queue is None and await stored(cluster, FLAVORS, "default-flavor") is None

        await cluster.until("queue and flavor are gone", gone, 60)
        assert await cluster.admitted() == set()
