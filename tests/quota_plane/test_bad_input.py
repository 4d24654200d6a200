"""What nobody should write, but somebody will: it is told, loses nothing and stops nobody else.

All of it comes at once, each to queues of its own, while others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from reprieve.kube.errors import Invalid
from reprieve.kube.resource import EVENTS, Resource
from reprieve.planes.quota.watches import COHORTS
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
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
    site,
)

PATIENCE_S = 120.0
Said = tuple[str, str, str]


def queues(name: str, cpu: int = 4, cohort: str = "", **spec: Any) -> tuple[Object, Object]:
    return cluster_queue(name, cpu, cohort, **spec), local_queue(name, name)


def cohort(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Cohort",
        "metadata": {"name": name},
        "spec": spec,
    }


async def says(cluster: Site, resource: Resource, name: str, kind: str, *expected: str) -> None:
    """Wait until a condition of an object has this status, reason and message."""

    async def said() -> Said:
        namespace = "" if not resource.namespaced else NAMESPACE
        found: Object = await cluster.client.get(resource, namespace, name, dict)
        for each in (found.get("status") or {}).get("conditions") or ():
            if each["type"] == kind:
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    async def holds() -> bool:
        return await said() == expected

    try:
        await cluster.until("", holds, PATIENCE_S)
    except AssertionError:
        raise AssertionError(f"{name}: {kind} is {await said()}, not {expected}") from None


async def waits(cluster: Site, name: str, reason: str, message: str) -> None:
    """Wait until a job is told in its Workload why it waits."""

    async def holds() -> bool:
        said = await cluster.conditions(name)
        return said.get("QuotaReserved") == ("False", reason, message)

    try:
        await cluster.until("", holds, PATIENCE_S)
    except AssertionError:
        said = (await cluster.conditions(name)).get("QuotaReserved")
        raise AssertionError(f"{name} is told {said}, not {reason}: {message}") from None
    assert (await cluster.job(name))["spec"]["suspend"] is True


async def runs(cluster: Site, name: str, pods: int = 1) -> None:
    async def holds() -> bool:
        running = [
            pod
            for pod in await cluster.pods_of(name)
            if (pod.get("status") or {}).get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]
        return name in await cluster.admitted() and len(running) == pods

    await cluster.until(f"{name} runs", holds, PATIENCE_S)


async def announced(
    cluster: Site, namespace: str, kind: str, name: str, reason: str, message: str
) -> None:
    """Wait until a warning about an object says this."""

    async def holds() -> bool:
        page = await cluster.client.list(EVENTS, dict, namespace=namespace)
        told = [
            (about["kind"], about["name"], each["type"], each["reason"], each["message"])
            for each in page.items
            if (about := each["involvedObject"])
        ]
        return (kind, name, "Warning", reason, message) in told

    await cluster.until(f"a warning about {name}", holds, PATIENCE_S)


async def change(cluster: Site, resource: Resource, name: str, patch: Object) -> None:
    namespace = NAMESPACE if resource.namespaced else ""
    await cluster.client.patch(resource, namespace, name, patch, dict)


async def missing_flavor(cluster: Site) -> None:
    named = cluster_queue("flavorless", 4)
    named["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "absent"
    await cluster.create(named, local_queue("flavorless", "flavorless"))
    await cluster.create(job("unflavored", "flavorless", pods=1))
    text = "Can't admit new workloads: references missing ResourceFlavor(s): absent."
    await says(cluster, CLUSTER_QUEUES, "flavorless", "Active", "False", "FlavorNotFound", text)
    await waits(cluster, "unflavored", "Suspended", "ClusterQueue flavorless is inactive")
    await cluster.create(flavor("absent"))
    await runs(cluster, "unflavored")


async def cohort_cycle(cluster: Site) -> None:
    await cluster.create(cohort("egg", parentName="hen"), cohort("hen"), *queues("chick", 4, "egg"))
    await cluster.create(job("before", "chick", pods=1))
    await runs(cluster, "before")
    await change(cluster, COHORTS, "hen", {"spec": {"parentName": "egg"}})
    text = "Can't admit new workloads: its cohort is part of a cycle."
    await says(cluster, CLUSTER_QUEUES, "chick", "Active", "False", "Unknown", text)
    await cluster.create(job("within", "chick", pods=1))
    await waits(cluster, "within", "Suspended", "ClusterQueue chick is inactive")
    await runs(cluster, "before")
    await change(cluster, COHORTS, "hen", {"spec": {"parentName": None}})
    await runs(cluster, "within")


async def quota_below_usage(cluster: Site) -> None:
    await cluster.create(*queues("shrunk", 4), job("large", "shrunk", pods=4))
    await runs(cluster, "large", 4)
    await change(cluster, CLUSTER_QUEUES, "shrunk", {"spec": cluster_queue("shrunk", 1)["spec"]})
    await cluster.create(job("small", "shrunk", pods=1))
    text = (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor "
        "default-flavor, 1 more needed"
    )
    await waits(cluster, "small", "WaitingForQuota", text)

    async def shown() -> bool:
        found: Object = await cluster.client.get(CLUSTER_QUEUES, "", "shrunk", dict)
        (said,) = found["status"]["flavorsUsage"]
        return bool(said["resources"] == [{"name": "cpu", "total": "4", "borrowed": "0"}])

    await cluster.until("its usage is shown", shown, PATIENCE_S)
    await runs(cluster, "large", 4)
    await cluster.client.delete(JOBS, NAMESPACE, "large")
    await runs(cluster, "small")


async def deleted_queue(cluster: Site) -> None:
    await cluster.create(*queues("doomed"), job("survivor", "doomed", pods=1))
    await runs(cluster, "survivor")

    async def held() -> object:
        """Without its webhook the queue gets its finalizer within a second."""
        found: Object = await cluster.client.get(CLUSTER_QUEUES, "", "doomed", dict)
        return found["metadata"].get("finalizers")

    await cluster.until("doomed is held", held, PATIENCE_S)
    await cluster.client.delete(CLUSTER_QUEUES, "", "doomed")
    text = "Can't admit new workloads; clusterQueue is terminating"
    await says(cluster, CLUSTER_QUEUES, "doomed", "Active", "False", "Terminating", text)
    await cluster.create(job("late", "doomed", pods=1))
    await waits(cluster, "late", "Suspended", "ClusterQueue doomed is inactive")
    # Somebody takes the finalizer away, and the queue with it.
    await change(cluster, CLUSTER_QUEUES, "doomed", {"metadata": {"finalizers": None}})
    await waits(cluster, "late", "Misconfigured", "ClusterQueue doomed doesn't exist")
    await runs(cluster, "survivor")
    await cluster.create(cluster_queue("doomed", 1))
    await waits(
        cluster,
        "late",
        "WaitingForQuota",
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor "
        "default-flavor, 1 more needed",
    )
    await cluster.client.delete(JOBS, NAMESPACE, "survivor")
    await runs(cluster, "late")


async def negative_quota(cluster: Site) -> None:
    """Its webhook refuses it; without that webhook the plane says what is wrong."""
    negative = cluster_queue("negative", 4)
    negative["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "-4"
    await cluster.create(negative, local_queue("negative", "negative"))
    await cluster.create(job("indebted", "negative", pods=1))
    field = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
    text = f"It cannot be used: {field}: must be greater than or equal to 0"
    await announced(cluster, "default", "ClusterQueue", "negative", "Misconfigured", text)
    assert (await cluster.job("indebted"))["spec"]["suspend"] is True
    await change(cluster, CLUSTER_QUEUES, "negative", {"spec": cluster_queue("n", 4)["spec"]})
    await runs(cluster, "indebted")


async def odd_quantities(cluster: Site) -> None:
    huge = cluster_queue("boundless", 4)
    quota = huge["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    quota["nominalQuota"] = "9223372036854775807"
    await cluster.create(huge, local_queue("boundless", "boundless"))
    await cluster.create(job("modest", "boundless", pods=1))
    await runs(cluster, "modest")
    with pytest.raises(Invalid, match="requests"):
        await cluster.create(job("below-zero", "boundless", cpu="-1"))
    await cluster.create(*queues("finite"))
    # More than 64 bits hold, by each pod and in sum.
    await cluster.create(job("all-there-is", "finite", cpu="9223372036854775807", pods=1))
    await cluster.create(job("too-many", "finite", cpu="1000000000", pods=2_000_000_000))
    for name in ("all-there-is", "too-many"):
        text = (
            "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor "
            "default-flavor, previously considered podsets requests (0) + current podset request "
            "(9223372036854775807m) > maximum capacity (4)"
        )
        await waits(cluster, name, "ExceedsMaxQuota", text)
    # A Workload that nobody's job made, below zero: it counts as nothing.
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "-3"}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    pod_sets = [{"name": "main", "count": 1, "template": {"spec": spec}}]
    odd = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "odd", "namespace": NAMESPACE},
        "spec": {"queueName": "finite", "podSets": pod_sets},
    }
    await cluster.create(odd, job("regular", "finite", pods=4))
    await runs(cluster, "regular", 4)
    await cluster.client.delete(WORKLOADS, NAMESPACE, "odd")


async def never_fitting(cluster: Site) -> None:
    await cluster.create(*queues("narrow"), job("giant", "narrow", pods=3, cpu="3"))
    text = (
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor "
        "default-flavor, previously considered podsets requests (0) + current podset request (9) "
        "> maximum capacity (4)"
    )
    await waits(cluster, "giant", "ExceedsMaxQuota", text)
    name = (await cluster.workloads())["giant"]["metadata"]["name"]
    await announced(cluster, NAMESPACE, "Workload", name, "ExceedsMaxQuota", text)
    # It stands before another, which goes on.
    await cluster.create(job("dwarf", "narrow", pods=1))
    await runs(cluster, "dwarf")


async def unknown_queue(cluster: Site) -> None:
    await cluster.create(job("homeless", "nowhere", pods=1))
    await waits(cluster, "homeless", "Misconfigured", "LocalQueue nowhere doesn't exist")
    await cluster.create(local_queue("nowhere", "nobody"))
    await waits(cluster, "homeless", "Misconfigured", "ClusterQueue nobody doesn't exist")
    await cluster.create(cluster_queue("nobody", 4))
    await runs(cluster, "homeless")


async def unknown_class(cluster: Site) -> None:
    await cluster.create(*queues("classless"))
    await cluster.create(job("lordless", "classless", priority="lord", pods=1))
    reason, text = "WorkloadPriorityClassNotFound", 'WorkloadPriorityClass "lord" not found'
    await announced(cluster, NAMESPACE, "Job", "lordless", reason, text)
    assert "lordless" not in await cluster.workloads()


async def refused_workload(cluster: Site) -> None:
    """Nobody looked at the label: what it requests is no Workload."""
    label = "kueue.x-k8s.io/max-exec-time-seconds"
    endless = job("endless", "timeless", pods=1)
    endless["metadata"]["labels"][label] = "0"
    await cluster.create(*queues("timeless"), endless)

    async def told() -> bool:
        texts = [each[4] for each in await cluster.events() if each[:2] == ("Job", "endless")]
        return any("spec.maximumExecutionTimeSeconds: Invalid value: 0" in text for text in texts)

    await cluster.until("it is told what of its Workload is refused", told, PATIENCE_S)
    assert "endless" not in await cluster.workloads()
    await change(cluster, JOBS, "endless", {"metadata": {"labels": {label: "3600"}}})
    await runs(cluster, "endless")


async def edited_job(cluster: Site) -> None:
    grown = job("grown", "edited", pods=2)
    grown["spec"]["completions"] = 6
    await cluster.create(*queues("edited", 4), grown)
    await runs(cluster, "grown", 2)
    before = (await cluster.workloads())["grown"]["metadata"]["uid"]
    await change(cluster, JOBS, "grown", {"spec": {"parallelism": 3}})

    async def made_anew() -> bool:
        found = (await cluster.workloads()).get("grown")
        return found is not None and found["metadata"]["uid"] != before

    await cluster.until("its Workload is made anew", made_anew, PATIENCE_S)
    await runs(cluster, "grown", 3)
    (usage,) = (await cluster.workloads())["grown"]["status"]["admission"]["podSetAssignments"]
    assert (usage["count"], usage["resourceUsage"]) == (3, {"cpu": "3"})
    why = "No matching Workload; restoring pod templates according to existent Workload"

    async def told() -> bool:
        found = {each[3:] for each in await cluster.events() if each[:2] == ("Job", "grown")}
        return ("Stopped", why) in found and "DeletedWorkload" in {reason for reason, _ in found}

    await cluster.until("it is told that it was stopped", told, PATIENCE_S)


SITUATIONS: tuple[Callable[[Site], Awaitable[None]], ...] = (
    missing_flavor,
    cohort_cycle,
    quota_below_usage,
    negative_quota,
    deleted_queue,
    odd_quantities,
    never_fitting,
    unknown_queue,
    unknown_class,
    refused_workload,
    edited_job,
)


async def test_bad_input_is_told_and_stops_nobody_else(tmp_path: Path) -> None:
    async with site(tmp_path, flavor(), *queues("fine"), nodes=[node("node-0", 96)]) as cluster:
        await cluster.create(job("first", "fine", pods=1))
        await runs(cluster, "first")
        ended = await asyncio.gather(
            *(situation(cluster) for situation in SITUATIONS), return_exceptions=True
        )
        failures = [f"{s.__name__}: {e}" for s, e in zip(SITUATIONS, ended, strict=True) if e]
        assert not failures, "\n".join(failures)
        await cluster.create(job("last", "fine", pods=1))
        await runs(cluster, "last")
        await runs(cluster, "first")
