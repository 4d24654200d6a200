"""Every kind of the table, and one that a user added, from queued to finished.

All stories are told at once, in one cluster: each has a queue of its own with room for one job at a
time. A job of low priority runs, makes way for one of high priority, waits, and runs again when
that one is over. Where the embedded cluster has no controller for a kind the test plays it: it
writes the status, or makes the pods. Manifests are those of `kinds.yaml`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from reprieve.api.kueue import Workload
from reprieve.intake.quota_workloads import condition_of, is_true
from reprieve.jobs.model import JobKind, Test
from reprieve.jobs.paths import first, put
from reprieve.jobs.table import BUILT_IN, job_kinds
from reprieve.kube.errors import AlreadyExists, Conflict, NotFound
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, PODS, Resource
from reprieve.units.errors import UsageError
from tests.quota_plane.gated_site import CLASS, QUEUE, gated_site
from tests.quota_plane.site import (
    NAMESPACE,
    Object,
    Site,
    cluster_queue,
    flavor,
    local_queue,
    node,
    priority_class,
)

OWN = {
    "apiVersion": "science.example/v1",
    "kind": "Simulation",
    "plural": "simulations",
    "framework": "science.example/simulation",
    "suspend": "spec.paused",
    "podSets": [
        {"template": "spec.solver.template", "name": "solver", "counts": [["spec.solver.size"]]}
    ],
    "succeeded": [{"field": "status.phase", "values": ["Done"]}],
    "failed": [{"field": "status.phase", "values": ["Broken"]}],
    "ready": [{"field": "status.phase", "values": ["Running"]}],
    "active": [{"positive": ["status.pods"]}],
}
ROWS = {kind.kind: kind for kind in job_kinds([OWN])}
LOWER = {"withinClusterQueue": "LowerPriority"}
PATIENCE_S, LOOK_S = 60.0, 0.1
GROUP, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
RUNTIME = Resource(
    "trainer.kubeflow.org",
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    namespaced=False,
)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
NOTEBOOKS = Resource("kubeflow.org", "v1", "notebooks", "Notebook")
MANIFESTS = {
    each["kind"]: each
    for each in yaml.safe_load_all(
        (Path(__file__).parent / "kinds.yaml").read_text(encoding="utf-8")
    )
}
#: What is told, and by which story: the kinds of the table, a group of pods, and a Notebook.
TOLD = [*sorted(ROWS), "Group", "Notebook"]


# One story


class Story:
    """One kind's jobs in their queue; this one is of kinds with a suspend field."""

    finishes = True

    def __init__(self, cluster: Site, kind: JobKind) -> None:
        self.cluster = cluster
        self.kind = kind
        self.queue = f"q-{kind.kind.lower()}"
        self.resource = resource(kind)

    async def create(self, name: str, priority: str) -> None:
        await self.cluster.client.create(self.resource, self.manifest(name, priority), dict)

    def manifest(self, name: str, priority: str) -> Object:
        obj = manifest(self.kind.kind, name)
        obj["metadata"]["labels"] = {QUEUE: self.queue, CLASS: priority}
        return obj

    async def read(self, name: str) -> Object:
        found: Object = await self.cluster.client.get(self.resource, NAMESPACE, name, dict)
        return found

    async def runs(self, name: str) -> bool:
        workload = self.workload(name)
        if workload is None or not true(workload, "Admitted"):
            return False
        return first(await self.read(name), self.kind.suspend) is False

    async def started(self, name: str) -> None:
        """Play the kind's controller: there are pods."""
        await self.set_status(name, state_of(self.kind.active, on=True))

    async def stopped(self, name: str) -> bool:
        return first(await self.read(name), self.kind.suspend) is True

    async def released(self, name: str) -> None:
        """Play the kind's controller: the pods are gone."""
        await self.set_status(name, state_of(self.kind.active, on=False))

    async def over(self, name: str) -> None:
        if not self.kind.succeeded:
            await self.cluster.client.delete(self.resource, NAMESPACE, name)
        else:
            await self.set_status(name, state_of(self.kind.succeeded, on=True))

    async def waits(self, name: str) -> bool:
        workload = self.workload(name)
        return workload is not None and workload.status.admission is None

    async def set_status(self, name: str, status: Object) -> None:
        await self.cluster.client.patch_status(self.resource, NAMESPACE, name, status, dict)

    def workload(self, name: str) -> Workload | None:
        """Return the job's Workload, the newest of several."""
        assert self.cluster.plane is not None
        found = [
            each
            for each in self.cluster.plane.state.workloads()
            if self.is_of(name, each) and not true(each, "Finished")
        ]
        return max(found, key=lambda each: each.metadata.creation_timestamp or "", default=None)

    def is_of(self, name: str, workload: Workload) -> bool:
        return workload.metadata.name.startswith(f"{self.kind.kind.lower()}-{name}-")

    def victim(self, name: str) -> Workload | None:
        return self.workload(name)

    async def tell(self) -> None:
        """Tell the whole story; low and high are of one kind."""
        stem = self.queue.removeprefix("q-")
        low, high = f"{stem}-low", f"{stem}-high"
        await self.create(low, "low")
        await self.until(f"{low} runs", lambda: self.runs(low))
        await self.started(low)
        victim = self.victim(low)
        assert victim is not None
        await self.create(high, "high")
        await self.until(f"{low} is stopped", lambda: self.stopped(low))
        await self.check_marks(victim)
        await self.released(low)
        await self.until(f"{high} runs", lambda: self.runs(high))
        await self.until(f"{low} waits", lambda: self.waits(low))
        await self.check_requeued(low, victim)
        ended = self.workload(high)
        assert ended is not None
        await self.over(high)
        await self.until(f"{low} runs again", lambda: self.runs(low))
        if self.kind.succeeded:
            await self.until(f"{high} is finished", lambda: self.is_finished(ended, "Succeeded"))

    async def check_marks(self, victim: Workload) -> None:
        """The victim's marks; it holds its quota until its pods are gone."""
        said = await self.conditions(victim)
        assert said["QuotaReserved"][0] == "True"
        assert said["Preempted"] == ("True", "InClusterQueue")
        assert said["Evicted"] == ("True", "Preempted")

    async def check_requeued(self, name: str, victim: Workload) -> None:
        assert (await self.conditions(victim))["Requeued"] == ("True", "Preempted")

    async def is_finished(self, workload: Workload, reason: str) -> bool:
        return (await self.conditions(workload)).get("Finished") == ("True", reason)

    async def conditions(self, workload: Workload) -> dict[str, tuple[str, str]]:
        name = workload.metadata.name
        try:
            page = await self.cluster.client.get(WORKLOADS, NAMESPACE, name, dict)
        except NotFound:
            return {}
        said = first(page, "status.conditions") or ()
        return {each["type"]: (each["status"], each["reason"]) for each in said}

    async def until(self, what: str, holds: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while not await holds():
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"{what} never held\n{await self.cluster._all()}")
            await asyncio.sleep(LOOK_S)


