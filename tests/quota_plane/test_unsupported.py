"""What is asked for and not served makes work wait, with a condition that says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.api.kueue_topology import MULTI_KUEUE, PROVISIONING
from reprieve.jobs.pod_sets import pod_sets_of
from reprieve.jobs.table import BUILT_IN
from tests.quota_plane.pod_lives import ACTIVE
from tests.quota_plane.site import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    Object,
    cluster_queue,
    flavor,
    job,
    local_queue,
    site,
)

REQUIRED = "kueue.x-k8s.io/podset-required-topology"

WHY = (
    "Can't admit new workloads: references AdmissionCheck(s) of MultiKueue, which is not supported"
    ": far."
)


def asking(name: str, annotation: str, queue: str = "q") -> Object:
    found = job(name, queue, pods=1)
    metadata = {"annotations": {annotation: "cloud.example/rack"}}
    found["spec"]["template"]["metadata"] = metadata
    return found


async def test_a_queue_with_a_check_of_multikueue_is_inactive_and_says_why(
    tmp_path: Path,
) -> None:
    check = {"metadata": {"name": "far"}, "spec": {"controllerName": MULTI_KUEUE}}
    far: dict[str, Any] = {"admissionChecksStrategy": {"admissionChecks": [{"name": "far"}]}}
    objects = (flavor(), cluster_queue("other", 8, **far), local_queue("away", "other"))
    async with site(tmp_path, *objects, start=False) as cluster:
        await cluster.client.create(ADMISSION_CHECKS, check, dict)
        await cluster.client.patch_status(ADMISSION_CHECKS, "", "far", ACTIVE, dict)
        await cluster.start()
        await cluster.create(job("away", "away"))

        async def said() -> bool:
            found = await cluster.conditions("away")
            return found.get("QuotaReserved") == (
                "False",
                "Suspended",
                "ClusterQueue other is inactive",
            )

        await cluster.until("it is told why it waits", said)

        async def inactive() -> bool:
            other = await cluster.client.get(CLUSTER_QUEUES, "", "other", dict)
            said = (other.get("status") or {}).get("conditions") or ()
            return [(e["status"], e["reason"], e["message"]) for e in said] == [
                ("False", "AdmissionCheckInactive", WHY)
            ]

        await cluster.until("the queue says why it is inactive", inactive)


async def test_a_check_of_provisioning_requests_that_nobody_answers_is_named(
    tmp_path: Path,
) -> None:
    check = {"metadata": {"name": "more"}, "spec": {"controllerName": PROVISIONING}}
    more: dict[str, Any] = {"admissionChecksStrategy": {"admissionChecks": [{"name": "more"}]}}
    objects = (flavor(), cluster_queue("other", 8, **more), local_queue("away", "other"))
    async with site(tmp_path, *objects, start=False) as cluster:
        await cluster.client.create(ADMISSION_CHECKS, check, dict)
        await cluster.start()

        async def active() -> tuple[str, str]:
            other: Object = await cluster.client.get(CLUSTER_QUEUES, "", "other", dict)
            (said,) = (other.get("status") or {}).get("conditions") or [Object()]
            return said.get("status", ""), said.get("message", "")

        async def inactive() -> bool:
            why = WHY.replace("MultiKueue, which is", "ProvisioningRequests, which are")
            why = why.replace("far", "more")
            return await active() == ("False", why)

        await cluster.until("the queue says why it is inactive", inactive)
        # A controller of somebody's own may answer such a check.
        await cluster.client.patch_status(ADMISSION_CHECKS, "", "more", ACTIVE, dict)

        async def ready() -> bool:
            return (await active())[0] == "True"

        await cluster.until("the queue is active", ready)


def test_the_workload_of_a_job_asks_for_what_its_template_is_annotated_with() -> None:
    (kind,) = (each for each in BUILT_IN if each.kind == "Job")
    (pod_set,) = pod_sets_of(kind, asking("a", REQUIRED))
    index = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
    assert pod_set["topologyRequest"] == {"required": "cloud.example/rack", **index}
    (pod_set,) = pod_sets_of(kind, job("b"))
    assert pod_set["topologyRequest"] == index
