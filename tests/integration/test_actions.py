"""What `reprieve.dev/on-preemption` does instead of deleting, with the chart's rights for it."""

from __future__ import annotations

from reprieve.kube.resource import PODS, PREEMPTIONS
from tests.integration.site import DEPLOYMENTS, JOBS, NAMESPACE, Object, Site, deployment, job

ACTION = "reprieve.dev/on-preemption"
FORMER_REPLICAS = "reprieve.dev/former-replicas"


async def test_a_deployment_is_scaled_to_zero_and_tracked_anew_when_scaled_up(site: Site) -> None:
    site.reports("Deployment/notebook", 0)
    manifest = deployment("notebook", 2, policy="Always", grace_period="1s")
    manifest["metadata"]["annotations"][ACTION] = "ScaleToZero"
    stored = await site.create(manifest)
    await site.operator()

    await site.in_phase("Deployment/notebook", "Preempted")

    left = await site.find(DEPLOYMENTS, "notebook")
    assert left["metadata"]["uid"] == stored["metadata"]["uid"]
    assert left["spec"]["replicas"] == 0
    assert left["metadata"]["annotations"][FORMER_REPLICAS] == "1"
    await nothing_runs(site)

    site.reports("Deployment/notebook", 90)
    await site.client.patch_scale(DEPLOYMENTS, NAMESPACE, "notebook", 1)
    anew = await site.in_phase("Deployment/notebook", "Active")
    assert "preemptionReason" not in anew["status"]
    record = await completed(site)
    assert [victim["action"] for victim in record["spec"]["victims"]] == ["ScaleToZero"]


async def test_a_job_is_suspended_and_tracked_anew_when_resumed(site: Site) -> None:
    site.reports("Job/training", 0)
    manifest = job("training", 4, policy="Always", grace_period="1s")
    manifest["metadata"]["annotations"][ACTION] = "Suspend"
    stored = await site.create(manifest)
    await site.operator()

    await site.in_phase("Job/training", "Preempted")

    left = await site.find(JOBS, "training")
    assert left["metadata"]["uid"] == stored["metadata"]["uid"]
    assert left["spec"]["suspend"] is True
    await nothing_runs(site)

    site.reports("Job/training", 90)
    await site.client.patch(JOBS, NAMESPACE, "training", {"spec": {"suspend": False}}, dict)
    anew = await site.in_phase("Job/training", "Active")
    assert "preemptionReason" not in anew["status"]
    record = await completed(site)
    assert [victim["action"] for victim in record["spec"]["victims"]] == ["Suspend"]


async def nothing_runs(site: Site) -> None:
    async def empty() -> bool:
        return await site.all(PODS, NAMESPACE) == []

    await site.until(empty, "all pods are gone")


async def completed(site: Site) -> Object:
    async def over() -> Object | None:
        (record,) = await site.all(PREEMPTIONS)
        return record if record.get("status", {}).get("phase") == "Completed" else None

    return await site.until(over, "the only intent is completed")
