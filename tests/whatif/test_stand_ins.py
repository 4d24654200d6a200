"""What stands in for other controllers does things in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from kubeworld.time import LoopClock, run_virtually
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.controllers.stand_ins import StandIns
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot


def _pod(name: str, created: str, version: int) -> bytes:
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "creationTimestamp": created,
        "resourceVersion": str(version),
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"}],
    }
    return msgspec.json.encode({"metadata": metadata, "spec": {}})


def test_pods_of_one_owner_come_in_the_order_in_which_they_were_made() -> None:
    pods = {
        ("team", "j-a"): _pod("j-a", "2026-01-01T00:00:01Z", 5),
        ("team", "j-b"): _pod("j-b", "2026-01-01T00:00:00Z", 10),
        ("team", "j-c"): _pod("j-c", "2026-01-01T00:00:00Z", 9),
    }
    snapshot = Snapshot(Nanos(0), {("", "pods"): Listed(PODS, pods, 10)})

    async def main() -> list[str]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(snapshot, clock)
        stand_ins = StandIns(overlay, clock)
        # Who owns what in a namespace is read once something changes there.
        overlay.create(PODS, {"metadata": {"name": "other", "namespace": "team"}})
        return [pod["metadata"]["name"] for pod in stand_ins.owned.below("j")]

    assert run_virtually(main) == ["j-c", "j-b", "j-a"]


SETS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
MPI_JOBS = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
TEMPLATE = {"spec": {"containers": [{"name": "c"}]}}
GROUPS = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}}


def _made(
    resource: Resource, spec: dict[str, Any], *there: bytes, placed: Sequence[str] = ()
) -> tuple[Overlay, list[dict[str, Any]]]:
    """Return what there is once this was created, and its pods in the order of their creation."""
    known = {("team", msgspec.json.decode(each)["metadata"]["name"]): each for each in there}
    kinds = {
        ("", "pods"): Listed(PODS, known, 1),
        (resource.group, resource.plural): Listed(resource, {}, 1),
        ("apps", "statefulsets"): Listed(STATEFUL_SETS, {}, 1),
    }

    async def main() -> tuple[Overlay, list[dict[str, Any]]]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(Snapshot(Nanos(0), kinds), clock)
        stand_ins = StandIns(overlay, clock)
        running = asyncio.create_task(stand_ins.run())
        overlay.create(resource, {"metadata": {"name": "work", "namespace": "team"}, "spec": spec})
        await clock.sleep(MINUTE)
        for name in placed:
            pod = overlay.get(PODS, "team", name)
            assert pod is not None
            overlay.change(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "node-0"}})
        await clock.sleep(MINUTE)
        running.cancel()
        made = [each.new for each in overlay.history if each.new is not None and each.old is None]
        return overlay, [each for each in made if each["kind"] == "Pod"]

    return run_virtually(main)


def test_pods_of_a_leader_worker_set_come_from_its_sets_the_leaders_first() -> None:
    overlay, pods = _made(SETS, GROUPS)
    assert [each["metadata"]["name"] for each in pods] == [
        *("work-0", "work-1"),
        *("work-0-1", "work-0-2", "work-1-1", "work-1-2"),
    ]
    owners = {each["metadata"]["ownerReferences"][0]["name"] for each in pods}
    assert owners == {"work", "work-0", "work-1"}
    # The scheduler spreads the pods that a set selects: these are its own.
    for each in overlay.all(STATEFUL_SETS):
        wanted = each["spec"]["selector"]["matchLabels"].items()
        selected = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
        uid = each["metadata"]["uid"]
        assert selected == [p for p in pods if p["metadata"]["ownerReferences"][0]["uid"] == uid]


def test_a_leader_worker_set_whose_sets_are_not_seen_gets_no_others() -> None:
    overlay, pods = _made(SETS, GROUPS, _pod("work-0", "2026-01-01T00:00:00Z", 1))
    assert not pods and not list(overlay.all(STATEFUL_SETS))


def test_a_launcher_comes_when_its_workers_are_made() -> None:
    roles = {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}
    _, pods = _made(MPI_JOBS, {"mpiReplicaSpecs": roles})
    names = [each["metadata"]["name"] for each in pods]
    assert names == ["work-worker-0", "work-worker-1", "work-launcher-0"]


RAY_JOBS = Resource("ray.io", "v1", "rayjobs", "RayJob")
RAY = {
    "rayClusterSpec": {
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [{"groupName": "small", "replicas": 1, "template": TEMPLATE}],
    }
}


@pytest.mark.parametrize("placed", [["work-head-0"], ["work-head-0", "work-small-0"]])
def test_a_ray_job_is_submitted_once_all_of_its_cluster_run(placed: list[str]) -> None:
    _, pods = _made(RAY_JOBS, RAY, placed=placed)
    submitters = ["work-submitter-0"] if len(placed) == 2 else []
    names = [each["metadata"]["name"] for each in pods]
    assert names == ["work-head-0", "work-small-0", *submitters]


RAY_CLUSTERS = Resource("ray.io", "v1", "rayclusters", "RayCluster")


def _left_by(name: str, *, listed: bool, suspended: bool = False) -> tuple[list[str], list[str]]:
    """Return the pods of a cluster while one of them goes, and a minute later."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray", "uid": "ray"}
    above = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "job", "uid": "job"}
    in_team = {"namespace": "team"}
    job = {"metadata": {**in_team, "name": "job", "uid": "job"}, "spec": {"suspend": suspended}}
    ray = {
        "metadata": {**in_team, "name": "ray", "uid": "ray", "ownerReferences": [above]},
        "spec": {},
    }
    metadata = {"name": name, "namespace": "team", "uid": name, "ownerReferences": [owner]}
    spec = {"containers": [{"name": "c"}], "nodeName": "node-0"}
    pod = {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
    kinds = {("", "pods"): Listed(PODS, {("team", name): msgspec.json.encode(pod)}, 1)}
    if listed:
        jobs = Resource("ray.io", "v1", "rayjobs", "RayJob")
        for resource, title, obj in ((jobs, "job", job), (RAY_CLUSTERS, "ray", ray)):
            key = ("team", title)
            kinds["ray.io", resource.plural] = Listed(resource, {key: msgspec.json.encode(obj)}, 1)

    async def main() -> tuple[list[str], list[str]]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(Snapshot(Nanos(0), kinds), clock)
        running = asyncio.create_task(StandIns(overlay, clock).run())
        overlay.delete(("", "pods"), ("team", name))
        await clock.sleep(SECOND // 2)
        while_it_goes = sorted(each["metadata"]["name"] for each in overlay.all(PODS))
        await clock.sleep(MINUTE)
        running.cancel()
        left = [each for each in overlay.all(PODS) if not each["spec"].get("nodeName")]
        assert all(each["metadata"]["ownerReferences"] == [owner] for each in left)
        return while_it_goes, sorted(each["metadata"]["name"] for each in left)

    return run_virtually(main)


@pytest.mark.parametrize("listed", [True, False])
def test_a_lost_pod_is_made_anew_at_once_and_a_numbered_one_under_its_name(listed: bool) -> None:
    first, then = _left_by("ray-head-abcde", listed=listed)
    assert len(first) == 2 and len(then) == 1
    assert then[0].startswith("ray-head-") and then[0] != "ray-head-abcde"
    first, then = _left_by("ray-worker-0", listed=listed)
    assert (first, then) == (["ray-worker-0"], ["ray-worker-0"])


def test_a_pod_below_what_is_suspended_is_not_made_anew() -> None:
    assert _left_by("ray-head-abcde", listed=True, suspended=True)[1] == []


def test_a_ray_job_that_is_stopped_says_so_once_the_pods_below_its_cluster_are_gone() -> None:
    above = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "job", "uid": "job"}
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray", "uid": "ray"}
    in_team = {"namespace": "team"}
    running = {"jobDeploymentStatus": "Running"}
    job = {"metadata": {**in_team, "name": "job", "uid": "job"}, "spec": {}, "status": running}
    ray = {**in_team, "name": "ray", "uid": "ray", "ownerReferences": [above]}
    pod = {**in_team, "name": "ray-head-a", "uid": "pod", "ownerReferences": [owner]}
    placed = {"containers": [{"name": "c"}], "nodeName": "node-0"}
    there: list[tuple[Resource, dict[str, Any]]] = [
        (RAY_JOBS, job),
        (RAY_CLUSTERS, {"metadata": ray, "spec": {}}),
        (PODS, {"metadata": pod, "spec": placed, "status": {"phase": "Running"}}),
    ]
    kinds = {
        (each.group, each.plural): Listed(
            each, {("team", obj["metadata"]["name"]): msgspec.json.encode(obj)}, 1
        )
        for each, obj in there
    }

    async def main() -> tuple[str, str]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(Snapshot(Nanos(0), kinds), clock)
        standing = asyncio.create_task(StandIns(overlay, clock).run())
        overlay.change(RAY_JOBS, {**job, "spec": {"suspend": True}})
        said = []
        for pause in (SECOND // 2, MINUTE):
            await clock.sleep(pause)
            (found,) = overlay.all(RAY_JOBS)
            said.append(found["status"]["jobDeploymentStatus"])
        standing.cancel()
        return said[0], said[1]

    assert run_virtually(main) == ("Running", "Suspended")
