"""Children created and deleted while their root runs: numbered pods, submitters, jobs of a set."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.machines.objects import Object
from kubelocal.tests.machines.chains import RAY, chains, custom, ray_job
from kubelocal.tests.machines.cluster import running, template


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
