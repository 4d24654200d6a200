"""Options beyond the reference, on a running plane: each changes who makes way, or when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.kube.resource import EVENTS, Resource
from reprieve.units.instants import parse_instant
from tests.quota_plane.site import (
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    priority_class,
    site,
)
from tests.quota_plane.test_jobs import LOWER

PREEMPT = "reprieve.dev/preempt-min-runtime"
CLASSES = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", False
)


def annotated(obj: Object, **annotations: str) -> Object:
    names = {name.replace("_", "-"): text for name, text in annotations.items()}
    found = {f"reprieve.dev/{name}": text for name, text in names.items()}
    return {**obj, "metadata": {**obj["metadata"], "annotations": found}}


def base(cpu: int = 4, queue: dict[str, str] | None = None, **classes: dict[str, str]) -> list[Any]:
    """Return one queue that preempts within itself, and three classes, with annotations."""
    return [
        flavor(),
        annotated(cluster_queue("cq", cpu, preemption=LOWER), **(queue or {})),
        local_queue("q", "cq"),
        *(
            annotated(priority_class(name, value), **classes.get(name, {}))
            for name, value in (("low", 100), ("other", 100), ("high", 10_000))
        ),
    ]


async def notes(cluster: Site, reason: str) -> list[tuple[str, str, str]]:
    """Return kind and name of the object, and the note, of events with this reason."""
    page = await cluster.client.list(EVENTS, dict)
    return sorted(
        (each["involvedObject"]["kind"], each["involvedObject"]["name"], each["message"])
        for each in page.items
        if each["reason"] == reason
    )


async def test_just_started_work_is_spared_and_a_bad_annotation_is_named(tmp_path: Path) -> None:
    classes = {"low": {"preempt_min_runtime": "1h"}, "high": {"reclaim_min_runtime": "soon"}}
    async with site(tmp_path, *base(**classes)) as cluster:
        await cluster.create(job("plain", priority="other"))
        await cluster.until_admitted("plain")
        # The reference takes the one that was admitted last.
        await cluster.create(job("young", priority="low"))
        await cluster.until_admitted("plain", "young")
        await cluster.create(job("high", priority="high"))
        await cluster.until_admitted("young", "high")
        await cluster.create(job("second", priority="high"))

        async def told() -> bool:
            said = (await cluster.conditions("second")).get("QuotaReserved", ("", "", ""))
            return "1 workload(s) within their minimum runtime, the first until 20" in said[2]

        await cluster.until("the second is told who is spared", told)
        problem = (
            "annotation reprieve.dev/reclaim-min-runtime is 'soon' and protects nobody; "
            "accepted: durations from 0s to 168h0m0s, such as 90s, 5m or 1h"
        )
        named = [("WorkloadPriorityClass", "high", problem)]

        async def warned() -> bool:
            return await notes(cluster, "InvalidAnnotation") == named

        await cluster.until("the class is named", warned)
        # Without the annotation nobody is spared any more.
        patch = {"metadata": {"annotations": {PREEMPT: None}}}
        await cluster.client.patch(CLASSES, "", "low", patch, dict)
        await cluster.until_admitted("high", "second")


async def test_who_waits_for_a_minimum_runtime_is_tried_again_when_it_ends(tmp_path: Path) -> None:
    async with site(tmp_path, *base(2, {"preempt_min_runtime": "3s"})) as cluster:
        await cluster.create(job("low", priority="low"))
        await cluster.until_admitted("low")
        reserved = await since(cluster, "low", "QuotaReserved")
        await cluster.create(job("high", priority="high"))
        await cluster.until("high runs", lambda: _runs(cluster, "high"))
        assert await since(cluster, "low", "Evicted") - reserved >= 3_000_000_000


async def since(cluster: Site, name: str, kind: str) -> int:
    workload = (await cluster.workloads())[name]
    (at,) = (c["lastTransitionTime"] for c in workload["status"]["conditions"] if c["type"] == kind)
    return parse_instant(at)


async def _runs(cluster: Site, name: str) -> bool:
    return name in await cluster.running()
