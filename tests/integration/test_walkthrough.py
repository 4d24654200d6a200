"""The guide's walkthrough: an idle Job is preempted for another; policy Always for two more."""

from __future__ import annotations

from kubeworld.units.instants import parse_instant
from reprieve.kube.resource import PODS, PREEMPTIONS
from tests.integration.site import (
    DEPLOYMENTS,
    JOBS,
    OPERATOR_NAMESPACE,
    Object,
    Site,
    deployment,
    job,
)


async def test_an_idle_job_makes_way_for_a_pending_one(site: Site) -> None:
    site.reports("Job/batch-inference", 1.2)
    site.reports("Job/high-priority-demand", 88)
    root = await site.create(job("batch-inference", 4, grace_period="1s"))
    await site.operator()
    idle = await site.in_phase("Job/batch-inference", "Idle")
    assert idle["metadata"]["name"] == f"job-batch-inference-{root['metadata']['uid'][:8]}"
    assert idle["spec"]["workloadRef"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "batch-inference",
        "uid": root["metadata"]["uid"],
    }
    assert idle["spec"]["gpuResources"] == {"amd.com/gpu": 4}
    assert idle["status"]["aggregatedUtilization"] == 1.2
    assert conditions(idle) == {"PhaseUpdated": "True", "MetricsAvailable": "True"}
    assert instants(idle) == {"idleSince", "lastMetricsUpdate"}

    await site.create(job("high-priority-demand", 4, enabled="true"))
    victim = await site.in_phase("Job/batch-inference", "Preempted")
    demand = await site.in_phase("Job/high-priority-demand", "Active")

    name = demand["metadata"]["name"]
    assert victim["status"]["preemptedFor"] == name
    assert victim["status"]["preemptionReason"] == (
        f"Preempted to free 4 amd.com/gpu for pending workload {name}"
    )
    assert {"preemptedAt", "finishedAt"} <= instants(victim)
    assert await site.find(JOBS, "batch-inference") == {}
    (running,) = await site.all(PODS, "team")
    assert running["metadata"]["ownerReferences"][0]["name"] == "high-priority-demand"

    async def told() -> bool:
        return {
            "Normal WorkloadIdle",
            "Warning PreemptionStarted",
            "Warning WorkloadPreempted",
        } <= await site.events(victim)

    await site.until(told, "the events about the victim")


async def test_the_record_of_a_preemption_says_who_went_for_whom(site: Site) -> None:
    site.reports("Job/high-priority-demand", 88)
    root = await site.create(job("batch-inference", 4, grace_period="1s"))
    await site.operator()
    await site.in_phase("Job/batch-inference", "Idle")
    await site.create(job("high-priority-demand", 4, enabled="true"))

    async def completed() -> Object | None:
        records = await site.all(PREEMPTIONS)
        over = [one for one in records if one.get("status", {}).get("phase") == "Completed"]
        return over[0] if over else None

    record = await site.until(completed, "a completed Preemption")
    demand = await site.in_phase("Job/high-priority-demand", "Active")

    assert record["metadata"]["namespace"] == OPERATOR_NAMESPACE
    assert record["metadata"]["name"] == f"idle-{record['spec']['preemptor']['uid']}-1"
    assert record["spec"]["preemptor"]["name"] == demand["metadata"]["name"]
    assert record["spec"]["proof"]["need"] == {"amd.com/gpu": 4}
    assert record["spec"]["proof"]["freed"] == {"amd.com/gpu": 4}
    (planned,) = record["spec"]["victims"]
    assert (planned["root"]["kind"], planned["root"]["name"]) == ("Job", "batch-inference")
    (victim,) = record["status"]["victims"]
    assert (victim["uid"], victim["state"]) == (root["metadata"]["uid"], "Evicted")
    assert len(await site.all(PREEMPTIONS)) == 1


async def test_idle_work_under_policy_always_goes_each_on_its_own(site: Site) -> None:
    site.reports("Job/my-training-job", 0)
    site.reports("Deployment/dev-notebook", 0)
    always = {"policy": "Always", "grace_period": "1s", "aggregation": "Max"}
    await site.create(job("my-training-job", 2, **always))
    await site.create(deployment("dev-notebook", 1, **always))
    await site.operator()

    training = await site.in_phase("Job/my-training-job", "Preempted")
    notebook = await site.in_phase("Deployment/dev-notebook", "Preempted")

    assert training["status"].get("preemptedFor", "") == ""
    assert notebook["status"].get("preemptedFor", "") == ""
    chain = [part.split("/")[0] for part in notebook["status"]["ownerChain"].split(" -> ")]
    assert chain == ["Pod", "ReplicaSet", "Deployment"]
    assert await site.find(JOBS, "my-training-job") == {}
    assert await site.find(DEPLOYMENTS, "dev-notebook") == {}

    async def empty() -> bool:
        return await site.all(PODS, "team") == []

    await site.until(empty, "all pods are gone")


async def test_work_that_is_busy_stays(site: Site) -> None:
    site.reports("Job/batch-inference", 90)
    await site.create(job("batch-inference", 4, grace_period="1s"))
    await site.operator()
    await site.in_phase("Job/batch-inference", "Active")
    await site.create(job("high-priority-demand", 4, enabled="true"))

    await site.in_phase("Job/high-priority-demand", "PendingGpu")
    site.reports("Job/batch-inference", 0)
    victim = await site.in_phase("Job/batch-inference", "Preempted")

    assert await site.events(victim) >= {"Normal WorkloadIdle"}
    assert len(await site.all(PREEMPTIONS)) == 1


def conditions(workload: Object) -> dict[str, str]:
    return {one["type"]: one["status"] for one in workload["status"]["conditions"]}


def instants(workload: Object) -> set[str]:
    """Return the names of the status fields that hold an instant."""
    found = set()
    for name, value in workload["status"].items():
        if name.endswith(("Since", "At", "Update")):
            assert parse_instant(value) > 0
            found.add(name)
    return found