class BatchJob(Story):
    """The embedded cluster runs Jobs."""

    async def started(self, name: str) -> None:
        pass

    async def runs(self, name: str) -> bool:
        pods = await self.pods(name)
        return len(pods) == 2 and all(first(each, "status.phase") == "Running" for each in pods)

    async def released(self, name: str) -> None:
        pass

    async def check_marks(self, victim: Workload) -> None:
        assert (await self.conditions(victim))["Evicted"] == ("True", "Preempted")

    async def over(self, name: str) -> None:
        for each in await self.pods(name):
            await succeed(self.cluster, each)

    async def pods(self, name: str) -> list[Object]:
        return await pods_labelled(self.cluster, f"batch.kubernetes.io/job-name={name}")


class Gated(Story):
    """Kinds whose pods are gated; `selector` tells the pods of one object."""

    count, remade = 1, 1
    selector = "app={name}"

    async def started(self, name: str) -> None:
        pass

    async def released(self, name: str) -> None:
        pass

    async def pods(self, name: str) -> list[Object]:
        return await pods_labelled(self.cluster, self.selector.format(name=name))

    async def runs(self, name: str) -> bool:
        pods = [each for each in await self.pods(name) if not leaving(each)]
        return len(pods) == self.count and all(
            first(each, "status.phase") == "Running" for each in pods
        )

    async def stopped(self, name: str) -> bool:
        """Those that ran are gone, or on their way; what came in their place is gated."""
        return all(leaving(each) or is_gated(each) for each in await self.pods(name))

    async def waits(self, name: str) -> bool:
        pods = await self.pods(name)
        gated = len(pods) >= self.remade and all(is_gated(each) for each in pods)
        return gated and await super().waits(name)

    async def check_marks(self, victim: Workload) -> None:
        assert (await self.conditions(victim))["Evicted"] == ("True", "Preempted")


