"""Deleted work that a finalizer of its owner keeps: no quota without pods, and no immunity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeworld.objects.paths import first
from reprieve.kube.resource import PODS
from tests.quota_plane.gated_site import CLASS, QUEUE, gated_site
from tests.quota_plane.kind_stories import GROUP, ROWS, TOTAL, manifest, resource
from tests.quota_plane.site import (
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
    node,
    priority_class,
)
from tests.quota_plane.test_bounded_sets import stateful_set
from tests.quota_plane.test_kinds import prepare

KEPT = "example.org/kept"
KINDS = tuple(ROWS[each] for each in ("Pod", "Job", "JobSet", "StatefulSet"))
LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def pods(priority: str) -> list[Object]:
    """Return the members of a group."""
    made = []
    for name in ("one", "two"):
        body = manifest("Pod", f"kept-{name}")
        body["metadata"]["labels"] = {QUEUE: "q", CLASS: priority, GROUP: "g"}
        body["metadata"]["annotations"] = {TOTAL: "2"}
        body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
        made.append(body)
    return made


def kept(kind: str, priority: str) -> list[Object]:
    """Return work of a kind whose owner keeps it from being deleted."""
    if kind == "Group":
        found = pods(priority)
    elif kind == "Pod":
        found = pods(priority)[:1]
        del found[0]["metadata"]["labels"][GROUP]
        del found[0]["metadata"]["annotations"]
    elif kind == "Job":
        found = [job("kept", priority=priority)]
    elif kind == "StatefulSet":
        found = [stateful_set(2)]
        found[0]["metadata"]["labels"][CLASS] = priority
    else:
        found = [manifest(kind, "kept")]
        found[0]["metadata"]["labels"] = {QUEUE: "q", CLASS: priority}
        found[0]["spec"]["suspend"] = True
    for each in found:
        each["kind"] = "Pod" if kind in ("Group", "Pod") else kind
        each["metadata"]["finalizers"] = [KEPT]
    return found


async def running(cluster: Site, name: str) -> set[str]:
    """Return the uids of a Job's pods that run and stay."""
    return {
        each["metadata"]["uid"]
        for each in await cluster.pods_of(name)
        if first(each, "status.phase") == "Running"
        and not first(each, "metadata.deletionTimestamp")
    }


async def delete(cluster: Site, work: list[Object]) -> None:
    for each in work:
        of = resource(ROWS[each["kind"]]) if each["kind"] != "Pod" else PODS
        await cluster.client.delete(of, NAMESPACE, each["metadata"]["name"])


@asynccontextmanager
async def site(folder: Path, without: tuple[str, ...] = ()) -> AsyncIterator[Site]:
    classes = [priority_class("low", 1), priority_class("high", 100)]
    objects = [flavor(), cluster_queue("cq", 2, **LOWER), local_queue("q", "cq"), *classes]
    nodes = [node("node-0", 64)]
    async with gated_site(
        folder, *objects, kinds=KINDS, nodes=nodes, prepare=prepare, without=without
    ) as cluster:
        yield cluster


@pytest.mark.parametrize("kind", ["Job", "JobSet", "Pod", "Group", "StatefulSet"])
async def test_work_that_is_being_deleted_without_pods_preempts_nobody(
    kind: str, tmp_path: Path
) -> None:
    # Nobody makes the pods of a StatefulSet that is being deleted.
    async with site(tmp_path, ("statefulsets",) if kind == "StatefulSet" else ()) as cluster:
        client = cluster.client
        await client.create(JOBS, job("low", priority="low"), dict)

        async def both() -> bool:
            return len(await running(cluster, "low")) == 2

        await cluster.until("the low one runs", both)
        before = await running(cluster, "low")
        stop = {"spec": {"stopPolicy": "Hold"}}
        await client.patch(LOCAL_QUEUES, NAMESPACE, "q", stop, dict)
        work = kept(kind, "high")
        for each in work:
            of = resource(ROWS[each["kind"]]) if each["kind"] != "Pod" else PODS
            await client.create(of, each, dict)

        async def waits() -> bool:
            return len(await cluster.workloads()) == 2

        await cluster.until("it has a Workload", waits)
        await delete(cluster, work)
        await asyncio.sleep(5)
        await client.patch(LOCAL_QUEUES, NAMESPACE, "q", {"spec": {"stopPolicy": "None"}}, dict)
        await asyncio.sleep(60)
        assert await running(cluster, "low") == before
        assert await cluster.admitted() == {"low"}


async def test_a_job_that_is_being_deleted_is_preempted_and_holds_no_quota_after_its_pods(
    tmp_path: Path,
) -> None:
    """Its controller ends none of its pods, whatever its field says."""
    async with site(tmp_path) as cluster:
        client = cluster.client
        (work,) = kept("Job", "low")
        await client.create(JOBS, work, dict)

        async def runs() -> bool:
            return len(await running(cluster, "kept")) == 2

        await cluster.until("it runs", runs)
        await delete(cluster, [work])
        await asyncio.sleep(30)
        assert len(await running(cluster, "kept")) == 2
        assert await cluster.admitted() == {"kept"}  # what runs has its quota
        await client.create(JOBS, job("high", priority="high"), dict)
        await cluster.until_admitted("high")
        assert (await cluster.conditions("kept"))["Finished"][0] == "True"


