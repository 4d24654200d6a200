"""Turns in the lives of queued pods."""

from __future__ import annotations

import asyncio
from typing import Any

from kubeworld.objects.paths import first
from reprieve.kube.resource import PODS
from tests.quota_plane.gated_site import CLASS, QUEUE
from tests.quota_plane.kind_stories import (
    GROUP,
    STATEFUL_SETS,
    TOTAL,
    is_gated,
    leaving,
    manifest,
)
from tests.quota_plane.life import PREFIX, Life
from tests.quota_plane.site import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACE,
    WORKLOADS,
    Object,
    cluster_queue,
    local_queue,
)

ACTIVE = {
    "conditions": [
        {
            "type": "Active",
            "status": "True",
            "reason": "ByTest",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
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

        async def released() -> bool:
            return "Requeued" in await self.conditions(stem)

        # It holds its quota until it has ended, or its grace period is over.
        await self.until("its quota is free", released)
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

        await self.told("Workload", name, "FinishedWorkload", "its pod was deleted")


class APodThatNeverRanIsNotQueuedAgain(Life):
    """A lone pod that is preempted while a check still holds it keeps its gates, without quota."""

    async def tell(self) -> None:
        check, queue = f"check-{self.name}", f"checked-{self.name}"
        self.queue = f"q-{queue}"
        await self.client.create(ADMISSION_CHECKS, budget(check), dict)
        await self.client.patch_status(ADMISSION_CHECKS, "", check, ACTIVE, dict)
        checks = {"admissionChecks": [{"name": check}]}
        lower = {"withinClusterQueue": "LowerPriority"}
        spec: dict[str, Any] = {"preemption": lower, "admissionChecksStrategy": checks}
        await self.client.create(CLUSTER_QUEUES, cluster_queue(queue, 2, **spec), dict)
        await self.client.create(LOCAL_QUEUES, local_queue(self.queue, queue), dict)
        await self.client.create(PODS, self.pod("low"), dict)
        await self.until("low has quota", lambda: self.reserved("low"))
        await self.client.create(PODS, self.pod("high", "high"), dict)
        await self.until("high has quota", lambda: self.reserved("high"))
        said = await self.conditions(f"pod-{self.name}-low")
        message = said["Evicted"][2]
        assert said["Evicted"][:2] == ("True", "Preempted")
        assert said["Requeued"] == ("False", "Preempted", message)
        assert said["QuotaReserved"] == ("False", "PendingEvaluation", message)
        # With the quota free again, one that came later gets it.
        await self.client.create(PODS, self.pod("next"), dict)
        await self.client.delete(PODS, NAMESPACE, f"{self.name}-high")
        await self.until("the next has quota", lambda: self.reserved("next"))
        assert await self.conditions(f"pod-{self.name}-low") == said
        low = (await self.pods())["low"]
        assert is_gated(low) and not leaving(low)
        assert first(low, "metadata.finalizers") == [f"{PREFIX}managed"]
        marks = {each["type"] for each in first(low, "status.conditions") or ()}
        assert "TerminationTarget" not in marks

    async def reserved(self, name: str) -> bool:
        said = await self.conditions(f"pod-{self.name}-{name}")
        return said.get("QuotaReserved", ("",))[0] == "True"


class AGroupWithoutItsPodsIsNotQueued(Life):
    """A group whose pods were evicted waits without quota until they are made again."""

    def member(self, name: str) -> Object:
        return self.pod(name, cpu="1", labels={GROUP: self.name}, annotations={TOTAL: "2"})

    async def tell(self) -> None:
        for name in "ab":
            await self.client.create(PODS, self.member(name), dict)

        async def runs() -> bool:
            return list((await self.phases()).values()) == ["Running"] * 2

        await self.until("both run", runs)
        await self.client.create(JOBS, self.job("high", "high", pods=2), dict)

        async def took_over() -> bool:
            return len(await self.job_pods("high")) == 2

        await self.until("the job runs in its place", took_over)
        await self.client.delete(JOBS, NAMESPACE, f"{self.name}-high")
        await self.client.create(JOBS, self.job("low", pods=2), dict)

        async def passed() -> bool:
            return len(await self.job_pods("low")) == 2

        # It would be before this one in the queue.
        await self.until("a later job gets the quota", passed)
        await asyncio.sleep(30)
        assert await passed()
        said = await self.conditions(self.name)
        assert said["WaitingForReplacementPods"][:2] == ("True", "Preempted")
        assert said["QuotaReserved"] == (
            "False",
            "WaitingForReplacementPods",
            "The group waits for pods in place of those that failed or were evicted",
        )
        await self.client.delete(JOBS, NAMESPACE, f"{self.name}-low")
        for name in "cd":
            await self.client.create(PODS, self.member(name), dict)

        async def runs_again() -> bool:
            phases = await self.phases()
            return [phases.get(name) for name in "cd"] == ["Running"] * 2

        await self.until("it runs again once its pods are there", runs_again)


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

        async def runs(count: int) -> bool:
            return list((await self.phases()).values()) == ["Running"] * count

        await self.until("it runs", lambda: runs(1))
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
        await self.client.patch_scale(STATEFUL_SETS, NAMESPACE, self.name, 2)
        await self.until("more of it runs", lambda: runs(2))
        workload = await self.workload(stem)
        assert first(workload, "spec.podSets")[0]["count"] == 2


def budget(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"controllerName": "example.com/budget"}}


def unfinalized(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "finalizers": []}}
