"""Children from templates: the chains of the kinds that are no part of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.machines.node.kubelet import KubeletTimes
from kubelocal.machines.objects import Object
from kubelocal.tests.machines.chains import RAY, chains, custom, ray_cluster, ray_job
from kubelocal.tests.machines.cluster import pod, reference, running, sim, template
from kubelocal.tests.machines.store import KINDS
from kubeworld.kinds.families import FAMILIES
from kubeworld.units.durations import SECOND

DEPLOYED = "Pod -> ReplicaSet -> Deployment"
LABELLED = {"selector": {"matchLabels": {"app": "x"}}, "template": template(1, labels={"app": "x"})}
KAIWO = "kaiwo.silogen.ai/v1alpha1"

CHAINS = [
    (custom(RAY, "RayCluster", **ray_cluster(2)), "Pod -> RayCluster", 3),
    (custom(RAY, "RayJob", **ray_job()), "Pod -> RayCluster -> RayJob", 2),
    (
        custom(RAY, "RayService", rayClusterConfig=ray_cluster()),
        "Pod -> RayCluster -> RayService",
        2,
    ),
    (
        custom(KAIWO, "KaiwoJob", job={"spec": {"template": template(4, restartPolicy="Never")}}),
        "Pod -> Job -> KaiwoJob",
        1,
    ),
    (
        custom(KAIWO, "KaiwoJob", rayJob={"spec": ray_job()}),
        "Pod -> RayCluster -> RayJob -> KaiwoJob",
        2,
    ),
    (custom(KAIWO, "KaiwoJob", image="train:1", gpus=4), "Pod -> Job -> KaiwoJob", 1),
    (
        custom(KAIWO, "KaiwoService", deployment={"spec": LABELLED}),
        f"{DEPLOYED} -> KaiwoService",
        1,
    ),
    (
        custom(KAIWO, "KaiwoService", image="serve:1", gpus=1, replicas=2),
        f"{DEPLOYED} -> KaiwoService",
        2,
    ),
    (
        custom("aim.eai.amd.com/v1alpha1", "AIMService", template=template(1)),
        f"{DEPLOYED} -> AIMService",
        1,
    ),
    (
        custom("aim.silogen.ai/v1alpha1", "AIMService", template=template(1)),
        f"{DEPLOYED} -> AIMService",
        1,
    ),
    (
        custom(
            "serving.kserve.io/v1beta1",
            "InferenceService",
            predictor={"model": {"resources": {"limits": {"amd.com/gpu": "1"}}}, "minReplicas": 2},
        ),
        f"{DEPLOYED} -> InferenceService",
        2,
    ),
    (
        custom(
            "workload.codeflare.dev/v1beta2",
            "AppWrapper",
            components=[
                {
                    "template": {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "metadata": {"name": "inner"},
                        "spec": {"template": template(1, restartPolicy="Never")},
                    }
                }
            ],
        ),
        "Pod -> Job -> AppWrapper",
        1,
    ),
    (
        custom(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            replicatedJobs=[
                {
                    "name": "train",
                    "replicas": 2,
                    "template": {"spec": {"template": template(1, restartPolicy="Never")}},
                }
            ],
        ),
        "Pod -> Job -> JobSet",
        2,
    ),
    (
        custom(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            replicas=2,
            leaderWorkerTemplate={"size": 3, "workerTemplate": template(1)},
        ),
        "Pod -> StatefulSet -> LeaderWorkerSet",
        6,
    ),
    (
        custom(
            "kubeflow.org/v1",
            "PyTorchJob",
            pytorchReplicaSpecs={
                "Master": {"template": template(1)},
                "Worker": {"replicas": 2, "template": template(1)},
            },
        ),
        "Pod -> PyTorchJob",
        3,
    ),
    (
        custom(
            "kubeflow.org/v2beta1", "MPIJob", mpiReplicaSpecs={"Worker": {"template": template(1)}}
        ),
        "Pod -> MPIJob",
        1,
    ),
]


@pytest.mark.parametrize(
    ("obj", "chain", "pods"), CHAINS, ids=lambda v: v["kind"] if isinstance(v, dict) else None
)
async def test_a_template_becomes_the_chain_of_the_kind(obj: Object, chain: str, pods: int) -> None:
    async with running() as cluster:
        await cluster.create(obj)
        await cluster.wait(2)
        assert chains(cluster) == {chain}
        assert list(cluster.phases().values()) == ["Running"] * pods


@pytest.mark.parametrize(
    ("obj", "chain", "pods"), CHAINS, ids=lambda v: v["kind"] if isinstance(v, dict) else None
)
async def test_everything_below_goes_with_the_root(obj: Object, chain: str, pods: int) -> None:
    async with running() as cluster:
        await cluster.create(obj)
        await cluster.wait(2)
        await cluster.delete(KINDS[obj["apiVersion"], obj["kind"]], "work")
        await cluster.wait(5)
        left = {resource for resource, _, _ in cluster.store.held}
        assert left == {"nodes", "events"}


def managed(obj: Object, by: str) -> Object:
    where = FAMILIES[KINDS[obj["apiVersion"], obj["kind"]]].suspends[:-1]
    said: Object = {"managedBy": by}
    return {**obj, "spec": {**obj["spec"], **({where[0]: said} if where else said)}}


@pytest.mark.parametrize(
    ("obj", "controller", "pods"),
    [
        (obj, FAMILIES[resource].controller, pods)
        for obj, _, pods in CHAINS
        if FAMILIES[resource := KINDS[obj["apiVersion"], obj["kind"]]].controller
    ],
    ids=lambda v: v["kind"] if isinstance(v, dict) else None,
)
async def test_an_object_of_another_controller_is_left_to_it(
    obj: Object, controller: str, pods: int
) -> None:
    resource = KINDS[obj["apiVersion"], obj["kind"]]
    async with running() as cluster:
        await cluster.create(managed(obj, "kueue.x-k8s.io/multikueue"))
        await cluster.wait(2)
        left = (cluster.names("pods"), "status" in cluster.one(resource, "work"))
    async with running() as cluster:
        await cluster.create(managed(obj, controller))
        await cluster.wait(2)
        assert (left, len(cluster.all("pods"))) == (([], False), pods)


@pytest.mark.parametrize("spec", [{}, {"user": "me"}, {"job": "no"}, {"components": [1]}])
@pytest.mark.parametrize(
    "api_version_and_kind", sorted(k for k, resource in KINDS.items() if resource in FAMILIES)
)
async def test_an_object_without_a_template_has_no_children(
    api_version_and_kind: tuple[str, str], spec: dict[str, Any]
) -> None:
    async with running() as cluster:
        root = await cluster.create(custom(*api_version_and_kind, **spec))
        await cluster.create(pod("by-hand", 1, owner=root))
        await cluster.wait(5)
        assert cluster.phases() == {"by-hand": "Running"}


async def test_a_suspended_ray_job_gives_its_pods_back_and_gets_new_ones() -> None:
    async with running() as cluster:
        await cluster.create(custom(RAY, "RayJob", **ray_job()))
        await cluster.wait(2)
        await cluster.change("rayjobs.ray.io", "work", suspend=True)
        await cluster.wait(5)
        assert (cluster.names("rayclusters.ray.io"), cluster.names("pods")) == ([], [])
        await cluster.change("rayjobs.ray.io", "work", suspend=False)
        await cluster.wait(5)
        assert list(cluster.phases().values()) == ["Running"] * 2


async def test_pods_of_a_ray_service_run_where_it_says_once_it_goes_on() -> None:
    async with running() as cluster:
        spec = {**ray_cluster(), "suspend": True}
        await cluster.create(custom(RAY, "RayService", rayClusterConfig=spec))
        await cluster.wait(2)
        assert cluster.names("pods") == []
        told = {**ray_cluster(), "suspend": False}
        told["headGroupSpec"]["template"]["spec"]["nodeSelector"] = {"disk": "slow"}
        await cluster.change("rayservices.ray.io", "work", rayClusterConfig=told)
        await cluster.wait(2)
        (head,) = (each for each in cluster.all("pods") if "-head-" in each["metadata"]["name"])
        assert head["spec"]["nodeSelector"] == {"disk": "slow"}


async def test_the_number_of_replicas_is_carried_down() -> None:
    async with running() as cluster:
        await cluster.create(custom(KAIWO, "KaiwoService", image="serve:1", gpus=1, replicas=2))
        await cluster.wait(2)
        await cluster.change("kaiwoservices.kaiwo.silogen.ai", "work", replicas=0)
        await cluster.wait(5)
        assert cluster.names("pods") == []


async def test_ray_workers_come_and_go_with_the_group() -> None:
    async with running() as cluster:
        await cluster.create(custom(RAY, "RayCluster", **ray_cluster(2)))
        await cluster.wait(2)
        await cluster.change("rayclusters.ray.io", "work", **ray_cluster(1))
        await cluster.wait(5)
        names = cluster.names("pods")
        assert [name[:-6] for name in names] == ["work-gpus-worker", "work-head"]


async def test_a_component_of_an_unknown_kind_is_named_in_an_event() -> None:
    async with running() as cluster:
        unknown = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
        await cluster.create(
            custom(
                "workload.codeflare.dev/v1beta2",
                "AppWrapper",
                components=[{"template": unknown}],
            )
        )
        await cluster.wait(1)
        assert [(e["reason"], e["message"]) for e in cluster.all("events")] == [
            ("UnknownKind", "no kind Thing of example.com/v1 is served")
        ]


async def test_a_child_of_another_owner_is_not_touched() -> None:
    async with running() as cluster:
        other = await cluster.create({**custom(KAIWO, "KaiwoJob"), "metadata": {"name": "other"}})
        mine = custom(RAY, "RayJob", **ray_job())
        taken = custom(RAY, "RayCluster")
        await cluster.create(mine)
        await cluster.wait(1)
        [made] = cluster.names("rayclusters.ray.io")
        await cluster.delete("rayclusters.ray.io", made)
        taken["metadata"] = {"name": made, "ownerReferences": [reference(other)]}
        await cluster.create(taken)
        await cluster.change("rayjobs.ray.io", "work", suspend=True)
        await cluster.wait(5)
        assert cluster.names("rayclusters.ray.io") == [made]


@pytest.mark.parametrize(
    ("obj", "before", "after"),
    [
        (CHAINS[0][0], {}, {"state": "ready"}),
        (
            CHAINS[1][0],
            {"jobDeploymentStatus": "Initializing", "jobStatus": "PENDING"},
            {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"},
        ),
        (CHAINS[3][0], {"status": "PENDING"}, {"status": "RUNNING"}),
        (CHAINS[8][0], {"status": "Pending"}, {"status": "Running"}),
        (CHAINS[11][0], {"phase": "Resuming"}, {"phase": "Running"}),
    ],
    ids=["RayCluster", "RayJob", "KaiwoJob", "AIMService", "AppWrapper"],
)
async def test_the_status_follows_the_pods(obj: Object, before: Object, after: Object) -> None:
    resource = KINDS[obj["apiVersion"], obj["kind"]]
    async with running(times=KubeletTimes(start_latency=10 * SECOND)) as cluster:
        await cluster.create(obj)
        await cluster.wait(5)
        assert cluster.one(resource, "work").get("status", {}) == before
        await cluster.wait(20)
        assert cluster.one(resource, "work")["status"] == after


async def test_a_finished_job_completes_the_kaiwo_job_above_it() -> None:
    async with running() as cluster:
        body = template(1, restartPolicy="Never", annotations=sim(run_time="10s"))
        await cluster.create(custom(KAIWO, "KaiwoJob", job={"spec": {"template": body}}))
        await cluster.wait(30)
        assert cluster.one("kaiwojobs.kaiwo.silogen.ai", "work")["status"] == {"status": "COMPLETE"}
