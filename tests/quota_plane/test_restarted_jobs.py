"""Pods of a JobSet that start again are counted again, whatever is said of one write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kubeworld.objects.paths import first
from reprieve.planes.quota.webhooks.reviews import Asked, Hook, Verdict
from reprieve.scenarios.embedded import OPERATOR_USER
from reprieve.settings.quota_configuration_parts import PodsReady
from tests.quota_plane.gated_site import QUEUE, gated_site
from tests.quota_plane.kind_stories import ROWS, resource
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    cluster_queue,
    flavor,
    local_queue,
)

SETS = resource(ROWS["JobSet"])
READY = PodsReady(300, 120, block_admission=False)


def job_set(name: str) -> Object:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    pods = {"restartPolicy": "Never", "containers": [container]}
    jobs = {"parallelism": 1, "completions": 1, "template": {"spec": pods}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {QUEUE: "q"}},
        "spec": {
            "suspend": True,
            "replicatedJobs": [{"name": "w", "replicas": 3, "template": {"spec": jobs}}],
        },
    }


def says_no_to_less(asked: Asked) -> Verdict:
    """Refuse the operator's writes that take pods out of those that are not needed any more."""
    status, before = asked.obj.get("status") or {}, (asked.old or {}).get("status") or {}
    fewer = before.get("reclaimablePods") and not status.get("reclaimablePods")
    return Verdict(("not now",) if fewer and asked.user == OPERATOR_USER else ())


OTHER = Hook(
    "policy.example.com",
    "/policy",
    "kueue.x-k8s.io",
    "v1beta2",
    ("workloads", "workloads/status"),
    says_no_to_less,
)


@asynccontextmanager
async def restarted(folder: Path, *others: Hook) -> AsyncIterator[Site]:
    """A JobSet of three, two of which had succeeded before all of them started again."""
    async with gated_site(
        folder,
        flavor(),
        cluster_queue("cq", 6),
        local_queue("q", "cq"),
        kinds=(ROWS["JobSet"],),
        options={"pods_ready": READY},
        others=others,
        without=("children",),
    ) as cluster:
        await cluster.client.create(SETS, job_set("js"), dict)

        async def started() -> bool:
            found: Object = await cluster.client.get(SETS, NAMESPACE, "js", dict)
            return first(found, "spec.suspend") is False

        await cluster.until("it starts", started)
        await tell(cluster, ready=1, active=1, succeeded=2)
        await cluster.until("two cpu are held", lambda: held(cluster, "2"))
        assert await says(cluster) == ([{"name": "w", "count": 2}], ("True", "Started"))
        await tell(cluster, ready=0, active=3, succeeded=0)
        yield cluster


async def tell(cluster: Site, **counts: int) -> None:
    """Play JobSet's controller."""
    status = {"replicatedJobsStatus": [{"name": "w", "failed": 0, "suspended": 0, **counts}]}
    await cluster.client.patch_status(SETS, NAMESPACE, "js", status, dict)


async def held(cluster: Site, cpu: str) -> bool:
    found: Object = await cluster.client.get(CLUSTER_QUEUES, "", "cq", dict)
    usage = first(found, "status.flavorsUsage") or [{}]
    return bool(usage[0].get("resources")) and usage[0]["resources"][0]["total"] == cpu


async def says(cluster: Site) -> tuple[object, tuple[str, str]]:
    """Return what the Workload says of pods that are not needed, and of those that are ready."""
    (found,) = (await cluster.client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
    status = found["status"]
    said = next(each for each in status["conditions"] if each["type"] == "PodsReady")
    return status.get("reclaimablePods"), (said["status"], said["reason"])


async def test_pods_that_start_again_are_counted_again(tmp_path: Path) -> None:
    async with restarted(tmp_path) as cluster:
        await cluster.until("six cpu are held", lambda: held(cluster, "6"))
        assert await says(cluster) == (None, ("False", "WaitForRecovery"))


async def test_a_write_that_is_refused_holds_up_no_other(tmp_path: Path) -> None:
    async with restarted(tmp_path, OTHER) as cluster:

        async def unready() -> bool:
            return (await says(cluster))[1] == ("False", "WaitForRecovery")

        await cluster.until("its pods are known not to be ready", unready)
        assert await held(cluster, "2")

        async def evicted() -> bool:
            (found,) = (await cluster.client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
            conditions = {each["type"]: each["reason"] for each in found["status"]["conditions"]}
            return conditions.get("Evicted") == "PodsReadyTimeout"

        await cluster.until("it is evicted when it does not recover in time", evicted, 300)
