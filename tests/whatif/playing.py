"""A cluster on which plans are played: drawn at random, with an operator, asked and submitted to.

Every step ends when nothing moves any more, however long that takes: how busy the machine is makes
no difference. Pods that controllers make come a millisecond apart, and kubelets end them so, as a
plan takes them to: where several come or end at one instant, which is first, and how that comes
between the operator's decisions, is chance, and can move pods from one node to another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml

from kubelocal.machines.node.gpus import Root
from kubelocal.machines.node.kubelet import KubeletTimes
from kubeworld.objects.owners import controller_of
from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.jobs.table import job_kinds
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.resource import NAMESPACES, NODES, PODS, PREEMPTIONS, Resource
from reprieve.planes.quota.job_reconciler.job_lookup import QUEUE_NAME
from reprieve.scenarios.model import NodeSpec
from reprieve.whatif.questions.answer import Answer
from tests.quota_plane.site import ADMISSION_CHECKS, CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOADS
from tests.scheduling.site import BUDGETS, NAMESPACE, POD_GROUPS, PRIORITY_CLASSES, Site, site
from tests.whatif.asking import ask

__all__ = ["IDLE", "RESOURCES", "Drawing", "Object", "Playground", "create", "playground"]

Object = dict[str, Any]
IDLE = {"GPU_PREEMPTION_ENABLED": "true", "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "1s"}
_PACE_S = 0.01  # between two objects that are submitted
_LOOK_S = 3.0
_QUIET_LOOKS = 15
_MOST_LOOKS = 200
_GIVEN_WAY_S = 0.002
_BUSY = 90.0
_DEVICES = "sim.reprieve.dev/devices"
_NO_JOBS = ("Pod", "PodGroup")


def _kueue(plural: str, kind: str) -> Resource:
    return Resource("kueue.x-k8s.io", "v1beta2", plural, kind, namespaced=False)


def _of_jobs() -> Iterator[Resource]:
    for kind in job_kinds():
        group, _, version = kind.api_version.rpartition("/")
        yield Resource(group, version, kind.plural, kind.kind)


#: What is created here, by API version and kind.
RESOURCES = {
    (each.api_version, each.kind): each
    for each in (
        *_of_jobs(),
        NAMESPACES,
        PODS,
        POD_GROUPS,
        PRIORITY_CLASSES,
        BUDGETS,
        CLUSTER_QUEUES,
        LOCAL_QUEUES,
        ADMISSION_CHECKS,
        _kueue("cohorts", "Cohort"),
        _kueue("resourceflavors", "ResourceFlavor"),
        _kueue("workloadpriorityclasses", "WorkloadPriorityClass"),
        Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False),
        Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
        Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
        Resource("", "v1", "limitranges", "LimitRange"),
        Resource("", "v1", "resourcequotas", "ResourceQuota"),
        Resource("apps", "v1", "replicasets", "ReplicaSet"),
        Resource("batch", "v1", "cronjobs", "CronJob"),
        Resource("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup"),
        Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"),
    )
}
_MOVING = (PODS, POD_GROUPS, JOBS, WORKLOADS, PREEMPTIONS)


@dataclass(frozen=True)
class Drawing:
    """How clusters and what is submitted to them are drawn, for the planes that decide.

    Attributes:
        nodes: of a cluster; one with the label `devices` has so many of gpu.example.com.
        base: what stands in it before anybody submits.
        work: one submission, under a name.
        config: what the operator is told, in the shape of the Helm values.
        idle_at_once: half of what starts is idle from then on, else once the cluster is at rest.
    """

    nodes: Callable[[Random, str], Sequence[NodeSpec]]
    base: Callable[[Random, str], Iterator[Object]]
    work: Callable[[Random, str, str], Sequence[Object]]
    config: Callable[[Random, str], Object] = lambda random, planes: {}
    idle_at_once: bool = False


class NeverAtRest(Exception):
    """Something on a cluster moves on for ever."""


@dataclass
class Playground:
    """A running cluster with its operator, and how it was drawn."""

    random: Random
    planes: str
    drawing: Drawing
    cluster: Site
    nodes: Sequence[NodeSpec]
    config: Path | None

    @property
    def client(self) -> Client:
        return self.cluster.client

    async def ask(self, submitted: Sequence[Object]) -> Answer:
        """Return the plan for what would be submitted."""
        asked = await ask(
            self.cluster.embedded.kubeconfig,
            *submitted,
            controllers=self.planes,
            names=["default-scheduler"],
            namespace=NAMESPACE,
            environment=IDLE if "idle" in self.planes else {},
            config=self.config,
        )
        return asked.answer

    async def submit(
        self, submitted: Sequence[Object], busy: Callable[[], float] = lambda: _BUSY
    ) -> list[ApiError]:
        """Create it as a client does, one after the other; return what is refused.

        `busy`: in percent, of the GPUs of each job.
        """
        refused = []
        for obj in submitted:
            self.set_busy(obj, _BUSY if obj["kind"] in _NO_JOBS else busy())
            try:
                await create(self.client, obj)
            except ApiError as refusal:
                refused.append(refusal)
            await asyncio.sleep(_PACE_S)
        return refused

    def set_busy(self, obj: Object, percent: float) -> None:
        """Say how busy the GPUs of a root owner are from now on."""
        exporter = self.cluster.embedded.machines.exporter
        exporter.set_utilization(Root(NAMESPACE, obj["kind"], obj["metadata"]["name"]), percent)

    def some_are_idle(self, submitted: Sequence[Object]) -> None:
        """Let half of what was submitted be idle from now on, as far as it has GPUs."""
        for obj in submitted:
            if obj["kind"] not in _NO_JOBS:
                self.set_busy(obj, self.random.choice((0.0, _BUSY)))

    async def at_rest(self) -> None:
        """Wait until nothing has moved for as long as a plan waits, and longer.

        Each look goes to the API server, and gives way for a moment of wall time: packets and
        threads that a busy machine is late with come before time moves on.
        """
        seen, quiet = await self._state(), 0
        for _ in range(_MOST_LOOKS):
            if quiet >= _QUIET_LOOKS:
                return
            await asyncio.sleep(_LOOK_S)
            time.sleep(_GIVEN_WAY_S)  # noqa: ASYNC251 - time of the wall
            found = await self._state()
            moved = set(found) ^ set(seen)
            seen, quiet = found, 0 if moved else quiet + 1
        raise NeverAtRest(sorted(moved))

    async def _state(self) -> list[tuple[str, str, str]]:
        """Return what there is with its versions, of the kinds that a decision changes."""
        found = []
        for resource in _MOVING:
            try:
                page = await self.client.list(resource, dict)
            except NotFound:
                continue  # without the quota plane there are no Workloads
            found += [(resource.kind, e["metadata"]["name"], _version(e)) for e in page.items]
        return found

    async def thin_out(self) -> None:
        """Now and then something ends, so that the cluster does not only fill up."""
        if self.random.random() < 0.5:
            return
        for resource in (JOBS, PODS):
            page = await self.client.list(resource, dict, namespace=NAMESPACE)
            names = sorted(
                each["metadata"]["name"]
                for each in page.items
                if not each["metadata"].get("ownerReferences")
                and not (each["spec"].get("schedulingGroup"))
            )
            if names:
                await self.client.delete(resource, NAMESPACE, self.random.choice(names))
        await self.at_rest()


@asynccontextmanager
async def playground(
    folder: Path, random: Random, planes: str, drawing: Drawing
) -> AsyncIterator[Playground]:
    """Start a cluster that is drawn so, with an operator of these planes."""
    nodes = drawing.nodes(random, planes)
    paced = KubeletTimes(apart=MILLISECOND)
    queued = "quota" in planes
    async with site(nodes, folder, kubelet=True, kueue=queued, kubelet_times=paced) as cluster:
        _one_by_one(cluster)
        for each in nodes:
            if count := each.labels.get("devices"):
                found = {"metadata": {"annotations": {_DEVICES: f"gpu.example.com={count}"}}}
                await cluster.client.patch(NODES, "", each.name, found, dict)
        await create(cluster.client, *drawing.base(random, planes))
        said, config = drawing.config(random, planes), None
        if said:
            config = folder / "values.yaml"
            config.write_text(yaml.safe_dump(said))
        exporter = cluster.embedded.machines.exporter
        variables = IDLE if "idle" in planes else {}
        operator = await cluster.operator(
            *("--controllers", planes),
            *(("--config", str(config)) if config else ()),
            environment=variables | {"GPU_PREEMPTION_METRICS_ENDPOINT": exporter.url},
        )
        yield Playground(random, planes, drawing, cluster, nodes, config)
        await operator.stop()


def _version(obj: Object) -> str:
    """Return the version of an object; of one that waits in a queue, without its reasons for it.

    The head of a StrictFIFO queue is refused in turn for what each of its flavors lacks.
    """
    metadata, status = obj["metadata"], obj.get("status") or {}
    if obj.get("kind") != "Workload" and "podSets" not in (obj.get("spec") or {}):
        return str(metadata["uid"] + metadata["resourceVersion"])
    said = sorted((each["type"], each["status"]) for each in status.get("conditions") or ())
    return f"{metadata['uid']} {obj['spec']} {status.get('admission')} {said}"


def _one_by_one(cluster: Site) -> None:
    """Let the machines make pods a millisecond apart, whoever of them does.

    But for those of a queued Job that nobody has suspended yet: its controller, which has no way to
    the API server, makes them before the operator hears of the Job.
    """
    informer, turn = cluster.embedded.machines.informer, asyncio.Lock()
    objects = informer.objects
    inner = objects.create

    def is_made_at_once(pod: Object) -> bool:
        owner = controller_of(pod)
        found = informer.by_uid(owner["uid"]) if owner else None
        if found is None or found[0].resource != "jobs.batch":
            return False
        queued = QUEUE_NAME in (found[1]["metadata"].get("labels") or {})
        return queued and not (found[1].get("status") or {}).get("conditions")

    async def paced(resource: str, obj: Object) -> Object:
        if resource != "pods" or is_made_at_once(obj):
            return await inner(resource, obj)
        async with turn:
            await asyncio.sleep(MILLISECOND / SECOND)
            return await inner(resource, obj)

    objects.create = paced  # type: ignore[method-assign]


async def create(client: Client, *objects: Object) -> None:
    """Create objects, in order."""
    for obj in objects:
        await client.create(RESOURCES[obj["apiVersion"], obj["kind"]], obj, dict)
