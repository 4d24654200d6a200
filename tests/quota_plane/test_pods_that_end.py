"""Work of every row of the kinds' table holds its quota until the last of its pods is gone.

The embedded cluster plays the operators of all kinds: they make the pods, and end them when the
object is suspended. Some pods need longer than others to end. Whatever ends the work, the one that
waits for its quota is admitted after the last pod, and not long after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from kubeworld.objects.paths import first
from reprieve.jobs.model import JobKind
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.resource import PODS
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.gated_site import CLASS, QUEUE, gated_site
from tests.quota_plane.kind_stories import manifest, resource
from tests.quota_plane.site import (
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
)
from tests.quota_plane.test_kinds import LOWER, RUNTIME, prepare

LOOK_S, PATIENCE_S = 0.5, 240.0
#: How long pods of the first and of any further template need to end.
SHORT_S, LONG_S = 8, 50
#: The next one is admitted so soon after the last pod; a process that comes later waits for the
#: writes of the one before it.
SOON_S, SOON_AFTER_RESTART_S = 5.0, 25.0
WAYS: Final = ("preempted", "deactivated", "deleted", "drained")
ENDS: Final = "sim.reprieve.dev/termination-time"


@dataclass
class Life:
    """One object, what waits for its quota, and what was seen of both."""

    kind: JobKind
    running: set[str] = field(default_factory=set)
    ended_at: float = 0.0
    gone_at: float | None = None
    next_at: float | None = None
    early: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.kind.kind.lower()}-work"

    @property
    def next(self) -> str:
        return f"next-{self.kind.kind.lower()}"

    @property
    def queue(self) -> str:
        return f"q-{self.kind.kind.lower()}"

    def seen(self, now: float, admitted: set[str], pods: dict[str, str]) -> None:
        """Compare who has quota with the pods that are read after it, by uid and name."""
        left = sorted(pods[each] for each in self.running & pods.keys())
        if not left and self.gone_at is None:
            self.gone_at = now
        if self.next in admitted and self.next_at is None:
            self.next_at = now
            self.early = left


def templates(found: Any) -> Iterator[Object]:
    """Yield each pod template, or pod, of a manifest."""
    if isinstance(found, dict):
        if isinstance(found.get("spec"), dict) and "containers" in found["spec"]:
            yield found
        for each in found.values():
            yield from templates(each)
    elif isinstance(found, list):
        for each in found:
            yield from templates(each)


def delay(obj: Object) -> Object:
    """Have the object's pods end slowly, those of the first template faster than the others."""
    for role in ("driver", "executor"):
        if role in obj["spec"]:
            obj["spec"][role]["template"] = {"spec": {"containers": []}}
    for index, each in enumerate(templates(obj)):
        seconds = LONG_S if index else SHORT_S
        each.setdefault("metadata", {}).setdefault("annotations", {})[ENDS] = f"{seconds}s"
        each["spec"]["terminationGracePeriodSeconds"] = 60
    return obj


def work(life: Life) -> Object:
    obj = manifest(life.kind.kind, life.name)
    obj["metadata"]["labels"] = {QUEUE: life.queue, CLASS: "low"}
    for each in ("driver", "executor"):
        obj["spec"].get(each, {}).pop("nodeSelector", None)
    return delay(obj)


async def slow_runtime(cluster: Site) -> None:
    await prepare(cluster)
    held: Object = await cluster.client.get(RUNTIME, "", "torch-distributed", dict)
    await cluster.client.patch(RUNTIME, "", "torch-distributed", delay(held), dict)


async def listed(cluster: Site) -> tuple[dict[str, Object], dict[str, Object]]:
    """Return Workloads and then pods that have a node and have not ended, by name and by uid."""
    workloads = await cluster.workloads()
    pods = (await cluster.client.list(PODS, dict, namespace=NAMESPACE)).items
    live = [
        each
        for each in pods
        if first(each, "spec.nodeName")
        and first(each, "status.phase") not in ("Succeeded", "Failed")
    ]
    return workloads, {each["metadata"]["uid"]: each for each in live}


