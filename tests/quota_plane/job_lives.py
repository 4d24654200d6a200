"""Turns in the lives of queued jobs."""

from __future__ import annotations

from kubeworld.objects.paths import first
from reprieve.kube.resource import Resource
from tests.quota_plane.gated_site import CLASS, QUEUE
from tests.quota_plane.kind_stories import ROWS, manifest, resource, succeed
from tests.quota_plane.life import PREFIX, Life
from tests.quota_plane.site import JOBS, NAMESPACE, WORKLOADS, Object

FOO = Resource("example.com", "v1", "foos", "Foo")
SUSPEND = "spec.suspend"
KAIWO = Resource("kaiwo.silogen.ai", "v1alpha1", "kaiwojobs", "KaiwoJob")


class JobsBelowAQueuedOneAreNotQueued(Life):
    """One Workload for a JobSet and its Jobs; KaiwoJobs do not stand above their Job."""

    async def tell(self) -> None:
        above = manifest("JobSet", f"{self.name}-set")
        above["metadata"]["labels"] = {QUEUE: self.queue, CLASS: "low"}
        stored: Object = await self.client.create(resource(ROWS["JobSet"]), above, dict)

        async def started() -> bool:
            said = await self.conditions(f"jobset-{self.name}-set")
            owner = await self.read(resource(ROWS["JobSet"]), f"{self.name}-set")
            return said.get("Admitted", ("",))[0] == "True" and first(owner, SUSPEND) is False

        # Children come once their owner has started; before, they are suspended for good.
        await self.until("the JobSet has started", started)
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
                first(await self.read(JOBS, f"{self.name}-{name}"), SUSPEND) for name in "abc"
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


class TheLastPodsOfAJobWithFewerMakeRoom(Life):
    """Two of four pods were admitted: once one pod is left to run, the other's quota is free."""

    async def tell(self) -> None:
        notes = {f"{PREFIX}job-min-parallelism": "1"}
        await self.client.create(JOBS, self.job("low", pods=4, annotations=notes), dict)

        async def runs(name: str, count: int) -> bool:
            return len(await self.job_pods(name)) == count

        await self.until("two of four run", lambda: runs("low", 2))
        await self.client.create(JOBS, self.job("next", pods=1), dict)
        for pod in await self.job_pods("low"):
            await succeed(self.cluster, pod)
        await self.until("the other two run", lambda: runs("low", 2))
        assert not await self.job_pods("next")
        await succeed(self.cluster, (await self.job_pods("low"))[0])
        await self.until("the next one runs", lambda: runs("next", 1))
        assert await runs("low", 1)


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
            return first(await self.read(ray, self.name), SUSPEND) is False

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


def is_told(obj: Object) -> bool:
    notes = first(obj, "spec.template.metadata.annotations") or {}
    return f"{PREFIX}workload" in notes