async def test_a_job_that_is_being_deleted_gives_its_quota_back_once_its_pods_are_gone(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as cluster:
        client = cluster.client
        (work,) = kept("Job", "low")
        await client.create(JOBS, work, dict)

        async def runs() -> bool:
            return len(await running(cluster, "kept")) == 2

        await cluster.until("it runs", runs)
        await delete(cluster, [work])
        for each in await cluster.pods_of("kept"):
            await client.delete(PODS, NAMESPACE, each["metadata"]["name"])
        await client.create(JOBS, job("next", priority="low"), dict)
        await cluster.until_admitted("next")


def cpus(pods: list[Object]) -> float:
    """Return what pods of one container request, which is whole or a half."""
    amounts = [first(each, "spec.containers")[0]["resources"]["requests"]["cpu"] for each in pods]
    return sum(0.5 if each == "500m" else int(each) for each in amounts)


async def live(cluster: Site) -> list[Object]:
    """Return the pods that run, but those of the Job that waits."""
    pods = (await cluster.client.list(PODS, dict, namespace=NAMESPACE)).items
    return [
        each
        for each in pods
        if not each["metadata"]["name"].startswith("next")
        and first(each, "status.phase") == "Running"
    ]


@pytest.mark.parametrize("forced", [False, True], ids=["", "forced"])
@pytest.mark.parametrize(
    ("kind", "leaving"),
    [(each, False) for each in ("Job", "JobSet", "Pod", "Group", "StatefulSet")]
    + [(each, True) for each in ("Job", "JobSet", "StatefulSet")],
)
@pytest.mark.thorough
async def test_work_whose_workload_is_deleted_runs_no_pods_without_quota(
    forced: bool, kind: str, leaving: bool, tmp_path: Path
) -> None:
    """Leaving work, which a finalizer of its owner keeps, would run for as long as that stays.

    Forced: its owner removes our finalizer of the Workload, which is then gone at once.
    """
    async with site(tmp_path) as cluster:
        client, work = cluster.client, kept(kind, "low")
        for each in work:
            of = PODS if each["kind"] == "Pod" else resource(ROWS[kind])
            spec = first(each, "spec.template.spec") or each["spec"]
            spec["terminationGracePeriodSeconds"] = 20
            if kind == "Pod":
                spec["containers"][0]["resources"]["requests"]["cpu"] = "2"
            await client.create(of, each, dict)

        async def runs() -> bool:
            return cpus(await live(cluster)) == 2

        await cluster.until("it runs", runs)
        if leaving:
            await delete(cluster, work)
        await client.create(JOBS, job("next", priority="low"), dict)
        await asyncio.sleep(30)
        assert await runs()
        (held,) = [each for name, each in (await cluster.workloads()).items() if name != "next"]
        at = held["metadata"]["name"]
        if forced:
            nothing = {"metadata": {"finalizers": None}}
            await client.patch(WORKLOADS, NAMESPACE, at, nothing, dict)
        await client.delete(WORKLOADS, NAMESPACE, at)

        async def succeeded() -> bool:
            return "next" in await cluster.running()

        await cluster.until("the next one runs", succeeded)
        if not forced:
            assert await live(cluster) == []

        async def ended() -> bool:
            return not await live(cluster)

        await cluster.until("its pods are gone", ended)
        await asyncio.sleep(60)
        assert await live(cluster) == []
        assert await cluster.admitted() == {"next"}


@pytest.mark.thorough
async def test_a_deleted_workload_waits_for_the_last_pod_of_its_group(tmp_path: Path) -> None:
    """A finalizer keeps the first one beyond its grace period while another one runs."""
    async with site(tmp_path) as cluster:
        client, work = cluster.client, kept("Group", "low")
        for each, grace in zip(work, (5, 60), strict=True):
            each["spec"]["terminationGracePeriodSeconds"] = grace
            await client.create(PODS, each, dict)

        async def runs() -> bool:
            return cpus(await live(cluster)) == 2

        await cluster.until("it runs", runs)
        await client.create(JOBS, job("next", priority="low"), dict)
        (held,) = [each for name, each in (await cluster.workloads()).items() if name != "next"]
        await client.delete(WORKLOADS, NAMESPACE, held["metadata"]["name"])

        async def one_is_left() -> bool:
            return cpus(await live(cluster)) == 1

        await cluster.until("the first one has ended", one_is_left)
        assert "next" not in await cluster.admitted()

        async def succeeded() -> bool:
            return "next" in await cluster.running()

        await cluster.until("the next one runs", succeeded)
        assert await live(cluster) == []
