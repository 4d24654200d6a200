"""Two-phase admission: the test plays the controllers of admission checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeworld.units.instants import format_instant, parse_instant
from tests.quota_plane.site import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    TurnedClock,
    flavor,
    job,
    local_queue,
    site,
)
from tests.quota_plane.test_time import (
    pods,
    told,
    until_said,
    until_suspended,
    until_told,
    workload,
)

NOT_READY = "The workload has not all checks ready"
READY = ("True", "Ready", "Can admit new workloads")


def check(name: str) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": "example.com/budget"},
    }


def queue_of_flavors(**quotas: int) -> Object:
    """Return ClusterQueue `cq`: check `budget` for all flavors, `nodes` for flavor `spot` only."""
    rules = [{"name": "budget"}, {"name": "nodes", "onFlavors": ["spot"]}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [
                        {"name": name, "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}
                        for name, cpu in quotas.items()
                    ],
                }
            ],
            "admissionChecksStrategy": {"admissionChecks": rules},
        },
    }


async def activate(cluster: Site, name: str, active: bool) -> None:
    """Say that the controller of a check is there, or is not."""
    condition = {
        "type": "Active",
        "status": str(active),
        "reason": "ByTest",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await cluster.client.patch_status(ADMISSION_CHECKS, "", name, {"conditions": [condition]}, dict)


async def until_active(cluster: Site, *wanted: str) -> None:
    """Wait until the ClusterQueue's condition Active is that."""

    async def holds() -> bool:
        found: Object = await cluster.client.get(CLUSTER_QUEUES, "", "cq", dict)
        return [
            (each["status"], each["reason"], each["message"])
            for each in (found.get("status") or {}).get("conditions") or ()
        ] == [wanted]

    await cluster.until(f"Active is {wanted}", holds)


async def states(cluster: Site, name: str) -> dict[str, str]:
    found = (await cluster.workloads()).get(name) or {}
    checks = (found.get("status") or {}).get("admissionChecks") or ()
    return {each["name"]: each["state"] for each in checks}


async def until_states(cluster: Site, name: str, **wanted: str) -> None:
    async def holds() -> bool:
        return await states(cluster, name) == wanted

    await cluster.until(f"checks of {name} are {wanted}", holds)


async def answer(cluster: Site, clock: TurnedClock, name: str, which: str, **said: Any) -> None:
    """Let a check of a job's Workload say something, as its controller would."""
    found = await workload(cluster, name)
    checks = found["status"]["admissionChecks"]
    whole = {"name": which, "message": "", "lastTransitionTime": format_instant(clock.wall())}
    checks = [{**whole, **said} if each["name"] == which else each for each in checks]
    at = found["metadata"]["name"]
    await cluster.client.patch_status(WORKLOADS, NAMESPACE, at, {"admissionChecks": checks}, dict)


