"""`reprieve plan` and `reprieve explain` as processes, beside what their API server then holds."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.kube.resource import EVENTS, PODS, PREEMPTIONS, Resource
from tests.integration.site import JOBS, NAMESPACE, Object, Site, job

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)


def priority_class(name: str, value: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def of_priority(manifest: Object, name: str) -> Object:
    manifest["spec"]["template"]["spec"]["priorityClassName"] = name
    return manifest


async def reprieve(site: Site, *arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "reprieve",
        *arguments,
        "--kubeconfig",
        str(site.kubeconfig),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complaint = await process.communicate()
    return process.returncode, said.decode(), complaint.decode()


async def planned(site: Site, folder: Path, *manifests: Object) -> dict[str, Any]:
    file = folder / "work.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    code, said, complaint = await reprieve(
        site, "plan", "-f", str(file), "--controllers", "scheduling", "-o", "json"
    )
    assert (code, complaint) == (0, "")
    answer: dict[str, Any] = json.loads(said)
    return answer


async def held(site: Site) -> dict[str, str]:
    """Return whatever a plan could have touched, with its version; of Jobs others write."""
    found = await site.all(PODS, NAMESPACE) + await site.all(PREEMPTIONS)
    versions = {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in found}
    return versions | {each["metadata"]["uid"]: "" for each in await site.all(JOBS, NAMESPACE)}


@pytest.fixture
async def full(site: Site) -> Site:
    """The node's four GPUs are held by a Job of low priority."""
    for name, value in (("plan-low", 100), ("plan-high", 1000)):
        if not await site.find(PRIORITY_CLASSES, name):
            await site.create(priority_class(name, value))
    await site.create(of_priority(job("low", 4), "plan-low"))

    async def runs() -> bool:
        pods = await site.all(PODS, NAMESPACE)
        return bool(pods) and all(pod["status"].get("phase") == "Running" for pod in pods)

    await site.until(runs, "the Job of low priority runs")
    return site


async def test_a_plan_names_who_would_make_way_and_touches_nobody(
    full: Site, tmp_path: Path
) -> None:
    (victim,) = await full.all(PODS, NAMESPACE)
    before = await held(full)
    answer = await planned(full, tmp_path, of_priority(job("high", 4), "plan-high"))
    assert answer["verdict"] == "StartsWithVictims"
    assert [each["uid"] for each in answer["victims"]] == [victim["metadata"]["uid"]]
    assert [each["node"] for each in answer["placement"]] == ["gpu-0"]
    assert await held(full) == before


async def test_what_cannot_start_waits_or_never_fits(full: Site, tmp_path: Path) -> None:
    equal = await planned(full, tmp_path, of_priority(job("equal", 4), "plan-low"))
    assert (equal["verdict"], equal["victims"]) == ("Waits", [])
    big = await planned(full, tmp_path, of_priority(job("big", 5), "plan-high"))
    assert (big["verdict"], big["victims"]) == ("NeverFits", [])


async def test_what_runs_and_what_is_not_there_are_told(full: Site) -> None:
    code, said, _ = await reprieve(full, "explain", "job/low", "-n", NAMESPACE)
    assert code == 0
    assert said.startswith(f"Job {NAMESPACE}/low runs since ")
    code, said, complaint = await reprieve(full, "explain", "job/lo", "-n", NAMESPACE)
    assert (code, said, complaint.count("\n")) == (2, "", 1)
    assert "low" in complaint


async def test_of_a_job_that_a_quota_leaves_fewer_pods_it_is_told_how_many_are_made(
    site: Site, tmp_path: Path
) -> None:
    hard = {"requests.amd.com/gpu": "3", "count/pods": "9"}
    metadata = {"name": "gpus", "namespace": NAMESPACE}
    await site.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata,
                       "spec": {"hard": hard}})  # fmt: skip
    try:

        async def counts() -> bool:
            quota = await site.find(QUOTAS, "gpus", NAMESPACE)
            return bool(quota and quota.get("status", {}).get("hard"))

        await site.until(counts, "the quota is in force")
        wide = job("wide", 1)
        wide["spec"] |= {"parallelism": 4, "completions": 4}
        answer = await planned(site, tmp_path, wide)
        (note,) = [each for each in answer["warnings"] if "ResourceQuota" in each]
        assert note == (
            f"Job {NAMESPACE}/wide gets 3 of its 4 pods for now: ResourceQuota gpus has "
            "requests.amd.com/gpu left for no more, and grants it for 3 at most: request less, or "
            "have it raised"
        )
        await site.create(wide)

        async def refused() -> bool:
            events = await site.all(EVENTS, NAMESPACE)
            return any("exceeded quota: gpus" in each.get("message", "") for each in events)

        await site.until(refused, "the fourth is refused")
        assert len(await site.all(PODS, NAMESPACE)) == 3
    finally:
        await site.client.delete(QUOTAS, NAMESPACE, "gpus")
