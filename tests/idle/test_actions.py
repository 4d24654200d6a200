"""`reprieve.dev/on-preemption`: what is done instead of deleting."""

from __future__ import annotations

from kubelocal.cluster import Stage, Write
from kubeworld.units.untrusted import TOLD
from tests.idle.site import (
    GPU_WORKLOADS,
    NAMESPACE,
    PREEMPTIONS,
    Site,
    container,
    deployment,
    job,
    owned_by,
    pod,
)
from tests.idle.test_lost_work import lost

ON_PREEMPTION = "reprieve.dev/on-preemption"
FORMER_REPLICAS = "reprieve.dev/former-replicas"


async def test_a_deployment_is_scaled_to_zero_and_tracked_anew_when_scaled_up(site: Site) -> None:
    victim = await site.create(
        deployment("notebook", 3, 2, grace_period="1s", **{ON_PREEMPTION: "ScaleToZero"})
    )
    site.busy("Job/demand", 90)
    operator = await site.run()
    await site.until_phase("Deployment/notebook", "Idle")
    await site.create(job("demand", container(gpu=4), enabled="true"))

    preempted = await site.until_phase("Deployment/notebook", "Preempted")

    left = await site.get("deployments.apps", "notebook")
    assert left is not None
    assert left["metadata"]["uid"] == victim["metadata"]["uid"]
    assert left["spec"]["replicas"] == 0
    assert left["metadata"]["annotations"][FORMER_REPLICAS] == "3"
    assert preempted["status"]["preemptedAt"] == preempted["status"]["finishedAt"]
    told = await site.until_event("GpuWorkload/deployment-notebook", "WorkloadPreempted")
    assert told.startswith("Deployment/notebook was scaled to zero to free GPU resources; reason: ")
    await site.until_phase("Job/demand", "Active")
    assert await site.events("GpuWorkload/deployment-notebook", "PreemptionFailed") == []
    assert [line for line in site.evictions() if line.startswith("delete")] == []

    # The demand goes, its owner scales up again: everything starts anew.
    await site.delete("jobs.batch", "demand")
    await site.patch("deployments.apps", "notebook", {"spec": {"replicas": 3}})
    anew = await site.until_phase("Deployment/notebook", "Idle")
    assert "preemptedFor" not in anew["status"]
    assert "finishedAt" not in anew["status"]
    await site.until(lambda: operator.said("completed"))
    (record,) = await site.records()
    assert record["status"]["phase"] == "Completed"
    assert [victim["action"] for victim in record["spec"]["victims"]] == ["ScaleToZero"]
    assert [victim["state"] for victim in record["status"]["victims"]] == ["Evicted"]


async def test_that_a_victim_was_evicted_is_told_however_often_somebody_is_faster(
    site: Site,
) -> None:
    await site.create(
        deployment("notebook", 1, 4, policy="Always", **{ON_PREEMPTION: "ScaleToZero"})
    )
    operator = await site.run()
    name = (await site.until_phase("Deployment/notebook", "Idle"))["metadata"]["name"]
    met = 0

    async def somebody_is_faster(write: Write, stage: Stage) -> None:
        nonlocal met
        told = write.path.partition("?")[0].endswith(f"/gpuworkloads/{name}/status")
        if stage is Stage.BEFORE and told and b'"Preempted"' in write.body:
            met += 1
            await site.patch(GPU_WORKLOADS, name, {"metadata": {"labels": {"seen": str(met)}}})
        await site.on_write(write, stage)

    site.cluster.on_write = somebody_is_faster
    await site.until_phase("Deployment/notebook", "Preempted")
    await site.until(lambda: operator.said("completed"))
    assert met == 3, "after two conflicts it is written over any version"
    assert sum((await lost(operator)).values()) > 0, "what was evicted is counted, too"
    (record,) = await site.records()
    assert [victim["state"] for victim in record["status"]["victims"]] == ["Evicted"]


async def test_a_job_is_suspended_and_tracked_anew_when_resumed(site: Site) -> None:
    await site.create(
        job("training", container(gpu=8), policy="Always", **{ON_PREEMPTION: "Suspend"})
    )
    operator = await site.run()

    preempted = await site.until_phase("Job/training", "Preempted")

    left = await site.get("jobs.batch", "training")
    assert left is not None
    assert left["spec"]["suspend"] is True
    told = await site.until_event("GpuWorkload/job-training", "WorkloadPreempted")
    assert told.startswith(
        "Job/training was suspended to free GPU resources; reason: Policy is Alw"
    )
    assert preempted["status"]["conditions"][0]["message"] == told

    await site.until(lambda: operator.said("completed"))
    site.busy("Job/training", 90)
    await site.patch("jobs.batch", "training", {"spec": {"suspend": False}})
    anew = await site.until_phase("Job/training", "Active")
    assert "preemptionReason" not in anew["status"]

    # Idle again, it is preempted again: the first time does not protect it.
    site.busy("Job/training", 0)
    await site.until_phase("Job/training", "Preempted")
    assert [line for line in site.evictions() if line.startswith("delete")] == []
    await site.until(lambda: len(operator.said("completed")) == 2)
    records = await site.records()
    assert sorted(record["metadata"]["name"] for record in records) == [
        "idle-always-1",
        "idle-always-2",
    ]
    assert {record["status"]["phase"] for record in records} == {"Completed"}
    assert {record["spec"]["victims"][0]["action"] for record in records} == {"Suspend"}


