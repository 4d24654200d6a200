"""ReplicaSets, Deployments and StatefulSets."""

from __future__ import annotations

from kubelocal.tests.machines.cluster import (
    Cluster,
    job,
    pod,
    reference,
    running,
    sim,
    template,
    workload,
)


async def test_a_deployment_owns_a_replica_set_that_owns_the_pods() -> None:
    async with running() as cluster:
        deployment = await cluster.create(workload("Deployment", "notebook", 1, replicas=2))
        await cluster.wait(2)
        [replica_set] = cluster.all("replicasets.apps")
        owner = replica_set["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"]) == ("Deployment", deployment["metadata"]["uid"])
        assert len(cluster.all("pods")) == 2
        for made in cluster.all("pods"):
            owner = made["metadata"]["ownerReferences"][0]
            assert (owner["kind"], owner["name"]) == ("ReplicaSet", replica_set["metadata"]["name"])
            assert made["metadata"]["name"].startswith(replica_set["metadata"]["name"] + "-")
        status = cluster.one("deployments.apps", "notebook")["status"]
        assert [
            status[f"{word}Replicas"] for word in ("updated", "ready", "available", "unavailable")
        ] == [2, 2, 2, 0]
        conditions = cluster.conditions("deployments.apps", "notebook")
        assert conditions["Available"][:2] == ("True", "MinimumReplicasAvailable")
        assert conditions["Progressing"][:2] == ("True", "NewReplicaSetAvailable")


async def test_scaling_to_zero_ends_all_pods_and_back_brings_new_ones() -> None:
    async with running() as cluster:
        await cluster.create(workload("Deployment", "notebook", 1, replicas=2))
        await cluster.wait(2)
        first = cluster.names("pods")
        await cluster.change("deployments.apps", "notebook", replicas=0)
        await cluster.wait(5)
        assert cluster.names("pods") == []
        await cluster.change("deployments.apps", "notebook", replicas=1)
        await cluster.wait(5)
        [name] = cluster.names("pods")
        assert name not in first


async def test_a_new_template_rolls_over_within_its_bounds() -> None:
    async with running() as cluster:
        await cluster.create(workload("Deployment", "web", 0, replicas=4))
        await cluster.wait(5)
        new = template(0, labels={"app": "web"}, annotations={"version": "2"})
        await cluster.change("deployments.apps", "web", template=new)
        lowest, highest = 4, 4
        for _ in range(100):
            await cluster.wait(0.1)
            active = [p for p in cluster.all("pods") if "deletionTimestamp" not in p["metadata"]]
            ready = [p for p in active if p["status"]["phase"] == "Running"]
            lowest, highest = min(lowest, len(ready)), max(highest, len(active))
        assert (lowest, highest) == (3, 5)
        assert {p["metadata"]["annotations"]["version"] for p in cluster.all("pods")} == {"2"}
        assert sorted(s["spec"]["replicas"] for s in cluster.all("replicasets.apps")) == [0, 4]
        annotations = cluster.one("deployments.apps", "web")["metadata"]["annotations"]
        assert annotations["deployment.kubernetes.io/revision"] == "2"


async def test_recreate_ends_the_old_pods_before_it_makes_new_ones() -> None:
    async with running() as cluster:
        await cluster.create(
            workload("Deployment", "web", 4, replicas=2, strategy={"type": "Recreate"})
        )
        await cluster.wait(5)
        new = template(4, labels={"app": "web"}, annotations={"version": "2"})
        await cluster.change("deployments.apps", "web", template=new)
        await cluster.wait(10)
        assert list(cluster.phases().values()) == ["Running"] * 2
        assert {p["metadata"]["annotations"]["version"] for p in cluster.all("pods")} == {"2"}


async def test_a_deleted_deployment_takes_replica_set_and_pods_with_it() -> None:
    async with running() as cluster:
        await cluster.create(workload("Deployment", "notebook", 1))
        await cluster.wait(2)
        await cluster.delete("deployments.apps", "notebook")
        await cluster.wait(5)
        assert cluster.names("replicasets.apps") == []
        assert cluster.names("pods") == []


async def test_a_pod_of_a_replica_set_is_replaced_when_it_ends() -> None:
    async with running() as cluster:
        await cluster.create(workload("ReplicaSet", "web", 1, replicas=2))
        await cluster.wait(2)
        await cluster.delete("pods", cluster.names("pods")[0])
        await cluster.wait(5)
        assert list(cluster.phases().values()) == ["Running"] * 2
        assert cluster.one("replicasets.apps", "web")["status"]["readyReplicas"] == 2


async def test_children_made_by_hand_that_no_selector_matches_are_left_alone() -> None:
    """Chains such as a KaiwoService's are sometimes assembled without labels."""
    async with running() as cluster:
        deployment = await cluster.create(workload("Deployment", "top", replicas=0))
        middle = workload("ReplicaSet", "middle", replicas=0)
        middle["metadata"]["ownerReferences"] = [reference(deployment)]
        replica_set = await cluster.create(middle)
        suspended = await cluster.create(job("held", 1, suspend=True))
        await cluster.create(
            pod("a", 1, owner=replica_set), pod("b", 1, owner=suspended), pod("c", 1)
        )
        await cluster.wait(10)
        assert cluster.phases() == {"a": "Running", "b": "Running", "c": "Running"}
        owners = cluster.one("replicasets.apps", "middle")["metadata"]["ownerReferences"]
        assert owners[0]["kind"] == "Deployment"


def ready_names(cluster: Cluster) -> list[str]:
    return sorted(name for name, phase in cluster.phases().items() if phase == "Running")


async def test_a_stateful_set_starts_its_pods_one_after_the_other() -> None:
    async with running() as cluster:
        slow = {"annotations": sim(start_latency="10s")}
        await cluster.create(workload("StatefulSet", "db", 1, replicas=3, pod_spec=slow))
        await cluster.wait(5)
        assert cluster.names("pods") == ["db-0"]
        await cluster.wait(10)
        assert (cluster.names("pods"), ready_names(cluster)) == (["db-0", "db-1"], ["db-0"])
        await cluster.wait(20)
        assert ready_names(cluster) == ["db-0", "db-1", "db-2"]
        await cluster.change("statefulsets.apps", "db", replicas=1)
        await cluster.wait(20)
        assert cluster.names("pods") == ["db-0"]


async def test_a_parallel_stateful_set_starts_all_at_once() -> None:
    async with running() as cluster:
        await cluster.create(
            workload("StatefulSet", "db", 1, replicas=3, podManagementPolicy="Parallel")
        )
        await cluster.wait(1)
        assert ready_names(cluster) == ["db-0", "db-1", "db-2"]


async def test_a_stateful_set_replaces_pods_of_an_old_template_from_the_highest() -> None:
    async with running() as cluster:
        await cluster.create(workload("StatefulSet", "db", 1, replicas=2))
        await cluster.wait(5)
        new = template(1, labels={"app": "db"}, annotations={"version": "2"})
        await cluster.change("statefulsets.apps", "db", template=new)
        await cluster.wait(1.2)
        assert "annotations" not in cluster.one("pods", "db-0")["metadata"]
        await cluster.wait(20)
        assert [p["metadata"]["annotations"] for p in cluster.all("pods")] == [{"version": "2"}] * 2
        status = cluster.one("statefulsets.apps", "db")["status"]
        assert status["currentRevision"] == status["updateRevision"]
        assert status["updatedReplicas"] == 2
