"""A Workload that another client makes for work that names it, and was there before it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeworld.objects.paths import first
from reprieve.jobs.pods import ROLE
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.resource import PODS
from tests.quota_plane.gated_site import QUEUE, gated_site
from tests.quota_plane.kind_stories import GROUP, TOTAL, manifest
from tests.quota_plane.site import (
    JOBS,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
)

PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
KINDS = tuple(kind for kind in BUILT_IN if kind.kind in ("Job", "Pod"))


def workload(template: Object, count: int) -> Object:
    pod_set = {"name": "main", "count": count, "template": {"spec": template}}
    spec = {"queueName": "q", "podSets": [pod_set], "priority": 0}
    return {"metadata": {"name": "made", "namespace": NAMESPACE}, "spec": spec}


async def held(cluster: Site) -> Object:
    found: Object = await cluster.client.get(WORKLOADS, NAMESPACE, "made", dict)
    return found


@pytest.mark.parametrize("count", [2, 3], ids=["matches", "differs"])
async def test_a_workload_that_comes_after_its_job_becomes_its_own(
    count: int, tmp_path: Path
) -> None:
    objects = (flavor(), cluster_queue("cq", 2), local_queue("q", "cq"))
    async with gated_site(tmp_path, *objects, kinds=KINDS, nodes=[node("node-0")]) as cluster:
        wanted = job("late", pods=2)
        wanted["metadata"]["labels"][PREBUILT] = "made"
        stored: Object = await cluster.client.create(JOBS, wanted, dict)
        await asyncio.sleep(30)
        spec = stored["spec"]["template"]["spec"]
        await cluster.client.create(WORKLOADS, workload(spec, count), dict)

        async def owned() -> bool:
            return bool((await held(cluster))["metadata"].get("ownerReferences"))

        await cluster.until("its job owns it", owned, 10)
        if count == 2:
            await cluster.until_admitted("late")
            return

        async def refused() -> bool:
            said = (await cluster.conditions("late")).get("Finished", ("",))
            return said[:2] == ("True", "OutOfSync")

        await cluster.until("it is out of sync", refused, 10)


async def test_a_workload_that_comes_after_its_group_of_pods_becomes_its_own(
    tmp_path: Path,
) -> None:
    objects = (flavor(), cluster_queue("cq", 2), local_queue("q", "cq"))
    async with gated_site(tmp_path, *objects, kinds=KINDS, nodes=[node("node-0")]) as cluster:
        pod = manifest("Pod", "member")
        pod["metadata"]["labels"] = {QUEUE: "q", GROUP: "made", PREBUILT: "made"}
        pod["metadata"]["annotations"] = {TOTAL: "1", ROLE: "main"}
        await cluster.client.create(PODS, pod, dict)
        await asyncio.sleep(30)
        made = workload(pod["spec"], 1)
        made["metadata"]["annotations"] = {"kueue.x-k8s.io/is-group-workload": "true"}
        await cluster.client.create(WORKLOADS, made, dict)

        async def runs() -> bool:
            found = await cluster.client.get(PODS, NAMESPACE, "member", dict)
            return bool(first(found, "status.phase") == "Running")

        await cluster.until("its pod runs", runs, 20)
        assert (await held(cluster))["metadata"]["ownerReferences"]
