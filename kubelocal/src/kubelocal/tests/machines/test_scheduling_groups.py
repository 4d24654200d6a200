"""Controllers that a Workload names: their pods, and the groups that are made for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.crds import permissive_definitions
from kubelocal.machines.embedded import EmbeddedObjects
from kubelocal.machines.objects import Object
from kubelocal.machines.run import Machines
from kubelocal.machines.scheduler import with_scheduler
from kubelocal.tests.machines.cluster import gpu_node, job, template
from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND

GROUPS = "podgroups.scheduling.k8s.io"
WORKLOADS = "workloads.scheduling.k8s.io"
OF = {
    "Job": ("batch", "jobs.batch"),
    "JobSet": ("jobset.x-k8s.io", "jobsets.jobset.x-k8s.io"),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io",
        "leaderworkersets.leaderworkerset.x-k8s.io",
    ),
}


class Site:
    def __init__(self, objects: EmbeddedObjects, machines: Machines, clock: VirtualClock) -> None:
        self.objects, self.machines, self.clock = objects, machines, clock

    async def wait(self, seconds: int = 1) -> None:
        await self.clock.advance(seconds * SECOND, settle=800)

    async def workload(self, kind: str, *templates: str, **more: Any) -> None:
        made = [
            {"name": name, "schedulingPolicy": {"gang": {"minCount": 2}}, **more}
            for name in templates
        ]
        reference = {"apiGroup": OF[kind][0], "kind": kind, "name": "train"}
        workload = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "Workload",
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {"controllerRef": reference, "podGroupTemplates": made},
        }
        await self.objects.create(WORKLOADS, workload)

    async def create(self, obj: Object) -> None:
        await self.objects.create(OF[obj["kind"]][1], obj)
        await self.wait()

    def groups(self) -> dict[str, Object]:
        return {one["metadata"]["name"]: one for one in self.machines.informer.all(GROUPS)}

    def members(self) -> dict[str, str | None]:
        """The group of each pod."""
        return {
            pod["metadata"]["name"]: (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
            for pod in self.machines.informer.all("pods")
        }


@asynccontextmanager
async def site(gates: Mapping[str, bool] | None = None) -> AsyncIterator[Site]:
    clock = VirtualClock()
    async with EmbeddedCluster(clock=clock, feature_gates=gates) as cluster:
        objects = EmbeddedObjects(cluster.api)
        for definition in permissive_definitions():
            await objects.create("customresourcedefinitions.apiextensions.k8s.io", definition)
        nodes = [gpu_node("gpu-0", 64)]
        machines = Machines(objects, clock, nodes, without=["heartbeats"], more=[with_scheduler])
        await machines.start()
        try:
            yield Site(objects, machines, clock)
        finally:
            await machines.stop()


def job_set(*replicated: tuple[str, int]) -> Object:
    jobs = [
        {
            "name": name,
            "replicas": replicas,
            "template": {
                "spec": {
                    "parallelism": 2,
                    "completions": 2,
                    "template": template(1, restartPolicy="Never"),
                }
            },
        }
        for name, replicas in replicated
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"replicatedJobs": jobs},
    }


def leader_worker_set(replicas: int, size: int) -> Object:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {"size": size, "workerTemplate": template(1)},
        },
    }


async def test_a_job_has_one_group_made_from_the_template() -> None:
    async with site() as here:
        constraints = {"topology": [{"key": "example.com/rack"}]}
        await here.workload(
            "Job", "workers", disruptionMode={"all": {}}, schedulingConstraints=constraints
        )
        await here.create(job("train", 1, parallelism=3, completions=3))
        (group,) = here.groups().values()
        assert group["metadata"]["name"] == "w-workers"
        assert group["metadata"]["ownerReferences"][0]["kind"] == "Job"
        assert group["spec"] == {
            "workloadRef": {"workloadName": "w", "templateName": "workers"},
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": constraints,
            "disruptionMode": {"all": {}},
            "priority": 0,
        }
        assert list(here.members().values()) == ["w-workers"] * 3
        await here.objects.delete("jobs.batch", "default", "train")
        await here.wait(60)
        assert here.groups() == {}


@pytest.mark.parametrize(
    ("templates", "wanted"),
    [
        (["all"], {"head": "w-all", "work": "w-all"}),
        (["work"], {"head": None, "work": "w-work"}),
        (["head", "work"], {"head": "w-head", "work": "w-work"}),
    ],
)
async def test_a_job_set_has_a_group_per_template(
    templates: list[str], wanted: dict[str, str | None]
) -> None:
    async with site() as here:
        await here.workload("JobSet", *templates)
        await here.create(job_set(("head", 1), ("work", 2)))
        await here.wait()
        assert sorted(here.groups()) == sorted({name for name in wanted.values() if name})
        pods = here.members()
        assert len(pods) == 6
        assert {(name.split("-")[1], group) for name, group in pods.items()} == set(wanted.items())


async def test_a_leader_worker_set_has_a_group_per_replica() -> None:
    async with site() as here:
        await here.workload("LeaderWorkerSet", "replica")
        await here.create(leader_worker_set(2, 3))
        await here.wait()
        assert sorted(here.groups()) == ["w-replica-0", "w-replica-1"]
        assert here.members() == {
            f"train-{replica}{worker}": f"w-replica-{replica}"
            for replica in range(2)
            for worker in ("", "-1", "-2")
        }
        held = await here.objects.get(OF["LeaderWorkerSet"][1], "default", "train")
        assert held is not None
        held["spec"]["replicas"] = 1
        await here.objects.update(OF["LeaderWorkerSet"][1], held)
        await here.wait(60)
        assert sorted(here.groups()) == ["w-replica-0"]


async def test_without_a_workload_or_its_gate_pods_have_no_group() -> None:
    async with site() as here:
        await here.create(job("train", 1, parallelism=2, completions=2))
        assert (here.groups(), list(here.members().values())) == ({}, [None, None])
    async with site({"GenericWorkload": False}) as here:
        await here.create(job("train", 1, parallelism=2, completions=2))
        assert (here.groups(), list(here.members().values())) == ({}, [None, None])