async def test_an_action_that_a_kind_does_not_support_is_refused_and_nothing_is_deleted(
    site: Site,
) -> None:
    await site.create(
        job("unscalable", container(gpu=1), policy="Always", **{ON_PREEMPTION: "ScaleToZero"}),
        deployment("unsuspendable", 1, 1, policy="Always", **{ON_PREEMPTION: "Suspend"}),
        pod("lonely", 1, policy="Always", **{ON_PREEMPTION: "Suspend"}),
    )
    await site.run()

    texts = [
        await site.until_event(f"GpuWorkload/{name}", "PreemptionFailed")
        for name in ("job-unscalable", "deployment-unsuspendable", "pod-lonely")
    ]

    assert texts == [
        f"Cannot {text}; nothing was deleted instead"
        for text in (
            "scale to zero Job/unscalable: Job/unscalable has no scale subresource",
            "suspend Deployment/unsuspendable: Deployment has no suspend field",
            "suspend Pod/lonely: Pod has no suspend field",
        )
    ]
    assert site.evictions() == []
    for root in ("Job/unscalable", "Deployment/unsuspendable", "Pod/lonely"):
        assert await site.phase(root) == "Idle"


async def test_an_action_without_its_right_changes_nothing_and_names_the_right(site: Site) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await rights.deny("patch", "apps", "deployments/scale")
    await rights.deny("patch", "batch", "jobs")
    scale, suspend = {ON_PREEMPTION: "ScaleToZero"}, {ON_PREEMPTION: "Suspend"}
    await site.create(
        deployment("service", 2, 1, policy="Always", **scale),
        job("training", container(gpu=1), policy="Always", **suspend),
    )
    await site.run()

    assert await site.until_event("GpuWorkload/deployment-service", "PreemptionFailed") == (
        "Cannot scale to zero Deployment/service: patch on deployments/scale.apps is missing"
    )
    assert await site.until_event("GpuWorkload/job-training", "PreemptionFailed") == (
        "Cannot suspend Job/training: patch on jobs.batch is missing"
    )
    assert site.evictions() == []
    assert await site.events("GpuWorkload/job-training", "PreemptionStarted") == []
    left = await site.get("deployments.apps", "service")
    assert left is not None
    assert FORMER_REPLICAS not in left["metadata"]["annotations"]

    await rights.allow("patch", "apps", "deployments/scale")
    await rights.allow("patch", "batch", "jobs")
    await site.until_phase("Deployment/service", "Preempted")
    await site.until_phase("Job/training", "Preempted")


async def test_a_value_that_is_no_action_is_named_in_an_event_and_keeps_nobody(site: Site) -> None:
    await site.create(
        job("typo", container(gpu=2), policy="Always", **{ON_PREEMPTION: "Scale"}),
        job("long", container(gpu=2), policy="Always", **{ON_PREEMPTION: "Suspend" * 5_000}),
    )
    await site.run()

    await site.until_phase("Job/typo", "Preempted")
    await site.until_phase("Job/long", "Preempted")
    for name, value in (("typo", "'Scale'"), ("long", f"'{('Suspend' * 6)[:36]}...' (35000 ")):
        told = await site.until_event(f"Job/{name}", "InvalidAnnotation")
        assert told.startswith(f"annotation reprieve.dev/on-preemption of Job/{name} is {value}")
        assert told.endswith("; accepted: Delete, ScaleToZero, Suspend; in force: Delete")
        assert len(told) <= TOLD
        assert await site.get("jobs.batch", name) is None


async def test_a_preemption_forged_in_a_tenants_namespace_is_ignored_with_an_event(
    site: Site,
) -> None:
    victim = await site.create(job("busy", container(gpu=2), enabled="true"))
    site.busy("Job/busy", 90)
    operator = await site.run()
    tracked = await site.until_phase("Job/busy", "Active")
    (reference,) = owned_by(victim)
    del reference["controller"]
    subject = {
        "apiVersion": "kaiwo.silogen.ai/v1alpha1",
        "kind": "GpuWorkload",
        "name": tracked["metadata"]["name"],
        "namespace": NAMESPACE,
        "uid": tracked["metadata"]["uid"],
    }

    await site.create(
        {
            "apiVersion": "reprieve.dev/v1alpha1",
            "kind": "Preemption",
            "metadata": {"name": "idle-always-1", "namespace": NAMESPACE},
            "spec": {
                "plane": "idle",
                "planId": "forged",
                "attempt": 1,
                "proof": {"level": "Exempt", "compatible": True},
                "victims": [
                    {
                        "subject": subject,
                        "root": {**reference, "namespace": NAMESPACE},
                        "amounts": {"amd.com/gpu": 2},
                        "rule": "forged",
                        "reason": "forged",
                        "action": "Delete",
                    }
                ],
                "decidedAt": "2026-01-01T00:00:00Z",
            },
        }
    )

    told = await site.until_event("Preemption/idle-always-1", "ForeignPreemption")
    assert told == (
        "Preemption team/idle-always-1 is ignored: only those in kaiwo-system, written by the "
        "operator, count"
    )
    # A whole eviction of somebody else goes by, and a new process starts from what is there.
    await site.create(job("other", container(gpu=2), policy="Always"))
    await site.until_phase("Job/other", "Preempted")
    await operator.stop()
    again = await site.run()
    await site.until(lambda: again.said("idle plane runs"))
    await site.create(job("another", container(gpu=2), policy="Always"))
    await site.until_phase("Job/another", "Preempted")
    assert sorted(line.rpartition("/")[2] for line in site.evictions()) == ["another", "other"]
    assert await site.phase("Job/busy") == "Active"
    (forged,) = await site.all(PREEMPTIONS, NAMESPACE)
    assert "status" not in forged
