"""Turns in the lives of queued jobs and pods, all told at once in one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from reprieve.jobs.paths import first
from reprieve.kube.errors import AlreadyExists, NotFound
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, PODS, Resource
from tests.quota_plane.gated_site import CLASS, QUEUE, gated_site
from tests.quota_plane.kind_stories import (
    GROUP,
    LOOK_S,
    PATIENCE_S,
    ROWS,
    STATEFUL_SETS,
    TOTAL,
    definition,
    leaving,
    manifest,
    pods_labelled,
    resource,
    succeed,
)
from tests.quota_plane.site import (
    JOBS,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    priority_class,
)

LOWER = {"withinClusterQueue": "LowerPriority"}
PREFIX = "kueue.x-k8s.io/"
FOO = Resource("example.com", "v1", "foos", "Foo")
Conditions = dict[str, tuple[str, str, str]]


class Life:
    """One turn, in a queue of its own with 2 cpus."""

    def __init__(self, cluster: Site, name: str) -> None:
        self.cluster, self.client = cluster, cluster.client
        self.name, self.queue = name, f"q-{name}"

    async def tell(self) -> None:
        raise NotImplementedError

    async def until(self, what: str, holds: Callable[[], Awaitable[object]]) -> None:
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while not await holds():
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"{what} never held\n{await self.cluster._all()}")
            await asyncio.sleep(LOOK_S)

    def job(self, name: str, priority: str = "low", **more: Any) -> Object:
        return job(f"{self.name}-{name}", self.queue, priority=priority, **more)

    def pod(self, name: str, priority: str = "low", cpu: str = "2", **metadata: Any) -> Object:
        obj = manifest("Pod", f"{self.name}-{name}")
        labels = {QUEUE: self.queue, CLASS: priority, "life": self.name}
        obj["metadata"] |= {"labels": {**labels, **metadata.pop("labels", {})}, **metadata}
        obj["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        return obj

    async def pods(self) -> dict[str, Object]:
        """Return the pods of this life by the end of their names."""
        found = await pods_labelled(self.cluster, f"life={self.name}")
        return {each["metadata"]["name"].removeprefix(f"{self.name}-"): each for each in found}

    async def phases(self) -> dict[str, str]:
        return {
            name: "leaving" if leaving(each) else str(first(each, "status.phase"))
            for name, each in (await self.pods()).items()
        }

    async def job_pods(self, name: str) -> list[Object]:
        found = await pods_labelled(
            self.cluster, f"batch.kubernetes.io/job-name={self.name}-{name}"
        )
        return [each for each in found if first(each, "status.phase") == "Running"]

    async def read(self, of: Resource, name: str) -> Object | None:
        try:
            found: Object = await self.client.get(of, NAMESPACE, name, dict)
        except NotFound:
            return None
        return found

    async def workload(self, stem: str) -> Object | None:
        """Return the Workload with this name, or this beginning of it."""
        page = await self.client.list(WORKLOADS, dict, namespace=NAMESPACE)
        found = [
            each
            for each in page.items
            if each["metadata"]["name"] == stem or each["metadata"]["name"].startswith(f"{stem}-")
        ]
        return found[-1] if found else None

    async def conditions(self, stem: str) -> Conditions:
        said = first(await self.workload(stem), "status.conditions") or ()
        return {each["type"]: (each["status"], each["reason"], each["message"]) for each in said}

    async def told(self, kind: str, name: str, reason: str, message: str) -> None:
        """Wait for an event about one object, whose message contains this."""

        async def holds() -> bool:
            about = await self.events(kind, name)
            return any(each == reason and message in text for each, text in about)

        await self.until(f"{reason} of {kind} {name}", holds)

    async def events(self, kind: str, name: str) -> set[tuple[str, str]]:
        """Return reasons and messages of the events about one object."""
        return {
            (reason, message)
            for about, named, _, reason, message in await self.cluster.events()
            if (about, named) == (kind, name)
        }


class APodIsMarkedWhenItIsEnded(Life):
    """A lone pod's end is told on the pod, and on the Workload that ends with it."""

    async def tell(self) -> None:
        await self.client.create(PODS, self.pod("low", finalizers=["example.org/kept"]), dict)

        async def runs() -> bool:
            return (await self.phases()) == {"low": "Running"}

        await self.until("the pod runs", runs)
        stem = f"pod-{self.name}-low"
        await self.client.create(PODS, self.pod("high", "high"), dict)

        async def marked() -> bool:
            low = (await self.pods())["low"]
            # What is left of it is kept by another's finalizer alone.
            return leaving(low) and low["metadata"]["finalizers"] == ["example.org/kept"]

        await self.until("the pod is marked", marked)
        said = await self.conditions(stem)
        low = (await self.pods())["low"]
        (mark,) = (
            each for each in low["status"]["conditions"] if each["type"] == "TerminationTarget"
        )
        assert (mark["status"], mark["reason"]) == ("True", "WorkloadEvictedDueToPreempted")
        assert mark["message"] == said["Evicted"][2]
        managers = {
            each["manager"]
            for each in low["metadata"]["managedFields"]
            if "TerminationTarget" in str(each)
        }
        assert managers == {"kueue"}
        assert said["Requeued"][:2] == ("False", "Preempted")
        await self.told("Pod", f"{self.name}-low", "Stopped", mark["message"])
        name = (await self.workload(stem) or {})["metadata"]["name"]
        await self.client.modify(PODS, NAMESPACE, f"{self.name}-low", unfinalized)

        await self.told("Workload", name, "FinishedWorkload", "its pod is gone")


