"""Queues that are stopped, deleted or not there, what they and their workloads say meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.kube.errors import NotFound
from reprieve.kube.resource import Resource
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    site,
)
from tests.quota_plane.test_checks import activate, check, until_active
from tests.quota_plane.test_jobs import base
from tests.quota_plane.test_time import pods, until_said, until_suspended, workload

READY = ("True", "Ready", "Can admit new workloads")
STOPPED = ("False", "Stopped", "Can't admit new workloads: is stopped.")
OPEN = ("True", "Ready", "Can submit new workloads to localQueue")
SHUT = ("False", "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
RESERVED = ("True", "QuotaReserved", "Quota reserved in ClusterQueue cq")


async def change_door(cluster: Site, name: str, spec: Object) -> None:
    await cluster.client.patch(LOCAL_QUEUES, NAMESPACE, name, {"spec": spec}, dict)


async def counts(cluster: Site, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
    """Return the counts of a queue, what it uses of cpu, and its condition."""
    found: Object = await cluster.client.get(resource, namespace, name, dict)
    status = found.get("status") or {}
    return {
        "pending": status.get("pendingWorkloads"),
        "reserving": status.get("reservingWorkloads"),
        "admitted": status.get("admittedWorkloads"),
        "reserved": _cpu(status.get("flavorsReservation")),
        "used": _cpu(status.get("flavorsUsage")),
        "active": [
            (each["status"], each["reason"], each["message"])
            for each in status.get("conditions") or ()
        ],
    }


def _cpu(flavors: list[Object] | None) -> str | None:
    return flavors[0]["resources"][0]["total"] if flavors else None


async def until_counts(
    cluster: Site,
    name: str,
    numbers: tuple[int, int, int, str, str],
    active: tuple[str, str, str],
) -> None:
    """Wait until a queue shows pending, reserving, admitted, reserved, used and this condition."""
    names = ("pending", "reserving", "admitted", "reserved", "used")
    wanted = {**dict(zip(names, numbers, strict=True)), "active": [active]}
    where = (CLUSTER_QUEUES, "") if name == "cq" else (LOCAL_QUEUES, NAMESPACE)

    async def holds() -> bool:
        return await counts(cluster, *where, name) == wanted

    await cluster.until(f"{name} shows {wanted}", holds)


async def test_a_stopped_queue_keeps_or_drains_what_it_admitted_and_says_so(tmp_path: Path) -> None:
    checked = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
    objects = [*base(6), local_queue("other", "cq"), check("budget")]
    async with site(tmp_path, *objects, without=("jobs",)) as cluster:
        await activate(cluster, "budget", active=True)
        await cluster.create(job("runs"))
        await until_suspended(cluster, "runs", suspended=False)
        await pods(cluster, "runs", 2, 2)
        await cluster.change_queue("cq", checked)
        await cluster.create(job("reserves", "other"))
        await until_said(cluster, "reserves", QuotaReserved=RESERVED)
        await until_counts(cluster, "cq", (0, 2, 1, "4", "2"), READY)
        await until_counts(cluster, "q", (0, 1, 1, "2", "2"), OPEN)
        await until_counts(cluster, "other", (0, 1, 0, "2", "0"), OPEN)

        # Hold: what is admitted stays, what has only a reservation loses it.
        await cluster.change_queue("cq", {"stopPolicy": "Hold"})
        inactive = ("False", "Suspended", "ClusterQueue cq is inactive")
        await until_said(cluster, "reserves", QuotaReserved=inactive)
        await until_counts(cluster, "cq", (1, 1, 1, "2", "2"), STOPPED)
        await until_counts(cluster, "other", (1, 0, 0, "0", "0"), SHUT)
        assert (await cluster.job("runs"))["spec"]["suspend"] is False

        # HoldAndDrain: everything is evicted.
        await cluster.change_queue("cq", {"stopPolicy": "HoldAndDrain"})
        drained = "The ClusterQueue is stopped"
        await until_said(cluster, "runs", Evicted=("True", "ClusterQueueStopped", drained))
        await until_suspended(cluster, "runs")
        await pods(cluster, "runs", 0, 0)
        await until_said(
            cluster,
            "runs",
            Requeued=("False", "ClusterQueueStopped", drained),
            QuotaReserved=inactive,
        )
        await until_counts(cluster, "cq", (2, 0, 0, "0", "0"), STOPPED)
        await cluster.change_queue("cq", {"stopPolicy": "None", "admissionChecksStrategy": None})
        restarted = "The ClusterQueue was restarted after being stopped"
        await until_said(
            cluster,
            "runs",
            Requeued=("True", "ClusterQueueRestarted", restarted),
            Admitted=("True", "Admitted", "The workload is admitted"),
        )
        await until_suspended(cluster, "runs", suspended=False)
        await pods(cluster, "runs", 2, 2)
        await until_suspended(cluster, "reserves", suspended=False)
        await pods(cluster, "reserves", 2, 2)
        await until_counts(cluster, "cq", (0, 2, 2, "4", "4"), READY)

        # A LocalQueue that is drained is the business of its own workloads.
        await change_door(cluster, "q", {"stopPolicy": "HoldAndDrain"})
        said = "The LocalQueue is stopped"
        await until_said(cluster, "runs", Evicted=("True", "LocalQueueStopped", said))
        await pods(cluster, "runs", 0, 0)
        await until_said(
            cluster,
            "runs",
            Requeued=("False", "LocalQueueStopped", said),
            QuotaReserved=("False", "Suspended", "LocalQueue q is inactive"),
        )
        shut = ("False", "Stopped", "LocalQueue is stopped")
        await until_counts(cluster, "q", (1, 0, 0, "0", "0"), shut)
        await change_door(cluster, "q", {"stopPolicy": "None"})
        restarted = "The LocalQueue was restarted after being stopped"
        await until_said(
            cluster,
            "runs",
            Requeued=("True", "LocalQueueRestarted", restarted),
            Admitted=("True", "Admitted", "The workload is admitted"),
        )
        assert await cluster.admitted() == {"runs", "reserves"}


async def test_a_person_deactivates_reactivates_and_reorders_workloads(tmp_path: Path) -> None:
    async with site(tmp_path, *base(2), without=("jobs",)) as cluster:
        await cluster.create(job("first", priority="low"))
        await until_suspended(cluster, "first", suspended=False)
        await pods(cluster, "first", 2, 2)
        await cluster.create(job("second", priority="low"), job("third", priority="low"))

        async def both() -> bool:
            return {"second", "third"} <= (await cluster.workloads()).keys()

        await cluster.until("both wait", both)
        names = {
            name: each["metadata"]["name"] for name, each in (await cluster.workloads()).items()
        }

        async def patch(name: str, spec: Object) -> None:
            await cluster.client.patch(WORKLOADS, NAMESPACE, names[name], {"spec": spec}, dict)

        await patch("second", {"active": False})
        off = "The workload is deactivated"
        await until_said(
            cluster,
            "second",
            Evicted=("True", "Deactivated", off),
            QuotaReserved=("False", "Deactivated", off),
        )
        await until_counts(cluster, "cq", (1, 1, 1, "2", "2"), READY)
        await patch("first", {"active": False})
        await until_said(cluster, "first", Evicted=("True", "Deactivated", off))
        await until_suspended(cluster, "first")
        await pods(cluster, "first", 0, 0)
        await until_said(cluster, "first", Requeued=("False", "Deactivated", off))
        await until_suspended(cluster, "third", suspended=False)
        await pods(cluster, "third", 2, 2)
        # `second` asks later and comes first, since it is of a higher class by then; so is what
        # runs, which is told of its new class too.
        await patch("first", {"active": True})
        await until_said(
            cluster, "first", Requeued=("True", "Reactivated", "The workload was reactivated")
        )
        high: Any = {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}}
        for name in ("second", "third"):
            await cluster.client.patch(JOBS, NAMESPACE, name, high, dict)

        async def raised() -> bool:
            specs = [(await workload(cluster, name))["spec"] for name in ("second", "third")]
            return [(each["priority"], each["priorityClassRef"]["name"]) for each in specs] == [
                (10000, "high")
            ] * 2

        await cluster.until("the priority follows", raised)
        await patch("second", {"active": True})
        await until_counts(cluster, "cq", (2, 1, 1, "2", "2"), READY)
        await cluster.client.delete(JOBS, NAMESPACE, "third")
        await until_suspended(cluster, "second", suspended=False)
        assert (await cluster.job("first"))["spec"]["suspend"] is True


async def test_queues_and_flavors_that_are_gone_or_in_use_are_told_of(tmp_path: Path) -> None:
    objects = [cluster_queue("cq", 2)]
    flavors = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False)
    async with site(tmp_path, *objects, without=("jobs",)) as cluster:
        await cluster.create(job("early"))
        await until_said(
            cluster, "early", QuotaReserved=("False", "Misconfigured", "LocalQueue q doesn't exist")
        )
        missing = "references missing ResourceFlavor(s): default-flavor"
        await until_active(
            cluster, "False", "FlavorNotFound", f"Can't admit new workloads: {missing}."
        )
        await cluster.create(local_queue("q", "cq"), local_queue("lost", "nowhere"))
        await until_said(
            cluster, "early", QuotaReserved=("False", "Suspended", "ClusterQueue cq is inactive")
        )
        await until_counts(cluster, "q", (1, 0, 0, "0", "0"), SHUT)
        await cluster.create(job("nowhere", "lost"))
        await until_said(
            cluster,
            "nowhere",
            QuotaReserved=("False", "Misconfigured", "ClusterQueue nowhere doesn't exist"),
        )

        async def says_so() -> bool:
            lost = await counts(cluster, LOCAL_QUEUES, NAMESPACE, "lost")
            text = "Can't submit new workloads to clusterQueue"
            return bool(lost["active"] == [("False", "ClusterQueueDoesNotExist", text)])

        await cluster.until("the LocalQueue says so", says_so)
        await cluster.create(flavor())
        await until_suspended(cluster, "early", suspended=False)
        await pods(cluster, "early", 2, 2)
        await until_counts(cluster, "cq", (0, 1, 1, "2", "2"), READY)

        # Deleted while a workload runs: nothing new, what runs goes on, then both are gone.
        await cluster.create(job("waits"))

        async def waits() -> bool:
            return "QuotaReserved" in await cluster.conditions("waits")

        await cluster.until("it waits", waits)
        await cluster.client.delete(CLUSTER_QUEUES, "", "cq")
        await cluster.client.delete(flavors, "", "default-flavor")
        gone = "Can't admit new workloads; clusterQueue is terminating"
        await until_counts(cluster, "cq", (1, 1, 1, "2", "2"), ("False", "Terminating", gone))
        await until_said(
            cluster, "waits", QuotaReserved=("False", "Suspended", "ClusterQueue cq is inactive")
        )
        assert await cluster.admitted() == {"early"}
        await pods(cluster, "early", 0, 0, 2)
        condition = {"type": "Complete", "status": "True", "message": "done"}
        ended = {"active": 0, "ready": 0, "succeeded": 2, "conditions": [condition]}
        await cluster.client.patch_status(JOBS, NAMESPACE, "early", ended, dict)
        await until_said(
            cluster,
            "waits",
            QuotaReserved=("False", "Misconfigured", "ClusterQueue cq doesn't exist"),
        )
        for resource, name in ((CLUSTER_QUEUES, "cq"), (flavors, "default-flavor")):

            async def deleted(resource: Resource = resource, name: str = name) -> bool:
                try:
                    await cluster.client.get(resource, "", name, dict)
                except NotFound:
                    return True
                return False

            await cluster.until(f"{name} is gone", deleted)
