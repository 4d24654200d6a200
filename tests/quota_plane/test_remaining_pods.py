"""A victim of any kind holds its quota until its pods are gone, whatever its status says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeworld.objects.paths import first, set_at
from reprieve.jobs.model import JobKind
from reprieve.jobs.pod_rows import POD
from reprieve.jobs.pods import GROUP_NAME, GROUP_TOTAL
from reprieve.jobs.suspendable_rows import SUSPENDABLE
from reprieve.kube.resource import PODS
from tests.quota_plane.gated_site import QUEUE, gated_site
from tests.quota_plane.kind_stories import manifest, resource, state_of
from tests.quota_plane.site import (
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    cluster_queue,
    flavor,
    local_queue,
    node,
)
from tests.quota_plane.test_kinds import prepare

#: The kinds whose status may say that they are stopped while their pods still run down. The counts
#: of a Job include pods that terminate.
SAID_EARLY = {kind.kind: kind for kind in SUSPENDABLE if kind.kind != "Job"}


def test_every_kind_but_jobs_says_how_its_pods_are_found() -> None:
    assert [name for name, kind in SAID_EARLY.items() if not kind.pods] == []


def pod(kind: JobKind, name: str) -> Object:
    """Return a pod as the kind's controller labels it, which takes 30 s to end."""
    (by,) = kind.pods
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {
            "name": f"{name}-pod",
            "namespace": NAMESPACE,
            "labels": {by.label: name},
            "annotations": {"sim.reprieve.dev/termination-time": "30s"},
        },
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 60},
    }


