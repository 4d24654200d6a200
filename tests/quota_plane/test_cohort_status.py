"""Shares of ClusterQueues and Cohorts, and a cohort above itself, in statuses and metrics."""

from __future__ import annotations

from math import isnan
from pathlib import Path

from reprieve.engine.quota.model import Settings
from reprieve.kube.resource import Resource
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    site,
)
from tests.quota_plane.test_time import until_said

COHORTS = Resource("kueue.x-k8s.io", "v1beta2", "cohorts", "Cohort", namespaced=False)
MOST = 9223372036854775807


def cohort(name: str, parent: str = "", weight: str = "1") -> Object:
    spec = {"fairSharing": {"weight": weight}, **({"parentName": parent} if parent else {})}
    api = COHORTS.api_version
    return {"apiVersion": api, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def sample(cluster: Site, name: str, **labels: str) -> float | None:
    given = {**labels, "replica_role": "leader"}
    return cluster.metrics.registry.get_sample_value(f"kueue_{name}", given)


async def shares(cluster: Site) -> dict[str, int | None]:
    """Return the weighted shares of all ClusterQueues and Cohorts."""
    found: dict[str, int | None] = {}
    for resource in (CLUSTER_QUEUES, COHORTS):
        for each in (await cluster.client.list(resource, dict)).items:
            sharing = (each.get("status") or {}).get("fairSharing") or {}
            found[each["metadata"]["name"]] = sharing.get("weightedShare")
    return found


async def test_shares_are_shown_rounded_up_and_exactly(tmp_path: Path) -> None:
    objects = [
        flavor(),
        cohort("org"),
        cohort("team", "org", weight="2"),
        cluster_queue("a", 2, "team"),
        cluster_queue("b", 4, "org"),
        local_queue("qa", "a"),
        local_queue("qb", "b"),
    ]
    options = QuotaOptions(settings=Settings(fair_sharing=()), queue_metrics=True)
    async with site(tmp_path, *objects, options=options, without=("jobs",)) as cluster:
        await cluster.create(job("one", "qa"), job("two", "qa"))

        async def until_shares(wanted: dict[str, int | None]) -> None:
            async def holds() -> bool:
                return await shares(cluster) == wanted

            await cluster.until(f"the shares are {wanted}", holds)

        # `a` borrows 2 of the 6 that can be lent; `team` as well, with twice the weight.
        await until_shares({"a": 334, "b": 0, "org": 0, "team": 167})

        pair = {"flavor": "default-flavor", "resource": "cpu"}
        place = {"cohort": "team", "parent_cohort": "org", "root_cohort": "org"}
        queue = {"cluster_queue": "a", "cohort": "team"}
        reserved = "cohort_subtree_resource_reservations"

        async def shown() -> bool:
            return [
                sample(cluster, "cluster_queue_weighted_share", **queue),
                sample(cluster, "cohort_weighted_share", cohort="team"),
                sample(cluster, "cohort_subtree_quota", cohort="org", **pair),
                sample(cluster, reserved, cohort="org", **pair),
                sample(cluster, "cohort_subtree_admitted_active_workloads", cohort="org"),
                sample(cluster, "cohort_info", **place),
            ] == [2 * 1000.0 / 6, 2 * 1000.0 / 6 / 2, 6, 4, 2, 1]

        await cluster.until("the metrics show it", shown)

        # Weight 0 is as much as there is, and no number.
        weightless = {"spec": {"fairSharing": {"weight": "0"}}}
        await cluster.client.patch(COHORTS, "", "team", weightless, dict)
        await until_shares({"a": 334, "b": 0, "org": 0, "team": MOST})

        async def no_number() -> bool:
            return isnan(sample(cluster, "cohort_weighted_share", cohort="team") or 0.0)

        await cluster.until("the metric is no number", no_number)

        # Above itself: nothing of it decides, and its queues say so.
        await cluster.client.patch(COHORTS, "", "org", {"spec": {"parentName": "team"}}, dict)
        cycle = "Can't admit new workloads: its cohort is part of a cycle."

        async def inactive() -> bool:
            found = [
                (each["reason"], each["message"])
                for queue in (await cluster.client.list(CLUSTER_QUEUES, dict)).items
                for each in queue["status"]["conditions"]
                if each["status"] == "False"
            ]
            return found == [("Unknown", cycle)] * 2

        await cluster.until("both are inactive", inactive)
        await cluster.create(job("three", "qb"))
        await until_said(
            cluster,
            "three",
            QuotaReserved=("False", "Suspended", "ClusterQueue b is inactive"),
        )
        await cluster.client.patch(COHORTS, "", "org", {"spec": {"parentName": None}}, dict)
        await until_said(
            cluster, "three", Admitted=("True", "Admitted", "The workload is admitted")
        )

        # A cohort without an object is a root of its own, and has no share.
        await cluster.client.delete(COHORTS, "", "team")
        await until_shares({"a": 1000, "b": 0, "org": 0})

        async def gone() -> bool:
            return sample(cluster, "cohort_weighted_share", cohort="team") is None and (
                sample(cluster, "cohort_info", **place) is None
            )

        await cluster.until("the series of the cohort are gone", gone)