class AGroupIsKeptAtItsSize(Life):
    """One too many goes, a failed one is made up for, and all end with the Workload."""

    def member(self, name: str) -> Object:
        labels = {GROUP: self.name}
        return self.pod(name, cpu="500m", labels=labels, annotations={TOTAL: "3"})

    async def tell(self) -> None:
        for name in "abcd":
            await self.client.create(PODS, self.member(name), dict)

        async def runs() -> bool:
            return list((await self.phases()).values()) == ["Running"] * 3

        await self.until("three run", runs)
        left = set("abcd") - set(await self.pods())
        (gone,) = left
        await self.told("Pod", f"{self.name}-{gone}", "ExcessPodDeleted", "Excess pod deleted")
        first_one = min(await self.pods())
        await self.client.patch_status(
            PODS, NAMESPACE, f"{self.name}-{first_one}", {"phase": "Failed"}, dict
        )

        async def waits() -> bool:
            said = await self.conditions(self.name)
            return said.get("WaitingForReplacementPods", ("",))[0] == "True"

        await self.until("one is missing", waits)
        said = (await self.conditions(self.name))["WaitingForReplacementPods"]
        assert said == ("True", "PodsFailed", "Some Failed pods need replacement")
        assert (await self.pods())[first_one]["metadata"]["finalizers"]
        await self.client.create(PODS, self.member("e"), dict)

        async def complete() -> bool:
            said = await self.conditions(self.name)
            failed = (await self.pods())[first_one]
            return said["WaitingForReplacementPods"] == (
                "False",
                "PodsReady",
                "No pods need replacement",
            ) and not failed["metadata"].get("finalizers")

        await self.until("none is missing", complete)
        workload = await self.workload(self.name)
        assert workload is not None
        owners = {each["name"] for each in workload["metadata"]["ownerReferences"]}
        assert f"{self.name}-e" in owners
        await self.client.delete(WORKLOADS, NAMESPACE, self.name)

        async def ended() -> bool:
            return await self.pods() == {} and await self.workload(self.name) is None

        await self.until("all have ended", ended)


