"""Missing rights, and roots that go, come back, or were never there."""

from __future__ import annotations

from reprieve.scenarios.embedded import OPERATOR_USER
from tests.idle.site import (
    GPU_WORKLOADS,
    NAMESPACE,
    Site,
    container,
    deployment,
    job,
    owned_by,
    pod,
)


async def test_owners_that_may_not_be_read_are_named_once_and_the_others_go_on(site: Site) -> None:
    await site.embedded.stage.rights.deny("get", "apps", "replicasets")  # type: ignore[union-attr]
    await site.create(
        deployment("service", 3, 1, grace_period="1h"), job("training", container(gpu=4), ttl="1h")
    )
    operator = await site.run()
    await site.until_phase("Job/training", "Idle")

    told = await site.until_event("Pod/service", "OwnerForbidden")

    assert told.startswith('cannot resolve owner chain: RBAC forbids reading ReplicaSet "service-')
    assert "add get permission for this resource to the operator ServiceAccount" in told
    assert "apps" in told
    # Later attempts, of three pods, say no more.
    scrapes = site.embedded.machines.exporter.scrapes
    await site.until(lambda: site.embedded.machines.exporter.scrapes > scrapes + 6)
    assert len(await site.events("Pod/service", "OwnerForbidden")) == 1
    assert len(await site.until(lambda: operator.said("is not tracked", "ReplicaSet"))) == 1
    assert await site.workload("Deployment/service") is None

    await site.embedded.stage.rights.allow("get", "apps", "replicasets")  # type: ignore[union-attr]
    await site.until_phase("Deployment/service", "Idle")

    async def whole() -> bool:
        found = await site.workload("Deployment/service")
        return found is not None and found["spec"]["gpuResources"] == {"amd.com/gpu": 3}

    await site.until(whole)  # its pods are found one after the other


async def test_required_kinds_that_may_not_be_read_are_named_by_readyz(site: Site) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await rights.deny("list", "", "namespaces")
    await rights.deny("watch", "kaiwo.silogen.ai", "gpuworkloads")
    await site.create(job("training", container(gpu=4), policy="Always"))
    operator = await site.run()

    async def refused() -> str:
        code, text = await operator.readiness()
        both = "namespaces: " in text and "gpuworkloads.kaiwo.silogen.ai: " in text
        return text if code == 503 and both else ""

    lines = (await site.until(refused)).splitlines()

    assert "[-] idle: the caches are not synced" in lines
    (listing,) = (line for line in lines if "namespaces: Forbidden: " in line)
    assert "list" in listing
    (watching,) = (line for line in lines if "gpuworkloads.kaiwo.silogen.ai: Forbidden: " in line)
    assert "watch" in watching
    assert await site.all(GPU_WORKLOADS) == []
    await rights.allow("list", "", "namespaces")
    await rights.allow("watch", "kaiwo.silogen.ai", "gpuworkloads")
    await site.until_phase("Job/training", "Preempted", seconds=90)
    assert (await operator.readiness())[0] == 200


async def test_while_a_kind_cannot_be_watched_nothing_is_decided_and_that_is_said_once(
    site: Site,
) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await site.create(job("training", container(gpu=4), grace_period="1h"))
    operator = await site.run()
    await site.until_phase("Job/training", "Idle")

    await rights.deny("watch", "", "pods")
    site.cluster.faults.configure(user=OPERATOR_USER, seed=1, drop_watch=1.0)
    await site.create(pod("other", 1))
    await site.until(lambda: operator.said("WARNING", "nothing is decided: pods: Forbidden"))
    site.cluster.faults.clear()
    await site.annotate("jobs.batch", "training", policy="Always", grace_period="1s")
    scrapes = site.embedded.machines.exporter.scrapes
    await site.until(lambda: site.embedded.machines.exporter.scrapes > scrapes + 10)

    assert len(operator.said("nothing is decided: pods: Forbidden")) == 1
    assert (await operator.readiness())[0] == 503
    assert site.evictions() == []
    assert await site.phase("Job/training") == "Idle"


async def test_a_root_that_disappears_is_seen_without_any_event_of_its_pods(site: Site) -> None:
    job_with_pod = await site.create(job("training", container(gpu=4), grace_period="1h"))
    await site.run()
    await site.until_phase("Job/training", "Idle")
    # The pod outlives its Job: nobody but the poll of the roots can see that it is gone.
    (running,) = await site.all("pods", NAMESPACE)
    name = running["metadata"]["name"]
    await site.patch("pods", name, {"metadata": {"finalizers": ["example.com/keep"]}})

    await site.delete("jobs.batch", "training")

    found = await site.until_phase("Job/training", "Deleted")
    assert found["spec"]["workloadRef"]["uid"] == job_with_pod["metadata"]["uid"]
    assert "idleSince" not in found["status"]
    assert "trackedPods" not in found["status"]
    told = await site.until_event("GpuWorkload/job-training", "WorkloadDeleted")
    assert told == (
        "Underlying Job/training no longer exists; tracking will be retained until TTL expires"
    )
    assert await site.records() == []
    await site.patch("pods", name, {"metadata": {"finalizers": None}})


async def test_a_root_made_again_under_its_name_is_another_workload(site: Site) -> None:
    first = await site.create(job("training", container(gpu=4), grace_period="1h"))
    await site.run()
    await site.until_phase("Job/training", "Idle")

    await site.delete("jobs.batch", "training")
    second = await site.create(job("training", container(gpu=4), grace_period="1h"))

    async def both() -> dict[str, str] | None:
        phases = {
            found["spec"]["workloadRef"]["uid"]: found.get("status", {}).get("phase")
            for found in await site.all(GPU_WORKLOADS)
        }
        expected = {first["metadata"]["uid"]: "Deleted", second["metadata"]["uid"]: "Idle"}
        return phases if phases == expected else None

    await site.until(both)
    left = await site.get("jobs.batch", "training")
    assert left is not None
    assert left["metadata"]["uid"] == second["metadata"]["uid"]
    assert site.evictions() == []


