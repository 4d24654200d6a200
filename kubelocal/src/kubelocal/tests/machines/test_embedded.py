"""The machines on the real store and admission of the embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.crds import permissive_definitions
from kubelocal.machines.embedded import EmbeddedObjects
from kubelocal.machines.informer import Informer
from kubelocal.machines.node.exposure import EXPORTER_NAMESPACE, EXPORTER_SERVICE
from kubelocal.machines.objects import (
    AlreadyThere,
    Change,
    Changed,
    ChangeType,
    Gone,
    Object,
    Refused,
)
from kubelocal.machines.run import Machines
from kubelocal.machines.scheduler import with_scheduler
from kubelocal.server.writing.options import WriteOptions
from kubelocal.server.writing.subresources import scale_of
from kubelocal.tests.machines.cluster import gpu_node, job, pod, reference, sim, template, workload
from kubelocal.tests.machines.store import KINDS
from kubelocal.tests.machines.test_children import CHAINS
from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND


class Embedded:
    """Machines on an embedded cluster whose clock stands still, by default without heartbeats."""

    def __init__(
        self,
        data: Path | None = None,
        seed: int = 0,
        without: Sequence[str] = ("heartbeats",),
        feature_gates: Mapping[str, bool] | None = None,
        **options: Any,
    ) -> None:
        self.clock = VirtualClock()
        self.cluster = EmbeddedCluster(clock=self.clock, data=data, feature_gates=feature_gates)
        self.objects = EmbeddedObjects(self.cluster.api)
        nodes = [gpu_node("gpu-0", 8)]
        self.machines = Machines(
            self.objects,
            self.clock,
            nodes,
            seed=seed,
            without=without,
            more=[with_scheduler],
            **options,
        )

    async def wait(self, seconds: float = 0) -> None:
        await self.clock.advance(int(seconds * SECOND), settle=600)
        await self.clock.advance(0, settle=600)

    async def create(self, obj: Object) -> Object:
        return await self.objects.create(KINDS[obj["apiVersion"], obj["kind"]], obj)

    def phases(self) -> dict[str, str]:
        pods = self.machines.informer.all("pods")
        return {p["metadata"]["name"]: p["status"]["phase"] for p in pods}


@pytest.fixture
async def embedded() -> AsyncIterator[Embedded]:
    embedded = Embedded()
    async with embedded.cluster:
        await embedded.machines.start()
        await embedded.wait()
        yield embedded
        await embedded.machines.stop()


async def test_workloads_run_and_go_on_the_embedded_server(embedded: Embedded) -> None:
    await embedded.create(job("train", 2, parallelism=2, completions=2))
    await embedded.create(workload("Deployment", "web", 1, replicas=2))
    await embedded.create(workload("StatefulSet", "db", 1, replicas=2, serviceName="db"))
    await embedded.wait(5)
    await embedded.create(pod("too-big", 4))
    await embedded.wait(5)
    assert sorted(embedded.phases().values()) == ["Pending", *["Running"] * 6]
    await embedded.objects.delete("jobs.batch", "default", "train")
    await embedded.wait(5)
    assert embedded.phases()["too-big"] == "Running"
    await embedded.objects.delete("deployments.apps", "default", "web")
    await embedded.objects.delete("statefulsets.apps", "default", "db", propagation="Foreground")
    await embedded.wait(10)
    assert embedded.phases() == {"too-big": "Running"}
    for resource in ("jobs.batch", "replicasets.apps", "deployments.apps", "statefulsets.apps"):
        assert list(embedded.machines.informer.all(resource)) == []


async def test_a_job_completes_on_the_embedded_server(embedded: Embedded) -> None:
    timed = {"annotations": sim(run_time="60s")}
    await embedded.create(job("train", 1, parallelism=2, completions=3, pod_spec=timed))
    await embedded.wait(200)
    found = await embedded.objects.get("jobs.batch", "default", "train")
    assert found is not None
    assert found["status"]["succeeded"] == 3
    conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
    assert conditions == {"SuccessCriteriaMet": "True", "Complete": "True"}


async def test_chains_made_by_hand_stay_whole(embedded: Embedded) -> None:
    suspended = await embedded.create(job("held", 1, suspend=True))
    deployment = await embedded.create(workload("Deployment", "top", replicas=0))
    middle = workload("ReplicaSet", "middle", replicas=0)
    middle["metadata"]["ownerReferences"] = [reference(deployment)]
    replica_set = await embedded.create(middle)
    await embedded.create(pod("a", 1, owner=suspended))
    await embedded.create(pod("b", 1, owner=replica_set))
    await embedded.wait(10)
    assert embedded.phases() == {"a": "Running", "b": "Running"}


async def test_an_unchanged_cluster_is_not_written_to(embedded: Embedded) -> None:
    await embedded.create(workload("Deployment", "web", 1, replicas=2))
    await embedded.create(workload("StatefulSet", "db", 0, serviceName="db"))
    await embedded.create(job("train", 1))
    await embedded.create(pod("waits", 64))
    await embedded.wait(5)
    before = embedded.cluster.store.revision
    await embedded.wait(3600)
    assert embedded.cluster.store.revision == before


async def test_errors_are_told_apart(embedded: Embedded) -> None:
    objects = embedded.objects
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default"},
    }
    created = await objects.create("configmaps", config)
    with pytest.raises(AlreadyThere):
        await objects.create("configmaps", config)
    await objects.update("configmaps", {**created, "data": {"k": "v"}})
    with pytest.raises(Changed):
        await objects.update("configmaps", {**created, "data": {"k": "w"}})
    with pytest.raises(Changed):
        await objects.delete("configmaps", "default", "a", uid="another")
    await objects.delete("configmaps", "default", "a", uid=created["metadata"]["uid"])
    await objects.delete("configmaps", "default", "a")
    assert await objects.get("configmaps", "default", "a") is None
    with pytest.raises(Gone):
        await objects.update("configmaps", created)
    with pytest.raises(Gone):
        await objects.bind("default", "nobody", "u", "gpu-0")
    with pytest.raises(Refused):
        await objects.create("configmaps", {**config, "metadata": {"name": "Not A Name"}})
    with pytest.raises(Refused):
        await objects.create("things.example.com", {**config, "kind": "Thing"})
    assert await objects.get("things.example.com", "default", "a") is None


async def test_the_feed_goes_on_after_history_was_forgotten(embedded: Embedded) -> None:
    embedded.cluster.compact()
    await embedded.create(job("train", 1))
    await embedded.wait(2)
    assert list(embedded.phases().values()) == ["Running"]


DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "things",
            "singular": "thing",
            "kind": "Thing",
            "listKind": "ThingList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
THING = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}


async def test_kinds_that_are_defined_later_are_followed(embedded: Embedded) -> None:
    await embedded.objects.create("customresourcedefinitions.apiextensions.k8s.io", DEFINITION)
    await embedded.wait(1)
    thing = await embedded.objects.create("things.example.com", THING)
    await embedded.create(pod("below", 1, owner=thing))
    await embedded.wait(2)
    assert embedded.phases() == {"below": "Running"}
    await embedded.objects.delete("things.example.com", "default", "t")
    await embedded.wait(5)
    assert embedded.phases() == {}


async def test_a_feed_may_be_of_some_resources_only(embedded: Embedded) -> None:
    feed = embedded.objects.changes(["nodes", "things.example.com"])
    seen: list[Change] = [await anext(feed) for _ in range(2)]
    assert [c.type for c in seen] == [ChangeType.ADDED, ChangeType.SYNCED]
    assert seen[0].object["metadata"]["name"] == "gpu-0"
    await feed.aclose()  # type: ignore[attr-defined]


async def test_a_cluster_on_disk_goes_on_where_it_was(tmp_path: Path) -> None:
    first = Embedded(tmp_path)
    async with first.cluster:
        await first.machines.start()
        await first.create(job("train", 1))
        await first.wait(2)
        phases = first.phases()
        assert list(phases.values()) == ["Running"]
        await first.machines.stop()
    second = Embedded(tmp_path, seed=1)
    async with second.cluster:
        await second.machines.start()
        await second.wait(10)
        assert second.phases() == phases
        await second.machines.stop()


async def test_the_exporter_is_found_through_its_service(tmp_path: Path) -> None:
    for _ in range(2):  # the second time with another port and what the first left behind
        embedded = Embedded(tmp_path, exporter_service=True)
        async with embedded.cluster:
            await embedded.machines.start()
            await embedded.wait(1)
            found = await embedded.objects.get(
                "endpointslices.discovery.k8s.io", EXPORTER_NAMESPACE, EXPORTER_SERVICE
            )
            service = await embedded.objects.get("services", EXPORTER_NAMESPACE, EXPORTER_SERVICE)
            await embedded.machines.stop()
        assert found is not None
        assert service is not None
        [port], [endpoint] = found["ports"], found["endpoints"]
        assert (port["name"], port["port"]) == ("metrics", embedded.machines.exporter.port)
        assert endpoint["addresses"] == ["127.0.0.1"]
        assert found["metadata"]["labels"] == {"kubernetes.io/service-name": EXPORTER_SERVICE}


@pytest.mark.parametrize(
    ("obj", "chain", "pods"), CHAINS, ids=lambda v: v["kind"] if isinstance(v, dict) else None
)
async def test_chains_come_about_with_the_permissive_definitions(
    embedded: Embedded, obj: Object, chain: str, pods: int
) -> None:
    for definition in permissive_definitions():
        await embedded.objects.create("customresourcedefinitions.apiextensions.k8s.io", definition)
    await embedded.wait(2)
    await embedded.create(obj)
    await embedded.wait(5)
    assert list(embedded.phases().values()) == ["Running"] * pods
    before = embedded.cluster.store.revision
    await embedded.wait(3600)
    assert embedded.cluster.store.revision == before
    await embedded.objects.delete(KINDS[obj["apiVersion"], obj["kind"]], "default", "work")
    await embedded.wait(10)
    assert embedded.phases() == {}


async def test_what_the_machines_write_passes_the_validation_of_the_server() -> None:
    embedded = Embedded(without=())
    async with embedded.cluster:
        await embedded.machines.start()
        await embedded.create(workload("DaemonSet", "agent", 0))
        await embedded.create(workload("Deployment", "web", 1, replicas=2))
        tick = {"schedule": "* * * * *", "jobTemplate": {"spec": job("tick")["spec"]}}
        for api_version, kind, spec in (
            ("batch/v1", "CronJob", tick),
            ("v1", "Service", {"selector": {"app": "web"}, "ports": [{"port": 80}]}),
            (
                "policy/v1",
                "PodDisruptionBudget",
                {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            ),
        ):
            metadata = {"name": "extra", "namespace": "default"}
            body = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
            await embedded.create(body)
        await embedded.wait(65)
        informer = embedded.machines.informer
        [lease] = embedded.cluster.store.range("leases.coordination.k8s.io", "kube-node-lease")
        assert lease.decode()["spec"]["holderIdentity"] == "gpu-0"
        [found] = informer.all("endpointslices.discovery.k8s.io")
        assert [e["conditions"]["ready"] for e in found["endpoints"]] == [True, True]
        [budget] = informer.all("poddisruptionbudgets.policy")
        assert budget["status"]["disruptionsAllowed"] == 1
        assert [o["status"]["numberReady"] for o in informer.all("daemonsets.apps")] == [1]
        assert len(list(informer.all("jobs.batch"))) == 1

        node = informer.get("nodes", "", "gpu-0")
        assert node is not None
        unready = {**node["metadata"], "annotations": sim(ready="false")}
        await embedded.objects.update("nodes", {**node, "metadata": unready})
        await embedded.wait(200)
        served = [name for name in embedded.phases() if name.startswith("web-")]
        assert len(served) == 2  # the server's default toleration: 300 s
        assert [e["conditions"]["ready"] for e in _only(informer, found)["endpoints"]] == [
            False,
            False,
        ]
        await embedded.wait(110)
        replaced = [name for name in embedded.phases() if name.startswith("web-")]
        assert set(replaced).isdisjoint(served)
        assert [embedded.phases()[name] for name in replaced] == ["Pending", "Pending"]
        await embedded.machines.stop()


def _only(informer: Informer, like: Object) -> Object:
    found = informer.by_uid(like["metadata"]["uid"])
    assert found is not None
    return found[1]


async def test_a_leader_worker_set_is_scaled_through_its_subresource(embedded: Embedded) -> None:
    resource = "leaderworkersets.leaderworkerset.x-k8s.io"
    made = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "namespace": "default"},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template(1)}},
    }
    for definition in permissive_definitions():
        if definition["spec"]["group"] == "leaderworkerset.x-k8s.io":
            await embedded.objects.create(
                "customresourcedefinitions.apiextensions.k8s.io", definition
            )
    await embedded.objects.create(resource, made)
    await embedded.wait(5)
    kind = embedded.cluster.registry.find("leaderworkerset.x-k8s.io", "v1", "leaderworkersets")
    assert kind is not None
    api = embedded.cluster.api
    scale = scale_of(kind, await api.get(kind, "default", "serve"))
    assert (scale["spec"], scale["status"]["replicas"]) == ({"replicas": 1}, 1)
    scale["spec"]["replicas"] = 3
    await api.update(kind, "default", "serve", scale, WriteOptions(), "scale")
    await embedded.wait(5)
    assert len(embedded.phases()) == 6
    scaled = scale_of(kind, await api.get(kind, "default", "serve"))
    assert scaled["status"]["replicas"] == 3
    assert scaled["status"]["selector"].startswith("leaderworkerset.sigs.k8s.io/name=serve")