async def test_checks_hold_an_admission_send_it_back_and_end_it(tmp_path: Path) -> None:
    clock = TurnedClock()
    objects = [
        flavor("plain", nodeLabels={"pool": "plain"}),
        flavor("spot"),
        queue_of_flavors(plain=2, spot=2),
        local_queue("q", "cq"),
    ]
    async with site(tmp_path, *objects, without=("jobs",), clock=clock) as cluster:
        # Without active checks the queue admits nobody.
        missing = "references missing AdmissionCheck(s): budget,nodes"
        await until_active(
            cluster, "False", "AdmissionCheckNotFound", f"Can't admit new workloads: {missing}."
        )
        await cluster.create(job("one"))
        await until_said(
            cluster, "one", QuotaReserved=("False", "Suspended", "ClusterQueue cq is inactive")
        )
        await cluster.create(check("budget"), check("nodes"))
        await activate(cluster, "nodes", active=True)
        inactive = "references inactive AdmissionCheck(s): budget"
        await until_active(
            cluster, "False", "AdmissionCheckInactive", f"Can't admit new workloads: {inactive}."
        )
        await activate(cluster, "budget", active=True)
        await until_active(cluster, *READY)

        # Quota is reserved, pods wait; the check of the other flavor is not asked.
        await until_said(
            cluster,
            "one",
            QuotaReserved=("True", "QuotaReserved", "Quota reserved in ClusterQueue cq"),
            Admitted=("False", "UnsatisfiedAdmissionChecks", NOT_READY),
        )
        await until_states(cluster, "one", budget="Pending")
        assert (await cluster.job("one"))["spec"]["suspend"] is True
        await cluster.create(job("two"))
        await until_states(cluster, "two", budget="Pending", nodes="Pending")

        # Sent back: evicted, and not before the check wants to see it again.
        sent = {"message": "no money", "requeueAfterSeconds": 300}
        await answer(cluster, clock, "one", "budget", state="Retry", **sent)
        back = 'Evicted due to AdmissionCheck in Retry state: "budget" (no money)'
        await until_said(
            cluster,
            "one",
            Evicted=("True", "AdmissionCheck", back),
            Requeued=("False", "AdmissionCheck", back),
            QuotaReserved=("False", "PendingEvaluation", back),
        )
        found = (await workload(cluster, "one"))["status"]
        (reset,) = found["admissionChecks"]
        assert (reset["state"], reset["message"], reset["retryCount"]) == (
            "Pending",
            "Reset to Pending after eviction. Previously: Retry",
            1,
        )
        waits = parse_instant(found["requeueState"]["requeueAt"]) - clock.wall()
        assert 200e9 < waits <= 300e9
        assert "count" not in found["requeueState"]
        clock.turn(301)
        await until_said(
            cluster,
            "one",
            Requeued=("True", "BackoffFinished", "The workload backoff was finished"),
            Evicted=("False", "QuotaReserved", f"Previously: {back}"),
        )

        # Ready: started with what the check asks for.
        update = {"name": "main", "labels": {"paid": "yes"}, "nodeSelector": {"rack": "r1"}}
        await answer(cluster, clock, "one", "budget", state="Ready", podSetUpdates=[update])
        await until_suspended(cluster, "one", suspended=False)
        template = (await cluster.job("one"))["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {"pool": "plain", "rack": "r1"}
        assert template["metadata"]["labels"]["paid"] == "yes"
        await until_said(cluster, "one", Admitted=("True", "Admitted", "The workload is admitted"))

        # A running workload is sent back as well, without a word for how long: the backoff.
        await pods(cluster, "one", 2, 2)
        await answer(cluster, clock, "one", "budget", state="Retry", podSetUpdates=[update])
        plain = 'Evicted due to AdmissionCheck in Retry state: "budget"'
        await until_said(cluster, "one", Evicted=("True", "AdmissionCheck", plain))
        await until_suspended(cluster, "one")
        await pods(cluster, "one", 0, 0)
        await until_said(cluster, "one", Requeued=("False", "AdmissionCheck", plain))
        assert (await workload(cluster, "one"))["status"]["requeueState"]["count"] == 1

        # Rejected: deactivated.
        await answer(cluster, clock, "two", "nodes", state="Rejected", message="no such nodes")
        why = 'AdmissionCheck in Rejected state: "nodes" (no such nodes)'
        over = f"The workload is deactivated due to {why}"
        await until_said(
            cluster,
            "two",
            Evicted=("True", "DeactivatedDueToAdmissionCheck", over),
            QuotaReserved=("False", "Deactivated", "The workload is deactivated"),
        )
        assert (await workload(cluster, "two"))["spec"]["active"] is False
        reasons = ("EvictedDueToAdmissionCheck", "AdmissionCheckRejected")
        evicted = "EvictedDueToDeactivatedDueToAdmissionCheck"
        # The second eviction of one workload by a check counts as a series of the first.
        await until_told(
            cluster,
            (*reasons, evicted),
            ("Workload", "Normal", "EvictedDueToAdmissionCheck", back),
            ("Workload", "Warning", "AdmissionCheckRejected", f"Deactivated due to {why}"),
            ("Workload", "Normal", evicted, over),
        )
        ((_, _, _, admitted),) = await told(cluster, "Admitted")
        assert admitted.startswith("Admitted by ClusterQueue cq, wait time since reservation was ")

        # A check that asks for what a flavor says otherwise ends the workload.
        clock.turn(61)
        await until_states(cluster, "one", budget="Pending")
        wrong = {"name": "main", "nodeSelector": {"pool": "other"}}
        await until_said(
            cluster,
            "one",
            QuotaReserved=("True", "QuotaReserved", "Quota reserved in ClusterQueue cq"),
        )
        await answer(cluster, clock, "one", "budget", state="Ready", podSetUpdates=[wrong])
        conflict = (
            "invalid admission check PodSetUpdate: conflict for nodeSelector: "
            "conflict for key=pool, value1=plain, value2=other"
        )
        await until_said(cluster, "one", Finished=("True", "FailedToStart", conflict))

        # A check that a queue asks for stays until none does.
        await cluster.client.delete(ADMISSION_CHECKS, "", "nodes")
        held: Object = await cluster.client.get(ADMISSION_CHECKS, "", "nodes", dict)
        assert held["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
        await cluster.change_queue(
            "cq", {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
        )

        async def gone() -> bool:
            found = await cluster.client.list(ADMISSION_CHECKS, dict)
            return [each["metadata"]["name"] for each in found.items] == ["budget"]

        await cluster.until("the check is gone", gone)