class ASetIsHeldWithoutReplicas(Life):
    """Scaled to nothing a StatefulSet holds no quota; scaled up it waits for it again."""

    async def tell(self) -> None:
        obj = manifest("StatefulSet", self.name)
        obj["metadata"]["labels"] = {QUEUE: self.queue, CLASS: "low"}
        obj["spec"]["replicas"] = 1
        obj["spec"]["template"]["metadata"]["labels"]["life"] = self.name
        await self.client.create(STATEFUL_SETS, obj, dict)
        stem = f"statefulset-{self.name}"

        async def runs() -> bool:
            return list((await self.phases()).values()) == ["Running"]

        await self.until("it runs", runs)
        ((pod),) = (await self.pods()).values()
        notes, name = pod["metadata"]["annotations"], (await self.workload(stem) or {})
        assert notes[GROUP] == notes[f"{PREFIX}prebuilt-workload-name"] == name["metadata"]["name"]
        assert (notes[TOTAL], notes[f"{PREFIX}role-hash"]) == ("1", "main")
        await self.client.patch_scale(STATEFUL_SETS, NAMESPACE, self.name, 0)

        async def held() -> bool:
            workload = await self.workload(stem)
            said = (await self.conditions(stem))["QuotaReserved"]
            return said == (
                "False",
                "OnHold",
                "StatefulSet scaled to zero; workload on hold",
            ) and not first(workload, "status.admission")

        await self.until("it is on hold", held)
        await self.client.patch_scale(STATEFUL_SETS, NAMESPACE, self.name, 1)
        await self.until("it runs again", runs)


class JobsBelowAQueuedOneAreNotQueued(Life):
    """One Workload for a JobSet and its Jobs; KaiwoJobs do not stand above their Job."""

    async def tell(self) -> None:
        above = manifest("JobSet", f"{self.name}-set")
        above["metadata"]["labels"] = {QUEUE: self.queue, CLASS: "low"}
        stored: Object = await self.client.create(resource(ROWS["JobSet"]), above, dict)

        async def seen() -> bool:
            return await self.workload(f"jobset-{self.name}-set") is not None

        # Children come once their owner has started; at the door it is known by then.
        await self.until("the JobSet is queued", seen)
        other = {"metadata": {"name": f"{self.name}-foo", "namespace": NAMESPACE}, "spec": {}}
        other["metadata"]["labels"] = {QUEUE: self.queue}  # type: ignore[assignment]
        external: Object = await self.client.create(FOO, other, dict)
        kaiwo = {"metadata": {"name": f"{self.name}-kaiwo", "namespace": NAMESPACE}, "spec": {}}
        kaiwo["metadata"]["labels"] = {QUEUE: self.queue}  # type: ignore[assignment]
        wrapper: Object = await self.client.create(KAIWO, kaiwo, dict)
        for name, owner in (("a", stored), ("b", external), ("c", wrapper)):
            child = self.job(name, cpu="500m", suspend=False, pods=1)
            metadata = owner["metadata"]
            child["metadata"]["ownerReferences"] = [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ]
            await self.client.create(JOBS, child, dict)

        async def queued() -> bool:
            return await self.workload(f"job-{self.name}-c") is not None

        await self.until("the wrapped Job is queued", queued)

        async def settled() -> bool:
            """The JobSet fills the queue, so that its own Job runs; nothing stands for Foo."""
            states = [
                first(await self.read(JOBS, f"{self.name}-{name}"), "spec.suspend")
                for name in "abc"
            ]
            return states == [False, True, True]

        await self.until("each follows its owner", settled)
        for name in "ab":
            assert await self.workload(f"job-{self.name}-{name}") is None
        text = "Kueue managed child job suspended"
        await self.told("Job", f"{self.name}-b", "Suspended", text)