class LonePods(Gated):
    """Each pod is a workload of its own, which ends with it; another pod is another workload."""

    def is_of(self, name: str, workload: Workload) -> bool:
        return workload.metadata.name.startswith(f"pod-{name}-")

    async def check_requeued(self, name: str, victim: Workload) -> None:
        said = await self.conditions(victim)
        assert said.get("Requeued", ("False", "Preempted")) == ("False", "Preempted")

    async def waits(self, name: str) -> bool:
        """Another pod is gated, and has a Workload of its own."""
        assert self.cluster.plane is not None
        uids = {each["metadata"]["uid"] for each in await self.pods(name) if is_gated(each)}
        return any(
            owner.uid in uids and each.status.admission is None
            for each in self.cluster.plane.state.workloads()
            for owner in each.metadata.owner_references or ()
        )


class OnePod(LonePods):
    """A bare pod is lost: the test makes it again, as whoever made it would."""

    selector = "pod={name}"

    def manifest(self, name: str, priority: str) -> Object:
        obj = super().manifest(name, priority)
        obj["metadata"]["labels"]["pod"] = name
        return obj

    async def released(self, name: str) -> None:
        await make_again(self.cluster, self.manifest(name, "low"))

    async def over(self, name: str) -> None:
        for each in await self.pods(name):
            await succeed(self.cluster, each)


class Deployed(LonePods):
    """A Deployment; its ReplicaSet makes another pod for one that is lost."""

    finishes = False

    async def over(self, name: str) -> None:
        await self.cluster.client.delete(self.resource, NAMESPACE, name)


class Notebook(LonePods):
    """Its controller, which the test plays, hands its labels to the pods of a StatefulSet."""

    def __init__(self, cluster: Site) -> None:
        super().__init__(cluster, ROWS["Pod"])
        self.queue = "q-notebook"

    async def create(self, name: str, priority: str) -> None:
        notebook = manifest("Notebook", name)
        labels = {QUEUE: self.queue, CLASS: priority}
        notebook["metadata"]["labels"] = labels
        await self.cluster.client.create(NOTEBOOKS, notebook, dict)
        template = {
            "metadata": {"labels": {**labels, "app": name}},
            "spec": notebook["spec"]["template"]["spec"],
        }
        spec = {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        }
        await self.cluster.client.create(
            STATEFUL_SETS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}, dict
        )

    async def over(self, name: str) -> None:
        await self.cluster.client.delete(STATEFUL_SETS, NAMESPACE, name)

    async def tell(self) -> None:
        await self._told("notebook-low", "notebook-high")

    async def _told(self, low: str, high: str) -> None:
        await self.create(low, "low")
        await self.until(f"{low} runs", lambda: self.runs(low))
        victim = self.victim(low)
        assert victim is not None
        await self.create(high, "high")
        await self.until(f"{high} runs", lambda: self.runs(high))
        await self.until(f"{low} waits", lambda: self.waits(low))
        await self.check_requeued(low, victim)
        await self.over(high)
        await self.until(f"{low} runs again", lambda: self.runs(low))