async def test_pods_without_owner_and_pods_whose_owner_is_gone(site: Site) -> None:
    gone = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "gone", "uid": "6d1c5a52-9c0c-4b55-9d0e-2f1a7c0e9b11"},
    }
    orphan = pod("orphan", 1, grace_period="1s", policy="Always")
    orphan["metadata"]["ownerReferences"] = owned_by(gone)
    orphan["metadata"]["finalizers"] = ["example.com/keep"]
    await site.create(orphan, pod("alone", 1, policy="Always"), pod("kept", 1, grace_period="1h"))
    operator = await site.run()

    await site.until_phase("Pod/kept", "Idle")
    await site.until_phase("Pod/alone", "Preempted")

    await site.until(lambda: _no_pod(site, "alone"))
    assert {f["spec"]["workloadRef"]["name"] for f in await site.all(GPU_WORKLOADS)} == {
        "alone",
        "kept",
    }
    assert await site.events("Pod/orphan", "OwnerUnresolved") == []
    assert operator.said("orphan") == []
    await site.patch("pods", "orphan", {"metadata": {"finalizers": None}})


async def test_a_pod_that_names_another_ones_stateful_set_ends_alone(site: Site) -> None:
    """The set has no GPUs and nobody opted it in: its author did not ask for any of this."""
    labels = {"app": "db"}
    theirs = await site.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "db", "namespace": NAMESPACE},
            "spec": {
                "replicas": 1,
                "serviceName": "db",
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "db", "image": "busybox"}]},
                },
            },
        }
    )
    await site.annotate("namespaces", NAMESPACE, namespace="", policy="Always")
    forged, beside = pod("forged"), pod("beside")
    for each, controller in ((forged, True), (beside, False)):
        each["metadata"]["ownerReferences"] = owned_by(theirs, controller=controller)
    await site.create(forged, beside)
    await site.run()

    await site.until_phase("Pod/forged", "Preempted")
    await site.until_phase("Pod/beside", "Preempted")

    assert await site.workload("StatefulSet/db") is None
    assert site.evictions() != []
    assert [write for write in site.evictions() if "statefulsets" in write] == []
    assert await site.get("statefulsets.apps", "db") is not None
    assert await site.get("pods", "db-0") is not None


async def test_an_owner_that_could_not_be_read_at_first_denies_a_pod_that_names_it(
    site: Site,
) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await rights.deny("get", "batch", "jobs")
    theirs = await site.create(job("training", container(gpu=4), grace_period="1h"))
    beside = pod("beside", 1, grace_period="1h")
    beside["metadata"]["ownerReferences"] = owned_by(theirs, controller=False)
    await site.create(beside)
    await site.run()
    await site.until_phase("Pod/beside", "Idle")

    await rights.allow("get", "batch", "jobs")

    found = await site.until_phase("Job/training", "Idle")
    assert found["spec"]["gpuResources"] == {"amd.com/gpu": 4}


async def test_nothing_is_read_only_because_a_pod_names_it_beside_its_controller(
    site: Site,
) -> None:
    named = [
        await site.create(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": f"named-{number}", "namespace": NAMESPACE},
                "spec": {"ports": [{"port": 80}]},
            }
        )
        for number in range(20)
    ]
    greedy = pod("greedy", 1, grace_period="1h")
    greedy["metadata"]["ownerReferences"] = [
        reference for each in named for reference in owned_by(each, controller=False)
    ]
    await site.create(greedy)
    await site.run()

    await site.until_phase("Pod/greedy", "Idle")

    assert site.cluster.requests[OPERATOR_USER, "get", "", "services"] == 0


async def test_a_preemption_that_failed_is_not_said_to_be_complete(site: Site) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await rights.deny("delete", "batch", "jobs")
    await site.create(job("kept", container(gpu=4), policy="Always"))
    operator = await site.run()
    await site.until_event("GpuWorkload/job-kept", "PreemptionFailed")

    (line,) = await site.until(lambda: operator.said("INFO", "abandoned: 0 of 1 victims evicted"))

    assert "plan " in line
    assert operator.said("completed") == []
    (record, *_) = await site.records()
    assert record["status"]["phase"] == "Abandoned"
    told = await site.until_event("GpuWorkload/job-kept", "RightMissing")
    assert told.endswith(
        'the rule {apiGroups: ["batch"], resources: ["jobs"], verbs: ["get", "delete"]}'
    )
    code, readiness = await operator.readiness()
    assert (code, "[+] idle\n" in f"{readiness}\n") == (200, True), readiness


async def test_a_config_of_another_name_is_told_that_it_is_ignored(site: Site) -> None:
    await site.create(
        {
            "apiVersion": "config.kaiwo.silogen.ai/v1alpha1",
            "kind": "KaiwoConfig",
            "metadata": {"name": "kaiwo-production"},
            "spec": {"gpuPreemption": {"defaultThreshold": 50}},
        }
    )
    operator = await site.run()
    told = await site.until_event("KaiwoConfig/kaiwo-production", "Ignored")
    assert told == (
        "KaiwoConfig/kaiwo-production is ignored: only the one named kaiwo is read; rename it, or "
        "set its spec.gpuPreemption there"
    )
    assert len(operator.said("kaiwo-production is ignored")) == 1


async def _no_pod(site: Site, name: str) -> bool:
    return await site.get("pods", name) is None
