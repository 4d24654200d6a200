"""Stories of one kind of job each: queued, admitted, preempted, requeued, finished.

A job of low priority runs, is preempted for one of high priority, waits, and runs again when that
one is over. Where the embedded cluster has no controller for a kind the story plays it: it writes
the status, or makes the pods. Manifests are those of `kinds.yaml`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import yaml

from kubeworld.objects.paths import first, set_at
from reprieve.api.kueue import Workload
from reprieve.intake.quota_workloads import condition_of, is_true
from reprieve.jobs.model import JobKind, Test
from reprieve.jobs.table import job_kinds
from reprieve.kube.errors import AlreadyExists, Conflict, NotFound
from reprieve.kube.resource import PODS, Resource
from tests.quota_plane.gated_site import CLASS, QUEUE
from tests.quota_plane.site import NAMESPACE, WORKLOADS, Object, Site

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
PATIENCE_S, LOOK_S = 180.0, 0.2
GROUP, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
NOTEBOOKS = Resource("kubeflow.org", "v1", "notebooks", "Notebook")
MANIFESTS = {
    each["kind"]: each
    for each in yaml.safe_load_all(
        (Path(__file__).parent / "kinds.yaml").read_text(encoding="utf-8")
    )
}


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


def resource(kind: JobKind) -> Resource:
    group, _, version = kind.api_version.rpartition("/")
    return Resource(group, version, kind.plural, kind.kind)


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
            set_at(obj, "status.conditions", [condition])
        if test.field:
            set_at(obj, test.field, (test.values or ["Running"])[0] if on else "Suspended")
        for path in (test.reaches.sum if test.reaches else test.positive)[:1]:
            _put_below(obj, path, 1 if on else 0)
        test = test.also
    found: Object = obj["status"]
    return found


def _put_below(obj: Object, path: str, value: int) -> None:
    """Write at a path whose `*` is a map or a list of one item."""
    head, star, rest = path.partition(".*.")
    if not star:
        set_at(obj, path, value)
    elif "replicaStatuses" in head:
        set_at(obj, head, {"Worker": {rest: value}})
    else:
        set_at(obj, head, [{"name": "part", rest: value}])


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
