"""Idle work whose owner keeps it from ending holds no demand up: others are evicted instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprieve.scenarios.model import NodeSpec
from tests.idle.site import Object, Site, container, job, open_site, pod
from tests.kube.failing_writes import POLICY, WEBHOOK, FailingWrites

_NODES = [NodeSpec("gpu-0", {"amd.com/gpu": "8"})]
_PATIENCE_S = 1_200.0


def _with_finalizer(root: Object) -> Object:
    root["metadata"]["finalizers"] = ["example.com/keep"]
    return root


def _with_grace(seconds: int) -> Callable[[Object], Object]:
    def change(root: Object) -> Object:
        spec = root["spec"].get("template", root)["spec"]
        spec["terminationGracePeriodSeconds"] = seconds
        spec["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": seconds}}}
        return root

    return change


async def _demand_beside(site: Site, kept: Object, beside: Object) -> None:
    """Create two idle roots, the one that is to be chosen first, and a demand for one of them."""
    for root in (kept, beside):
        await site.create(root)
        await site.until_phase(_name(root), "Idle")
    site.busy("Job/demand", 80)
    await site.create(job("demand", container(gpu=4), enabled="true"))


def _name(root: Object) -> str:
    return f"{root['kind']}/{root['metadata']['name']}"


@pytest.mark.parametrize(
    "keeps", [_with_finalizer, _with_grace(10**9)], ids=["finalizer", "grace period"]
)
@pytest.mark.parametrize("kind", ["Job", "Pod"])
async def test_who_keeps_his_idle_work_from_ending_holds_no_demand_up(
    tmp_path: Path, kind: str, keeps: Callable[[Object], Object]
) -> None:
    def root(name: str) -> Any:
        if kind == "Job":
            return job(name, container(gpu=4), enabled="true")
        return pod(name, 4, enabled="true")

    async with open_site(tmp_path, _NODES) as site:
        await site.run({"GPU_PREEMPTION_POLLING_INTERVAL": "5s"})
        await _demand_beside(site, keeps(root("kept")), root("beside"))
        await site.until_phase("Job/demand", "Active", seconds=_PATIENCE_S)
        # A pod that has ended holds nothing, whatever keeps its object.
        ends = (kind, keeps) == ("Pod", _with_finalizer)
        assert (await site.phase(f"{kind}/beside") == "Idle") == ends
        about, reason = f"GpuWorkload/{kind.lower()}-kept", "EvictionOverdue"
        if keeps is not _with_finalizer:
            reason = "EvictionRefused"
            assert await site.phase(f"{kind}/kept") == "Idle"
        assert bool(await site.events(about, reason)) != ends


_NAMES = ("kept", "beside")
_ROOT, _MARK = r"/jobs/(kept|beside)$", r"/gpuworkloads/job-(kept|beside)-\w+/status$"


def _deletes(method: str, body: Any) -> bool:
    return method == "DELETE"


def _marks(method: str, body: Any) -> bool:
    return bool((body.get("status") or {}).get("phase") == "Preempting")


@pytest.mark.parametrize(
    ("code", "before", "path", "evicts"),
    [
        (429, WEBHOOK, _ROOT, _deletes),
        (503, "", _ROOT, _deletes),
        (429, "", _MARK, _marks),
        (401, POLICY, _ROOT, _deletes),
        (413, POLICY, _MARK, _marks),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (404, WEBHOOK, _ROOT, _deletes),
                (503, WEBHOOK, _ROOT, _deletes),
                (404, "", _ROOT, _deletes),
                (0, "", _ROOT, _deletes),
                (404, WEBHOOK, _MARK, _marks),
                (503, "", _MARK, _marks),
                (403, POLICY, _ROOT, _deletes),
                (413, POLICY, _ROOT, _deletes),
                (422, POLICY, _ROOT, _deletes),
                (401, POLICY, _MARK, _marks),
                (403, POLICY, _MARK, _marks),
                (422, POLICY, _MARK, _marks),
            )
        ),
    ],
)
async def test_idle_work_whose_eviction_fails_in_whatever_way_holds_no_demand_up(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    code: int,
    before: str,
    path: str,
    evicts: Callable[[str, Any], bool],
) -> None:
    def root(name: str) -> Any:
        return job(name, container(gpu=4), enabled="true")

    async with open_site(tmp_path, _NODES) as site:
        failing = FailingWrites(monkeypatch, path, evicts, code, before)
        await site.run({"GPU_PREEMPTION_POLLING_INTERVAL": "5s"})
        await _demand_beside(site, root("kept"), root("beside"))
        await site.until_phase("Job/demand", "Active", seconds=300.0)
        assert await site.phase(f"Job/{failing.name}") == "Idle"
        assert failing.tries >= 1 and await site.get("jobs.batch", failing.name)


@pytest.mark.parametrize(("code", "before"), [(500, ""), (429, WEBHOOK)])
async def test_three_failed_marks_keep_no_idle_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, before: str
) -> None:
    async with open_site(tmp_path, _NODES) as site:
        failing = FailingWrites(monkeypatch, _MARK, _marks, code, before, most=3)
        await site.run({"GPU_PREEMPTION_POLLING_INTERVAL": "5s"})
        for name in _NAMES:
            await site.create(job(name, container(gpu=4), enabled="true"))
            await site.until_phase(f"Job/{name}", "Idle")
        site.busy("Job/demand", 80)
        await site.create(job("demand", container(gpu=8), enabled="true"))
        await site.until_phase("Job/demand", "Active", seconds=60.0)
        (record,) = await site.records()
        assert failing.tries == 3 and record["spec"]["victims"][1:]


async def test_a_server_that_answers_so_to_everybody_makes_no_idle_work_immune(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with open_site(tmp_path, _NODES) as site:
        failing = FailingWrites(monkeypatch, _ROOT, _deletes, 503)
        polls = {"GPU_PREEMPTION_POLLING_INTERVAL": "5s"}
        await site.run(polls, "--lease-duration", "10m")
        await _demand_beside(site, *(job(n, container(gpu=4), enabled="true") for n in _NAMES))
        await site.until(lambda: failing.tries)
        failing.everybody = True
        await asyncio.sleep(180)
        failing.end()
        await site.until_phase("Job/demand", "Active", seconds=120.0)
        assert failing.tries > 20
        for name in _NAMES:
            assert not await site.events(f"GpuWorkload/job-{name}", "PreemptionFailed")
        phases = {await site.phase(f"Job/{name}") for name in _NAMES}
        assert "Idle" in phases and len(phases) == 2


async def test_where_nobody_else_is_idle_who_takes_too_long_to_end_is_evicted(
    tmp_path: Path,
) -> None:
    kept = _with_grace(7_200)(job("kept", container(gpu=8), enabled="true"))
    async with open_site(tmp_path, _NODES) as site:
        await site.run({"GPU_PREEMPTION_POLLING_INTERVAL": "5s"})
        await site.create(kept)
        await site.until_phase("Job/kept", "Idle")
        await site.create(job("demand", container(gpu=4), enabled="true"))
        await site.until_phase("Job/kept", "Preempted", seconds=_PATIENCE_S)
        phases = [record["status"]["phase"] for record in await site.records()]
        assert phases[-1] == "Evicting", phases