def of(life: Life, pods: dict[str, Object]) -> dict[str, Object]:
    return {
        uid: each for uid, each in pods.items() if each["metadata"]["name"].startswith(life.name)
    }


def cpus(pods: dict[str, Object]) -> float:
    return sum(
        0.5
        if each["resources"]["requests"]["cpu"] == "500m"
        else int(each["resources"]["requests"]["cpu"])
        for pod in pods.values()
        for each in pod["spec"]["containers"]
    )


async def end(cluster: Site, life: Life, way: str) -> None:
    """End the work in this way; one waits for its quota."""
    client, now = cluster.client, asyncio.get_running_loop().time()
    priority = "high" if way == "preempted" else "low"
    await client.create(JOBS, job(life.next, f"o{life.queue}", priority=priority), dict)
    life.ended_at = now
    if way == "drained":
        stop = {"spec": {"stopPolicy": "HoldAndDrain"}}
        await client.patch(LOCAL_QUEUES, NAMESPACE, life.queue, stop, dict)
        return
    if way == "preempted":
        return
    await asyncio.sleep(3)  # The next one is queued before that.
    page = (await client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
    for each in page:
        named = [owner["name"] for owner in each["metadata"].get("ownerReferences") or ()]
        if not any(name.startswith(life.name) for name in named):
            continue
        at = each["metadata"]["name"]
        if way == "deactivated":
            await client.patch(WORKLOADS, NAMESPACE, at, {"spec": {"active": False}}, dict)
        else:
            await client.delete(WORKLOADS, NAMESPACE, at)


async def watch(cluster: Site, lives: list[Life]) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE_S
    while any(each.next_at is None for each in lives) and loop.time() < until:
        workloads, pods = await listed(cluster)
        admitted = {
            name for name, each in workloads.items() if first(each, "status.admission") is not None
        }
        names = {uid: each["metadata"]["name"] for uid, each in pods.items()}
        for life in lives:
            life.seen(loop.time(), admitted, names)
        await asyncio.sleep(LOOK_S)


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
async def test_work_of_every_kind_holds_its_quota_until_its_last_pod_is_gone(
    way: str, restarted: bool, tmp_path: Path
) -> None:
    lives = [Life(kind) for kind in BUILT_IN]
    objects = [flavor(), priority_class("low", 100), priority_class("high", 10000)]
    for life in lives:
        objects.append(cluster_queue(f"c{life.queue}", 2, memory="64Gi", preemption=LOWER))
        objects += [local_queue(f"{o}{life.queue}", f"c{life.queue}") for o in ("", "o")]
    async with gated_site(
        tmp_path,
        *objects,
        kinds=tuple(BUILT_IN),
        nodes=[node("node-0", cpu=200)],
        prepare=slow_runtime,
    ) as cluster:
        for life in lives:
            await cluster.client.create(resource(life.kind), work(life), dict)

        async def run() -> bool:
            pods = (await listed(cluster))[1]
            running = {
                uid: each for uid, each in pods.items() if first(each, "status.phase") == "Running"
            }
            for life in lives:
                life.running = set(of(life, running))
            return all(cpus(of(life, running)) >= 2 for life in lives)

        await cluster.until("all run", run)
        for life in lives:
            await end(cluster, life, way)
        if restarted:
            await asyncio.sleep(4)
            await cluster.stop()
            await asyncio.sleep(2)
            await cluster.start(QuotaOptions(kinds=tuple(BUILT_IN)))
        await watch(cluster, lives)
    soon = SOON_AFTER_RESTART_S if restarted else SOON_S
    problems = [f"{life.kind.kind}: {found}" for life in lives if (found := problem(life, soon))]
    assert not problems, "\n".join(problems)


def problem(life: Life, soon: float) -> str:
    """Return what is wrong with what was seen."""
    if life.early:
        return f"admitted while {life.early} were there"
    if life.next_at is None or life.gone_at is None:
        return f"admitted {life.next_at}, gone {life.gone_at}"
    if life.gone_at - life.ended_at < SHORT_S:
        return f"its pods were gone after {life.gone_at - life.ended_at} s"
    if life.next_at - life.gone_at > soon:
        return f"admitted {life.next_at - life.gone_at} s after the last pod"
    return ""