class AJobRunsWithFewerPods(Life):
    """Partial admission: the count goes down at the start, and is put back at the stop."""

    async def tell(self) -> None:
        notes = {f"{PREFIX}job-min-parallelism": "1"}
        await self.client.create(JOBS, self.job("low", pods=4, annotations=notes), dict)

        async def runs() -> bool:
            return len(await self.job_pods("low")) == 2

        await self.until("two of four run", runs)
        found = await self.read(JOBS, f"{self.name}-low") or {}
        assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (2, 4)
        await self.client.create(JOBS, self.job("high", "high", pods=2), dict)

        async def restored() -> bool:
            found = await self.read(JOBS, f"{self.name}-low") or {}
            spec = found["spec"]
            return spec["suspend"] and spec["parallelism"] == 4 and not is_told(found)

        await self.until("the count is put back", restored)

        async def over() -> bool:
            return len(await self.job_pods("high")) == 2

        await self.until("the other one runs", over)
        for each in await self.job_pods("high"):
            await succeed(self.cluster, each)

        async def again() -> bool:
            return len(await self.job_pods("low")) >= 1

        # As soon as one pod of the other has ended there is room for one.
        await self.until("it runs again", again)


class AJobThatIsChangedIsQueuedAnew(Life):
    """A running job that asks for something else is stopped, and gets another Workload."""

    async def tell(self) -> None:
        await self.client.create(JOBS, self.job("low", pods=2), dict)

        async def runs(count: int) -> bool:
            return len(await self.job_pods("low")) == count

        await self.until("both run", lambda: runs(2))
        before = await self.workload(f"job-{self.name}-low")
        name = f"{self.name}-low"
        await self.client.patch(JOBS, NAMESPACE, name, {"spec": {"parallelism": 1}}, dict)

        async def anew() -> bool:
            after = await self.workload(f"job-{self.name}-low")
            if after is None or before is None:
                return False
            other = after["metadata"]["uid"] != before["metadata"]["uid"]
            return other and after["spec"]["podSets"][0]["count"] == 1 and await runs(1)

        await self.until("one runs for another Workload", anew)
        await self.told("Job", name, "Stopped", "No matching Workload")
        await self.told("Job", name, "DeletedWorkload", "Deleted not matching Workload")


class PodsThatHaveEndedMakeRoom(Life):
    """What a job will not start any more is free for another."""

    async def tell(self) -> None:
        await self.client.create(JOBS, self.job("low", pods=2), dict)

        async def runs(name: str, count: int) -> bool:
            return len(await self.job_pods(name)) == count

        await self.until("both run", lambda: runs("low", 2))
        await self.client.create(JOBS, self.job("next", pods=1), dict)
        await succeed(self.cluster, (await self.job_pods("low"))[0])
        await self.until("the next one runs", lambda: runs("next", 1))
        workload = await self.workload(f"job-{self.name}-low")
        assert first(workload, "status.reclaimablePods") == [{"name": "main", "count": 1}]
        assert await runs("low", 1)


class AJobLosesItsWorkload(Life):
    """A deleted Workload stops its job, which is queued anew."""

    async def tell(self) -> None:
        await self.client.create(JOBS, self.job("low", pods=1), dict)

        async def runs() -> bool:
            return len(await self.job_pods("low")) == 1

        await self.until("it runs", runs)
        before = await self.workload(f"job-{self.name}-low") or {}
        await self.client.delete(WORKLOADS, NAMESPACE, before["metadata"]["name"])

        async def anew() -> bool:
            after = await self.workload(f"job-{self.name}-low")
            if after is None or after["metadata"]["uid"] == before["metadata"]["uid"]:
                return False
            return await runs()

        await self.until("it runs for another Workload", anew)
        await self.told("Job", f"{self.name}-low", "Stopped", "Workload is deleted")


