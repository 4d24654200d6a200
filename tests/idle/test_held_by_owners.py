"""Idle work whose owner keeps it from ending holds no demand up: others are evicted instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprieve.scenarios.model import NodeSpec
from tests.idle.site import Object, Site, container, job, open_site, pod

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
