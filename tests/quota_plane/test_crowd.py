"""A thousand Jobs on a server that answers badly: none is lost, and no quota stays held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.quota_plane.crowd import QUEUES, QUOTA, crowd

FAULTS: dict[str, Any] = {"conflict": 0.05, "too_many": 0.05, "error": 0.05, "drop_watch": 0.01}
JOBS = 1_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_of_a_thousand_jobs_none_is_lost(seed: int, tmp_path: Path) -> None:
    async with crowd(tmp_path, seed) as jobs:
        faults = jobs.cluster.embedded.cluster.faults
        faults.configure(seed=seed, user="reprieve", **FAULTS)
        await jobs.submit(JOBS)
        await jobs.until_over()
        found = await jobs.cluster.workloads()
        # Who was not deleted has finished, with its Workload there to say so.
        assert jobs.submitted - jobs.deleted <= found.keys()
        assert jobs.excess == []
        assert jobs.most > QUOTA * len(QUEUES) * 3 // 4, "the quota was never in use"
        assert sum(jobs.evictions.values()) >= JOBS // 20
        assert len(jobs.deleted) >= JOBS // 20
        assert min(faults.counts[kind] for kind in FAULTS) >= JOBS // 10, faults.counts
        plane = jobs.cluster.plane
        assert plane is not None
        assert plane.state.holdings.holders == {}
        assert list(plane.state.queues.pending()) == []
