"""What a fresh decision would admit or evict for is done within 5 s of any change.

Fields are changed at random, of every kind that the quota plane reads. Some seconds later a new
plane takes over, which decides about everything anew: it finds nothing to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest

from kubeworld.objects.paths import first
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.waiting.queueing import QUIET, WAKING
from reprieve.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from reprieve.kube.resource import NAMESPACES, Resource
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.pod_lives import ACTIVE
from tests.quota_plane.site import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
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
    site,
)
from tests.quota_plane.test_jobs import base

CLASS: Final = "kueue.x-k8s.io/priority-class"
FLAVORS: Final = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False)
COHORTS: Final = Resource("kueue.x-k8s.io", "v1beta2", "cohorts", "Cohort", False)
CLASSES: Final = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", False
)
RUNTIMES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
WITHIN_S: Final = 5


def test_every_field_of_a_workload_wakes_or_says_why_not() -> None:
    assert sorted([*WAKING, *QUIET]) == sorted(each.name for each in fields(Workload))
    assert all(QUIET.values())


async def admitted(cluster: Site) -> dict[str, tuple[bool, bool]]:
    """Return which Workloads have quota, and which of them are to give it back."""
    found = {}
    for name, each in (await cluster.workloads()).items():
        status = each.get("status") or {}
        said = {one["type"]: one["status"] for one in status.get("conditions") or ()}
        found[name] = (status.get("admission") is not None, said.get("Evicted") == "True")
    return found


async def test_lowering_the_class_of_a_running_job_wakes_who_could_evict_it_now(
    tmp_path: Path,
) -> None:
    lower = {"withinClusterQueue": "LowerPriority"}
    async with site(tmp_path, *base(2, preemption=lower), priority_class("top", 90_000)) as cluster:
        await cluster.create(job("runs", priority="top"))
        await cluster.until_admitted("runs")
        await cluster.create(job("waits", priority="high"))
        await asyncio.sleep(WITHIN_S)
        assert (await admitted(cluster))["waits"] == (False, False)
        labels = {"metadata": {"labels": {CLASS: "low"}}}
        await cluster.client.patch(JOBS, NAMESPACE, "runs", labels, dict)
        await asyncio.sleep(WITHIN_S)
        assert (await admitted(cluster))["waits"] == (True, False)


class Tenants:
    """Who changes what, at random; jobs are numbered."""

    def __init__(self, cluster: Site, chance: random.Random) -> None:
        self.cluster, self.client, self.chance = cluster, cluster.client, chance
        self.jobs = 0

    async def step(self) -> str:
        """Change one thing, and return what it was."""
        chosen = self.chance.choice(self.steps())
        with contextlib.suppress(NotFound, Conflict, Invalid):
            await chosen()
        return chosen.__name__

    def steps(self) -> list[Callable[[], Awaitable[object]]]:
        return [
            self.submit,
            self.submit,
            self.reclassify,
            self.reclassify,
            self.remove,
            self.requota,
            self.repolicy,
            self.stop_a_queue,
            self.stop_a_door,
            self.move_a_door,
            self.resize,
            self.gate,
            self.deactivate,
            self.retaint,
            self.relabel,
            self.limit,
            self.move_a_queue,
            self.change_a_cohort,
            self.limit_lending,
            self.change_fungibility,
            self.change_strategy,
            self.change_a_check,
            self.answer_a_check,
            self.change_a_class,
            self.protect,
            self.boost,
            self.reclaim,
            self.change_overhead,
            self.label_a_flavor,
        ]

    async def submit(self) -> None:
        self.jobs += 1
        made = job(
            f"job-{self.jobs}",
            self.chance.choice(("q", "other")),
            priority=self.chance.choice(("low", "middle", "high")),
            pods=self.chance.choice((1, 2, 3)),
        )
        template = made["spec"]["template"]["spec"]
        if self.chance.random() < 0.3:
            template["runtimeClassName"] = "thick"
        if self.chance.random() < 0.3:
            template["nodeSelector"] = {"disk": "fast"}
        await self.cluster.create(made)

    def any_job(self) -> str:
        return f"job-{self.chance.randint(1, max(1, self.jobs))}"

    async def any_workload(self) -> str:
        found = sorted(one["metadata"]["name"] for one in (await self.cluster.workloads()).values())
        return self.chance.choice(found) if found else "none"

    async def change_job(self, change: Object) -> None:
        await self.client.patch(JOBS, NAMESPACE, self.any_job(), change, dict)

    async def reclassify(self) -> None:
        name = self.chance.choice(("low", "middle", "high"))
        await self.change_job({"metadata": {"labels": {CLASS: name}}})

    async def remove(self) -> None:
        await self.client.delete(JOBS, NAMESPACE, self.any_job())

    async def resize(self) -> None:
        await self.change_job({"spec": {"parallelism": self.chance.choice((1, 2))}})

    async def gate(self) -> None:
        value = self.chance.choice(("example.com/gate", None))
        annotations = {"kueue.x-k8s.io/admission-gated-by": value}
        await self.change_job({"metadata": {"annotations": annotations}})

    async def change_queue(self, **spec: Any) -> None:
        name = self.chance.choice(("cq", "cq-other"))
        await self.client.patch(CLUSTER_QUEUES, "", name, {"spec": spec}, dict)

    async def requota(self) -> None:
        name = self.chance.choice(("cq", "cq-other"))
        groups = cluster_queue(name, self.chance.randint(1, 5))["spec"]["resourceGroups"]
        await self.client.patch(
            CLUSTER_QUEUES, "", name, {"spec": {"resourceGroups": groups}}, dict
        )

    async def repolicy(self) -> None:
        within = self.chance.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority"))
        reclaim = self.chance.choice(("Never", "LowerPriority", "Any"))
        preemption = {"withinClusterQueue": within, "reclaimWithinCohort": reclaim}
        await self.change_queue(preemption=preemption)

    async def stop_a_queue(self) -> None:
        await self.change_queue(stopPolicy=self.chance.choice(("None", "None", "Hold")))

    async def change_door(self, **spec: Any) -> None:
        name = self.chance.choice(("q", "other"))
        await self.client.patch(LOCAL_QUEUES, NAMESPACE, name, {"spec": spec}, dict)

    async def stop_a_door(self) -> None:
        await self.change_door(stopPolicy=self.chance.choice(("None", "None", "Hold")))

    async def move_a_door(self) -> None:
        await self.client.delete(LOCAL_QUEUES, NAMESPACE, "other")
        target = self.chance.choice(("cq", "cq-other"))
        await self.cluster.create(local_queue("other", target))

    async def deactivate(self) -> None:
        found = list((await self.cluster.workloads()).values())
        if found:
            name = self.chance.choice(found)["metadata"]["name"]
            active = {"spec": {"active": self.chance.choice((True, True, False))}}
            await self.client.patch(WORKLOADS, NAMESPACE, name, active, dict)

    async def retaint(self) -> None:
        taint = {"key": "example.com/away", "value": "", "effect": "NoSchedule"}
        taints = self.chance.choice(([], [], [taint]))
        patch = {"spec": {"nodeTaints": taints}}
        await self.client.patch(FLAVORS, "", "default-flavor", patch, dict)

    async def relabel(self) -> None:
        labels = {"metadata": {"labels": {"team": self.chance.choice(("a", "b"))}}}
        await self.client.patch(NAMESPACES, "", NAMESPACE, labels, dict)
        selector = self.chance.choice(({}, {}, {"matchLabels": {"team": "a"}}))
        await self.change_queue(namespaceSelector={"matchLabels": None, **selector})

    async def limit(self) -> None:
        try:
            await self.client.delete(RANGES, NAMESPACE, "bounds")
        except NotFound:
            limits = [{"type": "Container", "max": {"cpu": "500m"}}]
            body = {"metadata": {"name": "bounds", "namespace": NAMESPACE}}
            await self.client.create(RANGES, {**body, "spec": {"limits": limits}}, dict)

    # What ClusterQueues share.

    async def move_a_queue(self) -> None:
        await self.change_queue(cohortName=self.chance.choice(("cohort", "cohort", None)))

    async def change_a_cohort(self) -> None:
        """Change what all in the cohort may use beside the quota of its queues."""
        groups = cluster_queue("any", self.chance.choice((0, 1, 2)))["spec"]["resourceGroups"]
        body = {"metadata": {"name": "cohort"}, "spec": {"resourceGroups": groups}}
        try:
            await self.client.create(COHORTS, body, dict)
        except AlreadyExists:
            await self.client.patch(COHORTS, "", "cohort", {"spec": body["spec"]}, dict)

    async def limit_lending(self) -> None:
        name = self.chance.choice(("cq", "cq-other"))
        held: Object = await self.client.get(CLUSTER_QUEUES, "", name, dict)
        groups = held["spec"]["resourceGroups"]
        for each in groups[0]["flavors"]:
            for field in ("borrowingLimit", "lendingLimit"):
                each["resources"][0].pop(field, None)
                if held["spec"].get("cohortName") and self.chance.random() < 0.5:
                    each["resources"][0][field] = self.chance.choice(("0", "1"))
        with contextlib.suppress(Invalid):  # no queue lends more than it has
            await self.change_one(name, resourceGroups=groups)

    async def change_one(self, name: str, **spec: Any) -> None:
        await self.client.patch(CLUSTER_QUEUES, "", name, {"spec": spec}, dict)

    async def change_fungibility(self) -> None:
        words = ("MayStopSearch", "TryNextFlavor")
        fungibility = {
            "whenCanBorrow": self.chance.choice(words),
            "whenCanPreempt": self.chance.choice(words),
        }
        await self.change_queue(flavorFungibility=fungibility)

    async def change_strategy(self) -> None:
        strategy = self.chance.choice(("StrictFIFO", "BestEffortFIFO"))
        await self.change_queue(queueingStrategy=strategy)

    # Checks.

    async def change_a_check(self) -> None:
        """Ask a check of a queue, or of none, that is active or is not."""
        checks = self.chance.choice((None, {"admissionChecks": [{"name": "check"}]}))
        await self.change_queue(admissionChecksStrategy=checks)
        status = self.chance.choice(("True", "True", "False"))
        active = {**ACTIVE["conditions"][0], "status": status}
        with contextlib.suppress(NotFound):
            await self.client.patch_status(
                ADMISSION_CHECKS, "", "check", {"conditions": [active]}, dict
            )

    async def answer_a_check(self) -> None:
        name, state = await self.any_workload(), self.chance.choice(("Ready", "Ready", "Retry"))

        def answer(workload: Object) -> Object | None:
            states = first(workload, "status.admissionChecks") or []
            for each in states:
                each["state"] = state
            return workload if states else None

        await self.client.modify(WORKLOADS, NAMESPACE, name, answer, subresource="status")

    # Priorities, and what pods request.

    async def change_a_class(self) -> None:
        """Change the value of a class that jobs have, which counts for those that come."""
        value = self.chance.choice((1, 50, 100))
        with contextlib.suppress(Invalid):
            await self.client.patch(CLASSES, "", "middle", {"value": value}, dict)

    async def protect(self) -> None:
        said = self.chance.choice((None, "3s", "1h"))
        notes = {"metadata": {"annotations": {"reprieve.dev/preempt-min-runtime": said}}}
        await self.client.patch(CLASSES, "", self.chance.choice(("low", "middle")), notes, dict)

    async def boost(self) -> None:
        said = self.chance.choice((None, "20", "-60", "200"))
        notes = {"metadata": {"annotations": {"kueue.x-k8s.io/priority-boost": said}}}
        await self.client.patch(WORKLOADS, NAMESPACE, await self.any_workload(), notes, dict)

    async def reclaim(self) -> None:
        """Have pods of a workload need no quota any more, as their controller does."""
        name = await self.any_workload()
        spare = self.chance.choice((0, 1))

        def fewer(workload: Object) -> Object | None:
            if not first(workload, "status.admission"):
                return None
            main = workload["spec"]["podSets"][0]
            pods = [{"name": main["name"], "count": min(spare, main["count"])}]
            workload["status"]["reclaimablePods"] = pods if spare else []
            return workload

        await self.client.modify(WORKLOADS, NAMESPACE, name, fewer, subresource="status")

    async def change_overhead(self) -> None:
        overhead = {"podFixed": {"cpu": self.chance.choice(("0", "500m", "1"))}}
        body = {"metadata": {"name": "thick"}, "handler": "thick", "overhead": overhead}
        with contextlib.suppress(NotFound):
            await self.client.delete(RUNTIMES, "", "thick")
        await self.client.create(RUNTIMES, body, dict)

    async def label_a_flavor(self) -> None:
        """Have the flavor be one of nodes that some jobs ask for, or of others."""
        labels = {"disk": self.chance.choice(("fast", "slow", None))}
        await self.client.patch(
            FLAVORS, "", "default-flavor", {"spec": {"nodeLabels": labels}}, dict
        )


async def play(
    cluster: Site, tenants: Tenants, steps: int, options: QuotaOptions | None = None
) -> None:
    done: list[str] = []
    for _ in range(steps):
        done += [await tenants.step() for _ in range(tenants.chance.choice((1, 1, 2)))]
        await asyncio.sleep(WITHIN_S)
        before = await admitted(cluster)
        await cluster.stop()
        await cluster.start(options)
        await asyncio.sleep(WITHIN_S)
        assert await admitted(cluster) == before, done


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
async def test_a_plane_that_decides_about_everything_anew_finds_nothing_to_do(
    seed: int, tmp_path: Path
) -> None:
    queues = [
        flavor(),
        cluster_queue("cq", 3, "cohort"),
        cluster_queue("cq-other", 3, "cohort"),
        local_queue("q", "cq"),
        local_queue("other", "cq-other"),
        *(priority_class(name, n) for name, n in (("low", 1), ("middle", 50), ("high", 100))),
    ]
    check = {"metadata": {"name": "check"}, "spec": {"controllerName": "example.com/check"}}
    async with site(tmp_path, *queues, nodes=[node("node-0", cpu=64)]) as cluster:
        await cluster.client.create(ADMISSION_CHECKS, check, dict)
        await play(cluster, Tenants(cluster, random.Random(seed)), 14)
