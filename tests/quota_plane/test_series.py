"""No series of a metric has a name that a tenant made up."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import generate_latest

from reprieve.kube.resource import PODS
from tests.quota_plane.gated_site import CLASS, QUEUE, gated_site
from tests.quota_plane.kind_stories import ROWS, manifest
from tests.quota_plane.site import (
    NAMESPACE,
    WORKLOADS,
    Object,
    cluster_queue,
    flavor,
    local_queue,
    priority_class,
)


def workload(name: str, chosen: str) -> Object:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    of = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": chosen}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "queueName": "q",
            "priority": 1,
            "priorityClassRef": of,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }


async def test_queues_and_classes_that_are_not_there_have_no_series(tmp_path: Path) -> None:
    objects = [flavor(), cluster_queue("cq", 8), local_queue("q", "cq"), priority_class("low", 1)]
    async with gated_site(tmp_path, *objects, kinds=(ROWS["Pod"],)) as cluster:
        client = cluster.client
        lone = manifest("Pod", "lone")
        lone["metadata"]["labels"] = {QUEUE: "invented-queue", CLASS: "low"}
        await client.create(PODS, lone, dict)
        await client.create(WORKLOADS, workload("named", "low"), dict)
        await client.create(WORKLOADS, workload("unnamed", "invented-class"), dict)

        async def admitted() -> bool:
            return await cluster.admitted() == {"named", "unnamed"}

        await cluster.until("both are admitted", admitted)
        await client.delete(PODS, NAMESPACE, "lone")

        def shown() -> str:
            return generate_latest(cluster.metrics.registry).decode()

        async def counted() -> bool:
            return "kueue_finished_workloads_total{" in shown()

        await cluster.until("the end of the pod's Workload is counted", counted)
        text = shown()
        assert "invented" not in text
        for chosen in ("low", "other"):
            of = f'name="q",namespace="team",priority_class="{chosen}",replica_role="leader"'
            assert f"kueue_local_queue_admitted_workloads_total{{{of}}} 1.0" in text