class AJobTakesTheWorkloadThatItNames(Life):
    """A job that names its Workload waits for it, owns it and runs with its quota."""

    async def tell(self) -> None:
        wanted = self.job("low", pods=1)
        wanted["metadata"]["labels"][f"{PREFIX}prebuilt-workload-name"] = self.name
        stored: Object = await self.client.create(JOBS, wanted, dict)
        template = {"spec": stored["spec"]["template"]["spec"]}
        pod_set = {"name": "main", "count": 1, "template": template}
        made = {
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {"queueName": self.queue, "podSets": [pod_set], "priority": 0},
        }
        await self.client.create(WORKLOADS, made, dict)

        async def runs() -> bool:
            return len(await self.job_pods("low")) == 1

        await self.until("it runs", runs)
        workload = await self.workload(self.name) or {}
        (owner,) = workload["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (stored["metadata"]["uid"], True)
        page = await self.client.list(WORKLOADS, dict, namespace=NAMESPACE)
        assert not [each for each in page.items if f"job-{self.name}" in str(each["metadata"])]


class AJobThatIsRefusedHoldsNoQuota(Life):
    """A RayJob that its controller finds invalid waits on hold."""

    async def tell(self) -> None:
        ray = resource(ROWS["RayJob"])
        obj = manifest("RayJob", self.name)
        obj["metadata"]["labels"] = {QUEUE: self.queue, CLASS: "low"}
        await self.client.create(ray, obj, dict)

        async def runs() -> bool:
            return first(await self.read(ray, self.name), "spec.suspend") is False

        await self.until("it runs", runs)
        status = {"jobDeploymentStatus": "ValidationFailed"}
        await self.client.patch_status(ray, NAMESPACE, self.name, status, dict)

        async def held() -> bool:
            said = (await self.conditions(f"rayjob-{self.name}"))["QuotaReserved"]
            return said == ("False", "OnHold", "Job is on hold")

        await self.until("it is on hold", held)
        status = {"jobDeploymentStatus": "Suspended"}
        await self.client.patch_status(ray, NAMESPACE, self.name, status, dict)
        await self.until("it runs again", runs)


LIVES: dict[str, type[Life]] = {
    each.__name__: each
    for each in (
        APodIsMarkedWhenItIsEnded,
        AGroupIsKeptAtItsSize,
        ASetIsHeldWithoutReplicas,
        JobsBelowAQueuedOneAreNotQueued,
        AJobRunsWithFewerPods,
        AJobThatIsChangedIsQueuedAnew,
        PodsThatHaveEndedMakeRoom,
        AJobLosesItsWorkload,
        AJobTakesTheWorkloadThatItNames,
        AJobThatIsRefusedHoldsNoQuota,
    )
}
KAIWO = Resource("kaiwo.silogen.ai", "v1alpha1", "kaiwojobs", "KaiwoJob")


def unfinalized(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "finalizers": []}}


def is_told(obj: Object) -> bool:
    notes = first(obj, "spec.template.metadata.annotations") or {}
    return f"{PREFIX}workload" in notes


async def prepare(cluster: Site) -> None:
    for each in (resource(ROWS["JobSet"]), resource(ROWS["RayJob"]), KAIWO, FOO):
        try:
            await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition(each), dict)
        except AlreadyExists:
            continue


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lives(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    titles = {name: name.lower()[:20] for name in LIVES}
    objects = [flavor(), priority_class("low", 100), priority_class("high", 10000)]
    objects += [cluster_queue(f"cq-{each}", 2, preemption=LOWER) for each in titles.values()]
    objects += [local_queue(f"q-{each}", f"cq-{each}") for each in titles.values()]
    listed = ("Job", "JobSet", "RayJob", "Pod", "StatefulSet")
    async with gated_site(
        tmp_path_factory.mktemp("lives"),
        *objects,
        kinds=tuple(ROWS[name] for name in listed),
        nodes=[node("node-0", cpu=64)],
        without=("children",),
        prepare=prepare,
        options={"external": ("Foo.v1.example.com",)},
    ) as cluster:
        tasks = {
            name: asyncio.create_task(life(cluster, titles[name]).tell())
            for name, life in LIVES.items()
        }
        yield tasks
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", LIVES)
async def test_the_turn_is_taken(name: str, lives: dict[str, asyncio.Task[None]]) -> None:
    await lives[name]
