"""Admissions are written by few writers, and nothing is decided far ahead of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reprieve.kube.writes import Priority
from reprieve.planes.quota.deciding import decisions
from reprieve.planes.quota.workload_status import admissions
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from tests.quota_plane.site import job, site
from tests.quota_plane.test_jobs import base

JOBS = 12


async def test_no_more_is_decided_while_admissions_wait_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, real = asyncio.Event(), WorkloadStatuses.change

    async def held_up(self: WorkloadStatuses, key: str, uid: str, change: Any, *rest: Any) -> Any:
        if rest == (Priority.INTENT,):
            await held.wait()
        return await real(self, key, uid, change, *rest)

    monkeypatch.setattr(WorkloadStatuses, "change", held_up)
    monkeypatch.setattr(admissions, "_WRITERS", 1)
    monkeypatch.setattr(admissions, "_LONG", 1)
    monkeypatch.setattr(decisions, "_MOST_ADMITTED", 1)
    names = [f"job-{number}" for number in range(JOBS)]
    async with site(tmp_path, *base(JOBS)) as cluster:
        await cluster.create(*(job(name, pods=1) for name in names))
        plane = cluster.plane
        assert plane is not None

        async def all_known() -> bool:
            decided = len(plane.state.deciding)
            return decided + len(list(plane.state.queues.pending())) == JOBS and decided > 0

        async def full() -> bool:
            plane.decisions.loop.ask()
            return len(plane.state.deciding) == 3

        await cluster.until("all are known and some decided", all_known)
        # One is being written, two wait: the second of these was one too many.
        await cluster.until("more wait than may", full)
        for _ in range(20):
            plane.decisions.loop.ask()
            await asyncio.sleep(0.01)
        assert len(plane.state.deciding) == 3
        assert await cluster.admitted() == set()
        held.set()
        await cluster.until_admitted(*names)
        assert plane.state.deciding == set()
