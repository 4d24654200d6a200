"""Children from templates: the chains of the kinds that are no part of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.machines.node.kubelet import KubeletTimes
from kubelocal.machines.objects import Object
from kubelocal.tests.machines.cluster import Cluster, pod, reference, running, sim, template
from kubelocal.tests.machines.store import KINDS
from kubeworld.kinds.families import FAMILIES
from kubeworld.units.durations import SECOND


def custom(api_version: str, kind: str, **spec: Any) -> Object:
    obj: Object = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "work"}}
    return {**obj, "spec": spec} if spec else obj


def ray_cluster(workers: int = 1) -> Object:
    return {
        "headGroupSpec": {"template": template(0)},
        "workerGroupSpecs": [
            {"groupName": "gpus", "replicas": workers, "template": template(2)},
        ],
    }


def ray_job(mode: str = "HTTPMode") -> Object:
    return {"rayClusterSpec": ray_cluster(), "submissionMode": mode}


def chains(cluster: Cluster) -> set[str]:
    """Return the kinds from each pod up to its root."""
    by_uid = {obj["metadata"]["uid"]: obj for obj in cluster.store.held.values()}
    found: set[str] = set()
    for obj in cluster.all("pods"):
        kinds = []
        owner: Object | None = obj
        while owner is not None:
            kinds.append(owner["kind"])
            references = owner["metadata"].get("ownerReferences")
            owner = by_uid.get(references[0]["uid"]) if references else None
        found.add(" -> ".join(kinds))
    return found


DEPLOYED = "Pod -> ReplicaSet -> Deployment"
LABELLED = {"selector": {"matchLabels": {"app": "x"}}, "template": template(1, labels={"app": "x"})}
KAIWO, RAY = "kaiwo.silogen.ai/v1alpha1", "ray.io/v1"

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


def kubeflow(kind: str, **spec: Any) -> Object:
    version = "v2beta1" if kind == "MPIJob" else "v1"
    return custom(f"kubeflow.org/{version}", kind, **spec)


async def test_numbered_pods_keep_their_names_and_failed_ones_are_made_anew() -> None:
    async with running() as cluster:
        specs = {
            "Master": {"template": template(1)},
            "Worker": {"replicas": 2, "template": template(1)},
        }
        await cluster.create(kubeflow("PyTorchJob", pytorchReplicaSpecs=specs))
        await cluster.wait(2)
        names = ["work-master-0", "work-worker-0", "work-worker-1"]
        assert cluster.names("pods") == names
        before = cluster.one("pods", "work-worker-0")["metadata"]["uid"]
        await cluster.annotate("pods", "work-worker-0", fail="1")
        await cluster.wait(2)
        assert cluster.phases() == dict.fromkeys(names, "Running")
        assert cluster.one("pods", "work-worker-0")["metadata"]["uid"] != before
        await cluster.change("pytorchjobs.kubeflow.org", "work", runPolicy={"suspend": True})
        await cluster.wait(3)
        assert cluster.names("pods") == []
        conditions = cluster.conditions("pytorchjobs.kubeflow.org", "work")
        assert {t for t, c in conditions.items() if c[0] == "True"} == {"Suspended"}
        await cluster.change("pytorchjobs.kubeflow.org", "work", runPolicy={"suspend": False})
        await cluster.wait(3)
        assert cluster.phases() == dict.fromkeys(names, "Running")
        conditions = cluster.conditions("pytorchjobs.kubeflow.org", "work")
        assert {t for t, c in conditions.items() if c[0] == "True"} == {"Running"}


@pytest.mark.parametrize("given", [None, template(0)], ids=["its own", "a default one"])
@pytest.mark.parametrize("mode", ["", "K8sJobMode"])
async def test_a_ray_job_has_a_job_that_submits_beside_its_cluster(
    mode: str, given: Object | None
) -> None:
    async with running() as cluster:
        said = {"submitterPodTemplate": given} if given else {}
        await cluster.create(custom(RAY, "RayJob", **ray_job(mode), **said))
        await cluster.wait(5)
        assert chains(cluster) == {"Pod -> RayCluster -> RayJob", "Pod -> Job -> RayJob"}
        assert cluster.names("jobs.batch") == ["work"]
        assert len(cluster.all("pods")) == 3
        await cluster.change("rayjobs.ray.io", "work", suspend=True)
        await cluster.wait(5)
        assert (cluster.names("jobs.batch"), cluster.names("pods")) == ([], [])


async def test_a_ray_job_is_submitted_once_its_cluster_runs_and_not_before() -> None:
    async with running() as cluster:
        more_than_there_are = ray_job("K8sJobMode")
        more_than_there_are["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] = 100
        await cluster.create(custom(RAY, "RayJob", **more_than_there_are))
        await cluster.wait(5)
        assert cluster.names("jobs.batch") == []
        await cluster.change("rayjobs.ray.io", "work", **ray_job("K8sJobMode"))
        [made] = cluster.names("rayclusters.ray.io")
        spec = ray_job()["rayClusterSpec"]
        await cluster.change("rayclusters.ray.io", made, **spec)
        await cluster.wait(5)
        assert cluster.names("jobs.batch") == ["work"]
        (work,) = cluster.all("rayjobs.ray.io")
        assert work["status"]["jobDeploymentStatus"] == "Running"


async def test_an_mpi_job_has_a_launcher_job_beside_its_workers() -> None:
    async with running() as cluster:
        specs = {
            "Launcher": {"template": template(0)},
            "Worker": {"replicas": 2, "template": template(2)},
        }
        await cluster.create(kubeflow("MPIJob", mpiReplicaSpecs=specs))
        await cluster.wait(2)
        assert chains(cluster) == {"Pod -> Job -> MPIJob", "Pod -> MPIJob"}
        assert cluster.names("jobs.batch") == ["work-launcher"]
        assert len(cluster.all("pods")) == 3


async def test_a_job_set_suspends_its_jobs_and_follows_the_number_of_replicas() -> None:
    async with running() as cluster:
        replicated = {
            "name": "train",
            "replicas": 2,
            "template": {"spec": {"template": template(1, restartPolicy="Never")}},
        }
        resource = "jobsets.jobset.x-k8s.io"
        await cluster.create(
            custom("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[replicated])
        )
        await cluster.wait(2)
        assert cluster.names("jobs.batch") == ["work-train-0", "work-train-1"]
        await cluster.change(resource, "work", suspend=True)
        await cluster.wait(3)
        assert cluster.names("pods") == []
        assert cluster.names("jobs.batch") == ["work-train-0", "work-train-1"]
        fewer = [{**replicated, "replicas": 1}]
        await cluster.change(resource, "work", suspend=False, replicatedJobs=fewer)
        await cluster.wait(3)
        assert cluster.names("jobs.batch") == ["work-train-0"]
        await cluster.annotate(resource, "work", run_time="1s")
        await cluster.wait(3)
        assert cluster.one(resource, "work")["status"]["terminalState"] == "Completed"


async def test_the_jobs_of_a_job_set_go_on_where_it_says_by_then() -> None:
    async with running() as cluster:
        spec = {"template": template(1, restartPolicy="Never")}
        replicated: Object = {"name": "train", "template": {"spec": spec}}
        resource = "jobsets.jobset.x-k8s.io"
        await cluster.create(
            custom("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[replicated], suspend=True)
        )
        await cluster.wait(2)
        toleration = {"key": "team", "operator": "Exists"}
        pods = template(
            1,
            labels={"queue": "a"},
            nodeSelector={"disk": "fast"},
            tolerations=[toleration],
            restartPolicy="Never",
        )
        moved = {**replicated, "template": {"spec": {"template": pods}}}
        await cluster.change(resource, "work", suspend=False, replicatedJobs=[moved])
        await cluster.wait(3)
        (made,) = cluster.all("pods")
        assert made["metadata"]["labels"]["queue"] == "a"
        assert made["spec"]["nodeSelector"] == {"disk": "fast"}
        assert toleration in made["spec"]["tolerations"]


async def test_the_groups_of_a_leader_worker_set_come_and_go() -> None:
    async with running() as cluster:
        resource = "leaderworkersets.leaderworkerset.x-k8s.io"
        whole = {"size": 2, "leaderTemplate": template(0), "workerTemplate": template(1)}
        await cluster.create(
            custom(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                replicas=2,
                leaderWorkerTemplate=whole,
            )
        )
        await cluster.wait(2)
        assert cluster.names("pods") == ["work-0", "work-0-1", "work-1", "work-1-1"]
        # Whoever counts a group knows its leader from its workers.
        leaders = {
            each["metadata"]["name"]: (each["metadata"].get("annotations") or {}).get(
                "leaderworkerset.sigs.k8s.io/leader-name"
            )
            for each in cluster.all("pods")
        }
        assert leaders == {
            "work-0": None,
            "work-0-1": "work-0",
            "work-1": None,
            "work-1-1": "work-1",
        }
        assert cluster.conditions(resource, "work")["Available"][0] == "True"
        status = cluster.one(resource, "work")["status"]
        assert (status["replicas"], status["readyReplicas"], status["hpaPodSelector"]) == (
            2,
            2,
            "leaderworkerset.sigs.k8s.io/name=work,leaderworkerset.sigs.k8s.io/role=leader",
        )
        await cluster.change(resource, "work", replicas=1)
        await cluster.wait(5)
        assert cluster.names("pods") == ["work-0", "work-0-1"]
        assert cluster.names("statefulsets.apps") == ["work", "work-0"]
        assert cluster.one(resource, "work")["status"]["replicas"] == 1
