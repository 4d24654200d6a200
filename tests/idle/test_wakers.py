"""What a fresh decision would preempt idle work for is done within 5 s of any change.

Fields are changed at random, of every kind that the idle plane reads. Some seconds later a new
operator takes over, which decides about everything anew: it finds nothing to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from kubelocal.server.errors import StatusError
from tests.idle.queues import CLASS
from tests.idle.site import GPU_WORKLOADS, NAMESPACE, Object, Site, container, job
from tests.idle.test_kueue import CRD, WORKLOADS, waiting_for

DELAY: Final = "reprieve.dev/preemption-delay"
CLASSES: Final = ("eager", "patient")
WITHIN_S: Final = 6  # a grace period of 1 s lies in it


class Tenants:
    """Who changes what, at random; jobs are numbered."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self.site, self.chance = site, chance
        self.jobs = 0

    async def step(self) -> str:
        """Change one thing, and return what it was."""
        chosen = self.chance.choice(self.steps())
        with contextlib.suppress(StatusError):
            await chosen()
        return chosen.__name__

    def steps(self) -> list[Callable[[], Awaitable[object]]]:
        return [
            self.submit,
            self.submit,
            self.submit,
            self.remove,
            self.use,
            self.annotate_a_job,
            self.annotate_a_job,
            self.annotate_the_namespace,
            self.configure,
            self.cordon,
            self.taint,
            self.relabel_a_node,
        ]

    async def submit(self) -> None:
        self.jobs += 1
        policy = self.chance.choice(({}, {}, {"policy": "Always"}, {"policy": "Never"}))
        made = job(
            f"job-{self.jobs}",
            container(gpu=self.chance.choice((2, 4, 8))),
            **self.chance.choice(({}, {"enabled": "true"}, {"enabled": "false"})),
            **policy,
        )
        if self.chance.random() < 0.3:
            made["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "a"}
        await self.site.create(self.of_job(made))

    def of_job(self, made: Object) -> Object:
        return made

    def any_job(self) -> str:
        return f"job-{self.chance.randint(1, max(1, self.jobs))}"

    async def remove(self) -> None:
        await self.site.delete("jobs.batch", self.any_job())

    async def use(self) -> None:
        self.site.busy(f"Job/{self.any_job()}", self.chance.choice((0, 0, 90)))

    async def annotate_a_job(self) -> None:
        change: dict[str, Any] = self.chance.choice(
            (
                {"enabled": self.chance.choice(("true", "false", None))},
                {"grace_period": self.chance.choice(("1s", "1h", None))},
                {"policy": self.chance.choice(("Always", "Never", "OnPressure", None))},
            )
        )
        await self.site.annotate("jobs.batch", self.any_job(), **change)

    async def annotate_the_namespace(self) -> None:
        value = self.chance.choice(("true", "false", None))
        await self.site.annotate("namespaces", NAMESPACE, namespace="", enabled=value)

    async def configure(self) -> None:
        said = {"spec": {"gpuPreemption": {"defaultThreshold": self.chance.choice((5, 5, 95))}}}
        await self.site.patch("kaiwoconfigs.config.kaiwo.silogen.ai", "kaiwo", said, namespace="")

    async def any_node(self) -> str:
        nodes: list[str] = [each["metadata"]["name"] for each in await self.site.all("nodes")]
        return self.chance.choice(sorted(nodes))

    async def cordon(self) -> None:
        said = {"spec": {"unschedulable": self.chance.choice((False, False, True))}}
        await self.site.patch("nodes", await self.any_node(), said, namespace="")

    async def taint(self) -> None:
        taint = {"key": "example.com/away", "effect": "NoSchedule"}
        said = {"spec": {"taints": self.chance.choice(([], [], [taint]))}}
        await self.site.patch("nodes", await self.any_node(), said, namespace="")

    async def relabel_a_node(self) -> None:
        said = {"metadata": {"labels": {"pool": self.chance.choice(("a", "b"))}}}
        await self.site.patch("nodes", await self.any_node(), said, namespace="")


class TenantsWithQueues(Tenants):
    """Some edit GpuWorkloads by hand, and have jobs wait in queues of Kueue, which is not there."""

    def steps(self) -> list[Callable[[], Awaitable[object]]]:
        return [
            self.submit,
            self.remove,
            self.use,
            self.annotate_a_job,
            *([self.edit_a_gpu_workload] * 3),
            *([self.queue] * 2),
            *([self.answer] * 3),
            self.forget,
        ]

    async def edit_a_gpu_workload(self) -> None:
        change: dict[str, Any] = self.chance.choice(
            (
                {"preemptionPolicy": self.chance.choice(("Always", "Never", "OnPressure", None))},
                {"gracePeriod": self.chance.choice(("1s", "1h", None))},
                {"utilizationThreshold": self.chance.choice((5, 95, None))},
            )
        )
        found: list[str] = [each["metadata"]["name"] for each in await self.site.all(GPU_WORKLOADS)]
        if found:
            name = self.chance.choice(sorted(found))
            await self.site.patch(GPU_WORKLOADS, name, {"spec": change})

    async def queue(self) -> None:
        self.jobs += 1
        gpu = self.chance.choice((4, 8))
        held = suspended(f"job-{self.jobs}", gpu)
        stored = await self.site.create(held)
        await self.site.create(waiting_for(stored, ""))
        await self.answer()

    async def any_queued(self) -> str:
        found: list[str] = [each["metadata"]["name"] for each in await self.site.all(WORKLOADS)]
        return self.chance.choice(sorted(found) or [""])

    async def answer(self) -> None:
        """Kueue says for what a job waits, or that it has quota."""
        resource = self.chance.choice(("amd.com/gpu", "amd.com/gpu", "cpu", ""))
        condition = {
            "type": "QuotaReserved",
            "status": "False" if resource else "True",
            "reason": "Pending" if resource else "QuotaReserved",
            "message": f"insufficient quota for {resource}" if resource else "",
            "lastTransitionTime": "2026-03-04T10:00:00Z",
        }
        said = {"status": {"conditions": [condition]}}
        await self.site.patch(WORKLOADS, await self.any_queued(), said, subresource="status")

    async def forget(self) -> None:
        await self.site.delete(WORKLOADS, await self.any_queued())


class TenantsWithDelays(Tenants):
    """Demands of three classes, of equal priority, whose delay before preemption changes."""

    def steps(self) -> list[Callable[[], Awaitable[object]]]:
        return [
            *super().steps(),
            *([self.delay_a_class] * 3),
            *([self.configure_defaults] * 3),
        ]

    def of_job(self, made: Object) -> Object:
        chosen = self.chance.choice(("", *CLASSES))
        if chosen:
            made["spec"]["template"]["spec"]["priorityClassName"] = chosen
        return made

    async def delay_a_class(self) -> None:
        value = self.chance.choice(("0s", "2s", "1h", None))
        kind = "priorityclasses.scheduling.k8s.io"
        await self.site.annotate(kind, self.chance.choice(CLASSES), namespace="", **{DELAY: value})

    async def configure_defaults(self) -> None:
        change: dict[str, Any] = self.chance.choice(
            (
                {"defaultPolicy": self.chance.choice(("Always", "Never", "OnPressure", None))},
                {"defaultGracePeriod": self.chance.choice(("1s", "1h", None))},
                {"defaultThreshold": self.chance.choice((5, 95, None))},
                {"defaultAggregation": self.chance.choice(("Max", "Avg", None))},
                {"defaultTTL": self.chance.choice(("1s", "1h", None))},
            )
        )
        said = {"spec": {"gpuPreemption": change}}
        await self.site.patch("kaiwoconfigs.config.kaiwo.silogen.ai", "kaiwo", said, namespace="")


def suspended(name: str, gpu: int) -> Object:
    made = job(name, container(gpu=gpu), enabled="true")
    made["spec"]["suspend"] = True
    return made


async def followed(site: Site) -> dict[str, tuple[object, str]]:
    """Return what is followed, by the name of the job: what its GpuWorkload says, and its phase."""
    return {
        each["spec"]["workloadRef"]["name"]: (
            each["spec"],
            each.get("status", {}).get("phase", ""),
        )
        for each in await site.all(GPU_WORKLOADS)
    }


async def play(site: Site, tenants: Tenants, *objects: Object) -> None:
    done: list[str] = []
    evicted = 0
    config = {"apiVersion": "config.kaiwo.silogen.ai/v1alpha1", "kind": "KaiwoConfig"}
    image = {"ray": {"defaultRayImage": "registry.example/ray:1"}}
    await site.create(
        *objects,
        {**config, "metadata": {"name": "kaiwo"}, "spec": image},
        job("job-1", container(gpu=8), enabled="true"),
    )
    tenants.jobs = 1
    operator = await site.run()
    for _ in range(14):
        done += [await tenants.step() for _ in range(tenants.chance.choice((1, 2, 2)))]
        await asyncio.sleep(WITHIN_S)
        before, writes = await followed(site), len(site.evictions())
        await operator.stop()
        operator = await site.run()
        await asyncio.sleep(WITHIN_S)
        assert await followed(site) == before, done
        assert len(site.evictions()) == writes, done
        evicted = max(evicted, writes)
    await operator.stop()
    assert evicted, "nobody was preempted in this play"


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1, 5, 8, 9])
async def test_an_operator_that_decides_about_everything_anew_finds_nothing_to_do(
    seed: int, site: Site
) -> None:
    await play(site, Tenants(site, random.Random(seed)))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [100, 102, 105, 107, 109])
async def test_it_finds_nothing_where_others_edit_gpu_workloads_and_queue_jobs(
    seed: int, site: Site
) -> None:
    await play(site, TenantsWithQueues(site, random.Random(seed)), CRD)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [200])
async def test_it_finds_nothing_where_defaults_and_delays_of_classes_change(
    seed: int, site: Site
) -> None:
    classes = [{**CLASS, "value": 0, "metadata": {"name": name}} for name in CLASSES]
    await play(site, TenantsWithDelays(site, random.Random(seed)), *classes)