class Group(Gated):
    """Two pods that are one workload; who made them makes them again."""

    count = remade = 2
    selector = GROUP + "={name}"

    def __init__(self, cluster: Site) -> None:
        super().__init__(cluster, ROWS["Pod"])
        self.queue = "q-group"

    def is_of(self, name: str, workload: Workload) -> bool:
        return workload.metadata.name == name

    def members(self, name: str, priority: str) -> list[Object]:
        found = []
        for index in range(self.count):
            obj = super().manifest(f"{name}-{index}", priority)
            obj["metadata"]["labels"][GROUP] = name
            obj["metadata"]["annotations"] = {TOTAL: str(self.count)}
            obj["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
            found.append(obj)
        return found

    async def create(self, name: str, priority: str) -> None:
        for obj in self.members(name, priority):
            await self.cluster.client.create(PODS, obj, dict)

    async def released(self, name: str) -> None:
        # Deleted members stay until others of their role are there, under other names.
        for obj in self.members(name, "low"):
            obj["metadata"]["name"] += "-again"
            await make_again(self.cluster, obj)

    async def over(self, name: str) -> None:
        for each in await self.pods(name):
            await succeed(self.cluster, each)

    async def check_requeued(self, name: str, victim: Workload) -> None:
        await super().check_requeued(name, victim)
        said = await self.conditions(victim)
        assert said["WaitingForReplacementPods"] == ("False", "PodsReady")


class Replicas(Gated):
    """A StatefulSet; its pods are a group that never ends, and are made one after the other."""

    count = 2

    async def over(self, name: str) -> None:
        await self.cluster.client.delete(self.resource, NAMESPACE, name)


class LeaderAndWorkers(Gated):
    """The test makes the pods of the groups, as their StatefulSets would."""

    count = remade = 2
    selector = "leaderworkerset.sigs.k8s.io/name={name}"

    async def create(self, name: str, priority: str) -> None:
        await super().create(name, priority)
        await self.make_pods(name)

    async def make_pods(self, name: str) -> None:
        made = await self.read(name)
        whole = made["spec"]["leaderWorkerTemplate"]
        for role, template in (("leader", "leaderTemplate"), ("worker", "workerTemplate")):
            obj: Object = {
                "apiVersion": "v1",
                "kind": "Pod",
                **copy.deepcopy(whole[template]),
            }
            metadata = obj.setdefault("metadata", {})
            metadata |= {"name": f"{name}-0" + ("-1" if role == "worker" else "")}
            metadata["namespace"] = NAMESPACE
            metadata["labels"] = {
                **metadata.get("labels", {}),
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/group-index": "0",
            }
            if role == "worker":
                notes = {"leaderworkerset.sigs.k8s.io/leader-name": f"{name}-0"}
                metadata["annotations"] = {**metadata["annotations"], **notes}
            await make_again(self.cluster, obj)

    async def released(self, name: str) -> None:
        await self.make_pods(name)

    async def over(self, name: str) -> None:
        await self.cluster.client.delete(self.resource, NAMESPACE, name)

    def is_of(self, name: str, workload: Workload) -> bool:
        return workload.metadata.name.startswith(f"leaderworkerset-{name}-0-")


def story(name: str, cluster: Site) -> Story:
    if name in ("Group", "Notebook"):
        return {"Group": Group, "Notebook": Notebook}[name](cluster)
    special = {
        "Job": BatchJob,
        "Pod": OnePod,
        "Deployment": Deployed,
        "StatefulSet": Replicas,
        "LeaderWorkerSet": LeaderAndWorkers,
    }
    return special.get(name, Story)(cluster, ROWS[name])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    queues = [f"q-{name.lower()}" for name in TOLD]
    objects = [flavor(), priority_class("low", 100), priority_class("high", 10000)]
    objects += [cluster_queue(f"c{name}", 2, preemption=LOWER) for name in queues]
    objects += [local_queue(name, f"c{name}") for name in queues]
    async with gated_site(
        tmp_path_factory.mktemp("kinds"),
        *objects,
        kinds=tuple(ROWS.values()),
        nodes=[node("node-0", cpu=200)],
        without=("children",),
        prepare=prepare,
    ) as cluster:
        tasks = {name: asyncio.create_task(story(name, cluster).tell()) for name in TOLD}
        yield tasks
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", TOLD)
async def test_a_kind_is_queued_admitted_preempted_requeued_and_finished(
    name: str, stories: dict[str, asyncio.Task[None]]
) -> None:
    await stories[name]


def test_every_kind_of_the_table_has_a_story() -> None:
    assert {kind.kind for kind in BUILT_IN} < set(TOLD)
    assert set(MANIFESTS) == set(TOLD) - {"Group"}


def test_a_row_that_cannot_be_read_is_refused_with_its_place() -> None:
    with pytest.raises(UsageError, match=r"quota.jobKinds\[0\]: .*colour"):
        job_kinds([{**OWN, "colour": "red"}])
    assert len(job_kinds([OWN])) == len(BUILT_IN) + 1


# The cluster around the stories


async def prepare(cluster: Site) -> None:
    """Serve all kinds, and the runtime of the TrainJobs."""
    builtin = {"batch", "apps", ""}
    rows = [kind for kind in ROWS.values() if kind.group not in builtin]
    wanted = [definition(resource(kind)) for kind in rows]
    wanted += [definition(RUNTIME), definition(NOTEBOOKS)]
    for each in wanted:
        try:
            await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, each, dict)
        except AlreadyExists:
            continue
    container = {"name": "node", "image": "example.org/app:1"}
    job = {
        "name": "node",
        "replicas": 1,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }
    runtime = {
        "metadata": {"name": "torch-distributed"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }
    for _ in range(100):
        try:
            await cluster.client.create(RUNTIME, runtime, dict)
        except NotFound:
            await asyncio.sleep(LOOK_S)
        else:
            return


def definition(of: Resource) -> Object:
    """Return a definition that takes any object of a kind."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": of.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"plural": of.plural, "kind": of.kind, "singular": of.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": of.qualified},
        "spec": {
            "group": of.group,
            "scope": "Namespaced" if of.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }


def resource(kind: JobKind) -> Resource:
    group, _, version = kind.api_version.rpartition("/")
    return Resource(group, version, kind.plural, kind.kind)


WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")


def manifest(kind: str, name: str) -> Object:
    """Return the kind's manifest under this name."""
    text = yaml.safe_dump(MANIFESTS[kind]).replace("NAME", name)
    obj: Object = yaml.safe_load(text)
    obj["metadata"]["namespace"] = NAMESPACE
    return obj


def state_of(tests: list[Test], *, on: bool) -> Object:
    """Return a status in which the first test holds, or does not."""
    obj: Object = {}
    test: Test | None = tests[0]
    while test is not None:
        if test.condition:
            status = "True" if on else "False"
            condition = {"type": test.condition, "status": status, "message": "the end"}
            put(obj, "status.conditions", [condition])
        if test.field:
            put(obj, test.field, (test.values or ["Running"])[0] if on else "Suspended")
        for path in (test.reaches.sum if test.reaches else test.positive)[:1]:
            _put_below(obj, path, 1 if on else 0)
        test = test.also
    found: Object = obj["status"]
    return found


def _put_below(obj: Object, path: str, value: int) -> None:
    """Write at a path whose `*` is a map or a list of one item."""
    head, star, rest = path.partition(".*.")
    if not star:
        put(obj, path, value)
    elif "replicaStatuses" in head:
        put(obj, head, {"Worker": {rest: value}})
    else:
        put(obj, head, [{"name": "part", rest: value}])


async def pods_labelled(cluster: Site, selector: str) -> list[Object]:
    page = await cluster.client.list(PODS, dict, namespace=NAMESPACE, label_selector=selector)
    return page.items


async def succeed(cluster: Site, pod: Object) -> None:
    name = pod["metadata"]["name"]
    await cluster.client.patch_status(PODS, NAMESPACE, name, {"phase": "Succeeded"}, dict)


async def make_again(cluster: Site, obj: Object) -> None:
    """Create a pod as soon as its name is free."""
    for _ in range(int(PATIENCE_S / LOOK_S)):
        try:
            await cluster.client.create(PODS, obj, dict)
        except (AlreadyExists, Conflict):
            await asyncio.sleep(LOOK_S)
        else:
            return
    raise AssertionError(f"{obj['metadata']['name']} is still there")


def leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_gated(pod: Object) -> bool:
    return bool(first(pod, "spec.schedulingGates"))


def true(workload: Workload, kind: str) -> bool:
    return is_true(condition_of(workload.status.conditions, kind))