async def reserved(cluster: Site) -> tuple[str, bool]:
    """Return what the Workload says of its quota, and whether it still has an admission."""
    (found,) = (await cluster.client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
    status = found.get("status") or {}
    said = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    return said.get("QuotaReserved", ""), status.get("admission") is not None


@pytest.mark.thorough
@pytest.mark.parametrize("name", SAID_EARLY)
async def test_its_quota_is_free_when_its_pods_are_gone(name: str, tmp_path: Path) -> None:
    kind = SAID_EARLY[name]
    async with gated_site(
        tmp_path,
        flavor(),
        cluster_queue("cq", 4, memory="64Gi"),
        local_queue("q", "cq"),
        kinds=(kind,),
        nodes=[node("node-0")],
        prepare=prepare,
        without=("children", "jobs"),
    ) as cluster:
        client, jobs = cluster.client, resource(kind)
        body = manifest(kind.kind, "early")
        body["metadata"]["labels"] = {QUEUE: "q"}
        await client.create(jobs, body, dict)

        async def started() -> bool:
            found: Object = await client.get(jobs, NAMESPACE, "early", dict)
            return first(found, kind.suspend) is False

        await cluster.until("it starts", started)
        await client.create(PODS, pod(kind, "early"), dict)

        async def runs() -> bool:
            found: Object = await client.get(PODS, NAMESPACE, "early-pod", dict)
            return bool(first(found, "status.phase") == "Running")

        await cluster.until("its pod runs", runs)
        status: Any = state_of(kind.active, on=False)
        for path in kind.pods[0].names:
            if path != "metadata.name":
                found = {"status": status}
                set_at(found, path, "early")
                break
        await client.patch_status(jobs, NAMESPACE, "early", status, dict)
        (workload,) = (await client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
        at = workload["metadata"]["name"]
        await client.patch(WORKLOADS, NAMESPACE, at, {"spec": {"active": False}}, dict)

        async def stopped() -> bool:
            found: Object = await client.get(jobs, NAMESPACE, "early", dict)
            return first(found, kind.suspend) is True

        await cluster.until("it is stopped", stopped)
        await client.delete(PODS, NAMESPACE, "early-pod")
        await asyncio.sleep(20)
        assert await reserved(cluster) == ("True", True)

        async def free() -> bool:
            return await reserved(cluster) == ("False", False)

        await cluster.until("the quota is free", free)


async def test_a_ray_cluster_that_never_was_ready_gives_its_quota_back_with_its_last_pod(
    tmp_path: Path,
) -> None:
    kind = SAID_EARLY["RayCluster"]
    async with gated_site(
        tmp_path,
        flavor(),
        cluster_queue("cq", 4),
        local_queue("q", "cq"),
        kinds=(kind,),
        nodes=[node("node-0")],
        prepare=prepare,
    ) as cluster:
        client, clusters = cluster.client, resource(kind)

        def template(name: str, **annotations: str) -> Object:
            container = {"name": name, "image": "x", "resources": {"requests": {"cpu": "1"}}}
            spec = {"terminationGracePeriodSeconds": 60, "containers": [container]}
            return {"metadata": {"annotations": annotations}, "spec": spec}

        head = template("head", **{"sim.reprieve.dev/termination-time": "20s"})
        worker = template("w", **{"sim.reprieve.dev/start-latency": "120s"})
        body = {
            "metadata": {"name": "rc", "namespace": NAMESPACE, "labels": {QUEUE: "q"}},
            "spec": {
                "suspend": True,
                "headGroupSpec": {"rayStartParams": {}, "template": head},
                "workerGroupSpecs": [
                    {"groupName": "w", "replicas": 1, "rayStartParams": {}, "template": worker}
                ],
            },
        }
        await client.create(clusters, body, dict)

        async def runs() -> bool:
            pods = (await client.list(PODS, dict, namespace=NAMESPACE)).items
            return any(first(each, "status.phase") == "Running" for each in pods)

        await cluster.until("its head runs", runs)
        (workload,) = (await client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
        at = workload["metadata"]["name"]
        await client.patch(WORKLOADS, NAMESPACE, at, {"spec": {"active": False}}, dict)
        seen: set[tuple[bool, bool]] = set()

        async def free() -> bool:
            held = (await reserved(cluster))[1]
            pods = (await client.list(PODS, dict, namespace=NAMESPACE)).items
            seen.add((bool(pods), held))
            state = first(await client.get(clusters, NAMESPACE, "rc", dict), "status.state")
            assert not (pods and state == "suspended")
            return not held

        await cluster.until("the quota is free", free)
        assert (True, True) in seen
        # Asked in this order: a pod that was there after the quota was free would be seen.
        assert (True, False) not in seen


def slow(name: str, seconds: int = 20) -> Object:
    """Return a template of pods that take so long to end."""
    container = {"name": name, "image": "x", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "terminationGracePeriodSeconds": 60,
        "restartPolicy": "Never",
        "containers": [container],
    }
    notes = {"sim.reprieve.dev/termination-time": f"{seconds}s"}
    return {"metadata": {"annotations": notes}, "spec": spec}


def heads(seconds: int) -> Object:
    return {"headGroupSpec": {"rayStartParams": {}, "template": slow("head", seconds)}}


SUBMITTED = {"shutdownAfterJobFinishes": True}
#: Kinds whose pods belong to objects that their controllers make, by what takes long to end.
NESTED: dict[str, tuple[str, Object]] = {
    "the head of a RayService": ("RayService", {"rayClusterConfig": heads(20)}),
    "the head of a RayJob": (
        "RayJob",
        {**SUBMITTED, "submitterPodTemplate": slow("submit", 1), "rayClusterSpec": heads(20)},
    ),
    "what submits a RayJob": (
        "RayJob",
        {**SUBMITTED, "submitterPodTemplate": slow("submit", 20), "rayClusterSpec": heads(1)},
    ),
    "a pod of an AppWrapper": (
        "AppWrapper",
        {
            "components": [
                {
                    "template": {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        **slow("c"),
                        "metadata": {"name": "p", **slow("c")["metadata"]},
                    }
                }
            ]
        },
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("which", NESTED)
async def test_pods_of_objects_that_its_controller_made_hold_its_quota(
    which: str, tmp_path: Path
) -> None:
    kind, spec = SAID_EARLY[NESTED[which][0]], NESTED[which][1]
    async with gated_site(
        tmp_path,
        flavor(),
        cluster_queue("cq", 4),
        local_queue("q", "cq"),
        kinds=(kind,),
        nodes=[node("node-0")],
        prepare=prepare,
    ) as cluster:
        client, jobs = cluster.client, resource(kind)
        metadata = {"name": "w", "namespace": NAMESPACE, "labels": {QUEUE: "q"}}
        body = {"metadata": metadata, "spec": spec}
        set_at(body, kind.suspend, True)
        await client.create(jobs, body, dict)
        count = 2 if kind.kind == "RayJob" else 1

        async def runs() -> bool:
            pods = (await client.list(PODS, dict, namespace=NAMESPACE)).items
            phases = [first(each, "status.phase") for each in pods]
            return phases == ["Running"] * count

        await cluster.until("its pods run", runs)
        (workload,) = (await client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
        at = workload["metadata"]["name"]
        await client.patch(WORKLOADS, NAMESPACE, at, {"spec": {"active": False}}, dict)
        seen: set[tuple[bool, bool]] = set()

        async def free() -> bool:
            held = (await reserved(cluster))[1]
            pods = (await client.list(PODS, dict, namespace=NAMESPACE)).items
            seen.add((bool(pods), held))
            return not held

        await cluster.until("the quota is free", free)
        assert (True, True) in seen
        # Asked in this order: a pod that was there after the quota was free would be seen.
        assert (True, False) not in seen


@pytest.mark.parametrize("group", ["", "g"], ids=["alone", "group"])
async def test_a_queued_pod_that_is_preempted_holds_its_quota_until_it_has_ended(
    group: str, tmp_path: Path
) -> None:
    async with gated_site(
        tmp_path,
        flavor(),
        cluster_queue("cq", 1),
        local_queue("q", "cq"),
        kinds=(POD,),
        nodes=[node("node-0")],
    ) as cluster:
        client = cluster.client
        body = slow("c")
        of_group = (
            {"labels": {QUEUE: "q", GROUP_NAME: group}} if group else {"labels": {QUEUE: "q"}}
        )
        total = {GROUP_TOTAL: "1"} if group else {}

        def queued(name: str) -> Object:
            annotations = {**body["metadata"]["annotations"], **total}
            metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations}
            return {"metadata": {**metadata, **of_group}, "spec": body["spec"]}

        await client.create(PODS, queued("victim"), dict)

        async def runs() -> bool:
            pods = (await client.list(PODS, dict, namespace=NAMESPACE)).items
            return any(first(each, "status.phase") == "Running" for each in pods)

        await cluster.until("it runs", runs)
        (workload,) = (await client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
        at = workload["metadata"]["name"]
        await client.patch(WORKLOADS, NAMESPACE, at, {"spec": {"active": False}}, dict)
        seen: set[tuple[bool, bool]] = set()

        async def free() -> bool:
            assert cluster.plane is not None
            holds = bool(cluster.plane.state.holdings.holders)
            pods = (await client.list(PODS, dict, namespace=NAMESPACE)).items
            running = [each for each in pods if first(each, "status.phase") == "Running"]
            seen.add((bool(running), holds))
            return not holds

        await cluster.until("the quota is free", free)
        assert (True, True) in seen
        assert (True, False) not in seen
