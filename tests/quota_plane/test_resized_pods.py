"""Pods that run are bounded by what is admitted now, also when they are changed while they run."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from kubeworld.objects.paths import first
from kubeworld.units.durations import SECOND
from reprieve.kube.bodies import Propagation
from reprieve.kube.errors import Forbidden
from reprieve.kube.resource import PODS, Resource
from reprieve.planes.quota.pod_reconcilers.marked_pods import pause_after
from reprieve.planes.quota.webhooks.reviews import Asked, Hook, Verdict
from tests.quota_plane.gated_site import QUEUE, gated_site
from tests.quota_plane.kind_stories import GROUP, ROWS, TOTAL, is_gated, manifest, resource
from tests.quota_plane.site import (
    JOBS,
    NAMESPACE,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    priority_class,
)
from tests.quota_plane.test_bounded_sets import cpus_admitted, cpus_let_go, stateful_set
from tests.quota_plane.test_kinds import prepare

NODES = [node("node-0", 64)]
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
A_WHILE_S = 130


def queues(cpu: int) -> list[Object]:
    return [flavor(), cluster_queue("cq", cpu), local_queue("q", "cq"), priority_class("low", 1)]


async def pods(cluster: Site) -> dict[str, Object]:
    """Return the pods that are not on their way out, by name."""
    found = (await cluster.client.list(PODS, dict, namespace=NAMESPACE)).items
    return {
        each["metadata"]["name"]: each
        for each in found
        if not each["metadata"].get("deletionTimestamp") and each["status"]["phase"] != "Failed"
    }


async def resize(cluster: Site, name: str, cpu: str, **more: Any) -> Object:
    """Resize the first container of a pod in place."""
    pod: Object = await cluster.client.get(PODS, NAMESPACE, name, dict)
    containers = pod["spec"]["containers"]
    containers[0]["resources"] = {"requests": {"cpu": cpu}}
    body = {"spec": {"containers": containers, **more}}
    changed: Object = await cluster.client.patch(
        PODS, NAMESPACE, name, body, dict, subresource="resize"
    )
    return changed


async def run(cluster: Site, count: int) -> list[str]:
    async def holds() -> bool:
        found = await pods(cluster)
        return len(found) == count and not any(map(is_gated, found.values()))

    await cluster.until(f"{count} pods run", holds)
    return sorted(await pods(cluster))


async def reasons(cluster: Site, name: str) -> set[str]:
    """Return the reasons of the warnings about a pod."""
    return {
        reason
        for _, about, level, reason, _ in await cluster.events()
        if about == name and level == "Warning"
    }


async def test_a_pod_is_not_resized_beyond_what_its_workload_was_admitted_for(
    tmp_path: Path,
) -> None:
    async with gated_site(tmp_path, *queues(4), kinds=(ROWS["Job"],), nodes=NODES) as cluster:
        await cluster.client.create(JOBS, job("a", pods=2, cpu="2"), dict)
        first_one, second = await run(cluster, 2)
        with pytest.raises(Forbidden) as refused:
            await resize(cluster, first_one, "3")
        (workload,) = await cluster.workloads()
        name = (await cluster.workloads())[workload]["metadata"]["name"]
        assert f"Workload '{name}' was admitted for pods that request less cpu" in str(
            refused.value
        )
        # Down, and up again to what was admitted.
        for cpu in ("1", "2"):
            await resize(cluster, first_one, cpu)
        # A label that is removed first is no way around.
        no_mark = {"metadata": {"annotations": {"kueue.x-k8s.io/workload": None}}}
        await cluster.client.patch(PODS, NAMESPACE, second, no_mark, dict)
        with pytest.raises(Forbidden):
            await resize(cluster, second, "3")
        await asyncio.sleep(A_WHILE_S)
        assert sorted(await pods(cluster)) == [first_one, second]
        assert await cpus_let_go(cluster) == await cpus_admitted(cluster) == 4


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["Job", "StatefulSet", "group"])
async def test_pods_that_were_resized_while_no_webhook_answered_are_ended(
    kind: str, tmp_path: Path
) -> None:
    away = [True]
    kinds = (ROWS["Pod"], ROWS["StatefulSet"], ROWS["Job"])
    async with gated_site(
        tmp_path, *queues(2), kinds=kinds, nodes=NODES, prepare=prepare, away=lambda: away[0]
    ) as cluster:
        away[0] = False
        if kind == "Job":
            await cluster.client.create(JOBS, job("a", pods=2), dict)
        elif kind == "StatefulSet":
            await cluster.client.create(resource(ROWS[kind]), stateful_set(2), dict)
        else:
            for name in ("g-0", "g-1"):
                body = manifest("Pod", name)
                body["metadata"]["labels"] = {QUEUE: "q", GROUP: "g"}
                body["metadata"]["annotations"] = {TOTAL: "2"}
                body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
                await cluster.client.create(PODS, body, dict)
        grown, other = await run(cluster, 2)
        uids = {name: each["metadata"]["uid"] for name, each in (await pods(cluster)).items()}
        away[0] = True
        await resize(cluster, grown, "8")
        away[0] = False
        assert await cpus_let_go(cluster) == 9

        async def ended() -> bool:
            found = await pods(cluster)
            return bool(found.get(grown, {}).get("metadata", {}).get("uid") != uids[grown])

        await cluster.until("the one that grew is ended", ended, 150)
        assert "ExceedsAdmission" in await reasons(cluster, grown)
        counted = cluster.metrics.beyond_admission.labels("ExceedsAdmission")._value.get()
        assert counted == 1
        await asyncio.sleep(A_WHILE_S)
        assert (await pods(cluster))[other]["metadata"]["uid"] == uids[other]
        assert await cpus_let_go(cluster) <= await cpus_admitted(cluster) <= 2


async def test_a_pod_that_is_resized_back_in_time_stays(tmp_path: Path) -> None:
    away = [False]
    async with gated_site(
        tmp_path, *queues(2), kinds=(ROWS["Job"],), nodes=NODES, away=lambda: away[0]
    ) as cluster:
        await cluster.client.create(JOBS, job("a", pods=1), dict)
        (name,) = await run(cluster, 1)
        uid = (await pods(cluster))[name]["metadata"]["uid"]
        away[0] = True
        await resize(cluster, name, "8")
        away[0] = False

        async def warned() -> bool:
            return "ExceedsAdmission" in await reasons(cluster, name)

        await cluster.until("it is reported", warned)
        with pytest.raises(Forbidden):
            await resize(cluster, name, "9")
        await resize(cluster, name, "4")  # less than before is no step up
        await resize(cluster, name, "1")
        await asyncio.sleep(A_WHILE_S)
        assert (await pods(cluster))[name]["metadata"]["uid"] == uid


def _doubled(asked: Asked) -> Verdict:
    changed = copy.deepcopy(asked.obj)
    changed["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    return Verdict(changed=changed)


async def test_what_was_not_resized_is_left_alone(tmp_path: Path) -> None:
    """Neither what a webhook of the cluster requests, nor another change of the spec."""
    doubling = Hook(
        name="doubling.example.org",
        path="/doubling",
        group="",
        version="v1",
        resources=("pods",),
        judge=_doubled,
        mutating=True,
        operations=("CREATE",),
    )
    async with gated_site(
        tmp_path, *queues(3), kinds=(ROWS["Job"],), nodes=NODES, others=(doubling,)
    ) as cluster:
        await cluster.client.create(JOBS, job("a", pods=2), dict)
        first_one, second = await run(cluster, 2)
        about = {"metadata": {"annotations": {"about": "something else"}}}
        await cluster.client.patch(PODS, NAMESPACE, second, about, dict)
        await asyncio.sleep(A_WHILE_S)
        found = await pods(cluster)
        assert [found[name]["metadata"]["generation"] for name in (first_one, second)] == [1, 1]
        assert await cpus_let_go(cluster) == 4
        assert await reasons(cluster, first_one) == await reasons(cluster, second) == set()


async def test_another_change_of_the_spec_is_no_resizing(tmp_path: Path) -> None:
    async with gated_site(tmp_path, *queues(3), kinds=(ROWS["Job"],), nodes=NODES) as cluster:
        await cluster.client.create(JOBS, job("a", pods=1), dict)
        (name,) = await run(cluster, 1)
        deadline = {"spec": {"activeDeadlineSeconds": 9_999}}
        await cluster.client.patch(PODS, NAMESPACE, name, deadline, dict)
        await asyncio.sleep(A_WHILE_S)
        found = await pods(cluster)
        assert {each: pod["metadata"]["generation"] for each, pod in found.items()} == {name: 2}
        assert await reasons(cluster, name) == set()


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["orphaned", "unlabelled"])
async def test_pods_that_their_job_releases_are_ended(how: str, tmp_path: Path) -> None:
    async with gated_site(
        tmp_path, *queues(2), kinds=(ROWS["Job"], ROWS["Pod"]), nodes=NODES
    ) as cluster:
        client = cluster.client
        await client.create(JOBS, job("a", pods=2), dict)
        names = await run(cluster, 2)
        if how == "orphaned":
            await client.delete(JOBS, NAMESPACE, "a", propagation=Propagation.ORPHAN)
            await client.create(JOBS, job("b", pods=2), dict)
            stay = 0
        else:
            labels = {
                key: None
                for key in (await pods(cluster))[names[0]]["metadata"]["labels"]
                if "controller-uid" in key
            }
            released = {"metadata": {"labels": labels, "ownerReferences": None}}
            await client.patch(PODS, NAMESPACE, names[0], released, dict)
            names, stay = names[:1], 1

        async def beyond() -> bool:
            return await cpus_let_go(cluster) > 2

        await cluster.until("more runs than has quota", beyond)

        async def ended() -> bool:
            return not set(names) & (await pods(cluster)).keys()

        await cluster.until("what was released is ended", ended, A_WHILE_S)
        await asyncio.sleep(A_WHILE_S)
        assert await cpus_let_go(cluster) == await cpus_admitted(cluster) == 2
        assert stay <= len(await pods(cluster)) == 2


async def test_a_controller_that_is_no_set_hides_no_container(tmp_path: Path) -> None:
    """Containers that webhooks add to the pods of a set are not counted; others' are."""
    kinds = (ROWS["Pod"], ROWS["StatefulSet"])
    async with gated_site(
        tmp_path, *queues(2), kinds=kinds, nodes=NODES, prepare=prepare
    ) as cluster:
        client = cluster.client
        above = await client.create(
            CONFIG_MAPS, {"metadata": {"name": "web", "namespace": NAMESPACE}}, dict
        )
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "web",
            "uid": above["metadata"]["uid"],
            "controller": True,
        }
        for name in ("a", "b"):
            body = manifest("Pod", name)
            body["metadata"]["labels"] = {QUEUE: "q", GROUP: "g"}
            body["metadata"]["annotations"] = {TOTAL: "2", "kueue.x-k8s.io/role-hash": "same"}
            body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
            if name == "b":
                more = {"name": "more", "image": "x", "resources": {"requests": {"cpu": "12"}}}
                body["spec"]["containers"].append(more)
                body["metadata"]["ownerReferences"] = [owner]
            await client.create(PODS, body, dict)
            if name == "b":
                forged = {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}
                await client.patch(
                    PODS, NAMESPACE, "b", {"metadata": {"annotations": forged}}, dict
                )

        async def held() -> bool:
            found = await pods(cluster)
            said = first(found["b"], "status.conditions") or ()
            surplus = any(each["reason"] == "ExceedsAdmission" for each in said if "reason" in each)
            return not is_gated(found["a"]) and is_gated(found["b"]) and surplus

        await cluster.until("the one with more containers is held", held)
        await asyncio.sleep(60)
        assert await held()


def test_many_pods_are_looked_at_less_often_unless_one_is_to_be_ended() -> None:
    assert [pause_after(each, found=False) // SECOND for each in (0, 3_000, 15_000)] == [
        60,
        60,
        300,
    ]
    assert pause_after(15_000, found=True) // SECOND == 60
